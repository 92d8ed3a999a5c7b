//! The Peer backend on `WARPSMITH_TEST_GPUS` GPUs, starting at `cuda:0`: two by default.

use std::time::Duration;

use warpsmith_collective::{BackendChoice, Communicator, ReduceOp};
use warpsmith_runtime::{DeviceBuffer, Stream};

use crate::alone::this_test;
use crate::nccl_on_gpus::world;
use crate::nccl_work::{a_rank_is_killed, gpu, streams, work};
use crate::peer::{
    LENGTHS, a_rank_is_missing, compare, compare_all_types, compare_on, peer, reduced, replays,
    symmetric_sums,
};
use crate::peer_exchange::{self, exchanged, symmetric_parts};
use crate::peer_on_gpu::peer_tests;
use crate::peer_processes::compare_processes;
use crate::processes::{Rank, processes};
use crate::support::{on_streams, timeout};

fn init(this: &Rank) -> Communicator {
    let stream = Stream::new(&gpu(this.rank)).expect("a stream");
    Communicator::init(&stream, &this.launch(), this.store(), &peer()).expect("ranks connect")
}

peer_tests! {
    "needs two GPUs",
    streams(world()), peer(), init, symmetric: [9001, 3_000_001, 20_000_001], launches: [100_000, 10_000]
}

#[test]
#[ignore = "needs two GPUs"]
fn all_operations_have_the_bits_of_host() {
    let lengths = [0, 1, 3, 257, 1024, 33_001, 2_200_001];
    compare(&streams(world()), &peer(), |ranks| exchanged(ranks, &lengths));
}

#[test]
#[ignore = "needs two GPUs"]
fn all_operations_of_processes_have_the_bits_of_host() {
    compare_processes(this_test!(), world(), init, |ranks| exchanged(ranks, &[3, 1024, 33_001]));
}

#[test]
#[ignore = "needs two GPUs"]
fn captured_operations_of_processes_run_at_each_launch() {
    if let Some(this) = Rank::this() {
        replays(init(&this), 10_000);
        return peer_exchange::replays(init(&this), 10_000);
    }
    processes(this_test!(), world(), None);
}

#[test]
#[ignore = "needs two GPUs"]
fn auto_does_everything_beside_nccl() {
    let auto = timeout(60_000).backend(BackendChoice::Auto);
    on_streams(&streams(world()), &auto, |mut ranks| {
        work(&mut ranks);
        // The Peer backend handles some of these sizes and NCCL the others, on one stream.
        for len in [100, 1 << 20, 1 << 24, 100, 1 << 26, 1000] {
            let mut x = DeviceBuffer::from_host(ranks.stream(), &vec![1.0f32; len]).expect("x");
            drop(ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued"));
            let world = ranks.world_size() as f32;
            assert!(x.to_host().expect("x").into_iter().all(|found| found == world), "{len} elements");
        }
        ranks.finish().expect("the end in common");
    });
}

#[test]
#[ignore = "needs two GPUs"]
fn a_killed_rank_is_named_and_the_others_go_on() {
    let world = world();
    if let Some(this) = Rank::this() {
        let ranks = init(&this);
        return a_rank_is_killed(&this, ranks, 1 << 18);
    }
    processes(this_test!(), world, Some(world - 1));
}
