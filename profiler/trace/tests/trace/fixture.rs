//! Traces for tests.

use warpsmith_trace::*;

/// Returns a trace with every kind of record, like a training step.
pub fn step() -> Trace {
    let mut trace = Trace::default();
    let definitions = &mut trace.definitions;
    definitions.devices.insert(
        0,
        Device {
            name: "NVIDIA H200".into(),
            memory: 150_000_000_000,
            bandwidth: 4_800_000_000_000,
            multiprocessors: 132,
            capability: (9, 0),
        },
    );
    definitions.about.insert("program".into(), "train \"größe\"\n".into());
    definitions.loss = Loss { issued: 9, recorded: 6, dropped: 1, zero_time: 1, refused: 1 };
    let main = definitions.thread(4242, 4242);
    definitions.name_thread(main, "main");
    let loader = definitions.thread(4242, 4243);
    let compute = definitions.stream(0, 7);
    let copies = definitions.stream(0, 13);
    definitions.name_stream(copies, "copies");
    let power = definitions.counter(Some(0), "power", "W");
    let load = definitions.counter(None, "load", "");
    let mut name = |text: &str| definitions.names.intern(text);
    let (step, phase, launch, copy) =
        (name("step"), name("phase"), name("cuLaunchKernelEx"), name("cuMemcpyAsync"));
    let (saxpy, gemm) = (name("saxpy<f32>"), name("gemm \"wide\"\\ 8x4x2"));
    let (line, buffer, tuned, graph_launch) =
        (name("src/main.rs:12"), name("weights"), name("tuned"), name("node"));
    let base = 1_700_000_000_000_000_000;
    let at = |time: u64| base + time;
    let range = |start, end, id, parent, name| Range {
        start: at(start),
        end: at(end),
        name,
        category: phase,
        thread: main,
        id,
        parent,
        color: 0xff33_6699,
        payload: Payload::Int(-3),
        line,
    };
    trace.ranges.push(range(0, 100_000, 1, 0, step));
    trace.ranges.push(Range { payload: Payload::Float(0.5), ..range(10_000, 40_000, 2, 1, gemm) });
    let call = |start, end, name, correlation, thread| Call {
        start: at(start),
        end: at(end),
        name,
        library: Library::Driver,
        thread,
        correlation,
        range: 2,
        line,
        detail: tuned,
    };
    trace.calls.push(call(1_000, 3_000, copy, 11, loader));
    trace.calls.push(call(12_000, 14_000, launch, 12, main));
    trace.calls.push(Call { library: Library::Runtime, range: 0, ..call(16_000, 18_000, launch, 13, main) });
    trace.transfers.push(Transfer {
        start: at(4_000),
        end: at(14_500),
        kind: TransferKind::HostToDevice,
        stream: copies,
        correlation: 11,
        bytes: 1 << 20,
        peer: None,
        graph: 0,
        node: 0,
        range: 2,
        line,
        captured_in: Name::NONE,
    });
    trace.transfers.push(Transfer {
        start: at(15_000),
        end: at(15_100),
        kind: TransferKind::PeerToPeer,
        stream: copies,
        bytes: 4096,
        peer: Some(0),
        ..Transfer::default()
    });
    trace.transfers.push(Transfer {
        start: at(15_200),
        end: at(15_300),
        kind: TransferKind::Fill,
        stream: copies,
        bytes: 4096,
        ..Transfer::default()
    });
    let kernel = |start, end, name, correlation| Kernel {
        start: at(start),
        end: at(end),
        name,
        stream: compute,
        correlation,
        grid: [1024, 2, 1],
        block: [256, 1, 1],
        registers: 32,
        shared_static: 4096,
        shared_dynamic: 1024,
        graph: 0,
        node: 0,
        range: 2,
        line,
        captured_in: Name::NONE,
        bytes: 3 << 20,
    };
    trace.kernels.push(kernel(15_000, 20_000, saxpy, 12));
    // The kernels overlap, as they do with programmatic dependent launch.
    trace.kernels.push(kernel(19_000, 25_000, gemm, 13));
    trace.graphs.push(Graph {
        start: at(50_000),
        end: at(55_000),
        kind: GraphKind::Launch,
        thread: main,
        graph: 3,
        nodes: 2,
        correlation: 20,
        range: 1,
        line,
    });
    for node in 1..=2 {
        let node_kernel = kernel(50_000 + node * 3_000, 52_000 + node * 3_000, graph_launch, 20);
        trace.kernels.push(Kernel { graph: 3, node, range: 1, ..node_kernel });
    }
    trace.waits.push(Wait { at: at(14_600), stream: compute, on: copies, buffer, correlation: 12, line });
    trace.syncs.push(Sync {
        start: at(60_000),
        end: at(61_000),
        kind: SyncKind::Stream,
        stream: compute,
        correlation: 30,
        event: 5,
    });
    trace.marks.push(Mark {
        at: at(70_000),
        name: step,
        category: phase,
        thread: main,
        color: 0,
        payload: Payload::Float(1.25),
    });
    for (time, bytes) in [(500, 1 << 20), (80_000, -(1 << 20))] {
        trace.memory.push(Memory {
            at: at(time),
            device: 0,
            address: 0x7f00_0000_0000,
            bytes,
            allocated: if bytes > 0 { 1 << 20 } else { 0 },
            reserved: 2 << 20,
            stream: 7,
            line,
        });
    }
    trace.samples.push(Sample { at: at(100), counter: power, value: 512.5 });
    trace.samples.push(Sample { at: at(200), counter: load, value: 0.25 });
    trace
}

