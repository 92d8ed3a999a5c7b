//! Histograms compared with counting on the host: even bins and edges, skewed data, values out of range and NaN.

use crate::common::{LENGTHS, Padded, Random, TestNumber, for_types, stream};
use half::{bf16, f16};
use warpsmith::kernels::histogram::Binned;
use warpsmith::ops::{self, Config};
use warpsmith::prelude::*;

#[test]
fn even_bins_of_integers_are_exact() {
    let stream = stream();
    let mut random = Random::new();
    for (round, n) in LENGTHS.into_iter().enumerate() {
        for (lower, upper, bins) in
            [(0, 256, 256), (-1000, 3001, 7), (i32::MIN, i32::MAX, 1000), (5, 6, 1), (-3, 0, 100)]
        {
            let x: Vec<i32> = (0..n)
                .map(|i| match round % 3 {
                    0 => random.bits() as i32,
                    1 => (random.bits() % 5000) as i32 - 1500,
                    // Nearly all values in one bin.
                    _ => {
                        if i % 100 == 0 {
                            random.bits() as i32 % 300
                        } else {
                            17
                        }
                    }
                })
                .collect();
            let mut expected = vec![0u64; bins];
            for &value in x.iter().filter(|&&value| (lower..upper).contains(&value)) {
                let distance = i128::from(value) - i128::from(lower);
                expected[(distance * bins as i128 / (i128::from(upper) - i128::from(lower))) as usize] += 1;
            }
            let input = Padded::new(&stream, round % 4, &x);
            let mut counts = Padded::<u64>::poisoned(&stream, 1, bins);
            ops::histogram_even(&stream, input.get(), lower..upper, counts.get_mut()).unwrap();
            let what = (n, lower, upper, bins, "seed", random.seed);
            assert_eq!(counts.read(), expected, "{what:?}");
        }
    }
}

fn even_bins_of<T: TestNumber + Binned>() {
    let stream = stream();
    let mut random = Random::new();
    for (round, n) in LENGTHS.into_iter().enumerate() {
        let mut x: Vec<T> = random.values(n, 1.5);
        for special in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, -1.0, 1.0, -0.0] {
            if n > 0 {
                x[random.below(n)] = T::nearest(special);
            }
        }
        let mut expected = vec![0u64; 64];
        for value in x.iter().map(|value| value.to_f64()).filter(|value| (-1.0..1.0).contains(value)) {
            // Computed without `value + 1.0`, which would round.
            expected[((value * 32.0).floor() + 32.0) as usize] += 1;
        }
        let input = Padded::new(&stream, round % 4, &x);
        let mut counts = Padded::<u64>::poisoned(&stream, 0, 64);
        ops::histogram_even(&stream, input.get(), T::nearest(-1.0)..T::nearest(1.0), counts.get_mut())
            .unwrap();
        assert_eq!(counts.read(), expected, "{n}, seed {}", random.seed);
    }
}

#[test]
fn even_bins_of_floats_leave_out_nan() {
    for_types!(even_bins_of: f32, f64, f16, bf16);
}

fn edges_of<T: TestNumber>() {
    let stream = stream();
    let mut random = Random::new();
    for (round, n) in LENGTHS.into_iter().enumerate() {
        // Few edges, some of them equal; and more edges and counts than fit in shared memory.
        let edge_count = [2, 9, 300, 7000][round % 4];
        let mut edges: Vec<T> = (0..edge_count).map(|_| T::nearest((random.below(1000)) as f64)).collect();
        edges.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let mut x: Vec<T> = (0..n).map(|_| T::nearest(random.below(1100) as f64)).collect();
        if n > 0 {
            x[random.below(n)] = T::nearest(f64::NAN);
            x[random.below(n)] = T::nearest(f64::INFINITY);
            x[random.below(n)] = edges[edge_count - 1];
        }
        let mut expected = vec![0u64; edge_count - 1];
        for value in &x {
            let reached = edges.partition_point(|edge| edge <= value);
            if (1..edge_count).contains(&reached) {
                expected[reached - 1] += 1;
            }
        }
        let (input, edges) = (Padded::new(&stream, round % 4, &x), Padded::new(&stream, 1, &edges));
        let mut counts = Padded::<u64>::poisoned(&stream, 0, edge_count - 1);
        ops::histogram_edges(&stream, input.get(), edges.get(), counts.get_mut()).unwrap();
        assert_eq!(counts.read(), expected, "{n}, {edge_count} edges, seed {}", random.seed);
    }
}

