//! Small symmetric buffers that share a page.

use std::sync::Arc;

use warpsmith_collective::{CollectiveError, Communicator, ReduceOp, SymmetricBuffer, ipc_collect};
use warpsmith_runtime::Stream;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};

use crate::peer::peer;
use crate::support::{LONG, on_streams, streams_of, timeout};
use crate::symmetric::await_that;

fn driver(world: usize) -> (Arc<EmulatedDriver>, Vec<Stream>) {
    let driver = EmulatedDriver::builder().devices(world as u32).build();
    let streams = streams_of(&driver, world);
    (driver, streams)
}

/// Waits until no rank uses the memory that it has dropped.
fn reclaim(ranks: &mut Communicator) {
    assert_eq!(ipc_collect(ranks.device()).expect("no fault"), 0);
    ranks.barrier().expect("enqueued").wait(LONG).expect("done");
}

/// Returns the memory of each rank as this rank reads it, starting with the pad.
fn contents(ranks: &Communicator, buffer: &SymmetricBuffer<u32>) -> Vec<Vec<u32>> {
    let whole = buffer.signal_count() + buffer.len();
    let of_rank = |rank| {
        // On an emulated device, addresses of device memory are addresses of the process.
        // SAFETY: the rank has this number of words there, and no rank writes them before all have read them.
        unsafe { std::slice::from_raw_parts(buffer.signal_ptr(rank).0 as *const u32, whole) }.to_vec()
    };
    (0..ranks.world_size()).map(of_rank).collect()
}

/// Writes a number and the rank to the elements and to the first signal.
fn fill(ranks: &Communicator, buffer: &mut SymmetricBuffer<u32>, number: u32) {
    let value = number << 8 | ranks.rank() as u32;
    buffer.copy_from_host(&vec![value; buffer.len()]).expect("copied");
    let signal = buffer.signal_ptr(ranks.rank());
    // SAFETY: the signal belongs to the rank, and nothing else uses it.
    let signal = unsafe { warpsmith_runtime::DeviceBuffer::<u32>::from_raw(ranks.stream(), signal, 1, ()) };
    signal.expect("memory").copy_from_host(&[value]).expect("copied");
    ranks.stream().synchronize().expect("no fault");
}

/// Asserts that the memory of all ranks contains the values that [`fill`] has written.
#[track_caller]
fn assert_filled(ranks: &Communicator, buffer: &SymmetricBuffer<u32>, number: u32) {
    for (rank, found) in contents(ranks, buffer).into_iter().enumerate() {
        let value = number << 8 | rank as u32;
        assert_eq!(found[0], value);
        assert!(found[buffer.signal_count()..].iter().all(|found| *found == value), "buffer {number}");
    }
}

#[test]
fn small_buffers_share_a_page() {
    let (driver, streams) = driver(3);
    let pages = || driver.calls(Call::PhysicalCreateShareable);
    let buffers = on_streams(&streams, &timeout(60_000), |mut ranks| {
        let all: Vec<_> = (0..20u32)
            .map(|number| {
                let mut own = ranks.symmetric_buffer::<u32>(100 + number as usize).expect("memory in common");
                assert!(contents(&ranks, &own)[ranks.rank()].iter().all(|found| *found == 0));
                fill(&ranks, &mut own, number);
                own
            })
            .collect();
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        (0..20).zip(&all).for_each(|(number, own)| assert_filled(&ranks, own, number));
        // Each buffer must have the same offset on all ranks.
        let place = |own: &SymmetricBuffer<u32>, rank| own.peer_ptr(rank).0 - all[0].peer_ptr(rank).0;
        assert!(all.iter().all(|own| (1..3).all(|rank| place(own, rank) == place(own, 0))));
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        ranks.finish().expect("the end in common");
        all
    });
    assert_eq!(pages(), 3);
    drop(buffers);
    await_that(|| [0, 1, 2].map(|ordinal| driver.live_reservations(ordinal)) == [0; 3]);
}

