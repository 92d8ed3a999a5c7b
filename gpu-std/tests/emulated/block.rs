//! Barriers and shared memory.

use crate::common::{Args, launch, launch_shared, randoms};
use core::mem::MaybeUninit;
use gpu_std::prelude::*;
use gpu_std::shared;

#[kernel]
fn barriers(predicates: &[u32], mut out: DisjointMut<[u32; 3]>) {
    let me = thread::unique_index();
    let predicate = predicates[me.get()] != 0;
    let results = [
        thread::sync_threads_count(predicate),
        thread::sync_threads_and(predicate) as u32,
        thread::sync_threads_or(predicate) as u32,
    ];
    thread::sync_threads();
    if let Some(out) = out.get_mut(me) {
        *out = results;
    }
}

#[test]
fn barriers_count_and_vote() {
    for threads in [1, 31, 32, 33, 256] {
        for kind in 0..3 {
            let blocks = 3;
            let predicates: Vec<u32> =
                randoms(threads * blocks).into_iter().map(|r| [0, 1, r as u32 & 1][kind]).collect();
            let mut out = vec![[9; 3]; predicates.len()];
            launch::<barriers>(
                [blocks as u32, 1, 1],
                [threads as u32, 1, 1],
                &Args::new().slice(&predicates).view(&mut out),
            );
            for (predicates, out) in predicates.chunks(threads).zip(out.chunks(threads)) {
                let count = predicates.iter().sum::<u32>();
                let expected = [count, (count == threads as u32) as u32, (count > 0) as u32];
                assert!(out.iter().all(|found| *found == expected), "{out:?}, not {expected:?}");
            }
        }
    }
}

#[address_space(shared)]
static TILE: MaybeUninit<[u64; 300]> = MaybeUninit::uninit();

/// Reverses each block three times, through three kinds of shared memory.
#[kernel]
fn reverse(mut data: DisjointMut<u64>) {
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    let array = shared_array![u64; 300];
    let named = TILE.as_mut_ptr().cast::<u64>();
    let dynamic = shared::dynamic::<u64>();
    assert_eq!(shared::dynamic_bytes() as usize, threads * 8);
    assert_eq!((array.addr() | named.addr() | dynamic.addr()) % 16, 0);
    for memory in [array, named, dynamic] {
        let Some(element) = data.get_mut(thread::unique_index()) else { return };
        // SAFETY: each thread writes its own element, and reads another thread's after the barrier.
        unsafe {
            memory.add(own).write(*element);
            thread::sync_threads();
            *element = memory.add(threads - 1 - own).read();
        }
    }
}

#[test]
fn shared_memory_is_the_blocks_own() {
    for threads in [1, 32, 33, 300] {
        let before = randoms(threads * 5);
        let mut data = before.clone();
        launch_shared::<reverse>(
            [5, 1, 1],
            [threads as u32, 1, 1],
            threads as u32 * 8,
            &Args::new().view(&mut data),
        )
        .unwrap_or_else(|fault| panic!("{fault}"));
        let expected: Vec<u64> =
            before.chunks(threads).flat_map(|block| block.iter().rev().copied()).collect();
        assert_eq!(data, expected);
    }
}
