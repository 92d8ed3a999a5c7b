//! The tables of traces whose numbers are known.

use warpsmith_trace::summary::Summary;
use warpsmith_trace::*;

use crate::fixture::{launches, step};

/// A trace of one device with two streams and a host thread.
struct Made {
    trace: Trace,
    thread: ThreadId,
    streams: [StreamId; 2],
    next: u64,
}

impl Made {
    fn new() -> Self {
        let mut trace = Trace::default();
        let device = Device { name: "GPU".into(), bandwidth: 1_000_000_000_000, ..Device::default() };
        trace.definitions.devices.insert(0, device);
        let thread = trace.definitions.thread(1, 1);
        let streams = [trace.definitions.stream(0, 7), trace.definitions.stream(0, 8)];
        Made { trace, thread, streams, next: 1 }
    }

    /// A call from `call` on for 10 ns, and what it enqueued.
    fn launch(&mut self, call: u64) -> u64 {
        let correlation = self.next;
        self.next += 1;
        let (start, thread) = (call, self.thread);
        self.trace.calls.push(Call { start, end: start + 10, thread, correlation, ..Call::default() });
        correlation
    }

    fn kernel(&mut self, call: u64, stream: usize, start: u64, end: u64, name: &str) {
        let correlation = self.launch(call);
        let name = self.trace.definitions.names.intern(name);
        let stream = self.streams[stream];
        self.trace.kernels.push(Kernel {
            start,
            end,
            name,
            stream,
            correlation,
            bytes: 500,
            ..Kernel::default()
        });
    }

    fn copy(&mut self, call: u64, stream: usize, start: u64, end: u64) {
        let correlation = self.launch(call);
        let stream = self.streams[stream];
        let kind = TransferKind::HostToDevice;
        self.trace.transfers.push(Transfer {
            start,
            end,
            kind,
            stream,
            correlation,
            bytes: 1000,
            ..Transfer::default()
        });
    }

    fn wait(&mut self, at: u64, stream: usize, on: usize) {
        self.trace.waits.push(Wait {
            at,
            stream: self.streams[stream],
            on: self.streams[on],
            ..Wait::default()
        });
    }

    fn range(&mut self, start: u64, end: u64, name: &str) {
        let name = self.trace.definitions.names.intern(name);
        self.trace.ranges.push(Range { start, end, name, thread: self.thread, ..Range::default() });
    }

    fn summary(&self) -> Summary {
        self.trace.summary()
    }
}

#[test]
fn kernels_are_counted_by_name() {
    let mut made = Made::new();
    made.kernel(0, 0, 100, 200, "saxpy");
    made.kernel(0, 0, 200, 500, "saxpy");
    made.kernel(0, 0, 500, 600, "sum");
    let summary = made.summary();
    let row = &summary.kernels[0];
    assert_eq!((row.name.as_str(), row.count, row.total, row.min, row.max), ("saxpy", 2, 400, 100, 300));
    assert_eq!((row.average, row.share), (200.0, 0.8));
    // 1000 bytes in 400 ns, of 1000 GB/s.
    assert!((row.bandwidth - 2.5e9).abs() < 1.0 && (row.of_peak - 0.0025).abs() < 1e-9, "{row:?}");
    assert_eq!(summary.kernels[1].name, "sum");
}

#[test]
fn idle_time_has_its_cause() {
    let mut made = Made::new();
    made.kernel(0, 0, 100, 200, "first");
    // The host launches it 300 ns after the one before has ended, and it begins 50 ns later.
    made.kernel(500, 0, 550, 600, "late");
    // It waits for a copy, of which 150 ns are left.
    made.copy(510, 1, 560, 750);
    made.wait(560, 0, 1);
    made.kernel(570, 0, 760, 800, "after copy");
    // It waits for a kernel of the other stream.
    made.kernel(580, 1, 780, 900, "beside");
    made.wait(590, 0, 1);
    made.kernel(595, 0, 900, 1000, "after kernel");
    let stream = &made.summary().streams[0];
    assert_eq!((stream.span, stream.busy), (900, 290));
    assert_eq!((stream.host_late, stream.copying, stream.waiting), (300, 150, 100));
    assert_eq!(stream.other, 900 - 290 - 300 - 150 - 100);
    assert_eq!(stream.max_queue, 2);
}

