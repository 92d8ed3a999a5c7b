//! Tests of snapshot files.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};
use warpsmith_runtime::Result;
use warpsmith_runtime::snapshot::{
    AllocatorSettings, Block, BlockState, Frame, Segment, SegmentType, Snapshot, TraceAction, TraceEntry,
};

const BASE: u64 = 0x7f12_0000_0000;

fn frames() -> Vec<Frame> {
    vec![
        Frame { filename: "src/model.rs".into(), line: 12, name: "model::step".into() },
        Frame { filename: "src/main.rs".into(), line: 3, name: "größe::main".into() },
    ]
}

fn block(offset: u64, size: u64, state: BlockState) -> Block {
    let requested_size = if state == BlockState::Inactive { 0 } else { size - 12 };
    Block { address: BASE + offset, size, requested_size, state, frames: frames() }
}

fn entry(action: TraceAction, addr: u64, size: u64, time_us: i64) -> TraceEntry {
    TraceEntry { action, addr, size, stream: 7, time_us, frames: frames(), pool_id: (0, 1) }
}

fn sample() -> Snapshot {
    let mut settings = AllocatorSettings { garbage_collection_threshold: 0.75, ..Default::default() };
    settings.roundup_power2_divisions.insert("256".into(), 4);
    Snapshot {
        segments: vec![Segment {
            device: 1,
            address: BASE,
            total_size: 2 << 20,
            allocated_size: 1024,
            active_size: 1536,
            requested_size: 1512,
            stream: 0x5555_1234_5678,
            segment_type: SegmentType::Small,
            segment_pool_id: (0, 3),
            is_expandable: true,
            frames: frames(),
            blocks: vec![
                block(0, 1024, BlockState::ActiveAllocated),
                block(1024, 512, BlockState::ActivePendingFree),
                block(1536, (2 << 20) - 1536, BlockState::Inactive),
            ],
        }],
        device_traces: vec![
            Vec::new(),
            vec![
                entry(TraceAction::SegmentAlloc, BASE, 2 << 20, 1_700_000_000_000_000),
                entry(TraceAction::Alloc, BASE, 1024, 1_700_000_000_000_001),
                entry(TraceAction::Oom, 4096, 1 << 40, 1_700_000_000_000_002),
            ],
        ],
        allocator_settings: settings,
    }
}

/// Returns the content of the file that `write` writes.
fn file(name: &str, write: impl FnOnce(&Path) -> Result<()>) -> Vec<u8> {
    let path = std::env::temp_dir().join(format!("warpsmith-{name}-{}", std::process::id()));
    std::fs::write(&path, [b'x'; 100_000]).unwrap();
    write(&path).unwrap();
    let content = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    content
}

fn pickle(name: &str, snapshot: &Snapshot) -> Vec<u8> {
    file(name, |path| snapshot.write_pickle(path))
}

fn json(snapshot: &Snapshot) -> Value {
    serde_json::from_str(&snapshot.to_json()).unwrap()
}

/// Returns the value in a pickle. It may contain only what viewers support: PyTorch's JavaScript viewer supports only
/// these opcodes, and cannot create a plain number from more than eight bytes.
fn unpickled(pickle: &[u8]) -> Value {
    let (mut stack, mut marks, mut memo) = (Vec::<Value>::new(), Vec::new(), HashMap::new());
    let mut rest = pickle.strip_prefix(&[0x80, 2]).unwrap();
    let take = |rest: &mut &[u8], count: usize| rest.split_off(..count).unwrap().to_vec();
    let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
    loop {
        let opcode = take(&mut rest, 1)[0];
        match opcode {
            b'}' => stack.push(json!({})),
            b']' => stack.push(json!([])),
            b'(' => marks.push(stack.len()),
            b'e' => {
                let items = stack.split_off(marks.pop().unwrap());
                stack.last_mut().unwrap().as_array_mut().unwrap().extend(items);
            }
            b'u' => {
                let items = stack.split_off(marks.pop().unwrap());
                let entries =
                    items.chunks(2).map(|item| (item[0].as_str().unwrap().to_owned(), item[1].clone()));
                stack.last_mut().unwrap().as_object_mut().unwrap().extend(entries);
            }
            0x86 => {
                let pair = stack.split_off(stack.len() - 2);
                stack.push(json!({ "tuple": pair }));
            }
            0x88 | 0x89 => stack.push((opcode == 0x88).into()),
            b'K' => stack.push(take(&mut rest, 1)[0].into()),
            b'J' => stack.push((number(&take(&mut rest, 4)) as i32).into()),
            b'G' => stack.push(f64::from_bits(number(&take(&mut rest, 8)).swap_bytes()).into()),
            0x8a => {
                let length = take(&mut rest, 1)[0];
                assert!(length <= 8, "a number of {length} bytes");
                stack.push((number(&take(&mut rest, length.into())) as i64).into());
            }
            b'X' => {
                let length = number(&take(&mut rest, 4));
                stack.push(String::from_utf8(take(&mut rest, length as usize)).unwrap().into());
            }
            b'q' | b'r' => {
                let key = number(&take(&mut rest, if opcode == b'q' { 1 } else { 4 }));
                memo.insert(key, stack.last().unwrap().clone());
            }
            b'h' | b'j' => {
                stack.push(memo[&number(&take(&mut rest, if opcode == b'h' { 1 } else { 4 }))].clone())
            }
            b'.' => break,
            other => panic!("opcode {other:#x}"),
        }
    }
    assert!(rest.is_empty() && marks.is_empty() && stack.len() == 1);
    stack.remove(0)
}

