//! Scans over all blocks of a launch: every grid, many tiles, values of several sizes, and wrapping epochs.

use crate::common::{Args, floats, launch, randoms};
use gpu_std::atomic::{Atomic, Ordering};
use gpu_std::disjoint::Unclaimed;
use gpu_std::look_back::{LookBack, TileQueue, workspace_len};
use gpu_std::prelude::*;

/// A maximum and its number of occurrences so far: 12 bytes, with a last field whose combination is not commutative.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
struct Peak {
    largest: u32,
    count: u32,
    last: u32,
}

impl Peak {
    fn join(self, next: Self) -> Self {
        match self.largest.cmp(&next.largest) {
            core::cmp::Ordering::Less => next,
            core::cmp::Ordering::Equal => Self { count: self.count + next.count, ..next },
            core::cmp::Ordering::Greater => Self { last: next.last, ..self },
        }
    }
}

trait Value: KernelType {
    fn join(self, next: Self) -> Self;
}

impl Value for Peak {
    fn join(self, next: Self) -> Self {
        Peak::join(self, next)
    }
}

impl Value for f32 {
    fn join(self, next: Self) -> Self {
        self + next
    }
}

/// Computes the exclusive prefix of each value, with one value per tile; the first result is the first value itself.
///
/// # Safety
///
/// `workspace` must be as `TileQueue` requires, and `out` as long as `x`.
#[kernel(types(T = f32, u32, Peak))]
unsafe fn prefixes<T: Value>(x: &[T], workspace: &[Atomic<u64>], mut out: DisjointMut<T, Unclaimed>) {
    // SAFETY: this function's contract.
    let mut queue = unsafe { TileQueue::new(workspace, x.len()) };
    // SAFETY: as above.
    let look_back = unsafe { LookBack::<T>::new(&queue) };
    let out = out.as_mut_ptr();
    while let Some(tile) = queue.next() {
        let before = look_back.prefix_of_block(tile, x[tile], T::join);
        if tile % 3 == 0 {
            queue.prefetch();
        }
        if thread::linear_in_block() == 0 {
            // SAFETY: `out` is as long as `x`, and each tile belongs to one block.
            unsafe { out.add(tile).write(before.unwrap_or(x[tile])) };
        }
    }
}

impl Value for u32 {
    fn join(self, next: Self) -> Self {
        self.wrapping_add(next)
    }
}

fn workspace(bytes: usize, tiles: usize) -> Vec<Atomic<u64>> {
    (0..workspace_len(bytes, tiles)).map(|_| Atomic::new(0)).collect()
}

fn run<K: gpu_std::Kernel, T: Value + PartialEq + core::fmt::Debug>(
    blocks: u32,
    x: &[T],
    workspace: &[Atomic<u64>],
) -> Vec<T> {
    let mut out = vec![x[0]; x.len()];
    launch::<K>([blocks, 1, 1], [64, 1, 1], &Args::new().slice(x).slice(workspace).view(&mut out));
    out
}

#[test]
fn every_tile_gets_its_prefix() {
    for tiles in [1, 2, 31, 32, 33, 1024, 1025, 2100] {
        let values: Vec<u32> = randoms(tiles).into_iter().map(|r| r as u32 % 50).collect();
        let peaks: Vec<Peak> =
            values.iter().zip(0..).map(|(&largest, last)| Peak { largest, count: 1, last }).collect();
        let workspace = workspace(12, tiles);
        for blocks in [1, 3, 70] {
            let sums = run::<prefixes<u32>, u32>(blocks, &values, &workspace);
            let found = run::<prefixes<Peak>, Peak>(blocks, &peaks, &workspace);
            let (mut sum, mut peak) = (values[0], peaks[0]);
            for i in 0..tiles {
                assert_eq!((sums[i], found[i]), (sum, peak), "{tiles} tiles, {blocks} blocks, tile {i}");
                (sum, peak) = if i == 0 { (sum, peak) } else { (sum + values[i], peak.join(peaks[i])) };
            }
        }
    }
}

#[test]
fn sums_of_floats_are_the_same_bits() {
    let x = floats(2100);
    let workspace = workspace(4, x.len());
    let first = run::<prefixes<f32>, f32>(1, &x, &workspace);
    for blocks in [2, 7, 64, 300] {
        let again = run::<prefixes<f32>, f32>(blocks, &x, &workspace);
        assert!(first.iter().zip(&again).all(|(a, b)| a.to_bits() == b.to_bits()), "{blocks} blocks");
    }
}

#[test]
fn tags_begin_again_after_the_last() {
    let x: Vec<u32> = (1..=100).collect();
    let workspace = workspace(4, x.len());
    let expected: Vec<u32> = (0..100).map(|i| if i == 0 { 1 } else { i * (i + 1) / 2 }).collect();
    workspace[1].store((1 << 31) - 3, Ordering::Relaxed);
    for launch in 0..4 {
        assert_eq!(run::<prefixes<u32>, u32>(5, &x, &workspace), expected, "launch {launch}");
        let epochs = workspace[16..].iter().map(|word| word.load(Ordering::Relaxed) >> 33);
        let epoch = [(1 << 31) - 2, 0, 1, 2][launch];
        assert!(epochs.clone().max() == Some(epoch), "launch {launch}: {:?}", epochs.max());
    }
}
