//! Tests of recording through CUPTI, with the [`fake`](super::fake) library.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::super::cupti::Cupti;
use super::buffers::Filled;
use super::fake::{self, Kept, UNKNOWN_KIND};
use super::records::{ContextDevices, ReadLoss, Reader, kind};
use super::session::Session;
use crate::Context;
use crate::activity::{Activity, ActivityError, ActivityLoss, ActivityOptions, ActivitySink};

const CUDA: i32 = 13_000;

fn options() -> ActivityOptions {
    ActivityOptions { memory: 1 << 20, ..ActivityOptions::default() }
}

fn start(table: Cupti, sink: &Arc<Kept>) -> Session {
    Session::start(fake::leaked(table), CUDA, &options(), Arc::clone(sink) as Arc<dyn ActivitySink>).unwrap()
}

fn refused(table: Cupti, options: &ActivityOptions) -> ActivityError {
    match Session::start(fake::leaked(table), CUDA, options, Kept::new()) {
        Err(error) => error,
        Ok(_) => panic!("it started"),
    }
}

/// Reads a buffer and returns the delivered records and the loss.
fn read(records: &[Vec<u8>]) -> (Vec<String>, ReadLoss) {
    read_bytes(&records.concat())
}

fn read_bytes(bytes: &[u8]) -> (Vec<String>, ReadLoss) {
    let kept = Kept::new();
    let sink = Arc::clone(&kept) as Arc<dyn ActivitySink>;
    let mut reader = Reader::new(fake::leaked(fake::table()), sink, 0, ContextDevices::default(), true);
    reader.read(&mut Filled::of(bytes));
    (kept.texts(), reader.loss())
}

#[test]
fn kernels_are_read_by_their_prefix() {
    let (texts, loss) = read(&[fake::kernel(9, 1000, 3000)]);
    assert_eq!(
        texts,
        [concat!(
            "Kernel { start: 1000, end: 3000, place: ActivityPlace { device: 1, stream: 13, correlation: 9, graph: 5, ",
            "node: 21474836482 }, symbol: \"saxpy\", grid: [8, 4, 2], block: [128, 2, 1], registers: 40, ",
            "static_shared: 512, dynamic_shared: 1024 }"
        )]
    );
    assert_eq!(loss, ReadLoss::default());
}

#[test]
fn transfers_have_kind_bytes_and_place() {
    let times = [(8, 4096), (16, 10), (24, 20)];
    let place = [(32, 2), (36, 1), (40, 14), (44, 77), (72, 6)];
    let copy = |code: u32| {
        let kind = (4, code | 0xAAAA_AA00);
        fake::record(kind::MEMCPY, &[&[kind], &place[..]].concat(), &[&times[..], &[(64, 8)]].concat())
    };
    let codes: Vec<Vec<u8>> = [1, 2, 3, 4, 5, 8, 9, 10, 200].map(copy).into();
    let kinds: Vec<String> =
        read(&codes).0.iter().map(|text| text.split_once("kind: ").unwrap().1.into()).collect();
    let wanted =
        ["HostToDevice", "DeviceToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice", "DeviceToDevice"];
    let wanted = wanted.into_iter().chain(["HostToHost", "Unknown", "Unknown"]);
    assert_eq!(kinds, wanted.map(|kind| format!("{kind}, bytes: 4096 }}")).collect::<Vec<_>>());

    let memset =
        fake::record(kind::MEMSET, &[&[(4, 7)], &place[..]].concat(), &[&times[..], &[(64, 8)]].concat());
    let peer = [(32, 2), (36, 1), (40, 14), (44, 2), (48, 1), (52, 3), (56, 4), (60, 78), (80, 6)];
    let peer = fake::record(kind::MEMCPY2, &peer, &[&times[..], &[(72, 8)]].concat());
    let place = |correlation| {
        format!(
            "place: ActivityPlace {{ device: 2, stream: 14, correlation: {correlation}, graph: 6, node: 8 }}"
        )
    };
    assert_eq!(
        read(&[memset, peer]).0,
        [
            format!("Transfer {{ start: 10, end: 20, {}, kind: Memset, bytes: 4096 }}", place(77)),
            format!(
                "Transfer {{ start: 10, end: 20, {}, kind: PeerToPeer {{ peer: 3 }}, bytes: 4096 }}",
                place(78)
            ),
        ]
    );
}

