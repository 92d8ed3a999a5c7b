//! Tests that written snapshots can be read back, and that hostile files do no harm.

use std::path::PathBuf;

use warpsmith_runtime::snapshot::{
    AllocatorSettings, Block, BlockState, Frame, Segment, SegmentType, Snapshot, TraceAction, TraceEntry,
};

/// Snapshot pickled by Python 3, with shared frames and with keys that are unknown to this version.
const FROM_PYTHON: &str = "\
    800495c1030000000000007d94288c087365676d656e7473945d947d94288c06646576696365944b008c0761646472657373\
    948a0600000000127f8c0a746f74616c5f73697a65944a000020008c0e616c6c6f63617465645f73697a65944d00048c0b61\
    63746976655f73697a65944d00068c0e7265717565737465645f73697a65944de8038c0673747265616d944b008c0c736567\
    6d656e745f74797065948c05736d616c6c948c0f7365676d656e745f706f6f6c5f6964944b004b0086948c0d69735f657870\
    616e6461626c6594898c14726567697374726174696f6e5f636f756e746572944affffffff8c066672616d6573945d94287d\
    94288c0866696c656e616d65948c023f3f948c046c696e65944b008c046e616d65948c05616c6c6f6394757d942868148c11\
    2f686f6d652f6d652f747261696e2e70799468164b0c68178c04737465709475658c06626c6f636b73945d94287d94286805\
    8a0600000000127f8c0473697a65944d000468094de8038c057374617465948c106163746976655f616c6c6f636174656494\
    68116812757d942868058a0600040000127f681f4d000268094df40168208c136163746976655f70656e64696e675f667265\
    659468116812757d942868058a0600060000127f681f4a00fa1f0068094b0068208c08696e6163746976659468115d947565\
    75618c0d6465766963655f747261636573945d945d94287d94288c06616374696f6e948c0d7365676d656e745f616c6c6f63\
    948c0461646472948a0600000000127f681f4a00002000680a4b008c0774696d655f7573948a0700401e18240a068c0f636f\
    6d70696c655f636f6e74657874948c034e2f41948c0d757365725f6d65746164617461948c00948c07706f6f6c5f69649468\
    0e68116812757d9428682b8c036f6f6d948c0b6465766963655f66726565944d0010681f8a06000000000001680a4b00682e\
    8a0701401e18240a06682f68306831683268334b014b008694681168127565618c12616c6c6f6361746f725f73657474696e\
    6773947d94288c175059544f5243485f435544415f414c4c4f435f434f4e46948c18657870616e6461626c655f7365676d65\
    6e74733a54727565948c0e6d61785f73706c69745f73697a65944affffffff8c18726f756e6475705f706f776572325f6469\
    766973696f6e73947d94288c0131944b008c0132944b0475758c1465787465726e616c5f616e6e6f746174696f6e73945d94\
    7d942868044affffffff682e4b056817681b8c057374616765948c0553544152549475618c0d686f73745f7365676d656e74\
    73945d948c0b686f73745f747261636573945d94752e\
";

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

/// A file that is removed when the test ends.
struct TemporaryFile(PathBuf);

impl TemporaryFile {
    fn new(content: &[u8]) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name =
            format!("warpsmith-snapshot-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        std::fs::write(&path, content).unwrap();
        Self(path)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).unwrap()
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // A leftover in the directory for temporary files does no harm.
        let _ = std::fs::remove_file(&self.0);
    }
}

fn read(content: &[u8]) -> std::result::Result<Snapshot, String> {
    Snapshot::read(&TemporaryFile::new(content).0).map_err(|error| error.to_string())
}

fn pickle(snapshot: &Snapshot) -> Vec<u8> {
    let file = TemporaryFile::new(b"");
    snapshot.write_pickle(&file.0).unwrap();
    file.bytes()
}

