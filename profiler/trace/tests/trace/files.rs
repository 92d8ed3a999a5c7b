//! Written traces must be equal when they are read back. Damage must cause an error with the position, and the content
//! before it must be kept.

use std::io::Write;
use std::path::PathBuf;
use std::time::Instant;

use warpsmith_trace::*;

use crate::fixture::{chrome, disorder, launches, step};

/// File in the format of PyTorch's profiler.
pub const KINETO: &str = include_str!("kineto.json");

fn open(bytes: &[u8]) -> Opened {
    Trace::from_bytes(bytes).unwrap()
}

#[test]
fn json_files_read_back_equal() {
    let written = chrome(&step());
    let opened = open(&written);
    assert_eq!(opened.damage, None);
    // Streams are numbered in the order of their first records.
    let lines = |json: Vec<u8>| {
        let json = String::from_utf8(json).unwrap();
        let mut lines: Vec<String> = json.lines().map(|line| line.trim_end_matches(',').to_owned()).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(lines(chrome(&opened.trace)), lines(written));
    let (trace, original) = (opened.trace, step());
    assert_eq!(trace.len(), original.len());
    assert_eq!(trace.definitions.loss, original.definitions.loss);
    assert_eq!(trace.definitions.about, original.definitions.about);
    assert_eq!(trace.definitions.devices, original.definitions.devices);
    let (kernel, before) = (trace.kernels[0], original.kernels[0]);
    assert_eq!(trace.text(kernel.name), original.text(before.name));
    assert_eq!(trace.text(kernel.line), "src/main.rs:12");
    let same = Kernel { name: before.name, line: before.line, stream: before.stream, ..kernel };
    assert_eq!(same, before);
    assert_eq!(
        trace.transfers.iter().map(|transfer| transfer.peer).collect::<Vec<_>>(),
        [None, Some(0), None]
    );
    assert_eq!(trace.definitions.streams()[trace.waits[0].on.index()].id, 13);
}

#[test]
fn compressed_json_reads_back_equal() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (plain, compressed) = (folder.join("step-plain.json"), folder.join("step-compressed.json.gz"));
    step().write_chrome(&plain).unwrap();
    step().write_chrome(&compressed).unwrap();
    assert!(std::fs::metadata(&compressed).unwrap().len() * 2 < std::fs::metadata(&plain).unwrap().len());
    let (left, right) = (Trace::read(&plain).unwrap(), Trace::read(&compressed).unwrap());
    assert_eq!(chrome(&left.trace), chrome(&right.trace));
    assert_eq!(right.damage, None);
}

#[test]
fn equal_traces_become_golden_bytes() {
    let written = chrome(&step());
    let file = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("step.json");
    std::fs::write(&file, &written).unwrap();
    let is_golden = written == include_bytes!("step.json");
    assert!(is_golden, "{} differs from tests/trace/step.json; is that meant?", file.display());
}

#[test]
fn a_million_events_export_in_seconds() {
    const COUNT: u64 = 250_000;
    let trace = launches(COUNT);
    let begun = Instant::now();
    trace.chrome(ChromeWriter::new(std::io::sink())).unwrap();
    let rate = 2.0 * COUNT as f64 / begun.elapsed().as_secs_f64();
    println!("{:.2} million events/s exported", rate / 1e6);
    // The limit is low, because tests are not optimized and share the machine.
    assert!(rate > 50_000.0, "{rate} events/s");
}

#[test]
fn records_in_any_order_read_back() {
    for seed in 0..4 {
        let (written, mut expected) = disorder(seed, 80_000);
        let opened = open(&written);
        assert_eq!(opened.damage, None);
        let key = |record: &Record| (matches!(record, Record::Kernel(_)), record.start(), record.end());
        let mut read: Vec<_> = opened.trace.records().map(|record| key(&record)).collect();
        read.sort_unstable();
        expected.sort_unstable_by_key(key);
        assert!(read.iter().eq(expected.iter().map(key).collect::<Vec<_>>().iter()));
    }
}

#[test]
fn kineto_traces_are_read() {
    let opened = open(KINETO.as_bytes());
    assert_eq!(opened.damage, None);
    let trace = opened.trace;
    assert_eq!((trace.kernels.len(), trace.transfers.len(), trace.calls.len()), (2, 2, 4));
    assert_eq!(
        (trace.ranges.len(), trace.syncs.len(), trace.memory.len(), trace.samples.len()),
        (3, 2, 1, 1)
    );
    let kernel = trace.kernels[0];
    assert_eq!(kernel.start, 1_740_000_000_000_000_000 + 105_250_125);
    assert_eq!(kernel.end - kernel.start, 12_875);
    assert_eq!((kernel.grid, kernel.block, kernel.registers), ([132, 1, 1], [256, 1, 1], 40));
    assert_eq!((kernel.correlation, kernel.range, kernel.shared_static), (77, 5, 2048));
    assert_eq!(trace.transfers[0].kind, TransferKind::HostToDevice);
    assert_eq!(trace.transfers[1].kind, TransferKind::Fill);
    assert_eq!(trace.definitions.devices[&0].name, "NVIDIA H200");
    assert_eq!(trace.definitions.threads()[0].name, "thread 900 (python3)");
    assert_eq!(trace.definitions.about["events not read"], "gpu_user_annotation 1");
    let again = open(&chrome(&trace)).trace;
    assert_eq!(again.len(), trace.len());
}