#[test]
fn waits_have_the_device_of_their_context() {
    let wait = |kind, context, stream| {
        let numbers = [(4, kind), (24, 5), (28, context), (32, stream), (36, 0)];
        fake::record(kind::SYNCHRONIZATION, &numbers, &[(8, 10), (16, 20)])
    };
    let records = [
        fake::kernel(1, 1, 2),
        wait(1, 3, 13),
        wait(2, 3, 13),
        wait(3, 3, 13),
        wait(4, 3, u32::MAX),
        wait(9, 3, 13),
    ];
    let (texts, _) = read(&records);
    let place = |stream| {
        format!("place: ActivityPlace {{ device: 1, stream: {stream}, correlation: 5, graph: 0, node: 0 }}")
    };
    let wanted = [("HostForEvent", 13), ("StreamForEvent", 13), ("HostForStream", 13), ("HostForDevice", 0)]
        .map(|(kind, stream)| format!("Wait {{ start: 10, end: 20, {}, kind: {kind} }}", place(stream)));
    assert_eq!(texts[1..], wanted);
}

#[test]
fn calls_are_named_by_their_numbers() {
    let calls: Vec<Vec<u8>> =
        [60, 27, 5, u32::MAX].map(|function| fake::driver_call(function, 3, 5, 8)).into();
    let names =
        ["cuLaunchKernel", "cuMemcpyHtoDAsync_v2", "unknown driver function", "unknown driver function"];
    let wanted = names.map(|name| {
        format!("Call {{ start: 5, end: 8, thread: 4321, correlation: 3, function: \"{name}\" }}")
    });
    assert_eq!(read(&calls).0, wanted);
}

#[test]
fn parts_and_overheads_are_read() {
    let inside = |kind| fake::record(kind::EXTERNAL_CORRELATION, &[(4, kind), (16, 11)], &[(8, 1 << 40)]);
    let overhead = |code| fake::record(kind::OVERHEAD, &[(4, code)], &[(24, 5), (32, 9)]);
    let codes = [1, 1 << 16, 5 << 16, (9 << 16) + 1, 77 << 16].map(overhead);
    let (texts, loss) = read(&[&[inside(3), inside(1)], &codes[..]].concat());
    let whats = [
        "driver compiler",
        "CUPTI buffer flush",
        "lazy function load",
        "unknown overhead",
        "unknown overhead",
    ];
    let overheads = whats.map(|what| format!("Overhead {{ start: 5, end: 9, what: \"{what}\" }}"));
    assert_eq!(texts[0], format!("Inside {{ correlation: 11, id: {} }}", 1u64 << 40));
    assert_eq!(texts[1..], overheads, "and other kinds of external ids are not ours");
    assert_eq!(loss, ReadLoss::default());
}

#[test]
fn unknown_kinds_are_skipped() {
    let unknown = fake::record(UNKNOWN_KIND, &[], &[]);
    let (texts, loss) = read(&[unknown.clone(), fake::kernel(1, 1, 2), unknown, fake::kernel(2, 3, 4)]);
    assert_eq!((texts.len(), loss), (2, ReadLoss::default()));
}

#[test]
fn records_without_times_are_counted() {
    let records =
        [fake::kernel(1, 0, 0), fake::kernel(2, 5, 0), fake::kernel(3, 5, 6), fake::driver_call(60, 1, 0, 0)];
    let (texts, loss) = read(&records);
    assert_eq!((texts.len(), loss), (1, ReadLoss { dropped: 0, zero_time: 3 }));
}

#[test]
fn truncated_buffers_end_at_the_last_whole_record() {
    let whole = [fake::kernel(1, 1, 2), fake::kernel(2, 3, 4)].concat();
    for valid in 0..whole.len() {
        let (texts, loss) = read_bytes(&whole[..valid]);
        // The first 160 bytes of a record are read.
        let records = usize::from(valid >= 160) + usize::from(valid >= 248 + 160);
        assert_eq!(texts.len(), records, "{valid} bytes");
        let begun = usize::from(valid >= 4) + usize::from(valid >= 248 + 4);
        assert_eq!(loss.dropped, (begun - records) as u64, "{valid} bytes");
    }
}