/// Returns the value that the pickle of a snapshot must contain.
fn expected(snapshot: &Snapshot) -> Value {
    let mut value = json(snapshot);
    for key in ["external_annotations", "host_segments", "host_traces"] {
        value[key] = json!([]);
    }
    for segment in value["segments"].as_array_mut().unwrap() {
        segment["segment_pool_id"] = json!({ "tuple": segment["segment_pool_id"] });
    }
    for entry in value["device_traces"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .flat_map(|trace| trace.as_array_mut().unwrap())
    {
        entry["pool_id"] = json!({ "tuple": entry["pool_id"] });
    }
    value
}

#[test]
fn files_have_the_content_of_the_snapshot() {
    let snapshot = sample();
    assert_eq!(unpickled(&pickle("sample", &snapshot)), expected(&snapshot));
    assert_eq!(file("json", |path| snapshot.write_json(path)), snapshot.to_json().into_bytes());
    let error = snapshot.write_json("/no/such/folder/file").unwrap_err().to_string();
    assert!(error.contains("/no/such/folder/file cannot be written: "), "{error}");
}

#[test]
fn json_has_the_keys_of_pytorch() {
    let json = json(&sample());
    let keys =
        |value: &Value| value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ");
    assert_eq!(keys(&json), "allocator_settings device_traces segments");
    let segment = &json["segments"][0];
    assert_eq!(
        keys(segment),
        "active_size address allocated_size blocks device frames is_expandable requested_size \
         segment_pool_id segment_type stream total_size"
    );
    assert_eq!(segment["segment_type"], "small");
    assert_eq!(segment["segment_pool_id"], serde_json::json!([0, 3]));
    assert_eq!(keys(&segment["blocks"][0]), "address frames requested_size size state");
    let states: Vec<_> = (0..3).map(|i| segment["blocks"][i]["state"].as_str().unwrap()).collect();
    assert_eq!(states, ["active_allocated", "active_pending_free", "inactive"]);
    assert_eq!(keys(&segment["frames"][0]), "filename line name");
    let trace = &json["device_traces"][1];
    assert_eq!(keys(&trace[0]), "action addr frames pool_id size stream time_us");
    assert_eq!(trace[0]["action"], "segment_alloc");
    assert_eq!(keys(&trace[2]), "action device_free frames pool_id size stream time_us");
    assert_eq!(
        keys(&json["allocator_settings"]),
        "PYTORCH_CUDA_ALLOC_CONF expandable_segments garbage_collection_threshold max_cached_size \
         max_round_threshold max_split_size roundup_power2_divisions"
    );
}

#[test]
fn a_stack_that_occurs_often_is_written_once() {
    let mut snapshot = sample();
    let once = pickle("once", &snapshot);
    snapshot.device_traces[0] = vec![entry(TraceAction::Alloc, BASE, 512, 0); 10_000];
    let often = pickle("often", &snapshot);
    assert!(often.len() - once.len() < 10_000 * 64, "{} bytes", often.len());
    let needle = b"src/model.rs";
    assert_eq!(often.windows(needle.len()).filter(|window| window == needle).count(), 1);
    assert_eq!(unpickled(&often), expected(&snapshot));
}

#[test]
fn numbers_of_every_size_are_written() {
    let mut snapshot = sample();
    let numbers = (0..64).flat_map(|shift| [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift]);
    snapshot.device_traces[1] = numbers
        .filter(|number| *number <= i64::MAX as u64)
        .map(|number| entry(TraceAction::Alloc, number, 1, (number as i64).wrapping_neg()))
        .collect();
    assert_eq!(unpickled(&pickle("numbers", &snapshot)), expected(&snapshot));
}

#[test]
fn every_device_with_segments_is_written_with_a_history() {
    let mut snapshot = sample();
    snapshot.device_traces.clear();
    assert_eq!(json(&snapshot)["device_traces"], json!([[], []]));
    assert_eq!(unpickled(&pickle("histories", &snapshot))["device_traces"], json!([[], []]));
}

#[test]
fn totals_are_sums_over_the_segments() {
    let mut snapshot = sample();
    snapshot.segments.push(Segment {
        total_size: 100,
        allocated_size: 7,
        active_size: 8,
        ..Default::default()
    });
    let totals = (snapshot.reserved(), snapshot.allocated(), snapshot.active(), snapshot.requested());
    assert_eq!(totals, ((2 << 20) + 100, 1031, 1544, 1512));
}