#[test]
fn edges_bound_bins_from_below() {
    for_types!(edges_of: f32, f64, f16, bf16, i32, u32, i64, u64);
}

#[test]
fn bytes_are_counted_in_any_configuration() {
    let stream = stream();
    let mut random = Random::new();
    for (n, bins) in [(1000, 16), (3, 8), (15_003, 256), (3108, 20_000), (2100, 14)] {
        let x: Vec<u8> = (0..n).map(|_| random.bits() as u8).collect();
        let mut expected = vec![0u64; bins];
        for &value in x.iter().filter(|&&value| value < 200) {
            expected[usize::from(value) * bins / 200] += 1;
        }
        let input = DeviceBuffer::from_host(&stream, &x).unwrap();
        for config in
            [None, Some(Config { block: 96, grid: "blocks:3".parse().unwrap(), items: 4, vector: 16 })]
        {
            let mut counts = DeviceBuffer::from_host(&stream, &vec![9; bins]).unwrap();
            ops::with_config(config, || ops::histogram_even(&stream, &input, 0..200, &mut counts)).unwrap();
            assert_eq!(counts.to_host().unwrap(), expected, "{bins} bins, seed {}", random.seed);
        }
    }
}

fn many_bins_of<T: TestNumber + Binned>() {
    let (stream, mut random) = (stream(), Random::new());
    // Around the numbers of bins at which fewer copies of the counters, or not all edges, fit in shared memory.
    for bins in [255, 256, 257, 2048, 2049, 3072, 3073, 4096, 4097, 6143, 6144, 6145, 8192] {
        // Enough elements for tiles whose loads overlap with the counting of other tiles.
        let x: Vec<T> = (0..20_001).map(|_| T::nearest(random.below(2 * bins) as f64 / 2.0)).collect();
        let mut expected = vec![0; bins];
        for value in x.iter().map(|value| value.to_f64()).filter(|&value| value < bins as f64) {
            expected[value as usize] += 1;
        }
        let input = Padded::new(&stream, 1, &x);
        let mut counts = Padded::<u64>::poisoned(&stream, 0, bins);
        let range = T::nearest(0.0)..T::nearest(bins as f64);
        ops::histogram_even(&stream, input.get(), range, counts.get_mut()).unwrap();
        assert!(counts.read() == expected, "{bins} bins, seed {}", random.seed);
        let edges: Vec<T> = (0..=bins).map(|edge| T::nearest(edge as f64)).collect();
        let edges = Padded::new(&stream, 0, &edges);
        ops::histogram_edges(&stream, input.get(), edges.get(), counts.get_mut()).unwrap();
        assert!(counts.read() == expected, "{bins} edges, seed {}", random.seed);
    }
}

#[test]
fn any_number_of_bins_is_counted() {
    for_types!(many_bins_of: f32, f64);
}

#[test]
fn impossible_histograms_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 10]).unwrap();
    let mut counts = DeviceBuffer::from_host(&stream, &[7u64; 6]).unwrap();
    let edges = DeviceBuffer::from_host(&stream, &[1.0f32; 4]).unwrap();
    let check = |outcome: Result<(), warpsmith::Error>, words: &[&str]| {
        let text = outcome.unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} are not in: {text}");
    };
    check(ops::histogram_even(&stream, &x, 1.0..1.0, &mut counts), &["histogram_even", "1.0", "is empty"]);
    check(ops::histogram_even(&stream, &x, 0.0..f32::INFINITY, &mut counts), &["inf", "finite"]);
    check(ops::histogram_even(&stream, &x, f32::NAN..1.0, &mut counts), &["NaN"]);
    check(ops::histogram_even(&stream, &x, 0.0..1.0, counts.slice_mut(..0)), &["0 elements", "at least one"]);
    check(ops::histogram_edges(&stream, &x, edges.slice(..1), &mut counts), &["1 edges", "two"]);
    check(ops::histogram_edges(&stream, &x, &edges, &mut counts), &["counts", "6", "3"]);
    assert_eq!(counts.to_host().unwrap(), [7; 6]);
    let none = DeviceBuffer::<f32>::from_host(&stream, &[]).unwrap();
    ops::histogram_even(&stream, &none, 0.0..1.0, &mut counts).unwrap();
    assert_eq!(counts.to_host().unwrap(), [0; 6]);
}
