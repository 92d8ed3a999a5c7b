//! The Nccl backend on one GPU: with one rank, and with two ranks that use the GPU as if they were on two hosts.

use std::time::{Duration, Instant};

use warpsmith_collective::{BackendChoice, Communicator, CommunicatorOptions, F8E4M3, ReduceOp};
use warpsmith_runtime::graph::{Capture, CaptureMode};
use warpsmith_runtime::{DeviceBuffer, Stream};

use crate::alone::this_test;
use crate::nccl_work::{a_rank_is_killed, gpu, replay, streams, work};
use crate::processes::{Rank, processes_on};
use crate::support::{LONG, failure, timeout};

/// Runs a test as two ranks on two hosts that share the GPU. NCCL connects them by sockets.
#[track_caller]
fn two_hosts(test: &str, killed: Option<usize>) {
    processes_on(test, 2, killed, |rank, command| {
        command.env("NCCL_HOSTID", rank.to_string()).env("NCCL_SOCKET_IFNAME", "lo");
    });
}

fn init(this: &Rank, timeout: CommunicatorOptions) -> Communicator {
    let options = timeout.backend(BackendChoice::Nccl).shared_gpu(true);
    Communicator::init(&streams(1)[0], &this.launch(), this.store(), &options).expect("ranks connect")
}

/// Waits until the communicator has failed.
fn until_failed(ranks: &Communicator) {
    let end = Instant::now() + LONG;
    while ranks.dump().failure.is_none() {
        assert!(Instant::now() < end, "the other rank does not fail");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
#[ignore = "needs a GPU"]
fn two_hosts_get_right_results() {
    let Some(this) = Rank::this() else { return two_hosts(this_test!(), None) };
    let mut ranks = init(&this, timeout(60_000));
    work(&mut ranks);
    replay(&mut ranks, 10);
    ranks.finish().expect("the end in common");
}

#[test]
#[ignore = "needs a GPU"]
fn a_killed_host_is_named_and_the_other_goes_on() {
    let Some(this) = Rank::this() else { return two_hosts(this_test!(), Some(1)) };
    a_rank_is_killed(&this, init(&this, timeout(60_000)), 1 << 20);
}

/// Calls an operation that the other rank does not call. `before` precedes it.
fn a_host_is_missing(this: &Rank, before: impl FnOnce(&mut Communicator)) {
    let mut ranks = init(this, timeout(1_000));
    let stream = ranks.stream().clone();
    before(&mut ranks);
    if this.rank == 1 {
        return until_failed(&ranks);
    }
    let mut x = DeviceBuffer::<f32>::zeros(&stream, 1000).expect("x");
    let begun = Instant::now();
    let work = ranks.all_reduce_in_place(ReduceOp::Sum, &mut x);
    let text = failure(work.and_then(|work| work.wait(LONG))).to_string();
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(text.contains("rank 0 waited 1") && text.contains("has not called the operation"), "{text}");
    // The kernel has been stopped, so the stream remains usable.
    stream.synchronize().expect("no fault");
    let mut alone = ranks.shrink(&[1]).expect("a communicator of one rank");
    alone.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued").wait(LONG).expect("done");
    alone.finish().expect("the end");
}

#[test]
#[ignore = "needs a GPU"]
fn a_first_operation_times_out() {
    let Some(this) = Rank::this() else { return two_hosts(this_test!(), None) };
    a_host_is_missing(&this, |_| {});
}

#[test]
#[ignore = "needs a GPU"]
fn a_running_operation_times_out() {
    let Some(this) = Rank::this() else { return two_hosts(this_test!(), None) };
    let barrier = |ranks: &mut Communicator| ranks.barrier().expect("enqueued").wait(LONG).expect("done");
    a_host_is_missing(&this, barrier);
}

#[test]
#[ignore = "needs a GPU"]
fn a_world_of_one_works() {
    let streams = streams(1);
    let mut ranks = Communicator::init_all(&streams, &timeout(60_000)).expect("NCCL").remove(0);
    work(&mut ranks);
    replay(&mut ranks, 100);
    let mut small = DeviceBuffer::from_host(&streams[0], &[F8E4M3::from_f64(1.5); 9]).expect("x");
    drop(ranks.all_reduce_in_place(ReduceOp::Avg, &mut small).expect("enqueued"));
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
#[ignore = "needs a GPU"]
fn one_gpu_twice_is_refused() {
    let device = gpu(0);
    let streams = [Stream::new(&device).expect("a stream"), Stream::new(&device).expect("a stream")];
    let begun = Instant::now();
    let error = Communicator::init_all(&streams, &timeout(60_000)).expect_err("one GPU").to_string();
    assert!(error.contains("have the same GPU"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}
