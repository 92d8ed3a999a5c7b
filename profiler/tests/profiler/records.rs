//! Recorded events, and the links between them.

use warpsmith_profiler::ProfilerOptions;
use warpsmith_profiler::trace::{GraphKind, Library, SyncKind, Trace, TransferKind};
use warpsmith_runtime::{Capture, Device, DeviceBuffer, Launch, Stream};

use crate::alone::only_alone;
use crate::common::*;
use crate::fixture::*;

#[test]
fn a_launch_becomes_a_kernel_with_its_call_and_line() {
    only_alone!();
    let (_, _device, stream, kernel) = kernel_fixture::<Mix>();
    let profiler = start();
    let x = DeviceBuffer::from_host(&stream, &[1u32; 50]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let line = line!() + 1;
    kernel.launch(&stream, Launch::grid_block(2, 32), (5, &x, &mut y)).unwrap();
    let trace = profiler.stop().unwrap();
    check(&trace);
    assert_eq!(trace.kernels.len(), 1);
    let ran = trace.kernels[0];
    assert_eq!((ran.grid, ran.block), ([2, 1, 1], [32, 1, 1]));
    assert_eq!(text(&trace, ran.name), kernel.function().spec().name);
    assert_eq!(text(&trace, ran.line), format!("{}:{line}", file!()));
    let call = call_of(&trace, &ran);
    assert_eq!(text(&trace, call.name), "launch");
    let around: Vec<_> = trace.calls.iter().filter(|call| call.library == Library::Runtime).collect();
    let launch = around.iter().find(|call| text(&trace, call.name).starts_with("launch ")).unwrap();
    assert_eq!(text(&trace, launch.detail), "configuration given");
    assert!(launch.start <= call.start && call.end <= launch.end);
    assert_eq!(trace.definitions.loss.recorded, 3, "a copy, a memset, a kernel");
    assert!(trace.summary().text(10).contains(kernel.function().spec().name));
}

#[test]
fn copies_memsets_and_memory_have_bytes_and_totals() {
    only_alone!();
    let (_, device, stream) = fixture();
    let before = DeviceBuffer::<u8>::zeros(&stream, 512).unwrap();
    let profiler = start();
    let mut x = DeviceBuffer::from_host(&stream, &[1u8; 1000]).unwrap();
    stream.memset(&mut x, 3).unwrap();
    assert_eq!(x.to_host().unwrap(), [3; 1000]);
    drop(x);
    let trace = profiler.stop().unwrap();
    check(&trace);
    let kinds: Vec<_> = trace.transfers.iter().map(|transfer| (transfer.kind, transfer.bytes)).collect();
    assert_eq!(
        kinds,
        [(TransferKind::HostToDevice, 1000), (TransferKind::Fill, 1000), (TransferKind::DeviceToHost, 1000)]
    );
    let totals: Vec<_> = trace.memory.iter().map(|memory| (memory.bytes, memory.allocated)).collect();
    assert_eq!(totals, [(1000, 1512), (-1000, 512)]);
    let reserved = device.memory().statistics().reserved_bytes.all.current;
    assert!(trace.memory.iter().all(|memory| memory.reserved == reserved), "{:?}", trace.memory);
    assert!(trace.memory.iter().all(|memory| text(&trace, memory.line).contains("records.rs:")));
    assert!(trace.syncs.iter().any(|sync| sync.kind == SyncKind::Stream));
    drop(before);
}

#[test]
fn library_work_on_the_emulated_device_is_a_kernel() {
    only_alone!();
    let (_, _device, stream) = fixture();
    let mut x = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let profiler = start();
    let line = line!() + 4;
    // SAFETY: the function accesses no device memory.
    unsafe {
        let pause = || std::thread::sleep(std::time::Duration::from_millis(2));
        stream.enqueue_host_named("blas::gemm", &[x.as_mut_slice().used()], pause).unwrap();
    }
    let trace = profiler.stop().unwrap();
    check(&trace);
    let [work] = trace.kernels[..] else { panic!("one kernel, not {:?}", trace.kernels) };
    assert_eq!((text(&trace, work.name).as_str(), work.grid), ("blas::gemm", [0; 3]));
    assert_eq!(text(&trace, work.line), format!("{}:{line}", file!()));
    assert!(work.end - work.start >= 2_000_000, "{work:?}");
    let call = call_of(&trace, &work);
    assert!(call.start <= work.start);
}

#[test]
fn an_inserted_wait_names_its_buffer() {
    only_alone!();
    let (_driver, device) = simulated();
    let [first, second] = streams(&device);
    let profiler = start();
    let line = line!() + 1;
    let x = DeviceBuffer::<u32>::zeros(&first, 1000).unwrap();
    let mut y = DeviceBuffer::<u32>::uninit(&second, 1000).unwrap();
    second.copy(&x, &mut y).unwrap();
    let trace = profiler.stop().unwrap();
    check(&trace);
    assert_eq!(trace.waits.len(), 1, "{:?}", trace.waits);
    let buffer = text(&trace, trace.waits[0].buffer);
    assert_eq!(buffer, format!("buffer of 4000 bytes, allocated at {}:{line}, read", file!()));
    assert_ne!(trace.waits[0].stream, trace.waits[0].on);
    let copy = trace.transfers.iter().find(|copy| copy.kind == TransferKind::DeviceToDevice).unwrap();
    assert_eq!((copy.start, copy.end), (4_000, 8_000), "it waited for the memset");
}

#[test]
fn graph_nodes_have_the_lines_of_their_capture() {
    only_alone!();
    let (_, _device, stream, kernel) = kernel_fixture::<Mix>();
    let x = DeviceBuffer::from_host(&stream, &[1u32; 50]).unwrap();
    let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
    let profiler = start();
    let capture = Capture::begin(&stream, warpsmith_runtime::graph::CaptureMode::ThreadLocal).unwrap();
    let line = line!() + 1;
    stream.memset(&mut y, 1).unwrap();
    kernel.launch(&stream, Launch::grid_block(2, 32), (5, &x, &mut y)).unwrap();
    let graph = capture.end().unwrap();
    let exec = graph.instantiate().unwrap();
    for _ in 0..3 {
        exec.launch(&stream).unwrap();
    }
    let trace = profiler.stop().unwrap();
    check(&trace);
    assert_eq!((trace.kernels.len(), trace.transfers.len()), (3, 3));
    assert_eq!(trace.definitions.loss.issued, 3, "captured work is not issued");
    for (kernel, memset) in trace.kernels.iter().zip(&trace.transfers) {
        assert_eq!(text(&trace, memset.line), format!("{}:{line}", file!()));
        assert_eq!(text(&trace, kernel.line), format!("{}:{}", file!(), line + 1));
        assert_ne!((kernel.graph, kernel.node), (0, 0));
        assert_eq!(kernel.correlation, memset.correlation);
    }
    let kinds: Vec<_> = trace.graphs.iter().map(|graph| graph.kind).collect();
    let launch = GraphKind::Launch;
    assert_eq!(kinds, [GraphKind::Capture, GraphKind::Instantiate, launch, launch, launch]);
    assert_eq!(trace.graphs[0].nodes, 1);
    assert_eq!(trace.graphs[4].graph, trace.kernels[0].graph);
}

#[test]
fn work_of_a_library_has_its_name() {
    only_alone!();
    let (_, _device, stream) = fixture();
    let mut x = DeviceBuffer::from_host(&stream, &[1u32; 4]).unwrap();
    let profiler = start();
    let uses = [x.as_mut_slice().used()];
    // SAFETY: it accesses nothing.
    unsafe { stream.enqueue_host_named("blas::gemm", &uses, || ()) }.unwrap();
    let trace = profiler.stop().unwrap();
    check(&trace);
    let of_library: Vec<_> = trace.calls.iter().filter(|call| call.library == Library::Other).collect();
    assert_eq!(of_library.len(), 1);
    assert_eq!(text(&trace, of_library[0].name), "blas::gemm");
}

#[test]
fn devices_that_are_opened_later_are_recorded() {
    only_alone!();
    let profiler = start();
    let (_, _device, stream) = fixture();
    let _x = DeviceBuffer::<u8>::zeros(&stream, 512).unwrap();
    let trace = profiler.stop().unwrap();
    check(&trace);
    assert_eq!(trace.transfers.len(), 1);
    assert_eq!(trace.definitions.devices.len(), 1);
    let totals: Vec<_> = trace.memory.iter().map(|memory| (memory.bytes, memory.allocated)).collect();
    assert_eq!(totals, [(512, 512)]);
}

#[test]
fn only_chosen_devices_are_recorded() {
    only_alone!();
    let (_, chosen, stream) = fixture();
    let (_, _other, other_stream) = fixture();
    let profiler = ProfilerOptions::default().device(&chosen).start().unwrap();
    let _x = DeviceBuffer::<u8>::zeros(&stream, 512).unwrap();
    let _y = DeviceBuffer::<u8>::zeros(&other_stream, 100).unwrap();
    let trace = profiler.stop().unwrap();
    check(&trace);
    let bytes: Vec<_> = trace.transfers.iter().map(|transfer| transfer.bytes).collect();
    assert_eq!(bytes, [512]);
    assert_eq!(trace.memory.len(), 1);
}

#[test]
fn threads_keep_their_operations_apart() {
    only_alone!();
    let (_, device, _) = fixture();
    let profiler = start();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let device = &device;
            let work = move || {
                let stream = Stream::new(device).unwrap();
                let mut x = DeviceBuffer::<u8>::uninit(&stream, 100 + thread).unwrap();
                (0..2000).for_each(|_| stream.memset(&mut x, 1).unwrap());
            };
            std::thread::Builder::new().name(format!("worker {thread}")).spawn_scoped(scope, work).unwrap();
        }
    });
    let trace = profiler.stop().unwrap();
    check(&trace);
    assert_eq!(trace.transfers.len(), 8000);
    for thread in 0..4u64 {
        let name = format!("worker {thread}");
        let of_name = trace.definitions.threads().iter().position(|known| known.name == name).unwrap();
        let calls = driver_calls(&trace, "memset");
        let calls: Vec<_> = calls.iter().filter(|call| call.thread.index() == of_name).collect();
        assert_eq!(calls.len(), 2000);
        let bytes = |correlation| {
            trace.transfers.iter().find(|transfer| transfer.correlation == correlation).unwrap().bytes
        };
        assert!(calls.iter().step_by(100).all(|call| bytes(call.correlation) == 100 + thread));
    }
}

