//! Kernels with barriers between blocks, tiles, and overlapping launches, through the runtime.

use crate::common::{Random, device, stream};
use test_kernels::IMAGE;
use test_kernels::cooperative::{
    BINS, block_scan, chain_step, cluster_histogram, cluster_sync_chain, cluster_sync_rounds,
    cooperative_sum, diffuse, diffuse_step, empty, empty_dependent, global_histogram, grid_sync_chain,
    grid_sync_rounds, partial_sum, spin_dependent, spin_plain, tile_reduce, tile_scan,
};
use warpsmith::gpu_std::Kernel;
use warpsmith::prelude::*;
use warpsmith::{Error, TypedKernel};

fn kernel<K: Kernel>() -> TypedKernel<K> {
    device().load(&IMAGE).unwrap().kernel::<K>().unwrap()
}

/// Number of blocks that are certainly resident at once: one per SM.
fn blocks() -> u32 {
    let device = device();
    if device.is_emulated() { 9 } else { device.properties().multiprocessors }
}

/// Returns true if the device has clusters.
fn has_clusters() -> bool {
    let device = device();
    device.is_emulated() || device.properties().capability.0 >= 9
}

/// Checks that a kernel with clusters is missing on a device without clusters.
fn assert_not_in_image<K: Kernel>() {
    let error = device().load(&IMAGE).unwrap().kernel::<K>().unwrap_err();
    assert!(matches!(error, Error::KernelNotInImage { .. }), "{error}");
}

/// Result of the chains, if each thread takes the value of the thread `threads` further on, within groups of `group`
/// threads.
fn chain(all: usize, group: usize, threads: usize, rounds: u32) -> Vec<u32> {
    let mut values: Vec<u32> = (0..all as u32).collect();
    for round in 0..rounds {
        let next = |i: usize| i / group * group + (i % group + threads) % group;
        values = (0..all).map(|i| chain_step(values[next(i)], round)).collect();
    }
    values
}

#[test]
fn the_grid_meets_again_and_again() {
    let stream = stream();
    let kernel = kernel::<grid_sync_chain>();
    for threads in [32, 96, 256] {
        for blocks in [1, 2, blocks()] {
            let all = (blocks * threads) as usize;
            let mut values = DeviceBuffer::<u32>::zeros(&stream, 2 * all).unwrap();
            for rounds in [0, 1, 2, 57] {
                let mut out = DeviceBuffer::<u32>::zeros(&stream, all).unwrap();
                let launch = Launch::grid_block(blocks, threads);
                // SAFETY: there are two elements per thread, and nothing else uses them.
                unsafe { kernel.launch_unsafe(&stream, launch, (rounds, &mut values, &mut out)) }.unwrap();
                let expected = chain(all, all, threads as usize, rounds);
                assert!(out.to_host().unwrap() == expected, "{blocks} blocks of {threads}, {rounds} rounds");
            }
        }
    }
    let rounds = self::kernel::<grid_sync_rounds>();
    for _ in 0..20 {
        rounds.launch(&stream, Launch::grid_block(blocks(), 64), (50u32,)).unwrap();
    }
    stream.synchronize().unwrap();
}

#[test]
fn a_cooperative_sum_is_that_of_two_launches() {
    let stream = stream();
    let (together, part) = (kernel::<cooperative_sum>(), kernel::<partial_sum>());
    let mut random = Random::new();
    for n in [0, 1, 1000, 100_003] {
        let host: Vec<f32> = random.values(n, 1.0);
        let input = DeviceBuffer::from_host(&stream, &host).unwrap();
        for (blocks, threads) in [(1, 32), (blocks(), 64), (blocks(), 256)] {
            let mut partials = DeviceBuffer::<f32>::zeros(&stream, blocks as usize).unwrap();
            let mut sums = DeviceBuffer::<f32>::zeros(&stream, 2).unwrap();
            let (mut first, mut second) = sums.split_at_mut(1);
            let launch = Launch::grid_block(blocks, threads);
            // SAFETY: one-dimensional launches, with one element per block.
            unsafe {
                together.launch_unsafe(&stream, launch, (&input, &mut partials, &mut first)).unwrap();
                part.launch_unsafe(&stream, launch, (&input, &mut partials)).unwrap();
                part.launch_unsafe(&stream, Launch::grid_block(1, threads), (&partials, &mut second))
                    .unwrap();
            }
            let exact: f64 = host.iter().copied().map(f64::from).sum();
            let scale: f64 = host.iter().map(|v| f64::from(v.abs())).sum();
            for sum in sums.to_host().unwrap() {
                let error = (f64::from(sum) - exact).abs();
                assert!(error <= 1e-6 * scale, "{sum}, not {exact}: n {n}, seed {}", random.seed);
            }
        }
    }
}

