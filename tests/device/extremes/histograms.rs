//! Even bins of wide, tiny and ordinary ranges compared with rational arithmetic, and the largest integers.

use std::cmp::Ordering;

use half::{bf16, f16};
use warpsmith::IMAGE;
use warpsmith::kernels::histogram::{Binned, Bins, histogram_even};
use warpsmith::ops::{self, BinRange};
use warpsmith::prelude::*;

use super::fixed::Fixed;
use super::{exponents, largest, two_to};
use crate::common::{Random, TestNumber, for_types, stream};

/// The next number below or above.
fn neighbor<T: TestNumber>(x: T, up: bool) -> T {
    let (sign, bits) = (1u64 << (8 * size_of::<T>() - 1), x.bits());
    let bits = match (bits & !sign == 0, (bits & sign == 0) == up) {
        (true, _) => {
            if up {
                1
            } else {
                sign | 1
            }
        }
        (false, true) => bits + 1,
        (false, false) => bits - 1,
    };
    bytemuck::pod_read_unaligned(&bits.to_le_bytes()[..size_of::<T>()])
}

/// Exact counts of all elements in the range.
fn exact_counts(x: &[f64], [lower, upper]: [f64; 2], is_inclusive: bool, bins: usize) -> Vec<u64> {
    let (first, width) = (Fixed::of(lower), Fixed::of(upper).minus(&Fixed::of(lower)));
    let mut counts = vec![0; bins];
    for &x in x.iter().filter(|&&x| x >= lower && (x < upper || is_inclusive && x == upper)) {
        let distance = Fixed::of(x).minus(&first).times(bins as u64);
        let (mut from, mut to) = (0, bins);
        while to - from > 1 {
            let middle = from.midpoint(to);
            let is_below =
                distance.clone().minus(&width.clone().times(middle as u64)).sign() == Ordering::Less;
            (from, to) = if is_below { (from, middle) } else { (middle, to) };
        }
        counts[from] += 1;
    }
    counts
}

fn even_bins<T: TestNumber + Binned>() {
    let (stream, mut random) = (stream(), Random::new());
    let ([smallest, normal, _], most) = (exponents::<T>(), largest::<T>());
    let mut ranges = vec![
        [-most, most],
        [0.0, most],
        [-most, 0.0],
        [most / 2.0, most],
        [-most, two_to(smallest)],
        [0.0, two_to(smallest)],
        [0.0, 4.0 * two_to(smallest)],
        [-3.0 * two_to(smallest), 7.0 * two_to(smallest)],
        [0.0, two_to(normal)],
        [-two_to(normal), 3.0 * two_to(normal)],
        [1.0, 1.0 + T::EPSILON],
        [1.0, 1.0 + 9.0 * T::EPSILON],
        [0.0, 1.0],
        [-0.1, 0.3],
        [0.0, 256.0],
        [-7.0, 13.0],
    ];
    for _ in 0..12 {
        let of = |random: &mut Random| {
            random.unit()
                * two_to(smallest / 2 + random.below((most.log2() as i32 - smallest / 2) as usize) as i32)
        };
        ranges.push([of(&mut random), of(&mut random)]);
    }
    for range in ranges {
        let [lower, upper] = range.map(T::nearest);
        if lower >= upper {
            continue;
        }
        for bins in [1, 6, 97, 256] {
            let mut x =
                vec![lower, upper, neighbor(lower, false), neighbor(lower, true), neighbor(upper, false)];
            x.extend([f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0].map(T::nearest));
            let (from, to) = (lower.to_f64(), upper.to_f64());
            for i in 0..=bins.min(60) {
                let i = if bins > 60 { random.below(bins + 1) } else { i };
                let share = i as f64 / bins as f64;
                // Values next to an edge, on either side.
                let edge = T::nearest(from * (1.0 - share) + to * share);
                x.extend([edge, neighbor(edge, true), neighbor(edge, false)]);
            }
            x.extend((0..100).map(|_| {
                let share = random.unit() * 0.55 + 0.5;
                T::nearest(from * (1.0 - share) + to * share)
            }));
            let exact: Vec<f64> = x.iter().map(|x| x.to_f64()).collect();
            let on_device = DeviceBuffer::from_host(&stream, &x).unwrap();
            let mut counts = DeviceBuffer::<u64>::uninit(&stream, bins).unwrap();
            let what = (T::NAME, lower, upper, bins, "seed", random.seed);
            ops::histogram_even(&stream, &on_device, lower..upper, &mut counts).unwrap();
            assert_eq!(counts.to_host().unwrap(), exact_counts(&exact, [from, to], false, bins), "{what:?}");
            ops::histogram_even(&stream, &on_device, lower..=upper, &mut counts).unwrap();
            assert_eq!(
                counts.to_host().unwrap(),
                exact_counts(&exact, [from, to], true, bins),
                "{what:?}, inclusive"
            );
        }
    }
}

#[test]
fn even_bins_are_exact_in_any_range() {
    for_types!(even_bins: f32, f64, f16, bf16);
}

