//! Tests of snapshots in the formats of other versions of PyTorch, of Python and of its viewer.

use std::io::Write;

use warpsmith_runtime::snapshot::{AllocatorSettings, BlockState, SegmentType, Snapshot, TraceAction};

fn read(text: &str) -> Snapshot {
    Snapshot::from_bytes(text.as_bytes()).unwrap_or_else(|error| panic!("{error}: {text}"))
}

const BASE: u64 = 0x7f00_0020_0000;

/// Returns a segment of 4096 bytes with these blocks and additional keys.
fn segment(more: &str, blocks: &str) -> String {
    format!(r#"{{"device":0,"address":{BASE},"total_size":4096,"stream":0{more},"blocks":[{blocks}]}}"#)
}

/// Format of `torch.cuda.memory_snapshot()` in 1.12: a list in which blocks contain neither addresses nor requests.
#[test]
fn a_list_of_segments_is_a_snapshot() {
    let sums = r#","allocated_size":1024,"active_size":1536,"segment_type":"small""#;
    let blocks = r#"{"size":1024,"state":"active_allocated"},{"size":512,"state":"active_pending_free"},{"size":2560,"state":"inactive"}"#;
    let list = format!("\u{feff} [{}]", segment(sums, blocks));
    let snapshot = read(&list);
    let segment = &snapshot.segments[0];
    assert_eq!((snapshot.reserved(), snapshot.allocated(), snapshot.active()), (4096, 1024, 1536));
    assert_eq!(segment.segment_type, SegmentType::Small);
    let blocks: Vec<_> =
        segment.blocks.iter().map(|block| (block.address - BASE, block.requested_size)).collect();
    assert_eq!(blocks, [(0, 1024), (1024, 512), (1536, 0)]);
    assert_eq!((segment.requested_size, snapshot.device_traces.len()), (1536, 0));
    assert_eq!(snapshot.allocator_settings, AllocatorSettings::default());
    assert_eq!(read("[]"), Snapshot::default());
}

/// Format of 1.13 and 2.0, in which the requests of a block are its history, with the last one first.
#[test]
fn the_history_of_a_block_is_its_request() {
    let history = r#""history":[{"addr":1,"real_size":1000,"frames":[{"filename":"new.py","line":2,"name":"g"}],"cpp_frames":[]},{"addr":1,"real_size":7,"frames":[]}]"#;
    let blocks = format!(
        r#"{{"size":1024,"state":"active_allocated",{history}}},{{"size":1024,"state":"inactive",{history}}},
           {{"size":512,"state":"active_allocated","history":[]}},{{"size":1536,"state":"active_awaiting_free","history":[{{"real_size":1530}}]}}"#
    );
    let text = format!(
        r#"{{"segments":[{}],"device_traces":[[{{"action":"segment_alloc","addr":{BASE},"size":4096,"stream":0}},{{"action":"oom","device_free":77,"size":5,"stream":0,"frames":[]}}]]}}"#,
        segment(r#","allocated_size":1536,"active_size":3072"#, &blocks)
    );
    let snapshot = read(&text);
    let blocks = &snapshot.segments[0].blocks;
    let requested: Vec<_> = blocks.iter().map(|block| block.requested_size).collect();
    assert_eq!(requested, [1000, 0, 512, 1530]);
    assert_eq!((blocks[0].frames[0].filename.as_str(), blocks[2].frames.len()), ("new.py", 0));
    assert_eq!(blocks[3].state, BlockState::ActivePendingFree);
    let entries = &snapshot.device_traces[0];
    assert_eq!(
        (entries[0].action, entries[1].action, entries[1].addr),
        (TraceAction::SegmentAlloc, TraceAction::Oom, 77)
    );
}

/// Format of `_memory_viz.py` for a profile: it contains no sums, its blocks contain only sizes, and its free entries
/// contain no time.
#[test]
fn sums_are_those_of_the_blocks() {
    let blocks = r#"{"size":100,"state":"inactive"},{"size":50,"requested_size":50,"state":"active_allocated","frames":[]},{"size":30,"state":"active_pending_free","requested_size":29}"#;
    let text = format!(
        r#"{{"segments":[{}],"device_traces":[[],[]]}}"#,
        segment("", blocks).replace(r#""total_size":4096,"#, "")
    );
    let segment = &read(&text).segments[0];
    let sums = [segment.total_size, segment.allocated_size, segment.active_size, segment.requested_size];
    assert_eq!(sums, [180, 50, 80, 79]);
    assert_eq!(segment.blocks[2].address, BASE + 150);
}

#[test]
fn nothing_in_the_place_of_a_value_is_its_default() {
    let text = r#"{"segments":[{"device":null,"address":null,"total_size":64,"allocated_size":null,"active_size":null,"requested_size":null,
            "stream":null,"segment_type":null,"segment_pool_id":null,"is_expandable":null,"frames":null,
            "blocks":[{"address":null,"size":64,"requested_size":null,"state":"active_allocated","frames":null,"history":null}]}],
        "device_traces":[null,[{"action":"alloc","addr":null,"device_free":null,"size":null,"stream":null,"time_us":null,"frames":null,"pool_id":null}]],
        "allocator_settings":{"PYTORCH_CUDA_ALLOC_CONF":null,"max_split_size":null,"garbage_collection_threshold":null,"expandable_segments":null,"roundup_power2_divisions":null,"unknown":[{}]}}"#;
    let snapshot = read(text);
    assert_eq!((snapshot.allocated(), snapshot.requested(), snapshot.segments[0].address), (64, 64, 0));
    assert_eq!((snapshot.device_traces[0].len(), snapshot.device_traces[1].len()), (0, 1));
    assert_eq!(snapshot.allocator_settings, AllocatorSettings::default());
    assert_eq!(
        read(r#"{"segments":null,"device_traces":[[]],"allocator_settings":null}"#).device_traces.len(),
        1
    );
    assert_eq!(read(r#"{"device_traces":[]}"#), Snapshot::default());
}

#[test]
fn settings_may_have_any_type() {
    let text = r#"{"segments":[],"allocator_settings":{"PYTORCH_CUDA_ALLOC_CONF":"max_split_size_mb:64","max_split_size":67108864.0,
        "garbage_collection_threshold":1,"expandable_segments":1,"roundup_power2_divisions":{"1":2,"2":null,"4":4.0},
        "max_round_threshold":-1,"release_lock_on_cudamalloc":true,"pinned_num_register_threads":8}}"#;
    let settings = read(text).allocator_settings;
    assert_eq!((settings.alloc_conf.as_str(), settings.max_split_size), ("max_split_size_mb:64", 64 << 20));
    assert!(settings.expandable_segments && settings.garbage_collection_threshold == 1.0);
    assert_eq!(
        settings.roundup_power2_divisions.into_iter().collect::<Vec<_>>(),
        [("1".into(), 2), ("4".into(), 4)]
    );
}

#[test]
fn unknown_lines_streams_and_names_are_read() {
    let frame = r#"{"filename":"\udcfcber/\ud83d\ude00\udc80.py","line":-1,"name":"f\ud800"}"#;
    let block = format!(r#"{{"size":4096,"state":"active_allocated","frames":[{frame},{{"name":"g"}}]}}"#);
    let text = format!(
        r#"[{}]"#,
        segment("", &block)
            .replace(r#""stream":0"#, r#""stream":-2"#)
            .replace(r#""device":0"#, r#""device":-1"#)
    );
    let segment = &read(&text).segments[0];
    let frame = &segment.blocks[0].frames[0];
    assert_eq!(
        (frame.filename.as_str(), frame.line, frame.name.as_str()),
        ("\u{fffd}ber/😀\u{fffd}.py", 0, "f\u{fffd}")
    );
    assert_eq!((segment.device, segment.stream), (0, u64::MAX - 1));
    // The entry contains both keys for an address.
    let both = r#"{"segments":[],"device_traces":[[{"action":"oom","device_free":5,"addr":6,"size":1}]]}"#;
    assert_eq!(read(both).device_traces[0][0].addr, 6);
}

/// Lists of other items are not snapshots.
#[test]
fn other_lists_are_refused() {
    for text in [r#"[{"ph":"X","name":"a"}]"#, r#"[{}]"#, "[1]", r#"["a"]"#, r#"[[{"a":1}]]"#, "[null]"] {
        let error = Snapshot::from_bytes(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains("not a snapshot"), "{text}: {error}");
    }
}

/// Python's pickles of a list of one segment by each protocol: `{"address": 4096, "total_size": 64, "stream": -1,
/// "blocks": [{"size": 64, "state": "active_allocated", "frames": [{"filename": "ü\udc80€.py", "line": -1, "name":
/// "it's\n"}], "requested_size": 2**40, "share": 0.5, "is": True}]}`.
const PROTOCOLS: [&[u8]; 6] = [
    include_bytes!("pickles/protocol-0"),
    include_bytes!("pickles/protocol-1"),
    include_bytes!("pickles/protocol-2"),
    include_bytes!("pickles/protocol-3"),
    include_bytes!("pickles/protocol-4"),
    include_bytes!("pickles/protocol-5"),
];

fn check_protocol(bytes: &[u8]) {
    let snapshot = Snapshot::from_bytes(bytes).unwrap_or_else(|error| panic!("{error}: {bytes:?}"));
    let segment = &snapshot.segments[0];
    assert_eq!((segment.address, segment.total_size, segment.stream), (4096, 64, u64::MAX));
    let block = &segment.blocks[0];
    assert_eq!((block.address, block.requested_size), (4096, 1 << 40));
    let frame = &block.frames[0];
    assert_eq!((frame.filename.as_str(), frame.line, frame.name.as_str()), ("ü\u{fffd}€.py", 0, "it's\n"));
}

#[test]
fn pickles_of_every_protocol_are_read() {
    PROTOCOLS.into_iter().for_each(check_protocol);
    // The same data with OrderedDict and defaultdict instead of dicts, in protocols 0, 2 and 4.
    check_protocol(include_bytes!("pickles/ordered-0"));
    check_protocol(include_bytes!("pickles/ordered-2"));
    check_protocol(include_bytes!("pickles/ordered-4"));
}

/// Pickles of Python 2 contain byte strings, which protocol 0 quotes, and pairs as the argument of an OrderedDict.
#[test]
fn pickles_of_python_2_are_read() {
    let plain = b"(lp0\n(dp1\nS'total_size'\np2\nI64\nsS'address'\nL4096L\nsS\"segment_type\"\nS'small'\nsS'is_expandable'\nI01\nsS'blocks'\n(lp3\n(dS'size'\nI64\nsS'state'\nS'in\\x61ctive'\nsas(l.";
    let plain = [&plain[..plain.len() - 3], b"a."].concat();
    let segment = &Snapshot::from_bytes(&plain).unwrap().segments[0];
    assert_eq!(
        (segment.address, segment.segment_type, segment.is_expandable),
        (4096, SegmentType::Small, true)
    );
    let ordered = b"ccollections\nOrderedDict\np0\n((lp1\n(lp2\nS'segments'\np3\na(lp4\naa(lp5\nS'device_traces'\np6\na(lp7\naatRp8\n.";
    assert_eq!(Snapshot::from_bytes(ordered).unwrap().segments.len(), 0);
}

/// No other global name is accepted.
#[test]
fn a_pickle_names_containers_alone() {
    for names in [
        &b"cos\nsystem\n(S'true'\ntR."[..],
        b"cbuiltins\nexec\n(S'1'\ntR.",
        b"cbuiltins\nlist\n)R.",
        b"ccollections\nOrderedDict\n.",
    ] {
        let error = Snapshot::from_bytes(names).unwrap_err().to_string();
        assert!(error.contains("is a pickle, but not a snapshot"), "{error}");
    }
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn compressed_snapshots_are_read() {
    for bytes in PROTOCOLS {
        check_protocol(&packed(bytes));
        // The data is compressed in members of a few bytes each.
        check_protocol(&bytes.chunks(50).flat_map(packed).collect::<Vec<u8>>());
    }
    let json = read(&format!("[{}]", segment("", ""))).to_json();
    let file = packed(json.as_bytes());
    assert_eq!(Snapshot::from_bytes(&file).unwrap().to_json(), json);
    for length in 2..file.len() - 1 {
        let error = Snapshot::from_bytes(&file[..length]).unwrap_err().to_string();
        assert!(error.contains("is truncated") || error.contains("cannot be decompressed"), "{error}");
    }
}

/// Small files that expand to large ones.
#[test]
fn compressed_bombs_are_refused() {
    let blank = packed(&vec![b' '; 1 << 20]).repeat(100);
    let nones = packed(&vec![b'N'; 1 << 20]).repeat(30);
    let names = packed(&vec![0x94; 1 << 20]).repeat(30);
    let head = packed(b"\x80\x04N");
    for (file, words) in [
        ([packed(b"["), blank].concat(), "decompresses to more than 64 MiB"),
        ([head.clone(), nones].concat(), "more values than a file of its size"),
        ([head, names].concat(), "more values than a file of its size"),
    ] {
        assert!(file.len() < 256 << 10, "{}", file.len());
        let error = Snapshot::from_bytes(&file).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    }
}

#[test]
fn damaged_forms_never_panic() {
    let mut random = fastrand::Rng::with_seed(11);
    let blocks = r#"{"size":64,"state":"inactive","history":[{"real_size":7,"frames":[]}]}"#;
    let list = format!("[{}]", segment(r#","segment_type":"small""#, blocks));
    let seeds = PROTOCOLS.into_iter().chain([&include_bytes!("pickles/ordered-0")[..], list.as_bytes()]);
    for seed in seeds {
        for _ in 0..1000 {
            let mut bytes = seed.to_vec();
            for _ in 0..random.usize(1..5) {
                let at = random.usize(..bytes.len());
                match random.u8(..3) {
                    0 => bytes[at] = random.u8(..),
                    1 => bytes[at] = seed[random.usize(..seed.len())],
                    _ => bytes.truncate(at.max(1)),
                }
            }
            match Snapshot::from_bytes(&bytes) {
                Ok(snapshot) => drop((snapshot.reserved(), snapshot.to_json())),
                Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
            }
        }
    }
}
