//! The Peer backend on `WARPSMITH_TEST_GPUS` GPUs, starting at `cuda:0`: two by default.

use std::time::Duration;

use warpsmith_collective::{BackendChoice, Communicator, CommunicatorOptions, ReduceOp};
use warpsmith_runtime::{DeviceBuffer, Stream};

use crate::alone::this_test;
use crate::nccl_on_gpus::world;
use crate::nccl_work::{a_rank_is_killed, gpu, streams, work};
use crate::peer::{
    LENGTHS, a_rank_is_missing, compare_all_types, compare_on, peer, reduced, replays, symmetric_sums,
};
use crate::peer_exchange::{self, compare_on as compare_exchanges, exchanged, symmetric_parts};
use crate::peer_processes::bits_of;
use crate::pool;
use crate::processes::{Rank, digest, processes};
use crate::support::{on_ranks, on_streams, timeout};

fn init(this: &Rank, options: &CommunicatorOptions) -> Communicator {
    let stream = Stream::new(&gpu(this.rank)).expect("a stream");
    Communicator::init(&stream, &this.launch(), this.store(), options).expect("ranks connect")
}

#[test]
#[ignore = "needs two GPUs"]
fn threads_have_the_bits_of_host() {
    compare_on::<f32>(&streams(world()), &peer(), &[0, 1, 3, 257, 5003, 300_001, 9_000_001]);
    compare_all_types(&streams(world()), &peer(), &[1, 257, 1_000_003]);
}

#[test]
#[ignore = "needs two GPUs"]
fn symmetric_buffers_are_reduced_where_they_are() {
    for len in [9001, 3_000_001, 20_000_001] {
        let by_host = on_ranks(world(), &timeout(60_000), |mut ranks| symmetric_sums(&mut ranks, len));
        let by_peer = on_streams(&streams(world()), &peer(), |mut ranks| symmetric_sums(&mut ranks, len));
        assert!(by_peer == by_host, "{len} elements");
    }
}

#[test]
#[ignore = "needs two GPUs"]
fn all_operations_have_the_bits_of_host() {
    compare_exchanges(&streams(world()), &peer(), &[0, 1, 3, 257, 1024, 33_001, 2_200_001]);
}

#[test]
#[ignore = "needs two GPUs"]
fn all_operations_of_processes_have_the_bits_of_host() {
    let lengths = [3, 1024, 33_001];
    let digest_of = |ranks: &mut Communicator| digest(&bits_of(exchanged(ranks, &lengths)));
    if let Some(this) = Rank::this() {
        let mut ranks = init(&this, &peer());
        println!("{}", digest_of(&mut ranks));
        return ranks.finish().expect("the end in common");
    }
    let by_host = on_ranks(world(), &timeout(60_000), |mut ranks| digest_of(&mut ranks));
    for (text, expected) in processes(this_test!(), world(), None).iter().zip(&by_host) {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
}

#[test]
#[ignore = "needs two GPUs"]
fn symmetric_buffers_are_reduced_to_parts() {
    for len in [4000, 3001, 2_000_000] {
        let by_host = on_ranks(world(), &timeout(60_000), |mut ranks| symmetric_parts(&mut ranks, len));
        let by_peer = on_streams(&streams(world()), &peer(), |mut ranks| symmetric_parts(&mut ranks, len));
        assert!(by_peer == by_host, "{len} elements");
    }
}

#[test]
#[ignore = "needs two GPUs"]
fn small_symmetric_buffers_of_threads_share_pages() {
    on_streams(&streams(world()), &peer(), pool::sums);
}

#[test]
#[ignore = "needs two GPUs"]
fn small_symmetric_buffers_of_processes_share_pages() {
    if let Some(this) = Rank::this() {
        return pool::sums(init(&this, &peer()));
    }
    processes(this_test!(), world(), None);
}

#[test]
#[ignore = "needs two GPUs"]
fn processes_have_the_bits_of_host() {
    if let Some(this) = Rank::this() {
        let mut ranks = init(&this, &peer());
        println!("{}", digest(&bits_of(reduced::<f32>(&mut ranks, &LENGTHS))));
        return ranks.finish().expect("the end in common");
    }
    let by_host = on_ranks(world(), &timeout(60_000), |mut ranks| {
        digest(&bits_of(reduced::<f32>(&mut ranks, &LENGTHS)))
    });
    for text in processes(this_test!(), world(), None) {
        assert!(text.contains(&by_host[0]), "{} is not in\n{text}", by_host[0]);
    }
}

#[test]
#[ignore = "needs two GPUs"]
fn captured_operations_of_threads_run_at_each_launch() {
    on_streams(&streams(world()), &peer(), |ranks| replays(ranks, 100_000));
    on_streams(&streams(world()), &peer(), |ranks| peer_exchange::replays(ranks, 10_000));
}

#[test]
#[ignore = "needs two GPUs"]
fn captured_operations_of_processes_run_at_each_launch() {
    if let Some(this) = Rank::this() {
        replays(init(&this, &peer()), 10_000);
        return peer_exchange::replays(init(&this, &peer()), 10_000);
    }
    processes(this_test!(), world(), None);
}

#[test]
#[ignore = "needs two GPUs"]
fn a_missing_rank_is_named_and_the_stream_goes_on() {
    let time = Duration::from_secs(1);
    on_streams(&streams(world()), &peer().timeout(time), |ranks| a_rank_is_missing(ranks, time));
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
        let ranks = init(&this, &peer());
        return a_rank_is_killed(&this, ranks, 1 << 18);
    }
    processes(this_test!(), world, Some(world - 1));
}
