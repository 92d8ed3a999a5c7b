//! Reports of hardware counters.

use warpsmith_trace::counters::{CounterDevice, CounterReport, KernelCounters, MetricValues, Stall};
use warpsmith_trace::{Kernel, Record, Trace};

use crate::fixture::chrome;

fn report() -> CounterReport {
    let stall = |reason: &str, cycles: f64| Stall { reason: reason.to_owned(), cycles, share: cycles / 20.0 };
    let values = MetricValues { average: 2.5e6, minimum: 2e6, maximum: 3e6 };
    let kernel = KernelCounters {
        name: "axpy<f32, 4>".to_owned(),
        line: Some("src/main.rs:7".to_owned()),
        launches: 12,
        counted: 10,
        time: Some(1000.0),
        read: Some(2.5e6),
        written: Some(1.25e6),
        of_peak: Some(0.78125),
        l2_hits: Some(1.0 / 3.0),
        occupancy: Some(0.875),
        stalls: vec![stall("long_scoreboard", 12.0), stall("wait", 5.0)],
        metrics: [("dram__bytes_read.sum".to_owned(), values)].into(),
        ..KernelCounters::default()
    };
    let device = CounterDevice {
        name: "NVIDIA H200".to_owned(),
        chip: "GH100".to_owned(),
        source: "CUPTI 13.0".to_owned(),
        bandwidth: 4_800_000_000_000,
        passes: 6,
        ..CounterDevice::default()
    };
    CounterReport {
        about: [("program".to_owned(), "train".to_owned())].into(),
        devices: vec![device],
        kernels: vec![kernel, KernelCounters { name: "idle".to_owned(), ..KernelCounters::default() }],
        operations: 13,
        counted: 10,
        not_counted: [("over the limit of 10 per kernel".to_owned(), 3)].into(),
        ..CounterReport::default()
    }
}

#[test]
fn a_report_has_its_tables() {
    let text = report().text(10);
    let wanted = "\
10 of 13 operations counted; 3 not counted: over the limit of 10 per kernel
device 0: NVIDIA H200 (GH100), CUPTI 13.0, 6 passes per kernel
program: train

Kernels (averages per launch)
kernel        launches  counted     time  DRAM read  written    GB/s  of peak  L2 hits  occupancy  tensor cores
axpy<f32, 4>        12       10  1.00 us    2.4 MiB  1.2 MiB  3750.0   78.1 %   33.3 %     87.5 %             -
idle                 0        0        -          -        -       -        -        -          -             -

Stalls (between consecutive instructions of a warp)
kernel        cycles waited                most for         then  then
axpy<f32, 4>           17.0  long scoreboard 60.0 %  wait 25.0 %     -
";
    assert_eq!(text, wanted);
}

#[test]
fn a_report_reads_back_as_it_was() {
    let path = std::env::temp_dir().join(format!("warpsmith-counters-{}.json", std::process::id()));
    report().write(&path).unwrap();
    assert_eq!(CounterReport::read(&path).unwrap(), report());
    std::fs::remove_file(&path).unwrap();
    let error = CounterReport::read(&path).unwrap_err().to_string();
    assert!(error.contains("cannot be read"), "{error}");
}

#[test]
fn documents_of_another_kind_are_refused() {
    let error = CounterReport::parse(b"{\"traceEvents\": []}").unwrap_err().to_string();
    assert!(error.contains("is not a report of hardware counters"), "{error}");
    let newer = report().json().replace("\"schema\": 1", "\"schema\": 2");
    let error = CounterReport::parse(newer.as_bytes()).unwrap_err().to_string();
    assert!(error.contains("has format 2") && error.contains("reads format 1"), "{error}");
}

#[test]
fn kernels_of_a_trace_carry_counters() {
    let mut trace = Trace::default();
    let names = ["axpy<f32, 4>", "other"].map(|name| trace.definitions.names.intern(name));
    let streams = [0, 1].map(|device| trace.definitions.stream(device, 7));
    for (name, stream) in [(names[0], streams[0]), (names[1], streams[0]), (names[0], streams[1])] {
        trace.push(Record::Kernel(Kernel { start: 1, end: 5, name, stream, ..Kernel::default() }));
    }
    report().annotate(&mut trace.definitions);
    assert_eq!(trace.definitions.counted.len(), 1);
    let read = Trace::from_bytes(&chrome(&trace)).unwrap().trace;
    let counted: Vec<_> = read.definitions.counted.iter().collect();
    let [((0, name), counted)] = counted[..] else { panic!("of one kernel on one device: {counted:?}") };
    assert_eq!(read.text(*name), "axpy<f32, 4>");
    assert_eq!((counted.read, counted.written), (2_500_000, 1_250_000));
    assert_eq!((counted.l2_hits, counted.occupancy), (Some(1.0 / 3.0), Some(0.875)));
    assert_eq!(read.text(counted.stalls), "long scoreboard 60.0 %, wait 25.0 %");
    assert_eq!(read.kernels.len(), 3);
    let json = String::from_utf8(chrome(&trace)).unwrap();
    assert_eq!(json.matches("\"achieved occupancy\":0.875").count(), 1);
    assert!(trace.html("page").contains("DRAM bytes written"));
}

#[test]
fn a_file_without_end_is_no_report() {
    let error = CounterReport::read("/dev/zero").unwrap_err().to_string();
    assert!(error.contains("too large for a report"), "{error}");
}