#[test]
fn one_cooperative_launch_equals_many_steps() {
    let stream = stream();
    let (together, step) = (kernel::<diffuse>(), kernel::<diffuse_step>());
    let mut random = Random::new();
    for (len, rounds) in [(2, 3), (1000, 10), (20_001, 7)] {
        let host: Vec<f32> = random.values(len, 10.0);
        let mut sides = [host.clone(), vec![0.0; len]].map(|v| DeviceBuffer::from_host(&stream, &v).unwrap());
        let mut steps = [host, vec![0.0; len]].map(|v| DeviceBuffer::from_host(&stream, &v).unwrap());
        let launch = Launch::grid_block(blocks(), 128);
        let [a, b] = &mut sides;
        // SAFETY: two arrays of this length.
        unsafe { together.launch_unsafe(&stream, launch, (rounds, &mut *a, &mut *b, len)) }.unwrap();
        for _ in 0..rounds {
            let [a, b] = &mut steps;
            // SAFETY: as above.
            unsafe { step.launch_unsafe(&stream, launch, (&*a, &mut *b, len)) }.unwrap();
            steps.swap(0, 1);
        }
        let result = &sides[rounds as usize % 2];
        assert!(result.to_host().unwrap() == steps[0].to_host().unwrap(), "{len}, seed {}", random.seed);
    }
}

#[test]
fn clusters_meet_and_read_each_others_shared_memory() {
    if !has_clusters() {
        return assert_not_in_image::<cluster_sync_rounds>();
    }
    let stream = stream();
    let (kernel, rounds) = (kernel::<cluster_sync_chain>(), kernel::<cluster_sync_rounds>());
    for cluster in [1u32, 2, 4, 8] {
        for threads in [32u32, 100, 256] {
            let all = (16 * threads) as usize;
            let launch = Launch::grid_block(16, threads).cluster((cluster, 1, 1));
            for count in [1, 2, 31] {
                let mut out = DeviceBuffer::<u32>::zeros(&stream, all).unwrap();
                kernel.launch(&stream, launch, (count, &mut out)).unwrap();
                let expected = chain(all, (cluster * threads) as usize, threads as usize, count);
                assert!(out.to_host().unwrap() == expected, "{threads} threads in clusters of {cluster}");
            }
            rounds.launch(&stream, launch, (20u32,)).unwrap();
        }
    }
    stream.synchronize().unwrap();
}

#[test]
fn histograms_by_clusters_and_by_global_atomics_agree() {
    let stream = stream();
    let mut random = Random::new();
    let host: Vec<u32> = random.values(50_001, 0.0);
    let mut expected = vec![0u32; BINS];
    host.iter().for_each(|value| expected[*value as usize % BINS] += 1);
    let data = DeviceBuffer::from_host(&stream, &host).unwrap();
    let mut bins = DeviceBuffer::<u32>::zeros(&stream, BINS).unwrap();
    kernel::<global_histogram>().launch(&stream, Launch::grid_block(8, 128), (&data, &mut bins)).unwrap();
    assert!(bins.to_host().unwrap() == expected, "seed {}", random.seed);
    if !has_clusters() {
        return assert_not_in_image::<cluster_histogram>();
    }
    for cluster in [4, 8] {
        let mut bins = DeviceBuffer::<u32>::zeros(&stream, BINS).unwrap();
        let launch = Launch::grid_block(16, 128).cluster((cluster, 1, 1));
        kernel::<cluster_histogram>().launch(&stream, launch, (&data, &mut bins)).unwrap();
        assert!(bins.to_host().unwrap() == expected, "clusters of {cluster}, seed {}", random.seed);
    }
}