#[test]
fn what_all_have_dropped_is_used_again() {
    let (driver, streams) = driver(2);
    on_streams(&streams, &timeout(60_000), |mut ranks| {
        let mut kept = ranks.symmetric_buffer::<u32>(10).expect("memory in common");
        fill(&ranks, &mut kept, 1);
        let mut place = None;
        for round in 0..5 {
            let mut own = ranks.symmetric_buffer::<u32>(1000).expect("memory in common");
            assert_eq!(own.peer_ptr(1), *place.get_or_insert(own.peer_ptr(1)), "round {round}");
            assert!(contents(&ranks, &own)[ranks.rank()].iter().all(|found| *found == 0));
            fill(&ranks, &mut own, 7);
            drop(own);
            reclaim(&mut ranks);
        }
        // A buffer that is larger than the free part must be placed after it.
        let small = ranks.symmetric_buffer::<u32>(1000).expect("memory in common");
        drop(small);
        let behind = ranks.symmetric_buffer::<u32>(5000).expect("memory in common");
        reclaim(&mut ranks);
        let larger = ranks.symmetric_buffer::<u32>(5000).expect("memory in common");
        assert!(larger.peer_ptr(0) > behind.peer_ptr(0));
        assert_filled(&ranks, &kept, 1);
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        ranks.finish().expect("the end in common");
    });
    assert_eq!(driver.calls(Call::PhysicalCreateShareable), 2);
}

#[test]
fn what_one_rank_has_is_not_used_again() {
    let (_, streams) = driver(3);
    on_streams(&streams, &timeout(60_000), |mut ranks| {
        let kept = ranks.symmetric_buffer::<u32>(10).expect("memory in common");
        let mut first = Some(ranks.symmetric_buffer::<u32>(1000).expect("memory in common"));
        fill(&ranks, first.as_mut().expect("a buffer"), 3);
        let place = first.as_ref().map(|first| first.peer_ptr(0));
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        if ranks.rank() != 1 {
            drop(first.take());
        }
        reclaim(&mut ranks);
        let mut second = ranks.symmetric_buffer::<u32>(1000).expect("memory in common");
        assert_ne!(Some(second.peer_ptr(0)), place);
        fill(&ranks, &mut second, 4);
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        if let Some(first) = &first {
            // This includes the memory of ranks that have dropped their buffers.
            assert_filled(&ranks, first, 3);
        }
        drop((kept, first));
        reclaim(&mut ranks);
        assert_filled(&ranks, &second, 4);
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        ranks.finish().expect("the end in common");
    });
}

#[test]
fn pages_that_one_rank_has_left_are_not_divided() {
    let (driver, streams) = driver(2);
    on_streams(&streams, &timeout(60_000), |mut ranks| {
        let first = ranks.symmetric_buffer::<u32>(10).expect("memory in common");
        let first = (ranks.rank() == 0).then_some(first);
        reclaim(&mut ranks);
        let mut second = ranks.symmetric_buffer::<u32>(10).expect("memory in common");
        fill(&ranks, &mut second, 2);
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        assert_filled(&ranks, &second, 2);
        drop(first);
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        ranks.finish().expect("the end in common");
    });
    assert_eq!(driver.calls(Call::PhysicalCreateShareable), 4);
}

#[test]
fn a_rank_that_cannot_clear_is_named() {
    let (driver, streams) = driver(2);
    on_streams(&streams, &timeout(60_000), |mut ranks| {
        let kept = ranks.symmetric_buffer::<u32>(10).expect("memory in common");
        reclaim(&mut ranks);
        if ranks.rank() == 0 {
            driver.fail_call(Call::Memset, 1);
        }
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        // The call that fails is on the rank that clears last.
        let error = ranks.symmetric_buffer::<u32>(10).expect_err("a rank has not cleared");
        assert!(
            matches!(error.downcast_ref(), Some(CollectiveError::Symmetric { rank: 0 | 1, reason }) if reason.contains("memset")),
            "{error}"
        );
        let again = ranks.symmetric_buffer::<u32>(10).expect("memory in common");
        assert!(again.peer_ptr(0) > kept.peer_ptr(0));
        ranks.finish().expect("the end in common");
    });
    assert_eq!(driver.calls(Call::PhysicalCreateShareable), 2);
}

