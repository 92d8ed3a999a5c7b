//! The Nccl backend on `WARPSMITH_TEST_GPUS` GPUs, starting at `cuda:0`: two by default.

use std::time::{Duration, Instant};

use warpsmith_collective::{BackendChoice, Communicator, CommunicatorOptions, ReduceOp};
use warpsmith_runtime::graph::{Capture, CaptureMode};
use warpsmith_runtime::{Device, DeviceBuffer, Stream};

use crate::alone::this_test;
use crate::nccl_work::{a_rank_is_killed, gpu, replay, streams, work};
use crate::processes::{Rank, processes};
use crate::support::{LONG, failure, on_streams, timeout};

/// Returns the number of GPUs.
pub fn world() -> usize {
    let wanted =
        std::env::var("WARPSMITH_TEST_GPUS").map_or(2, |gpus| gpus.parse().expect("a number of GPUs"));
    let there = Device::cuda_count().expect("GPUs");
    assert!(there as usize >= wanted, "there are {there} GPUs, not {wanted}");
    wanted
}

/// Creates the communicator of this rank in a test with several processes, on the rank's own GPU.
fn init(this: &Rank, options: &CommunicatorOptions) -> Communicator {
    let stream = Stream::new(&gpu(this.rank)).expect("a stream");
    Communicator::init(&stream, &this.launch(), this.store(), options).expect("ranks connect")
}

#[test]
#[ignore = "needs two GPUs"]
fn threads_get_right_results() {
    on_streams(&streams(world()), &timeout(60_000).checked(true), |mut ranks| {
        work(&mut ranks);
        ranks.finish().expect("the end in common");
    });
}

#[test]
#[ignore = "needs two GPUs"]
fn processes_get_right_results() {
    if let Some(this) = Rank::this() {
        let mut ranks = init(&this, &timeout(60_000));
        work(&mut ranks);
        return ranks.finish().expect("the end in common");
    }
    processes(this_test!(), world(), None);
}

#[test]
#[ignore = "needs two GPUs"]
fn captured_operations_run_at_each_launch() {
    if let Some(this) = Rank::this() {
        let mut ranks = init(&this, &timeout(60_000));
        replay(&mut ranks, 10_000);
        return ranks.finish().expect("the end in common");
    }
    processes(this_test!(), world(), None);
}

#[test]
#[ignore = "needs two GPUs"]
fn captures_of_threads_are_refused() {
    on_streams(&streams(world()), &timeout(60_000).backend(BackendChoice::Nccl), |mut ranks| {
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::<f32>::zeros(&stream, 4).expect("x");
        let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).expect("a capture");
        let refused = ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect_err("refused").to_string();
        assert!(refused.contains("one process per device"), "{refused}");
        drop(capture);
        ranks.finish().expect("the end in common");
    });
}

#[test]
#[ignore = "needs two GPUs"]
fn a_killed_rank_is_named_and_the_others_go_on() {
    let world = world();
    if let Some(this) = Rank::this() {
        let ranks = init(&this, &timeout(60_000));
        return a_rank_is_killed(&this, ranks, 1 << 24);
    }
    processes(this_test!(), world, Some(world - 1));
}

#[test]
#[ignore = "needs two GPUs"]
fn a_timeout_names_who_is_missing() {
    let missing = world() - 1;
    on_streams(&streams(world()), &timeout(2_000), |mut ranks| {
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::<f32>::zeros(&stream, 1 << 20).expect("x");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        let begun = Instant::now();
        if ranks.rank() == missing {
            while ranks.dump().failure.is_none() {
                assert!(begun.elapsed() < LONG, "the others do not fail");
                std::thread::sleep(Duration::from_millis(5));
            }
            return;
        }
        let work = ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued");
        let failure = failure(work.wait(LONG));
        assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
        let text = failure.to_string();
        assert!(text.contains(&format!("rank {missing} (")) && text.contains("has not called"), "{text}");
        // The kernel has been stopped, so the stream remains usable.
        stream.synchronize().expect("no fault");
        let mut fewer = ranks.shrink(&[missing]).expect("a communicator of the others");
        fewer.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued").wait(LONG).expect("done");
        fewer.finish().expect("the end in common");
    });
}

#[test]
#[ignore = "needs two GPUs"]
fn different_lengths_are_named_in_checked_mode() {
    let options = timeout(20_000).checked(true).backend(BackendChoice::Nccl);
    on_streams(&streams(world()), &options, |mut ranks| {
        let len = if ranks.rank() == 0 { 1 << 20 } else { 1 << 10 };
        let mut x = DeviceBuffer::<f32>::zeros(ranks.stream(), len).expect("x");
        let text = failure(ranks.all_reduce_in_place(ReduceOp::Sum, &mut x)).to_string();
        assert!(text.contains("1048576 elements") && text.contains("1024 elements"), "{text}");
    });
}

#[test]
#[ignore = "needs two GPUs"]
fn a_hundred_communicators_leave_nothing() {
    let streams = streams(world());
    let free = || streams.iter().map(|stream| free_memory(stream.device())).collect::<Vec<_>>();
    let round = || {
        on_streams(&streams, &timeout(60_000), |mut ranks| {
            ranks.barrier().expect("enqueued").wait(LONG).expect("done");
            ranks.finish().expect("the end in common");
        });
    };
    (0..3).for_each(|_| round());
    let before = free();
    (0..97).for_each(|_| round());
    for (before, after) in before.into_iter().zip(free()) {
        assert!(before.saturating_sub(after) < 64 << 20, "{before} bytes were free, now {after}");
    }
}

fn free_memory(device: &Device) -> u64 {
    device.memory_info().expect("the memory").free
}
