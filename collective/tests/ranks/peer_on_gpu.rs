//! The Peer backend and symmetric buffers with two ranks on one GPU, as threads and as processes.
//!
//! A call that frees or maps GPU memory waits for the kernels of all ranks on that GPU. One of these kernels may wait
//! for the calling rank. Tests in which ranks call such functions while operations run are therefore only in
//! `peer_on_gpus`.

use std::time::Duration;

use warpsmith_collective::{Communicator, CommunicatorOptions};
use warpsmith_runtime::{DeviceBuffer, Stream};

use crate::alone::this_test;
use crate::nccl_work::gpu;
use crate::peer::{
    LENGTHS, a_rank_is_missing, compare, compare_all_types, compare_on, peer, reduced, replays,
    symmetric_sums,
};
use crate::peer_exchange::{self, symmetric_parts};
use crate::peer_processes::{compare_processes, events_pass};
use crate::processes::{Rank, processes};
use crate::support::{LONG, on_streams};

fn options() -> CommunicatorOptions {
    peer().shared_gpu(true)
}

/// Returns two streams of one GPU.
fn streams() -> [Stream; 2] {
    let device = gpu(0);
    [0, 1].map(|_| Stream::new(&device).expect("a stream"))
}

fn init(this: &Rank) -> Communicator {
    let stream = Stream::new(&gpu(0)).expect("a stream");
    Communicator::init(&stream, &this.launch(), this.store(), &options()).expect("ranks connect")
}

/// Tests that hold with one GPU and with several, ignored for a reason.
macro_rules! peer_tests {
    ($reason:literal, $streams:expr, $options:expr, $init:expr, symmetric: $symmetric:expr, launches: $launches:expr) => {
        #[test]
        #[ignore = $reason]
        fn threads_have_the_bits_of_host() {
            // Some of these lengths are larger than half of a segment.
            compare_on::<f32>(&$streams, &$options, &[0, 1, 3, 257, 5003, 300_001, 9_000_001]);
            compare_all_types(&$streams, &$options, &[1, 257, 1_000_003]);
        }

        #[test]
        #[ignore = $reason]
        fn symmetric_buffers_are_reduced_where_they_are() {
            for len in $symmetric {
                compare(&$streams, &$options, |ranks| symmetric_sums(ranks, len));
            }
        }

        #[test]
        #[ignore = $reason]
        fn symmetric_buffers_are_reduced_to_parts() {
            for len in [4000, 3001, 2_000_000] {
                compare(&$streams, &$options, |ranks| symmetric_parts(ranks, len));
            }
        }

        #[test]
        #[ignore = $reason]
        fn captured_operations_of_threads_run_at_each_launch() {
            let [sums, all] = $launches;
            on_streams(&$streams, &$options, |ranks| replays(ranks, sums));
            on_streams(&$streams, &$options, |ranks| peer_exchange::replays(ranks, all));
        }

        #[test]
        #[ignore = $reason]
        fn a_missing_rank_is_named_and_the_stream_goes_on() {
            let time = Duration::from_secs(1);
            on_streams(&$streams, &$options.timeout(time), |ranks| a_rank_is_missing(ranks, time));
        }

        #[test]
        #[ignore = $reason]
        fn processes_have_the_bits_of_host() {
            compare_processes(this_test!(), $streams.len(), $init, |ranks| reduced::<f32>(ranks, &LENGTHS));
        }
    };
}
pub(crate) use peer_tests;

peer_tests! {
    "is not supported on the emulated device",
    streams(), options(), init, symmetric: [9001, 3_000_001], launches: [1000, 1000]
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn processes_read_each_others_elements() {
    if let Some(this) = Rank::this() {
        let mut ranks = init(&this);
        let stream = ranks.stream().clone();
        let mut own = ranks.symmetric_buffer::<u32>(1000).expect("memory in common");
        own.copy_from_host(&[this.rank as u32 + 1; 1000]).expect("copied");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        for other in 0..2 {
            // SAFETY: the other rank has written the elements before the barrier.
            let theirs = unsafe { DeviceBuffer::<u32>::from_raw(&stream, own.peer_ptr(other), 1000, ()) };
            let found = theirs.expect("memory").to_host().expect("elements");
            assert_eq!(found, [other as u32 + 1; 1000]);
        }
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        return ranks.finish().expect("the end in common");
    }
    processes(this_test!(), 2, None);
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn events_pass_between_processes() {
    if let Some(this) = Rank::this() {
        return events_pass(&this, &gpu(0));
    }
    processes(this_test!(), 2, None);
}

#[test]
#[ignore = "is not supported on the emulated device"]
fn a_hundred_communicators_leave_nothing() {
    let streams = streams();
    let free = || streams[0].device().memory_info().expect("the memory").free;
    let round = || {
        on_streams(&streams, &options(), |mut ranks| {
            let own = ranks.symmetric_buffer::<f32>(1 << 20).expect("memory in common");
            ranks.barrier().expect("enqueued").wait(LONG).expect("done");
            drop(own);
            ranks.finish().expect("the end in common");
        });
    };
    (0..3).for_each(|_| round());
    let before = free();
    (0..97).for_each(|_| round());
    let after = free();
    assert!(before.saturating_sub(after) < 64 << 20, "{before} bytes were free, now {after}");
}