#[test]
fn launches_have_names_that_analyses_know() {
    let mut trace = launches(1);
    trace.definitions.about.insert("rank".into(), "3".into());
    let names = [
        "cuLaunchKernel",
        "cuLaunchKernelEx_ptsz",
        "cuMemcpyHtoDAsync_v2",
        "cuMemsetD8Async",
        "cuMemcpyHtoD_v2",
        "cuGraphLaunch",
        "context_synchronize",
        "copy_to_host",
        "host_work",
    ];
    let call = trace.calls[0];
    trace.calls.clear();
    for name in names {
        trace.calls.push(Call { name: trace.definitions.names.intern(name), ..call });
    }
    let written = chrome(&trace);
    let text = String::from_utf8(written.clone()).unwrap();
    for (theirs, count) in [
        ("cudaLaunchKernel", 2),
        ("cudaLaunchKernelExC", 1),
        ("cudaMemcpyAsync", 2),
        ("cudaMemsetAsync", 1),
        ("cuMemcpyHtoD_v2", 1),
        ("cudaGraphLaunch", 1),
        ("cudaDeviceSynchronize", 1),
    ] {
        assert_eq!(text.matches(&format!("\"name\":\"{theirs}\"")).count(), count, "{theirs}: {text}");
    }
    assert!(text.lines().next().unwrap().contains("\"distributedInfo\":{\"rank\": 3}"), "{text}");
    let again = open(&written).trace;
    let read: Vec<&str> = again.calls.iter().map(|call| again.text(call.name)).collect();
    assert_eq!((read, again.definitions.about["rank"].as_str()), (names.to_vec(), "3"));
}

/// Tests the content that Holistic Trace Analysis (0.5.0) reads. It treats an event with a stream as work of that
/// stream, and links it to the event without a stream that has the same correlation ID. It recognizes copies, launches
/// and waits by their names.
#[test]
fn json_has_what_trace_analysis_reads() {
    let json: serde_json::Value = serde_json::from_slice(&chrome(&step())).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let slices: Vec<_> = events.iter().filter(|event| event["ph"] == "X").collect();
    let of = |kind: &'static str| slices.iter().filter(move |event| event["cat"] == kind);
    let mut tied = 0;
    for event in &slices {
        let (kind, arguments) = (event["cat"].as_str().unwrap(), &event["args"]);
        assert!(event["ts"].is_number() && event["dur"].is_number() && event["pid"].is_number(), "{event}");
        let is_work = ["kernel", "gpu_memcpy", "gpu_memset"].contains(&kind);
        assert_eq!(arguments["stream"].as_i64().is_some_and(|stream| stream >= 0), is_work, "{event}");
        if is_work && !arguments["correlation"].is_null() {
            let is_call = |call: &&&serde_json::Value| {
                call["args"]["stream"].is_null() && call["args"]["correlation"] == arguments["correlation"]
            };
            assert_eq!(slices.iter().filter(is_call).count(), 1, "{event}");
            tied += 1;
        }
    }
    assert_eq!(
        (of("kernel").count(), of("gpu_memcpy").count(), of("gpu_memset").count(), tied),
        (4, 2, 1, 5)
    );
    for kernel in of("kernel") {
        let arguments = &kernel["args"];
        assert!(arguments["grid"].as_array().is_some_and(|grid| grid.len() == 3), "{kernel}");
        assert!(
            arguments["registers per thread"].is_u64() && arguments["shared memory"].is_u64(),
            "{kernel}"
        );
    }
    for copy in of("gpu_memcpy") {
        assert!(copy["name"].as_str().unwrap().starts_with("Memcpy "), "{copy}");
        assert!(copy["args"]["memory bandwidth (GB/s)"].is_f64() && copy["args"]["bytes"].is_u64(), "{copy}");
    }
    for sync in of("cuda_sync") {
        assert_eq!((&sync["name"], &sync["args"]["stream"]), (&"Stream Sync".into(), &(-1).into()), "{sync}");
    }
    assert_eq!((of("cuda_sync").count(), of("user_annotation").count()), (1, 2));
}