#[test]
fn damaged_buffers_neither_crash_nor_pass_unnoticed() {
    let mut random = fastrand::Rng::with_seed(18);
    for _ in 0..2000 {
        let mut bytes = [fake::driver_call(60, 1, 1, 2), fake::record(UNKNOWN_KIND, &[], &[])].concat();
        bytes.extend(fake::driver_call(60, 2, 1, 2));
        let place = random.usize(0..bytes.len());
        bytes[place] ^= 1 << random.u32(0..8);
        // A name is a pointer, and no check can distinguish a valid pointer from a damaged one, so kernels are skipped.
        if u32::from_ne_bytes(bytes[..4].try_into().unwrap()) != kind::CONCURRENT_KERNEL {
            read_bytes(&bytes);
        }
    }
    let mut bytes = fake::driver_call(60, 1, 1, 2);
    bytes.extend([0xFF; 40]);
    let (texts, loss) = read_bytes(&bytes);
    assert_eq!((texts.len(), loss.dropped), (1, 1));
}

#[test]
fn a_panicking_sink_is_called_no_more() {
    struct Panics;
    impl ActivitySink for Panics {
        fn record(&self, _: &Activity<'_>) {
            panic!("a panic of the test's");
        }
    }
    let devices = ContextDevices::default();
    let mut reader = Reader::new(fake::leaked(fake::table()), Arc::new(Panics), 0, devices, true);
    reader.read(&mut Filled::of(&[fake::kernel(1, 1, 2), fake::kernel(2, 3, 4)].concat()));
    assert_eq!(reader.loss().dropped, 2);
}

#[test]
fn a_recording_enables_and_disables_in_order() {
    let _turn = fake::turn();
    let kept = Kept::new();
    let mut session = start(fake::table(), &kept);
    let calls = fake::with(|fake| std::mem::take(&mut fake.calls));
    let kinds = [10, 1, 22, 2, 38, 17, 39, 4].map(|kind| format!("enable({kind})"));
    let before = [
        "subscribe()",
        "set_thread_id_type(1)",
        "set_attribute(5)",
        "register_callbacks()",
        "get_num_dropped()",
    ];
    assert_eq!(calls, [&before.map(String::from)[..], &kinds[..]].concat());
    // Of the fake's functions, only 20 neither enqueues work nor waits.
    assert_eq!(fake::with(|fake| fake.left_out.iter().copied().collect::<Vec<_>>()), [20]);

    fake::with(|fake| fake.records.extend([fake::kernel(1, 10, 20), fake::driver_call(60, 1, 5, 9)]));
    session.flush().unwrap();
    assert_eq!(kept.texts().len(), 2, "a flush waits until the records were handed over");
    fake::with(|fake| fake.records.push_back(fake::kernel(2, 30, 40)));
    let (loss, result) = session.stop();
    assert_eq!((loss, result), (ActivityLoss::default(), Ok(())));
    assert_eq!(kept.texts().len(), 1);
    fake::with(|fake| {
        assert!(fake.kinds.is_empty() && fake.left_out.is_empty() && !fake.is_subscribed);
        assert!(fake.calls.contains(&"flush_all(1)".to_owned()), "forced at the end: {:?}", fake.calls);
        assert_eq!(fake.calls.last().map(String::as_str), Some("unsubscribe()"));
    });
}

#[test]
fn recordings_follow_each_other() {
    let _turn = fake::turn();
    for round in 0..3u32 {
        let kept = Kept::new();
        let session = start(fake::table(), &kept);
        fake::with(|fake| fake.records.push_back(fake::kernel(round, 10, 20)));
        let (loss, result) = session.stop();
        assert_eq!((loss, result), (ActivityLoss::default(), Ok(())));
        let texts = kept.texts();
        assert!(texts.len() == 1 && texts[0].contains(&format!("correlation: {round},")), "{texts:?}");
    }
}

#[test]
fn calls_that_enqueue_nothing_are_left_out() {
    let _turn = fake::turn();
    let older = Cupti { enable_driver_api: None, subscribe_v2: None, ..fake::table() };
    let all = ActivityOptions { all_calls: true, ..options() };
    for (table, options, expected) in
        [(fake::table(), options(), 1), (older, options(), 1), (fake::table(), all, 2)]
    {
        let (kept, can_select) = (Kept::new(), table.enable_driver_api.is_some());
        let session = Session::start(fake::leaked(table), CUDA, &options, kept.clone()).unwrap();
        fake::with(|fake| {
            assert_eq!(fake.left_out.is_empty(), options.all_calls || !can_select);
            fake.records.extend([fake::driver_call(20, 1, 5, 9), fake::driver_call(60, 2, 10, 12)]);
        });
        session.stop().1.unwrap();
        assert_eq!(kept.texts().len(), expected);
    }
}

