//! Bytes and bandwidth of kernels in traces: for the operations, and for kernels that declare their bytes.

use test_kernels::train::relu_backward;
use warpsmith::graph::Graph;
use warpsmith::ops;
use warpsmith::prelude::*;
use warpsmith::profiler::trace::Summary;
use warpsmith::profiler::{Profiler, ProfilerOptions};

use crate::alone::only_alone;
use crate::common::{device, stream};

const LEN: usize = 1000;
const BYTES: u64 = 4 * LEN as u64;

/// Profiles `work` and returns the summary tables.
fn profiled(work: impl FnOnce() -> warpsmith::Result<()>) -> Summary {
    let profiler = Profiler::start(ProfilerOptions::default().device(&device())).unwrap();
    work().unwrap();
    profiler.stop().unwrap().summary()
}

/// Bytes of all launches of a kernel, from which its bandwidth is derived.
#[track_caller]
fn bytes(summary: &Summary, kernel: &str) -> u64 {
    let row = summary.kernels.iter().find(|row| row.name.starts_with(kernel));
    let row = row.unwrap_or_else(|| panic!("no {kernel} in {:?}", summary.kernels));
    let expected = row.bytes as f64 / (row.total as f64 * 1e-9);
    assert!((row.bandwidth - expected).abs() <= 1e-6 * expected, "{row:?}");
    row.bytes
}

#[test]
fn operations_have_their_bytes() {
    only_alone!();
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.5f32; LEN]).unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&stream, LEN).unwrap();
    let mut z = DeviceBuffer::<f32>::zeros(&stream, LEN).unwrap();
    let summary = profiled(|| {
        ops::axpy(&stream, &x, 2.0, &mut y)?;
        ops::axpy(&stream, &x, 2.0, &mut y)?;
        ops::add(&stream, &x, &y, &mut z)?;
        ops::relu(&stream, &x, &mut z)?;
        ops::fill(&stream, 1.0, &mut z)?;
        ops::sum(&stream, &x).map(drop)
    });
    let expected = [
        ("axpy<", 2 * 3 * BYTES),
        ("add<", 3 * BYTES),
        ("relu<", 2 * BYTES),
        ("fill<", BYTES),
        ("reduce_sum<", BYTES),
    ];
    for (kernel, expected) in expected {
        assert_eq!(bytes(&summary, kernel), expected, "{kernel}");
    }
}

#[test]
fn nodes_of_graphs_have_their_bytes() {
    only_alone!();
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.5f32; LEN]).unwrap();
    let mut y = DeviceBuffer::<f32>::zeros(&stream, LEN).unwrap();
    let summary = profiled(|| {
        let graph = Graph::capture(&stream, || ops::axpy(&stream, &x, 2.0, &mut y))?.instantiate()?;
        (0..3).try_for_each(|_| graph.launch(&stream))
    });
    assert_eq!(bytes(&summary, "axpy<"), 3 * 3 * BYTES);
    let kernel = device().load(&test_kernels::IMAGE).unwrap().kernel::<relu_backward>().unwrap();
    let mut graph = Graph::capture(&stream, || ops::axpy(&stream, &x, 2.0, &mut y)).unwrap();
    graph.add_kernel(&kernel, Launch::auto(LEN), (&x, &mut y), &[]).unwrap();
    let exec = graph.instantiate().unwrap();
    let summary = profiled(|| exec.launch(&stream));
    assert_eq!(bytes(&summary, "axpy<"), 3 * BYTES, "captured before the recording");
    assert_eq!(bytes(&summary, "relu_backward"), 3 * BYTES, "added before the recording");
}

#[test]
fn a_kernel_of_the_program_has_its_bytes() {
    only_alone!();
    let (device, stream) = (device(), stream());
    let kernel = device.load(&test_kernels::IMAGE).unwrap().kernel::<relu_backward>().unwrap();
    let activated = DeviceBuffer::from_host(&stream, &[1.0f32; LEN]).unwrap();
    let mut gradient = DeviceBuffer::<f32>::zeros(&stream, LEN).unwrap();
    let summary = profiled(|| kernel.launch(&stream, Launch::auto(LEN), (&activated, &mut gradient)));
    assert_eq!(bytes(&summary, "relu_backward"), 3 * BYTES);
}