fn from_python() -> Vec<u8> {
    let digits = FROM_PYTHON.trim().as_bytes();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

#[test]
fn what_is_written_reads_back_equal() {
    let snapshot = sample();
    assert_eq!(read(&pickle(&snapshot)).unwrap(), snapshot);
    assert_eq!(read(snapshot.to_json().as_bytes()).unwrap(), snapshot);
    let file = TemporaryFile::new(b"something longer than nothing, to be replaced");
    snapshot.write_json(&file.0).unwrap();
    assert_eq!(Snapshot::read(&file.0).unwrap(), snapshot);
    assert_eq!(file.bytes(), snapshot.to_json().into_bytes());
}

#[test]
fn names_are_those_in_files() {
    use TraceAction::*;
    let actions = [
        (Alloc, "alloc"),
        (FreeRequested, "free_requested"),
        (FreeCompleted, "free_completed"),
        (SegmentAlloc, "segment_alloc"),
        (SegmentFree, "segment_free"),
        (SegmentMap, "segment_map"),
        (SegmentUnmap, "segment_unmap"),
        (Snapshot, "snapshot"),
        (Oom, "oom"),
        (Annotate, "annotate"),
    ];
    for (action, name) in actions {
        assert_eq!((action.name(), serde_json::to_value(action).unwrap()), (name, name.into()));
    }
}

#[test]
fn json_has_the_keys_of_pytorch() {
    let json: serde_json::Value = serde_json::from_str(&sample().to_json()).unwrap();
    let keys = |value: &serde_json::Value| {
        value.as_object().unwrap().keys().map(String::as_str).collect::<Vec<_>>().join(" ")
    };
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

/// The JavaScript viewer supports only some of the opcodes, and cannot create a plain number from more than eight
/// bytes.
#[test]
fn a_pickle_uses_only_what_viewers_know() {
    let bytes = pickle(&sample());
    assert_eq!(bytes[..2], [0x80, 2]);
    let mut at = 2;
    let mut tuples = 0;
    loop {
        let argument = match bytes[at] {
            b'}' | b']' | b'(' | b'e' | b'u' | 0x88 | 0x89 => 0,
            0x86 => {
                tuples += 1;
                0
            }
            b'K' | b'q' | b'h' => 1,
            b'J' | b'r' | b'j' => 4,
            b'G' => 8,
            0x8a => {
                assert!(bytes[at + 1] <= 8, "a number of {} bytes at {at}", bytes[at + 1]);
                1 + bytes[at + 1] as usize
            }
            b'X' => 4 + u32::from_le_bytes(bytes[at + 1..at + 5].try_into().unwrap()) as usize,
            b'.' => break,
            other => panic!("opcode {other:#x} at {at}"),
        };
        at += 1 + argument;
    }
    assert_eq!(at + 1, bytes.len());
    assert_eq!(tuples, 4, "one pool for the segment and for each of three entries");
}

#[test]
fn a_pickle_from_python_is_read() {
    let snapshot = read(&from_python()).unwrap();
    let segment = &snapshot.segments[0];
    assert_eq!((segment.address, segment.total_size, segment.stream), (BASE, 2 << 20, 0));
    assert_eq!(segment.blocks.len(), 3);
    assert_eq!(segment.blocks[1].state, BlockState::ActivePendingFree);
    assert_eq!(segment.blocks[1].frames, segment.frames);
    assert_eq!(
        segment.frames[1],
        Frame { filename: "/home/me/train.py".into(), line: 12, name: "step".into() }
    );
    let oom = &snapshot.device_traces[0][1];
    assert_eq!((oom.action, oom.addr, oom.size, oom.pool_id), (TraceAction::Oom, 4096, 1 << 40, (1, 0)));
    assert_eq!(snapshot.allocator_settings.alloc_conf, "expandable_segments:True");
    assert_eq!(snapshot.allocator_settings.max_split_size, -1);
    assert_eq!(snapshot.allocator_settings.roundup_power2_divisions["2"], 4);
}

/// Returns the pickle of `{"segments": […]}` around code that builds a list.
fn pickled_segments(list: &[u8]) -> Vec<u8> {
    [b"\x80\x04}\x8c\x08segments", list, b"s."].concat()
}

/// Other keys that a segment requires.
const SIZES: &[u8] = b"\x8c\x07addressK\x00s\x8c\x0eallocated_sizeK\x00s\x8c\x0bactive_sizeK\x00s";

#[test]
fn every_opcode_of_plain_data_is_understood() {
    let block = |extra: &[u8]| {
        let state = b"\x8c\x05state\x8c\x08inactive\x8c\x07addressJ\x00\x10\x00\x00".as_slice();
        [b"(\x8c\x04size\x4d\x00\x02".as_slice(), state, extra, b"d"].concat()
    };
    let blocks = [
        [b"]".as_slice(), &block(b"X\x07\x00\x00\x00unknownJ\x00\x10\x00\x00"), b"a"].concat(),
        [b"(".as_slice(), &block(b""), b"2l"].concat(),
        [block(b""), b"\x85".to_vec()].concat(),
        [block(b""), b"N0q\x05h\x05\x86".to_vec()].concat(),
        [block(b""), b"r\x00\x01\x00\x00j\x00\x01\x00\x00(N1j\x00\x01\x00\x00\x87".to_vec()].concat(),
    ];
    for (blocks, count) in blocks.iter().zip([1, 2, 1, 2, 3]) {
        let size = b"\x8d\x0a\0\0\0\0\0\0\0total_size\x8b\x09\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\0s";
        let segment = [b"]}".as_slice(), size, SIZES, b"\x8c\x06blocks", blocks, b"sa"].concat();
        let snapshot = read(&pickled_segments(&segment)).unwrap();
        assert_eq!(snapshot.segments[0].blocks.len(), count);
        assert_eq!(snapshot.segments[0].blocks[0].size, 512);
        assert_eq!(snapshot.reserved(), u64::MAX);
    }
}

#[test]
fn depth_cycles_and_claimed_lengths_do_no_harm() {
    let deep = [b"\x80\x04".as_slice(), &b"]".repeat(1_000_000), &b"a".repeat(999_999), b"."].concat();
    let cycle = b"\x80\x04]\x94h\x00a.";
    let cyclic_history = b"\x80\x04}\x8c\x08segments]s\x8c\x0ddevice_traces]\x94h\x00as.";
    let cyclic_unknown = b"\x80\x04}\x94\x8c\x07unknownh\x00s\x8c\x08segments]s.";
    for (content, words) in [
        (&deep[..], "invalid type: sequence"),
        (cycle, "invalid type: sequence"),
        (cyclic_history, "invalid type: sequence"),
        (b"\x80\x04\x8d\xff\xff\xff\xff\xff\xff\xff\xff.", "truncated"),
        (b"\x80\x04\x8b\xff\xff\xff\xff.", "truncated"),
        (b"\x80\x04(0t.", "byte 3"),
        (b"\x80\x04j\x00\x00\x00\x00.", "byte 2"),
    ] {
        let message = read(content).unwrap_err();
        assert!(message.contains(words), "{message}");
    }
    assert_eq!(read(cyclic_unknown).unwrap(), Snapshot::default());
}

#[test]
fn a_stack_that_occurs_often_is_written_once() {
    let mut snapshot = sample();
    let once = pickle(&snapshot);
    snapshot.device_traces[0] = vec![entry(TraceAction::Alloc, BASE, 512, 0); 10_000];
    let often = pickle(&snapshot);
    assert!(often.len() - once.len() < 10_000 * 64, "{} bytes", often.len());
    let needle = b"src/model.rs";
    assert_eq!(often.windows(needle.len()).filter(|window| window == needle).count(), 1);
    assert_eq!(read(&often).unwrap(), snapshot);
}

#[test]
fn numbers_of_every_size_read_back_equal() {
    let mut snapshot = sample();
    for shift in 0..64 {
        for number in [1u64 << shift, (1 << shift) - 1, u64::MAX >> shift] {
            snapshot.segments[0].address = number;
            snapshot.device_traces[1][0].time_us = (number as i64).wrapping_neg();
            assert_eq!(read(&pickle(&snapshot)).unwrap(), snapshot, "{number}");
        }
    }
}

#[test]
fn missing_keys_have_defaults_and_unknown_ones_are_ignored() {
    let old = r#" {"segments": [{"address": 4096, "total_size": 3072, "allocated_size": 0, "active_size": 512,
        "new_key": {"a": [1]}, "blocks": [{"address": 4096, "size": 512, "state": "active_awaiting_free"}]}],
        "device_traces": [[{"action": "something_new", "addr": 4096, "size": 1}]]}"#;
    let snapshot = read(old.as_bytes()).unwrap();
    let segment = &snapshot.segments[0];
    assert_eq!((segment.segment_type, segment.segment_pool_id), (SegmentType::Large, (0, 0)));
    assert_eq!(segment.blocks[0].state, BlockState::ActivePendingFree);
    assert_eq!(snapshot.device_traces[0][0].action, TraceAction::Other);
    assert_eq!(snapshot.allocator_settings, AllocatorSettings::default());
}