#[test]
fn copies_beside_kernels_overlap() {
    let mut made = Made::new();
    made.kernel(0, 0, 100, 300, "work");
    made.copy(0, 1, 200, 400);
    made.copy(0, 1, 500, 600);
    let device = &made.summary().devices[0];
    assert_eq!((device.span, device.busy, device.idle), (500, 400, 100));
    assert_eq!((device.compute, device.transfer, device.overlap), (200, 300, 100));
}

#[test]
fn launches_have_delays() {
    let mut made = Made::new();
    for (call, start) in [(0, 30), (100, 210), (300, 305)] {
        made.kernel(call, 0, start, start + 5, "work");
    }
    made.kernel(1_000, 0, 900, 50_000, "before its call");
    let launches = made.summary().launches;
    assert_eq!((launches.kernels, launches.short, launches.shorter_than_call), (4, 3, 3));
    assert_eq!((launches.with_call, launches.max_delay, launches.before_call), (4, 100, 1));
    assert_eq!(launches.average_delay, 30.0);
}

#[test]
fn a_graph_counts_as_one_launch() {
    let mut trace = step();
    trace.kernels.retain(|kernel| kernel.graph != 0);
    let launches = trace.summary().launches;
    assert_eq!((launches.kernels, launches.with_call), (2, 1));
}

#[test]
fn ranges_have_the_work_enqueued_inside() {
    let mut made = Made::new();
    made.range(0, 1000, "step");
    made.range(100, 200, "forward");
    made.range(110, 120, "forward");
    made.range(300, 400, "backward");
    made.kernel(105, 0, 500, 600, "a");
    made.kernel(110, 0, 600, 650, "b");
    made.kernel(310, 0, 2000, 2300, "c");
    made.kernel(5000, 0, 6000, 6001, "outside");
    let rows = made.summary().ranges;
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    assert_eq!((row("step").device, row("step").launches), (450, 3));
    let forward = row("forward");
    assert_eq!((forward.count, forward.host, forward.device, forward.launches), (2, 110, 150, 2));
    assert_eq!(row("backward").device, 300);
}

#[test]
fn ranges_of_graph_nodes_come_from_capture() {
    let rows = step().summary().ranges;
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    // The nodes name the range of their capture; the range inside has two kernels and a copy.
    assert_eq!((row("step").launches, row("gemm \"wide\"\\ 8x4x2").launches), (5, 3));
}

#[test]
fn a_difference_names_the_kernels() {
    let (mut old, mut new) = (Made::new(), Made::new());
    old.kernel(0, 0, 0, 100, "same");
    old.kernel(0, 0, 100, 300, "slower");
    old.kernel(0, 0, 300, 310, "old");
    new.kernel(0, 0, 0, 100, "same");
    new.kernel(0, 0, 100, 500, "slower");
    new.kernel(0, 0, 500, 520, "new");
    let diff = new.summary().since(&old.summary());
    let names: Vec<&str> = diff.kernels.iter().map(|change| change.name.as_str()).collect();
    assert_eq!(names, ["slower", "new", "old", "same"]);
    assert_eq!((diff.busy, diff.kernels[0].total), ((310, 520), (200, 400)));
    let text = diff.text(10);
    assert!(text.contains("+100.0 %") && text.contains("gone") && text.contains("new"), "{text}");
}

#[test]
fn text_has_every_table() {
    let text = step().summary().text(3);
    for words in [
        "Devices",
        "Streams",
        "Launches",
        "Kernels",
        "Copies",
        "Ranges",
        "Source lines",
        "Calls",
        "1 dropped",
        "GB/s",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert!(text.lines().all(|line| line.chars().all(|c| !c.is_control())), "{text}");
    let kernels = launches(100).summary().kernels.len();
    assert!(launches(100).summary().text(3).contains(&format!("… {} more", kernels - 3)));
}

#[test]
fn an_empty_trace_has_a_summary() {
    let summary = Trace::default().summary();
    assert_eq!((summary.records, summary.span, summary.kernels.len()), (0, 0, 0));
    assert_eq!(summary.text(10), "0 records in 0 ns\n");
}
