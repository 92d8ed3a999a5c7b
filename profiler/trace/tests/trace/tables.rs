//! Tables of traces whose results are known.

use warpsmith_trace::summary::{Digest, Summary};
use warpsmith_trace::*;

use crate::fixture::{launches, step};

/// Trace of one device with two streams and a host thread.
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

    /// Adds a call of 10 ns that starts at `call`. Returns the correlation ID for the enqueued work.
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
    // This is 1000 bytes in 400 ns, on a device with 1000 GB/s.
    assert!((row.bandwidth - 2.5e9).abs() < 1.0 && (row.of_peak - 0.0025).abs() < 1e-9, "{row:?}");
    assert_eq!(summary.kernels[1].name, "sum");
}

#[test]
fn idle_time_has_its_cause() {
    let mut made = Made::new();
    made.kernel(0, 0, 100, 200, "first");
    // The host launches this kernel 300 ns after the previous one has ended. It starts 50 ns later, which is the launch
    // latency.
    made.kernel(500, 0, 550, 600, "late");
    // The launch of this copy arrives at 620, which is 20 ns after the previous one has ended. It then waits for a copy
    // that takes 130 ns more.
    made.copy(510, 1, 560, 750);
    made.wait(560, 0, 1);
    made.kernel(570, 0, 760, 800, "after copy");
    // This kernel waits for a kernel on the other stream.
    made.kernel(580, 1, 780, 900, "beside");
    made.wait(590, 0, 1);
    made.kernel(595, 0, 900, 1000, "after kernel");
    let stream = &made.summary().streams[0];
    assert_eq!((stream.span, stream.busy), (900, 290));
    assert_eq!((stream.launch_bound, stream.copying, stream.waiting), (350 + 20, 130, 100));
    assert_eq!(stream.other, 900 - 290 - 370 - 130 - 100);
    assert_eq!(stream.max_queue, 2);
}

#[test]
fn a_launch_bound_stream_waits_for_the_host() {
    let mut made = Made::new();
    // A launch is called every 3 us, 5 us before its kernel, which takes 2 us. Calls therefore start while the previous
    // kernel is still running.
    for index in 0..10 {
        let call = 3_000 * index;
        made.kernel(call, 0, call + 5_000, call + 7_000, "short");
    }
    let summary = made.summary();
    assert_eq!((summary.devices[0].idle, summary.devices[0].launch_bound), (9_000, 9_000));
    assert_eq!(summary.streams[0].launch_bound, 9_000);
    // The same kernels are launched faster than they run, so the device is never launch-bound.
    let mut queued = Made::new();
    for index in 0..10 {
        queued.kernel(1_000 * index, 0, 5_000 + 2_500 * index, 7_000 + 2_500 * index, "short");
    }
    assert_eq!((queued.summary().devices[0].idle, queued.summary().devices[0].launch_bound), (4_500, 0));
}

#[test]
fn queues_count_from_the_first_work_on() {
    let mut made = Made::new();
    // All kernels are launched long before. One of them runs immediately, and three wait for 100, 200 and 300 ns in a
    // span of 400 ns.
    for index in 0..4 {
        made.kernel(index, 0, 10_000 + 100 * index, 10_100 + 100 * index, "work");
    }
    let stream = &made.summary().streams[0];
    assert_eq!((stream.max_queue, stream.span, stream.average_queue), (4, 400, 1.5));
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
    // Of 1000 ns, 200 are in nested ranges. Of 100 ns, 10 are in the nested range with the same name.
    assert_eq!((row("step").host_self, forward.host_self), (800, 100));
    assert_eq!((row("step").device_self, forward.device_self), (0, 150));
    // The launch latency is 395 ns, as for "a". The launch of "b" arrived in time. The launch of "c" arrived at 705,
    // which is 55 ns after "b" had ended.
    assert_eq!((forward.launch_bound, row("backward").launch_bound, row("step").launch_bound), (0, 55, 55));
}