#[test]
fn a_trace_reads_back_from_either_format() {
    only_alone!();
    let folder = std::env::temp_dir().join(format!("warpsmith-profiler-formats-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    for name in ["trace.json", "trace.json.gz"] {
        let path = folder.join(name);
        let (_, _device, stream, kernel) = kernel_fixture::<Mix>();
        let profiler = ProfilerOptions::default().to_file(&path).unwrap();
        let x = DeviceBuffer::from_host(&stream, &[1u32; 50]).unwrap();
        let mut y = DeviceBuffer::<u32>::zeros(&stream, 50).unwrap();
        (0..100).for_each(|_| {
            kernel.launch(&stream, Launch::grid_block(2, 32), (5, &x, &mut y)).unwrap();
        });
        let written = profiler.finish().unwrap();
        assert_eq!((written.loss.issued, written.loss.unaccounted()), (102, 0));
        let opened = Trace::read(&path).unwrap();
        assert_eq!(opened.damage, None);
        assert_eq!((opened.trace.kernels.len(), opened.trace.len() as u64), (100, written.records));
        assert_eq!(opened.trace.definitions.loss, written.loss);
    }
    std::fs::remove_dir_all(&folder).unwrap();
}

#[test]
fn the_device_of_the_trace_is_described() {
    only_alone!();
    let device = Device::emulated(0).unwrap();
    let trace = start().stop().unwrap();
    assert_eq!(trace.definitions.devices[&0].name, device.name());
    assert_eq!(trace.definitions.about["emulated records"], "the emulated device, real time");
}
