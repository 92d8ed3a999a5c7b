//! The Nccl backend on one GPU.

use std::time::{Duration, Instant};

use warpsmith_collective::{Communicator, F8E4M3, ReduceOp};
use warpsmith_runtime::graph::{Capture, CaptureMode};
use warpsmith_runtime::{DeviceBuffer, Stream};

use crate::nccl_work::{gpu, replay, streams, work};
use crate::support::timeout;

#[test]
#[ignore = "is not supported on the emulated device"]
fn a_world_of_one_works() {
    let streams = streams(1);
    let mut ranks = Communicator::init_all(&streams, &timeout(60_000)).expect("NCCL").remove(0);
    work(&mut ranks);
    replay(&mut ranks, 100);
    let mut small = DeviceBuffer::from_host(&streams[0], &[F8E4M3::from_f64(1.5); 9]).expect("x");
    drop(ranks.all_reduce_in_place(ReduceOp::Avg, &mut small).expect("enqueued"));
    let multiplied = ranks.all_reduce_in_place(ReduceOp::PreMulSum(F8E4M3::from_f64(2.0)), &mut small);
    assert!(multiplied.expect_err("NCCL cannot").to_string().contains("of one rank; convert to bf16"));
    assert_eq!(small.to_host().expect("x"), [F8E4M3::from_f64(1.5); 9]);
    let graphs = "graphs contain operations";
    let mut x = DeviceBuffer::<f32>::zeros(&streams[0], 4).expect("x");
    let capture = Capture::begin(&streams[0], CaptureMode::ThreadLocal).expect("a capture");
    drop(ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("captured"));
    let graph = capture.end().expect("a graph");
    let refused = ranks.finish().expect_err("a graph is alive").to_string();
    assert!(refused.contains(graphs), "{refused}");
    drop(graph);
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn one_gpu_twice_is_refused() {
    let device = gpu(0);
    let streams = [Stream::new(&device).expect("a stream"), Stream::new(&device).expect("a stream")];
    let begun = Instant::now();
    let error = Communicator::init_all(&streams, &timeout(60_000)).expect_err("one GPU").to_string();
    assert!(error.contains("have the same GPU"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}
