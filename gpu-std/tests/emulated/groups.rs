//! Grids, clusters, blocks and tiles: ranks of a thread, barriers, and the operations of tiles.

use crate::common::{Args, launch, launch_clusters, launch_shared, random, randoms};
use gpu_std::Kernel;
use gpu_std::group::{Block, Cluster, Grid, Group};
use gpu_std::prelude::*;

/// Stores size and rank for all four groups, and whether the launch is cooperative.
#[kernel(cooperative)]
fn ranks(mut out: DisjointMut<[usize; 9]>) {
    let tile = Tile::<4>::current();
    let found = [
        Grid.size(),
        Grid.thread_rank(),
        Cluster.size(),
        Cluster.thread_rank(),
        Block.size(),
        Block.thread_rank(),
        Group::size(&tile),
        tile.thread_rank(),
        grid::is_cooperative() as usize,
    ];
    assert_eq!(tile.index() * 4 + tile.rank(), thread::linear_in_block());
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = found;
    }
}

#[test]
fn threads_know_their_groups() {
    for (grid, size, cluster) in [
        ([4, 1, 1], [64, 1, 1], [2, 1, 1]),
        ([2, 6, 2], [4, 3, 3], [1, 3, 2]),
        ([3, 1, 1], [4, 1, 1], [1, 1, 1]),
    ] {
        let threads = size.iter().product::<u32>() as usize;
        let blocks = grid.iter().product::<u32>() as usize;
        let in_cluster = cluster.iter().product::<u32>() as usize;
        let mut out = vec![[usize::MAX; 9]; threads * blocks];
        launch_clusters::<ranks>(grid, size, cluster, &Args::new().view(&mut out)).unwrap();
        let mut by_cluster = vec![0; threads * in_cluster];
        for (i, found) in out.into_iter().enumerate() {
            by_cluster[found[3]] += 1;
            let expected = [
                threads * blocks,
                i,
                threads * in_cluster,
                found[3],
                threads,
                i % threads,
                4,
                i % threads % 4,
                1,
            ];
            assert_eq!(found, expected);
            assert_eq!(found[3] % threads, i % threads);
        }
        assert!(by_cluster.iter().all(|&count| count == blocks / in_cluster), "{by_cluster:?}");
    }
}

#[kernel(arch = 90)]
fn split_barrier(rounds: u32, mut out: DisjointMut<u32>) {
    let slots = shared_array![u32; 2];
    let (rank, blocks) = (cluster::block_rank(), cluster::blocks());
    let mut seen = 0;
    cluster::sync();
    for round in 0..rounds {
        let slot = slots.wrapping_add(round as usize % 2);
        if thread::linear_in_block() == 0 {
            // SAFETY: one thread of the block writes. The value is read after the barrier, and written again after the
            // next one.
            unsafe { slot.write(round * 100 + rank) };
        }
        cluster::arrive();
        // SAFETY: no block of the cluster ends before the last barrier.
        let next = unsafe { cluster::map_shared(slot, (rank + 1) % blocks) };
        // SAFETY: as above.
        assert_eq!(unsafe { cluster::shared_rank(next) }, (rank + 1) % blocks);
        cluster::wait();
        // SAFETY: as above.
        seen += unsafe { next.read() };
    }
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out = seen;
    }
    cluster::sync();
}

#[test]
fn a_split_cluster_barrier_orders_shared_memory() {
    for cluster in [1, 2, 8, 16] {
        let mut out = vec![0_u32; 32 * 33];
        launch_clusters::<split_barrier>(
            [32, 1, 1],
            [33, 1, 1],
            [cluster, 1, 1],
            &Args::new().value(6_u32).view(&mut out),
        )
        .unwrap();
        for (i, seen) in out.into_iter().enumerate() {
            let next = (i as u32 / 33 % cluster + 1) % cluster;
            assert_eq!(seen, 1500 + 6 * next, "thread {i} in clusters of {cluster}");
        }
    }
}

#[test]
fn options_reach_the_registry() {
    assert!(ranks::spec().cooperative && !ranks::spec().dependent);
    assert!(after_the_last::spec().dependent && !after_the_last::spec().cooperative);
}

/// Calls both functions of programmatic dependent launch, which have no effect on the emulated device.
#[kernel(dependent)]
fn after_the_last(mut out: DisjointMut<u32>) {
    grid::launch_dependents();
    if let Some(out) = out.get_mut(thread::unique_index()) {
        *out += 1;
    }
    grid::dependency_wait();
}

