//! A program on the emulated device with simulated time must produce a byte-identical trace on every run. The trace is
//! compared with a committed file.
//!
//! After an intended change, `WARPSMITH_GOLDEN=write cargo test -p warpsmith-profiler golden` rewrites the files.

use std::fmt::Write;
use std::path::PathBuf;

use warpsmith_profiler::ProfilerOptions;
use warpsmith_profiler::trace::{Record, Trace};
use warpsmith_runtime::ranges::{mark, range};
use warpsmith_runtime::{DeviceBuffer, Graph, Launch};

use crate::alone::only_alone;
use crate::common::*;
use crate::fixture::*;

/// Runs a program with two streams, a wait between them, ranges, and a graph that is launched twice.
fn program() -> Trace {
    let (_driver, device) = simulated();
    let [first, second] = streams(&device);
    let kernel = module(&device).kernel::<Mix>().unwrap();
    let profiler = ProfilerOptions::default().device(&device).start().unwrap();
    let x = DeviceBuffer::from_host(&first, &[1u32; 250]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&second, 250).unwrap();
    {
        let _step = range!("step {}", 1, category = "training", payload = 1);
        kernel.launch(&second, Launch::grid_block(2, 32), (5, &x, &mut y)).unwrap();
        mark!("launched");
    }
    second.synchronize().unwrap();
    let graph = Graph::capture(&first, || {
        let _captured = range!("captured");
        first.memset(&mut y, 0)?;
        kernel.launch(&first, Launch::grid_block(3, 32), (5, &x, &mut y))
    });
    let exec = graph.unwrap().instantiate().unwrap();
    (0..2).for_each(|_| exec.launch(&first).unwrap());
    assert_eq!(y.to_host().unwrap().len(), 250);
    drop((x, y));
    profiler.stop().unwrap()
}

/// Formats one line per record, ordered by time.
fn lines(trace: &Trace) -> String {
    let mut records: Vec<Record> = trace.records().collect();
    records.sort_by_key(|record| (record.start(), record.end()));
    let text = |name| trace.text(name);
    let mut lines = String::new();
    for record in records {
        let (start, end) = (record.start(), record.end());
        let what = match record {
            Record::Kernel(kernel) => format!(
                "kernel {} {:?} stream {} of {} node {} range {} {}",
                text(kernel.name),
                kernel.grid,
                trace.definitions.streams()[kernel.stream.index()].id,
                kernel.correlation,
                kernel.node,
                kernel.range,
                text(kernel.line)
            ),
            Record::Transfer(transfer) => format!(
                "{} {} of {} node {} range {} {}",
                transfer.kind.name(),
                transfer.bytes,
                transfer.correlation,
                transfer.node,
                transfer.range,
                text(transfer.line)
            ),
            Record::Call(call) => {
                format!("{:?} {} {} {}", call.library, text(call.name), call.correlation, text(call.detail))
            }
            Record::Sync(sync) => sync.kind.name().to_owned(),
            Record::Range(range) => format!("range {} {} in {}", range.id, text(range.name), range.parent),
            Record::Mark(mark) => format!("mark {}", text(mark.name)),
            Record::Wait(wait) => format!("wait for {}", text(wait.buffer)),
            Record::Memory(memory) => {
                format!("memory {} {:+} {}", memory.address, memory.bytes, memory.allocated)
            }
            Record::Sample(sample) => format!("sample {}", sample.value),
            Record::Graph(graph) => {
                format!("{} {} of {} nodes", graph.kind.name(), graph.graph, graph.nodes)
            }
        };
        writeln!(lines, "{start} {end} {}", what.trim_end()).unwrap();
    }
    lines
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/profiler").join(name)
}

#[test]
fn simulated_time_makes_the_golden_trace() {
    only_alone!();
    let trace = program();
    check(&trace);
    let bytes = trace.chrome(warpsmith_profiler::trace::ChromeWriter::new(Vec::new())).unwrap();
    let lines = lines(&trace);
    if std::env::var_os("WARPSMITH_GOLDEN").is_some_and(|how| how == "write") {
        std::fs::write(file("golden.txt"), &lines).unwrap();
        std::fs::write(file("golden.json"), &bytes).unwrap();
        return;
    }
    // The file is included, because the program may run where its sources are not available.
    assert_eq!(lines, include_str!("golden.txt"));
    assert!(bytes == include_bytes!("golden.json"), "the texts are equal, the files are not");
}