/// Returns launches of one kernel each on one stream, with 64 names and realistic times.
pub fn launches(count: u64) -> Trace {
    let mut trace = Trace::default();
    launch_into(&mut trace, count).unwrap();
    trace
}

/// Adds the records of launches, as in [`launches`], to a sink.
pub fn launch_into(sink: &mut dyn Sink, count: u64) -> std::io::Result<()> {
    let definitions = sink.definitions();
    let main = definitions.thread(4242, 4242);
    let stream = definitions.stream(0, 7);
    let launch = definitions.names.intern("cuLaunchKernelEx");
    let line = definitions.names.intern("src/main.rs:12");
    let names: Vec<Name> =
        (0..64).map(|name| definitions.names.intern(&format!("kernel number {name}"))).collect();
    let mut random = fastrand::Rng::with_seed(1);
    let (mut host, mut device) = (1_700_000_000_000_000_000, 1_700_000_000_000_005_000);
    for index in 0..count {
        let (call, duration) = (random.u64(1_000..3_000), random.u64(1_000..50_000));
        let correlation = index + 1;
        sink.record(&Record::Call(Call {
            start: host,
            end: host + call,
            name: launch,
            thread: main,
            correlation,
            line,
            ..Call::default()
        }))?;
        device = u64::max(device, host + call) + random.u64(300..900);
        sink.record(&Record::Kernel(Kernel {
            start: device,
            end: device + duration,
            name: names[random.usize(..64)],
            stream,
            correlation,
            grid: [random.u32(1..200), 1, 1],
            block: [256, 1, 1],
            registers: 32,
            shared_static: 1024,
            line,
            ..Kernel::default()
        }))?;
        device += duration;
        host += call + random.u64(500..20_000);
    }
    Ok(())
}

/// Returns a trace as JSON bytes.
pub fn chrome(trace: &Trace) -> Vec<u8> {
    trace.chrome(ChromeWriter::new(Vec::new())).unwrap()
}

/// Returns a trace with kernels and ranges at random times, in any order, written record by record. The records
/// overlap, nest, and start or end together.
pub fn disorder(seed: u64, count: u64) -> (Vec<u8>, Vec<Record>) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut writer = ChromeWriter::new(Vec::new());
    let name = writer.definitions().names.intern("work");
    let threads = [writer.definitions().thread(10, 10), writer.definitions().thread(10, 11)];
    let streams = [writer.definitions().stream(0, 7), writer.definitions().stream(1, 7)];
    let mut records = Vec::new();
    for index in 0..count {
        let start = index.saturating_sub(random.u64(0..40)) * 10;
        let end = start + random.u64(0..5) * random.u64(0..20);
        let place = random.usize(..2);
        let record = if random.bool() {
            Record::Kernel(Kernel { start, end, name, stream: streams[place], ..Kernel::default() })
        } else {
            Record::Range(Range { start, end, name, thread: threads[place], ..Range::default() })
        };
        writer.record(&record).unwrap();
        records.push(record);
    }
    (writer.finish().unwrap(), records)
}