type Results = [u64; 14];

/// Computes the results of a tile for one of its threads, while the other tiles of the warp execute other code.
#[kernel(consts(N = 1, 2, 4, 8, 16, 32))]
fn tiles<const N: u32>(operand: u32, input: &[u64], mut out: DisjointMut<Results>) {
    let tile = Tile::<N>::current();
    let index = thread::unique_index();
    if tile.index() % 3 == 2 {
        return;
    }
    let value = input[index.get()];
    let low = value as i32;
    let first = |a: u64, b: u64| if a != 0 { a } else { b };
    let results = [
        tile.shuffle(value, operand),
        tile.shuffle_up(value, operand),
        tile.shuffle_down(value, operand),
        tile.shuffle_xor(value, operand),
        tile.all(value.is_multiple_of(2)) as u64,
        tile.any(value.is_multiple_of(2)) as u64,
        tile.ballot(value.is_multiple_of(2)) as u64,
        tile.match_any(value % 3) as u64,
        tile.match_all(value % 3) as u64,
        tile.reduce_add(value),
        tile.reduce_min(low) as u64,
        tile.reduce(value as u32 as f64, |a, b| a + b) as u64,
        tile.inclusive_scan(value % 4, first),
        tile.exclusive_scan(value, 7, u64::wrapping_add),
    ];
    tile.sync();
    if let Some(out) = out.get_mut(index) {
        *out = results;
    }
}

fn check_tiles<K: Kernel>(n: usize) {
    for round in 0..12 {
        let operand = [0, 1, n as u32 / 2, random() as u32 % 32][round % 4];
        let threads = 96;
        let input = randoms(threads);
        let mut out = vec![[u64::MAX; 14]; threads];
        launch::<K>(
            [1, 1, 1],
            [threads as u32, 1, 1],
            &Args::new().value(operand).slice(&input).view(&mut out),
        );
        for (t, (tile, found)) in input.chunks(n).zip(out.chunks(n)).enumerate() {
            if t % 3 == 2 {
                assert!(found.iter().all(|results| *results == [u64::MAX; 14]));
                continue;
            }
            let mask = |f: &dyn Fn(u64) -> bool| {
                tile.iter().enumerate().filter(|(_, v)| f(**v)).fold(0, |mask, (i, _)| mask | 1 << i)
            };
            let even = mask(&|v| v.is_multiple_of(2));
            let all: u64 = u64::MAX >> (64 - n);
            let operand = operand as usize;
            for (i, results) in found.iter().enumerate() {
                let same = mask(&|v| v % 3 == tile[i] % 3);
                let expected: Results = [
                    tile[operand % n],
                    tile[if operand <= i { i - operand } else { i }],
                    tile[if i + operand < n { i + operand } else { i }],
                    tile[i ^ (operand % n)],
                    (even == all) as u64,
                    (even != 0) as u64,
                    even,
                    same,
                    (same == all) as u64,
                    tile.iter().fold(0, |a, b| a.wrapping_add(*b)),
                    tile.iter().map(|v| *v as i32).min().unwrap() as u64,
                    tile.iter().map(|v| *v as u32 as f64).sum::<f64>() as u64,
                    tile[..=i].iter().map(|v| v % 4).find(|v| *v != 0).unwrap_or(0),
                    tile[..i].iter().fold(7, |a, b| a.wrapping_add(*b)),
                ];
                assert_eq!(*results, expected, "thread {i} of {n}, operand {operand}");
            }
        }
    }
}

#[test]
fn tiles_do_what_their_threads_alone_would() {
    check_tiles::<tiles<1>>(1);
    check_tiles::<tiles<2>>(2);
    check_tiles::<tiles<4>>(4);
    check_tiles::<tiles<8>>(8);
    check_tiles::<tiles<16>>(16);
    check_tiles::<tiles<32>>(32);
}

#[kernel]
fn uneven() {
    let _ = Tile::<8>::current();
}

#[test]
fn a_tile_that_divides_no_block_panics() {
    launch::<uneven>([1, 1, 1], [24, 1, 1], &Args::new());
    let fault = launch_shared::<uneven>([1, 1, 1], [20, 1, 1], 0, &Args::new()).unwrap_err();
    assert!(fault.message().contains("must be a multiple of the tile size"), "{fault}");
    assert!(fault.location().is_some_and(|at| at.contains("groups.rs")), "{fault}");
}