#[test]
fn late_work_has_range_and_line() {
    let mut made = Made::new();
    made.range(0, 100, "forward");
    made.range(200, 900, "optimizer");
    made.kernel(10, 0, 100, 200, "a");
    // The device is idle from 200 on, and the host enqueues at 450. The launch latency is 10 ns, as for "in time".
    made.kernel(450, 0, 480, 500, "late");
    // The other stream runs until 700, so the device is not idle.
    made.kernel(460, 1, 490, 700, "beside");
    made.kernel(600, 0, 610, 650, "in time");
    made.kernel(800, 0, 820, 830, "late again");
    let line = made.trace.definitions.names.intern("src/main.rs:7");
    for kernel in [1, 4] {
        made.trace.kernels[kernel].line = line;
    }
    let summary = made.summary();
    assert_eq!((summary.devices[0].idle, summary.devices[0].launch_bound), (280 + 120, 260 + 110));
    let late = &summary.launch_bound[0];
    assert_eq!((summary.launch_bound.len(), late.name.as_str(), late.count), (1, "src/main.rs:7", 2));
    assert_eq!((late.total, late.min, late.max), (370, 110, 260));
    let row = |name: &str| summary.ranges.iter().find(|row| row.name == name).unwrap();
    assert_eq!((row("forward").launch_bound, row("optimizer").launch_bound), (0, 370));
}

#[test]
fn graphs_have_their_launches_and_nodes() {
    let mut made = Made::new();
    let graph = |start, end, kind| Graph { start, end, kind, graph: 4, nodes: 2, ..Graph::default() };
    made.trace.graphs.push(graph(0, 50, GraphKind::Capture));
    made.trace.graphs.push(graph(50, 80, GraphKind::Instantiate));
    for launch in [100, 200] {
        made.trace.graphs.push(graph(launch, launch + 7, GraphKind::Launch));
        for node in 0..2 {
            made.kernel(launch, 0, launch + 10 * node, launch + 10 * node + 4, "node");
            made.trace.kernels.last_mut().unwrap().graph = 4;
        }
    }
    let rows = made.summary().graphs;
    let row = &rows[0];
    assert_eq!((rows.len(), row.graph, row.nodes, row.launches), (1, 4, 2, 2));
    assert_eq!((row.launch_time, row.build_time, row.ran, row.device), (14, 80, 4, 16));
}

#[test]
fn memory_is_summed_up_by_device_and_line() {
    let mut made = Made::new();
    let names = &mut made.trace.definitions.names;
    let [one, two] = ["a.rs:1", "b.rs:2"].map(|line| names.intern(line));
    let mut in_use = 0;
    for (at, address, bytes, line) in [
        (1, 0x100, 1000, one),
        (2, 0x200, 500, two),
        (3, 0x100, -1000, Name::NONE),
        (4, 0x300, 700, two),
        (5, 0x100, 200, one),
    ] {
        in_use += bytes;
        let (allocated, reserved) = (in_use as u64, 4096);
        let record = Memory { at, address, bytes, line, allocated, reserved, ..Memory::default() };
        made.trace.memory.push(record);
    }
    let summary = made.summary();
    let row = &summary.memory[0];
    assert_eq!((row.allocations, row.frees, row.bytes), (4, 1, 2400));
    assert_eq!((row.peak_allocated, row.peak_reserved, row.allocated), (1500, 4096, 1400));
    let lines: Vec<_> =
        summary.allocations.iter().map(|row| (row.line.as_str(), row.count, row.bytes, row.live)).collect();
    assert_eq!(lines, [("a.rs:1", 2, 1200, 200), ("b.rs:2", 2, 1200, 1200)]);
}