#[test]
fn bad_files_name_what_is_wrong() {
    for (content, words) in [
        (&b""[..], "is empty"),
        (b" \n ", "is empty"),
        (b"hello", "is not a trace, because it does not start like JSON"),
        (b"\x80\x04K\x01.", "is not a trace, because it does not start like JSON"),
        (b"{\"a\": 1}", "has no `traceEvents`"),
        (b"{\"traceEvents\": 5}", "JSON is damaged"),
        (b"\x1f\x8b\x08\0damaged", "cannot be decompressed"),
        (b"\n\x02\x50\x01", "does not start like JSON"),
        (b"\n\xff\xff\xff\xff\xff\xff\xff\xff", "is not a trace"),
    ] {
        let error = Trace::from_bytes(content).unwrap_err().to_string();
        assert!(error.contains(words) && !error.contains('\n'), "{words}: {error}");
    }
    let missing = Trace::read("no-such-file").unwrap_err().to_string();
    assert!(missing.starts_with("the trace no-such-file does not exist"), "{missing}");
    assert!(Trace::read(".").unwrap_err().to_string().contains("is a folder"));
    let unwritable = step().write_chrome("no-such-folder/trace").unwrap_err().to_string();
    assert!(unwritable.contains("cannot be written"), "{unwritable}");
    let other = step().write_chrome("trace.PFTRACE").unwrap_err().to_string();
    assert!(other.contains("give a name that ends in .json or .json.gz"), "{other}");
}

#[test]
fn truncated_files_keep_what_stands_before() {
    let trace = launches(1000);
    for whole in [chrome(&trace), compressed(&chrome(&trace))] {
        let opened = open(&whole[..whole.len() / 2]);
        let damage = opened.damage.expect("half a file is damaged");
        assert!(opened.trace.len() > 100, "{damage}");
        assert!(damage.to_string().contains("byte") && !damage.reason.contains('\n'), "{damage}");
    }
}

#[test]
fn an_unfinished_file_says_so() {
    let mut writer = ChromeWriter::new(Unfinished);
    let name = writer.definitions().names.intern("work");
    let stream = writer.definitions().stream(0, 7);
    for start in 0..70_000 {
        writer
            .record(&Record::Kernel(Kernel { start, end: start + 1, name, stream, ..Kernel::default() }))
            .unwrap();
    }
    // The writer is dropped without `finish`. The file must keep the data that was written before.
    let opened = open(&FILE.with_borrow(Vec::clone));
    assert!(opened.trace.kernels.len() > 50_000);
    assert!(opened.damage.is_some());
    writer.flush().unwrap();
    let opened = open(&FILE.with_borrow(Vec::clone));
    assert_eq!(opened.trace.kernels.len(), 70_000);
    assert!(opened.damage.is_some());
}

thread_local! {
    static FILE: std::cell::RefCell<Vec<u8>> = const { std::cell::RefCell::new(Vec::new()) };
}

struct Unfinished;

impl Write for Unfinished {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        FILE.with_borrow_mut(|file| file.extend_from_slice(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A program could start a thread per task for days, or a file could claim so.
#[test]
fn threads_streams_and_counters_are_bounded() {
    let mut definitions = Definitions::default();
    for id in 0..100_000 {
        definitions.thread(1, id);
        definitions.stream(0, id);
        definitions.counter(None, &id.to_string(), "");
    }
    assert_eq!(definitions.thread(1, 0).index(), 0);
    let others = definitions.thread(1, 99_999);
    assert_eq!(definitions.thread(1, 100_001), others);
    definitions.name_thread(others, "loader");
    let expected = warpsmith_trace::Thread { process: 1, id: OTHERS, name: "others".into() };
    assert_eq!(definitions.threads()[65_536..], [expected]);
    assert_ne!(definitions.thread(2, 100_001), others);
    assert_eq!(definitions.streams().len(), 65_537);
    assert_eq!(definitions.counters().len(), 65_537);
    for device in 0..100_000 {
        definitions.stream(device, 100_000);
    }
    assert!(definitions.streams().len() < 70_000);
}

#[test]
fn hostile_files_do_no_harm() {
    let mut random = fastrand::Rng::with_seed(3);
    let seeds = [chrome(&step()), KINETO.as_bytes().to_vec(), compressed(KINETO.as_bytes())];
    for seed in seeds {
        for _ in 0..500 {
            let mut bytes = seed.clone();
            for _ in 0..random.usize(1..6) {
                let at = random.usize(..bytes.len());
                match random.u8(..4) {
                    0 => bytes[at] = random.u8(..),
                    1 => bytes[at] ^= 1 << random.u8(..8),
                    2 => drop(bytes.drain(at..(at + random.usize(1..40)).min(bytes.len()))),
                    _ => bytes.truncate(at.max(1)),
                }
                if bytes.is_empty() {
                    break;
                }
            }
            if let Ok(opened) = Trace::from_bytes(&bytes) {
                // A trace that was read can be written and summarized again.
                let again = Trace::from_bytes(&chrome(&opened.trace)).unwrap();
                opened.trace.summary().text(10);
                assert_eq!((again.damage, again.trace.len()), (None, opened.trace.len()));
            }
        }
    }
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