#[test]
fn another_subscriber_is_named() {
    let _turn = fake::turn();
    fake::with(|fake| fake.is_subscribed = true);
    let text = refused(fake::table(), &options()).to_string();
    assert!(text.contains("in use by `CUPTI for other`") && text.contains("nsys"), "{text}");
    let older = Cupti { subscribe_v2: None, ..fake::table() };
    let text = refused(older, &options()).to_string();
    assert!(text.contains("in use by another profiler"), "{text}");
}

#[test]
fn a_failing_call_undoes_the_start() {
    let _turn = fake::turn();
    for (function, call) in [
        ("subscribe", "cuptiSubscribe"),
        ("set_thread_id_type", "cuptiSetThreadIdType"),
        ("set_attribute", "cuptiActivitySetAttribute"),
        ("register_callbacks", "cuptiActivityRegisterCallbacks"),
        ("get_num_dropped", "cuptiActivityGetNumDroppedRecords"),
        ("enable", "cuptiActivityEnable"),
    ] {
        fake::with(|fake| fake.failures = [(function, 999)].into());
        let error = refused(fake::table(), &options());
        assert!(
            matches!(error, ActivityError::Cupti { call: named, code: 999, .. } if named == call),
            "{error}"
        );
        fake::with(|fake| {
            fake.failures.clear();
            assert!(!fake.is_subscribed && fake.kinds.is_empty(), "{function}");
        });
        start(fake::table(), &Kept::new()).stop().1.unwrap();
    }
    fake::with(|fake| fake.failures = [("subscribe", 15)].into());
    assert!(matches!(refused(fake::table(), &options()), ActivityError::CuptiTooNew { .. }));
}

#[test]
fn too_little_memory_is_an_error() {
    let _turn = fake::turn();
    let error = refused(fake::table(), &ActivityOptions { memory: 1000, ..options() });
    assert_eq!(error, ActivityError::TooLittleMemory { bytes: 1000, minimum: 64 << 10 });
    assert!(!fake::with(|fake| fake.is_subscribed));
}

#[test]
fn dropped_records_and_refused_buffers_are_summed() {
    let _turn = fake::turn();
    let kept = Kept::new();
    let minimum = ActivityOptions { memory: 64 << 10, ..options() };
    let sink = Arc::clone(&kept) as Arc<dyn ActivitySink>;
    fake::with(|fake| fake.dropped = 1000);
    let mut session = Session::start(fake::leaked(fake::table()), CUDA, &minimum, sink).unwrap();
    fake::with(|fake| fake.dropped = 3);
    session.flush().unwrap();
    fake::with(|fake| {
        fake.dropped = 4;
        fake.records.extend([fake::kernel(1, 0, 0), fake::kernel(1, 1, 2)]);
    });
    let (loss, result) = session.stop();
    result.unwrap();
    assert_eq!(
        loss,
        ActivityLoss { dropped: 7, zero_time: 1, refused_buffers: 0 },
        "not those before the start"
    );
    assert_eq!(kept.texts().len(), 1);
}

#[test]
fn a_slow_sink_makes_cupti_drop_and_count() {
    /// Sink that blocks the reader until it is released.
    struct Slow(std::sync::Mutex<std::sync::mpsc::Receiver<()>>, AtomicU64);
    impl ActivitySink for Slow {
        fn record(&self, _: &Activity<'_>) {
            let _ = self.0.lock().unwrap().recv();
            self.1.fetch_add(1, Ordering::Relaxed);
        }
    }
    let _turn = fake::turn();
    let (proceed, wait) = std::sync::mpsc::channel();
    let sink = Arc::new(Slow(wait.into(), AtomicU64::new(0)));
    let minimum = ActivityOptions { memory: 64 << 10, ..options() };
    let cupti = fake::leaked(fake::table());
    let session = Session::start(cupti, CUDA, &minimum, Arc::clone(&sink) as Arc<dyn ActivitySink>).unwrap();
    // 66 kernels fit into a buffer of 16 KiB, and the recording has four buffers.
    fake::with(|fake| fake.records.extend((0..1000).map(|n| fake::kernel(n, 1, 2))));
    // SAFETY: the function belongs to the fake library.
    unsafe { (cupti.flush_all)(0) };
    drop(proceed);
    let (loss, result) = session.stop();
    result.unwrap();
    assert_eq!(loss, ActivityLoss { dropped: 1000 - 4 * 66, zero_time: 0, refused_buffers: 1 });
    assert_eq!(sink.1.load(Ordering::Relaxed), 4 * 66);
}