#[test]
fn an_abort_leaves_no_memory() {
    let (driver, streams) = driver(2);
    on_streams(&streams, &timeout(60_000), |mut ranks| {
        let kept = ranks.symmetric_buffer::<u32>(10).expect("memory in common");
        // The abort of the other rank arrives during this call or the next.
        drop(ranks.symmetric_buffer::<u32>(10));
        if ranks.rank() == 0 {
            ranks.abort();
        }
        ranks.symmetric_buffer::<u32>(10).expect_err("an abort");
        drop(kept);
    });
    await_that(|| [0, 1].map(|ordinal| driver.live_reservations(ordinal)) == [0; 2]);
}

/// Drops buffers on each rank in a different order.
pub fn any_order(mut ranks: Communicator, seed: u64) {
    // The choices of the first generator are equal on all ranks, those of the second differ.
    let mut common = fastrand::Rng::with_seed(seed);
    let mut own = fastrand::Rng::with_seed(seed * 10 + ranks.rank() as u64);
    let mut held: Vec<(u32, SymmetricBuffer<u32>)> = Vec::new();
    for number in 0..60 {
        let len = [0, 1, 100, 5000, 300_000][common.usize(..5)];
        let mut buffer = ranks.symmetric_buffer::<u32>(len).expect("memory in common");
        fill(&ranks, &mut buffer, number);
        held.push((number, buffer));
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        let (number, buffer) = &held[own.usize(..held.len())];
        assert_filled(&ranks, buffer, *number);
        while held.len() > 3 && own.bool() {
            held.swap_remove(own.usize(..held.len()));
        }
    }
    held.iter().for_each(|(number, buffer)| assert_filled(&ranks, buffer, *number));
    ranks.barrier().expect("enqueued").wait(LONG).expect("done");
    ranks.finish().expect("the end in common");
}

#[test]
fn any_order_of_drops_keeps_buffers_apart() {
    let (_, streams) = driver(3);
    for seed in 0..8 {
        on_streams(&streams, &timeout(60_000), |ranks| any_order(ranks, seed));
    }
}

/// Sums elements of small buffers, some of which are dropped and created again.
pub fn sums(mut ranks: Communicator) {
    let (rank, world) = (ranks.rank() as u32, ranks.world_size() as u32);
    let sum = (1..=world).sum::<u32>();
    let make = |ranks: &mut Communicator| {
        let mut own = ranks.symmetric_buffer::<u32>(2000).expect("memory in common");
        assert_eq!(own.to_host().expect("zeros"), [0; 2000]);
        own.copy_from_host(&[rank + 1; 2000]).expect("copied");
        own
    };
    let mut all: Vec<_> = (0..20).map(|_| make(&mut ranks)).collect();
    for round in 0..3 {
        for own in all.iter_mut().skip(round) {
            drop(ranks.all_reduce_in_place(ReduceOp::Sum, own).expect("enqueued"));
        }
        for (place, own) in all.iter().enumerate() {
            let expected = if place < round { rank + 1 } else { sum };
            assert_eq!(own.to_host().expect("sums"), [expected; 2000], "{place} in round {round}");
        }
        all.truncate(round + 1);
        reclaim(&mut ranks);
        all = (0..20).map(|_| make(&mut ranks)).collect();
    }
    drop(all);
    reclaim(&mut ranks);
    ranks.finish().expect("the end in common");
}

#[test]
fn sums_of_parts_of_a_page_are_correct() {
    let (_, streams) = driver(3);
    on_streams(&streams, &peer(), sums);
}
