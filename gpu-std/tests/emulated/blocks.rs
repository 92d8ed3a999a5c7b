//! Building blocks of kernels that process tiles: scans of warps, radix ranks.

use crate::common::{Args, floats, launch, random, randoms};
use gpu_std::atomic::{Atomic, scope};
use gpu_std::prelude::*;
use gpu_std::{radix, warp};

/// An affine function, whose composition is associative but not commutative.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
struct Affine {
    factor: u64,
    offset: u64,
}

impl Affine {
    fn then(self, next: Self) -> Self {
        let factor = self.factor.wrapping_mul(next.factor);
        Self { factor, offset: self.offset.wrapping_mul(next.factor).wrapping_add(next.offset) }
    }
}

fn affines(n: usize) -> Vec<Affine> {
    randoms(2 * n).chunks(2).map(|of| Affine { factor: of[0] | 1, offset: of[1] }).collect()
}

fn all(values: &[Affine]) -> Option<Affine> {
    values.iter().copied().reduce(Affine::then)
}

/// Stores, per thread, whether there are warps below, their total, the total of all warps, the total of the first
/// `count` lanes, and a broadcast value.
#[kernel]
fn warps(
    count: u32,
    source: u32,
    x: &[Affine],
    mut out: DisjointMut<[Affine; 4]>,
    mut below: DisjointMut<u32>,
) {
    let me = thread::unique_index();
    let value = x[me.get()];
    let of_warp = warp::reduce_first(count, value, Affine::then);
    let (lower, total) = block::scan_warps(of_warp, Affine::then);
    let shown = block::broadcast(value, source);
    if let Some(out) = out.get_mut(me) {
        *out = [lower.unwrap_or(value), total, of_warp, shown];
    }
    if let Some(below) = below.get_mut(me) {
        *below = u32::from(lower.is_some());
    }
}

#[test]
fn warps_combine_in_their_order() {
    for threads in [32, 64, 256, 1024] {
        let (count, source, blocks) = (1 + random() as usize % 32, random() as usize % threads, 2);
        let x = affines(threads * blocks);
        let mut out = vec![[x[0]; 4]; x.len()];
        let mut below = vec![9; x.len()];
        launch::<warps>(
            [blocks as u32, 1, 1],
            [threads as u32, 1, 1],
            &Args::new().value(count as u32).value(source as u32).slice(&x).view(&mut out).view(&mut below),
        );
        for (block, x) in x.chunks(threads).enumerate() {
            let of_warps: Vec<Affine> = x.chunks(32).map(|warp| all(&warp[..count]).unwrap()).collect();
            for thread in 0..threads {
                let warp = thread / 32;
                let found = out[block * threads + thread];
                let lower = all(&of_warps[..warp]).unwrap_or(x[thread]);
                assert_eq!(
                    found,
                    [lower, all(&of_warps).unwrap(), of_warps[warp], x[source]],
                    "{threads} {thread}"
                );
                assert_eq!(below[block * threads + thread], u32::from(warp > 0));
            }
        }
    }
}

/// Scans blocks that end in a partial warp. Their warps are combined one after the other.
#[kernel]
fn scans(x: &[f32], mut out: DisjointMut<[f32; 3]>) {
    let me = thread::unique_index();
    let value = x[me.get()];
    let results = [
        block::reduce(value, |a, b| a + b),
        block::inclusive_scan(value, |a, b| a + b),
        block::exclusive_scan(value, 0.0, |a, b| a + b),
    ];
    if let Some(out) = out.get_mut(me) {
        *out = results;
    }
}

#[test]
fn block_scans_agree_at_every_size() {
    for threads in [1, 31, 32, 33, 100, 128, 1000, 1024] {
        let x = floats(threads);
        let mut out = vec![[0.0; 3]; threads];
        launch::<scans>([1; 3], [threads as u32, 1, 1], &Args::new().slice(&x).view(&mut out));
        let total: f64 = x.iter().map(|&v| f64::from(v)).sum();
        let mut sum = 0.0;
        for (i, found) in out.iter().enumerate() {
            let near = |found: f32, exact: f64| (f64::from(found) - exact).abs() < 1e-2;
            assert!(near(found[2], sum), "{threads} {i}: {found:?}");
            sum += f64::from(x[i]);
            assert!(near(found[1], sum) && near(found[0], total), "{threads} {i}: {found:?}");
            assert_eq!(found[0].to_bits(), out[0][0].to_bits(), "all threads have one sum");
        }
    }
}

#[kernel(consts(BINS = 2, 16, 128), block(128))]
fn rank_digits<const BINS: usize>(
    digits: &[u32],
    mut counters: Shared<[[Atomic<u32, scope::Block>; BINS]; 4]>,
    mut out: DisjointMut<[u32; 3]>,
    mut starts: DisjointMut<[u32; 2]>,
) {
    let own = thread::unique_index();
    let items: [u32; 3] = core::array::from_fn(|item| digits[radix::place::<3>(item)]);
    let ranked = radix::rank::<3, BINS, 4>(items, &mut counters);
    if let (Some(out), Some(starts)) = (out.get_mut(own), starts.get_mut(own)) {
        (*out, *starts) = (ranked.ranks, [ranked.start, ranked.count]);
    }
}

fn check_ranks<K: gpu_std::Kernel>(bins: u32) {
    for kind in 0..3 {
        let digits: Vec<u32> = randoms(384).into_iter().map(|r| [r as u32, 5, r as u32 % 3][kind]).collect();
        let mut out = vec![[9; 3]; 128];
        let mut starts = vec![[9; 2]; 128];
        launch::<K>([1; 3], [128, 1, 1], &Args::new().slice(&digits).view(&mut out).view(&mut starts));
        let mut order: Vec<usize> = (0..digits.len()).collect();
        order.sort_by_key(|&i| digits[i] % bins);
        let mut expected = vec![0; digits.len()];
        for (rank, i) in order.into_iter().enumerate() {
            expected[i] = rank as u32;
        }
        for (thread, found) in out.iter().enumerate() {
            for (item, rank) in found.iter().enumerate() {
                assert_eq!(*rank, expected[thread / 32 * 96 + item * 32 + thread % 32], "{bins} {kind}");
            }
        }
        for (digit, found) in starts.iter().enumerate() {
            let before = digits.iter().filter(|&d| ((d % bins) as usize) < digit).count() as u32;
            let count = digits.iter().filter(|&d| (d % bins) as usize == digit).count() as u32;
            let expected = if digit < bins as usize { [before, count] } else { [0, 0] };
            assert_eq!(*found, expected, "{bins} {kind} {digit}");
        }
    }
}

#[test]
fn ranks_sort_digits_and_keep_order() {
    check_ranks::<rank_digits<2>>(2);
    check_ranks::<rank_digits<16>>(16);
    check_ranks::<rank_digits<128>>(128);
}