#[test]
fn an_error_at_the_end_still_ends() {
    let _turn = fake::turn();
    let kept = Kept::new();
    let session = start(fake::table(), &kept);
    fake::with(|fake| {
        fake.records.push_back(fake::kernel(1, 1, 2));
        fake.failures = [("flush_all", 999)].into();
    });
    let (_, result) = session.stop();
    assert!(matches!(result, Err(ActivityError::Cupti { call: "cuptiActivityFlushAll", code: 999, .. })));
    assert_eq!(kept.texts().len(), 1, "what it had is handed over");
    assert!(fake::with(|fake| fake.kinds.is_empty() && !fake.is_subscribed));
    fake::with(|fake| fake.failures.clear());
    start(fake::table(), &kept).stop().1.unwrap();
}

#[test]
fn a_clock_that_is_ahead_is_corrected() {
    let _turn = fake::turn();
    assert_eq!(start(fake::table(), &Kept::new()).stop().1, Ok(()));
    for ahead in [5_000_000i64, -5_000_000] {
        fake::with(|fake| fake.ahead = ahead);
        let kept = Kept::new();
        let session = start(fake::table(), &kept);
        let found = session.ahead();
        assert!((found - ahead).abs() < 1_000_000, "{found} instead of {ahead}");
        fake::with(|fake| fake.records.push_back(fake::kernel(1, 10_000_000, 10_000_007)));
        session.stop().1.unwrap();
        let moved = 10_000_000 - found;
        let wanted = format!("start: {moved}, end: {}", moved + 7);
        assert!(kept.texts()[0].contains(&wanted), "{wanted}");
    }
}

#[test]
fn contexts_name_their_devices() {
    let _turn = fake::turn();
    let kept = Kept::new();
    let session = start(fake::table(), &kept);
    session.learn(&[(Context(40), 6)]);
    let numbers = [(4, 4), (24, 5), (28, 40), (32, u32::MAX)];
    fake::with(|fake| {
        fake.records.push_back(fake::record(kind::SYNCHRONIZATION, &numbers, &[(8, 1), (16, 2)]))
    });
    session.stop().1.unwrap();
    assert!(kept.texts()[0].contains("device: 6"));
}

#[test]
fn nodes_have_numbers_while_cupti_records() {
    use super::{CURRENT, exec_number, node_number};
    use crate::{GraphExecHandle, NodeHandle};
    let _turn = fake::turn();
    // SAFETY: the fake library accepts any handle.
    let numbers = || unsafe { (node_number(NodeHandle(7), CUDA), exec_number(GraphExecHandle(9), CUDA)) };
    let use_table =
        |table| CURRENT.store(std::ptr::from_ref(fake::leaked(table)).cast_mut(), Ordering::Release);
    use_table(fake::table());
    assert_eq!(numbers(), (Ok(5 << 32 | 7), Ok(9)));
    fake::with(|fake| fake.failures.insert("get_graph_node_id", 1));
    assert!(matches!(numbers(), (Err(ActivityError::Cupti { call: "cuptiGetGraphNodeId", .. }), Ok(9))));
    let unsupported = (Err(ActivityError::Unsupported), Err(ActivityError::Unsupported));
    use_table(Cupti { get_graph_node_id: None, get_graph_exec_id: None, ..fake::table() });
    assert_eq!(numbers(), unsupported);
    CURRENT.store(std::ptr::null_mut(), Ordering::Release);
    assert_eq!(numbers(), unsupported);
}

#[test]
fn pushes_and_pops_pair_across_recordings() {
    use super::{CURRENT, pop, push};
    let _turn = fake::turn();
    let cupti = std::ptr::from_ref(fake::leaked(fake::table())).cast_mut();
    let pushed = || fake::with(|fake| fake.pushed.clone());
    push(1);
    CURRENT.store(cupti, Ordering::Release);
    push(2);
    push(3);
    assert_eq!(pushed(), [2, 3]);
    CURRENT.store(std::ptr::null_mut(), Ordering::Release);
    push(4);
    pop();
    assert_eq!(pushed(), [2, 3], "what was not recorded is not popped");
    pop();
    assert_eq!(pushed(), [2]);
    pop();
    pop();
    pop();
    assert!(
        pushed().is_empty()
            && !fake::with(|fake| fake.calls.iter().any(|call| call == "pop_external_id(18)"))
    );
}