#[test]
fn every_device_with_segments_is_written_with_a_history() {
    let mut snapshot = sample();
    snapshot.device_traces.clear();
    assert_eq!(read(&pickle(&snapshot)).unwrap().device_traces, [vec![], vec![]]);
    assert_eq!(read(snapshot.to_json().as_bytes()).unwrap().device_traces, [vec![], vec![]]);
    snapshot.segments[0].device = u32::MAX;
    assert!(read(&pickle(&snapshot)).unwrap().device_traces.is_empty());
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
    snapshot.segments.push(Segment { total_size: u64::MAX, ..Default::default() });
    assert_eq!(snapshot.reserved(), u64::MAX);
}

#[test]
fn a_file_that_is_cut_off_says_so() {
    for whole in [pickle(&sample()), sample().to_json().into_bytes(), from_python()] {
        for length in 1..whole.len() {
            let message = read(&whole[..length]).unwrap_err();
            assert!(message.contains(&format!("is truncated after {length} bytes")), "{length}: {message}");
        }
    }
    assert!(read(b"").unwrap_err().contains("is empty"));
    assert!(read(b" \n").unwrap_err().contains("is empty"));
}

#[test]
fn what_is_no_snapshot_is_refused_in_one_line() {
    let python_list_of_numbers = b"\x80\x04]\x94(K\x01K\x02e.";
    let names_a_function = b"\x80\x02cposix\nsystem\nX\x04\x00\x00\x00exit\x85R.";
    for (content, words) in [
        (&b"hello"[..], "is neither a pickle nor JSON"),
        (b"\x00\x01", "is neither a pickle nor JSON"),
        (b"{}", "missing field `segments`"),
        (br#"{"segments": 3}"#, "expected a sequence"),
        (br#"{"segments": [{"total_size": -1}]}"#, "expected u64"),
        (br#"{"segments": []} trailing"#, "trailing characters"),
        (br#"{"segments": [1]}"#, "expected a segment"),
        (python_list_of_numbers, "expected a segment"),
        (names_a_function, "is a pickle, but not a snapshot"),
        (b"\x80\x04K\x01.", "expected a snapshot"),
        (b"\x80\x04\xff.", "byte 2 is not an opcode of plain data"),
    ] {
        let message = read(content).unwrap_err();
        assert!(message.contains(words), "{message}");
        assert!(!message.contains('\n') && message.len() < 400, "{message}");
    }
    let missing = Snapshot::read("/no/such/file").unwrap_err().to_string();
    assert!(missing.contains("/no/such/file does not exist"), "{missing}");
    let folder = Snapshot::read(std::env::temp_dir()).unwrap_err().to_string();
    assert!(folder.contains("cannot be read"), "{folder}");
    let nowhere = sample().write_json("/no/such/folder/file").unwrap_err().to_string();
    assert!(nowhere.contains("cannot be written"), "{nowhere}");
}

#[test]
fn damaged_files_never_panic() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut refused = 0;
    for whole in [pickle(&sample()), sample().to_json().into_bytes(), from_python()] {
        for _ in 0..3000 {
            let mut bytes = whole.clone();
            for _ in 0..random.usize(1..5) {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            match Snapshot::from_bytes(&bytes) {
                Ok(snapshot) => drop((snapshot.reserved(), snapshot.to_json())),
                Err(error) => {
                    refused += 1;
                    assert!(!error.to_string().contains('\n'), "{error}");
                }
            }
        }
    }
    assert!(refused > 1000, "only {refused} of 9000 were refused");
}

/// Returns text as part of a pickle.
fn text(text: &str) -> Vec<u8> {
    [b"X", &(text.len() as u32).to_le_bytes()[..], text.as_bytes()].concat()
}

/// Returns a list that contains one item `times` times.
fn repeated(item: &[u8], memo: u8, times: usize) -> Vec<u8> {
    [b"](", item, &[0x94], &[b'h', memo].repeat(times - 1), b"e\x94"].concat()
}

/// Returns a snapshot of `times`³ identical frames.
fn bomb(times: usize) -> Vec<u8> {
    let frame = [&b"}"[..], &text("filename"), &text("f"), b"s", &text("line"), b"K\x01s", &text("name")];
    let frames = repeated(&[&frame.concat()[..], &text("n"), b"s"].concat(), 0, times);
    let block = [
        &b"}"[..],
        &text("address"),
        b"K\x00s",
        &text("size"),
        b"K\x01s",
        &text("state"),
        &text("inactive"),
        b"s",
        &text("frames"),
    ];
    let blocks = repeated(&[&block.concat()[..], &frames, b"s"].concat(), 2, times);
    let segment = [&b"}"[..], SIZES, &text("total_size"), b"K\x01s", &text("blocks"), &blocks, b"s"].concat();
    [&b"\x80\x04}"[..], &text("segments"), &repeated(&segment, 4, times), b"s."].concat()
}

#[test]
fn shared_values_unfold_to_a_limit() {
    assert_eq!(read(&bomb(4)).unwrap().segments[3].blocks[3].frames.len(), 4);
    let content = bomb(1000);
    assert!(content.len() < 7000);
    let error = read(&content).unwrap_err();
    assert!(error.contains("shared values expand to more than 16 MiB"), "{error}");
    // A long shared text counts every time it is used.
    let long = text(&"x".repeat(64 << 10));
    let keys = [text("segments"), text("device_traces"), text("frames")];
    let frame = |name: &[u8]| {
        [b"}", &text("filename")[..], name, b"s\x8c\x04lineK\x01s\x8c\x04name\x8c\x00s"].concat()
    };
    let frames =
        [b"](", &frame(&[&long[..], b"\x94"].concat())[..], &frame(b"h\x00").repeat(800), b"e"].concat();
    let entry = [b"}\x8c\x06action\x8c\x05allocs", &keys[2][..], &frames, b"s"].concat();
    let content = [b"\x80\x04}", &keys[0][..], b"]s", &keys[1], b"]]", &entry, b"aas."].concat();
    let error = read(&content).unwrap_err();
    assert!(error.contains("shared values expand to more than"), "{error}");
}

#[test]
fn a_file_over_the_limit_is_refused() {
    let file = TemporaryFile::new(b"{");
    std::fs::OpenOptions::new().write(true).open(&file.0).unwrap().set_len((2 << 30) + 1).unwrap();
    let error = Snapshot::read(&file.0).unwrap_err().to_string();
    assert!(error.contains("larger than 2 GiB"), "{error}");
}