macro_rules! check_tiles {
    ($($n:literal),*) => { $( {
        let (stream, mut random) = (stream(), Random::new());
        let n = 9600;
        let (floats, integers): (Vec<f32>, Vec<u32>) = (random.values(n, 1.0), random.values(n, 1.0));
        let launch = Launch::linear(n, 96);
        let input = DeviceBuffer::from_host(&stream, &floats).unwrap();
        let mut sums = DeviceBuffer::<f32>::zeros(&stream, n).unwrap();
        kernel::<tile_reduce<$n>>().launch(&stream, launch, (&input, &mut sums)).unwrap();
        let input = DeviceBuffer::from_host(&stream, &integers).unwrap();
        let mut scans = DeviceBuffer::<u32>::zeros(&stream, n).unwrap();
        kernel::<tile_scan<$n>>().launch(&stream, launch, (&input, &mut scans)).unwrap();
        let (sums, scans) = (sums.to_host().unwrap(), scans.to_host().unwrap());
        for tile in 0..n / $n {
            let range = tile * $n..(tile + 1) * $n;
            let exact: f64 = floats[range.clone()].iter().copied().map(f64::from).sum();
            let mut running = 0u32;
            for i in range.clone() {
                assert!((f64::from(sums[i]) - exact).abs() < 1e-5, "tile {tile} of {}, seed {}", $n, random.seed);
                assert_eq!(sums[i].to_bits(), sums[range.start].to_bits(), "all threads have the same bits");
                running = running.wrapping_add(integers[i]);
                assert_eq!(scans[i], running, "element {i} in tiles of {}, seed {}", $n, random.seed);
            }
        }
    } )* };
}

#[test]
fn tiles_reduce_and_scan() {
    check_tiles!(1, 2, 4, 8, 16, 32);
}

#[test]
fn blocks_reduce_and_scan() {
    let (stream, mut random) = (stream(), Random::new());
    for threads in [1usize, 31, 33, 100, 256, 1000] {
        let n = 7 * threads - threads / 2;
        let host: Vec<u32> = random.values(n, 1.0);
        let input = DeviceBuffer::from_host(&stream, &host).unwrap();
        let mut scans = DeviceBuffer::<u32>::zeros(&stream, n).unwrap();
        let mut sums = DeviceBuffer::<u32>::zeros(&stream, 7).unwrap();
        let launch = Launch::grid_block(7, threads as u32);
        // SAFETY: `sums` has one element per block.
        unsafe { kernel::<block_scan>().launch_unsafe(&stream, launch, (&input, &mut scans, &mut sums)) }
            .unwrap();
        let (scans, sums) = (scans.to_host().unwrap(), sums.to_host().unwrap());
        for ((values, scans), sum) in host.chunks(threads).zip(scans.chunks(threads)).zip(sums) {
            let mut running = 0u32;
            for (value, scan) in values.iter().zip(scans) {
                running = running.wrapping_add(*value);
                assert_eq!(*scan, running, "blocks of {threads}, seed {}", random.seed);
            }
            assert_eq!(sum, running, "blocks of {threads}, seed {}", random.seed);
        }
    }
}

#[test]
fn dependent_launches_come_one_after_the_other() {
    let stream = stream();
    let (plain, dependent) = (kernel::<spin_plain>(), kernel::<spin_dependent>());
    let (nothing, nothing_dependent) = (kernel::<empty>(), kernel::<empty_dependent>());
    let n = 64 * blocks() as usize;
    let launch = Launch::linear(n, 64);
    let mut counters = DeviceBuffer::<u32>::zeros(&stream, n).unwrap();
    let cycles = 2000u64;
    // Each launch adds 1 to the result of the previous one, without atomics.
    for round in 0..60 {
        dependent.launch(&stream, launch, (cycles, &mut counters)).unwrap();
        dependent.launch(&stream, launch.dependent(), (cycles / 2, &mut counters)).unwrap();
        if round % 3 == 0 {
            plain.launch(&stream, launch, (0u64, &mut counters)).unwrap();
        }
        nothing_dependent.launch(&stream, Launch::grid_block(1, 32), ()).unwrap();
        nothing.launch(&stream, Launch::grid_block(1, 32), ()).unwrap();
    }
    assert!(counters.to_host().unwrap().iter().all(|&count| count == 140));
}