#[test]
fn waits_are_counted_by_streams_and_buffer() {
    let mut made = Made::new();
    for at in 0..3 {
        made.wait(at, 0, 1);
    }
    made.wait(5, 1, 0);
    made.trace.waits[3].buffer = made.trace.definitions.names.intern("weights");
    let rows = made.summary().waits;
    assert_eq!((rows[0].stream, rows[0].on, rows[0].count), ((0, 7), (0, 8), 3));
    assert_eq!((rows[1].stream, rows[1].buffer.as_str(), rows[1].count), ((0, 8), "weights", 1));
}

#[test]
fn counters_have_extremes_and_average() {
    let mut made = Made::new();
    let counter = made.trace.definitions.counter(Some(0), "power", "W");
    for (at, value) in [(0, 100.0), (1, 400.0), (2, f64::NAN), (3, 250.0)] {
        made.trace.samples.push(Sample { at, counter, value });
    }
    let row = &made.summary().counters[0];
    assert_eq!((row.name.as_str(), row.unit.as_str(), row.samples), ("power", "W", 3));
    assert_eq!((row.min, row.average, row.max), (100.0, 250.0, 400.0));
}

#[test]
fn a_digest_counts_what_it_does_not_keep() {
    let trace = launches(5000);
    let mut digest = Digest::new(1000);
    *digest.definitions() = trace.definitions.clone();
    for record in trace.records() {
        digest.record(&record).unwrap();
    }
    let (whole, part) = (trace.summary(), digest.summary());
    assert_eq!((part.records, part.related, whole.related), (10_000, 1000, 10_000));
    assert_eq!(digest.trace().len(), 1000);
    assert_eq!((&part.kernels, &part.calls, &part.lines), (&whole.kernels, &whole.calls, &whole.lines));
    assert_eq!(part.span, whole.span);
    assert!(part.text(5).contains("show only the first 1000"), "{}", part.text(5));
    assert!(!whole.text(5).contains("of the first"));
}

#[test]
fn ranges_of_graph_nodes_come_from_capture() {
    let rows = step().summary().ranges;
    let row = |name: &str| rows.iter().find(|row| row.name == name).unwrap();
    // The nodes name the range of their capture. The nested range has two kernels and a copy.
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
    old.range(0, 50, "step");
    new.range(0, 50, "step");
    let ranges = new.summary().since(&old.summary()).ranges;
    assert_eq!((ranges[0].name.as_str(), ranges[0].total), ("step", (310, 520)));
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
        "Graphs",
        "Waits",
        "Memory",
        "Allocations",
        "Counters",
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

/// The time of a runtime call includes the driver call within it, so it must count only once.
#[test]
fn calls_of_runtime_and_driver_are_apart() {
    let mut trace = Trace::default();
    let mut call = |name: &str, library, start, end| {
        let name = trace.definitions.names.intern(name);
        trace.calls.push(Call { start, end, name, library, ..Call::default() });
    };
    for begin in [0, 1000] {
        call("stream synchronize", Library::Runtime, begin, begin + 500);
        call("stream_synchronize", Library::Driver, begin + 10, begin + 490);
    }
    call("matmul", Library::Other, 3000, 4000);
    call("launch", Library::Driver, 3100, 3140);
    call("buffer flush", Library::Overhead, 5000, 5300);
    let summary = trace.summary();
    let rows = |rows: &[warpsmith_trace::summary::Row]| {
        rows.iter().map(|row| (row.name.clone(), row.count, row.share)).collect::<Vec<_>>()
    };
    assert_eq!(rows(&summary.calls), [("matmul".into(), 1, 0.5), ("stream synchronize".into(), 2, 0.5)]);
    assert_eq!(
        rows(&summary.driver_calls),
        [("stream_synchronize".into(), 2, 0.96), ("launch".into(), 1, 0.04)]
    );
    assert_eq!(rows(&summary.overhead), [("buffer flush".into(), 1, 1.0)]);
    let text = summary.text(5);
    let of = |words: &str| text.lines().position(|line| line.starts_with(words)).expect(words);
    assert!(
        of("stream synchronize") < of("Driver calls") && of("Driver calls") < of("stream_synchronize"),
        "{text}"
    );
}