#[test]
fn bins_of_many_are_exact() {
    let (stream, mut random) = (stream(), Random::new());
    for bins in [1 << 20, (1 << 19) + 3] {
        let x: Vec<f32> = (0..1000).map(|_| random.unit() as f32).collect();
        let exact: Vec<f64> = x.iter().map(|&x| f64::from(x)).collect();
        let on_device = DeviceBuffer::from_host(&stream, &x).unwrap();
        let mut counts = DeviceBuffer::<u64>::uninit(&stream, bins).unwrap();
        ops::histogram_even(&stream, &on_device, -0.7f32..0.9, &mut counts).unwrap();
        let range = [f64::from(-0.7f32), f64::from(0.9f32)];
        assert!(
            counts.to_host().unwrap() == exact_counts(&exact, range, false, bins),
            "seed {}",
            random.seed
        );
    }
}

fn counts_of<T: ops::Element<Scalar = T> + Binned>(
    x: &[T],
    range: impl BinRange<T>,
    bins: usize,
) -> Vec<u64> {
    let stream = stream();
    let mut counts = DeviceBuffer::<u64>::uninit(&stream, bins).unwrap();
    ops::histogram_even(&stream, &DeviceBuffer::from_host(&stream, x).unwrap(), range, &mut counts).unwrap();
    counts.to_host().unwrap()
}

#[test]
fn one_element_in_each_bin() {
    let wide = [-2.5e38f32, -1.5e38, -0.5e38, 0.5e38, 1.5e38, 2.5e38];
    assert_eq!(counts_of(&wide, -3e38..3e38, 6), [1; 6]);
    assert_eq!(counts_of(&wide.map(bf16::from_f32), bf16::from_f32(-3e38)..bf16::from_f32(3e38), 6), [1; 6]);
    assert_eq!(counts_of(&[1e-40f32, 3e-40, 6e-40, 9e-40], 0.0..1e-39, 4), [1; 4]);
    let tiny = [0u16, 0x10, 0x20, 0x30].map(bf16::from_bits);
    assert_eq!(counts_of(&tiny, bf16::from_bits(0)..bf16::from_bits(0x40), 4), [1; 4]);
    assert_eq!(counts_of(&[-1e308f64, 0.0, 1e308], -1.5e308..1.5e308, 3), [1; 3]);
    assert_eq!(counts_of(&[1e-310f64, 3e-310, 6e-310, 9e-310], 0.0..1e-309, 4), [1; 4]);
}

#[test]
fn the_largest_integers_are_counted() {
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(counts_of(&all, 0..=255, 256), [1; 256]);
    assert_eq!(counts_of(&all, 0..=255, 4), [64; 4]);
    assert_eq!(counts_of(&all, 7..=7, 1), [1]);
    assert_eq!(counts_of(&all, 0..255, 5), [51; 5]);
    let ends = [i32::MIN, -1, 0, i32::MAX];
    assert_eq!(counts_of(&ends, i32::MIN..=i32::MAX, 2), [2, 2]);
    assert_eq!(counts_of(&ends, i32::MIN..=i32::MAX, 4), [1, 1, 1, 1]);
    assert_eq!(counts_of(&ends, i32::MIN..i32::MAX, 1), [3]);
    let ends = [0, 1 << 31, u32::MAX - 1, u32::MAX];
    assert_eq!(counts_of(&ends, 0..=u32::MAX, 1 << 20).iter().sum::<u64>(), 4);
    assert_eq!(counts_of(&ends, 0..=u32::MAX, 4), [1, 0, 1, 2]);
    assert_eq!(counts_of(&ends, u32::MAX..=u32::MAX, 1), [1]);
    // 3 bins of 2³² numbers: edges between whole numbers.
    assert_eq!(counts_of(&[1431655765, 1431655766, 2863311530, 2863311531], 0..=u32::MAX, 3), [1, 2, 1]);
}

#[test]
fn empty_ranges_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1u8]).unwrap();
    let mut counts = DeviceBuffer::<u64>::zeros(&stream, 1).unwrap();
    for error in [
        ops::histogram_even(&stream, &x, 0..0, &mut counts),
        ops::histogram_even(&stream, &x, std::ops::RangeInclusive::new(9, 8), &mut counts),
        ops::histogram_even(
            &stream,
            &DeviceBuffer::from_host(&stream, &[1f64]).unwrap(),
            1.0..=1.0,
            &mut counts,
        ),
    ] {
        assert!(error.unwrap_err().to_string().contains("is empty"));
    }
}

/// The kernel itself accepts any edges.
#[test]
fn edges_of_more_bins_than_there_are_count_nowhere_else() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[0.9f32; 64]).unwrap();
    let edges = DeviceBuffer::from_host(&stream, &[0.0f64, 0.1, 0.2, 0.3]).unwrap();
    let kernel = stream.device().load(&IMAGE).unwrap().kernel::<histogram_even<f32, 4, 16>>().unwrap();
    let Bins { lower, last, factors, fraction, slack, .. } = f32::bins(2, 0.0, 1.0, false).unwrap();
    for table in [0, 4] {
        let mut counts = DeviceBuffer::<u64>::zeros(&stream, 2).unwrap();
        let [table, local] = [table, 3].map(SharedLen);
        let arguments = (2, lower, last, factors, fraction, slack, &edges, &x, table, local, &mut counts);
        kernel.launch(&stream, Launch::linear(1, 64), arguments).unwrap();
        assert_eq!(counts.to_host().unwrap(), [0, 64]);
    }
}
