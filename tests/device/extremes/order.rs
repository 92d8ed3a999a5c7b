//! All kinds of NaN in sorts, searches, selections and extremes.

use warpsmith::ops::{self, Comparison, Order, SortKey};
use warpsmith::prelude::*;

use crate::common::{Random, TestNumber, for_types, stream};

/// Numbers and NaN of both signs, with several payloads.
fn numbers<T: TestNumber>(random: &mut Random, n: usize) -> Vec<T> {
    let sign = 1u64 << (8 * size_of::<T>() - 1);
    let infinity = T::nearest(f64::INFINITY).bits();
    let nan = |bits: u64| bytemuck::pod_read_unaligned::<T>(&bits.to_le_bytes()[..size_of::<T>()]);
    (0..n)
        .map(|_| match random.below(10) {
            0 => nan(infinity + 1 + random.bits() % (sign - infinity - 1)),
            1 => nan(sign | (infinity + 1 + random.bits() % (sign - infinity - 1))),
            2 => nan(sign | (sign - 1)),
            3 => nan(infinity + 1),
            4 => nan(if random.below(2) == 0 { infinity } else { sign | infinity }),
            5 => nan(if random.below(2) == 0 { 0 } else { sign }),
            6 => nan(if random.below(2) == 0 { 1 } else { sign | 1 }),
            _ => nan(random.bits() % (2 * infinity).min(sign)),
        })
        .collect()
}

/// Sort order: numbers by value, −0 before +0, then NaN without the sign bit, then NaN with it.
fn key<T: TestNumber>(x: T) -> (bool, u64) {
    let (sign, bits) = (1u64 << (8 * size_of::<T>() - 1), x.bits());
    let is_nan = x.to_f64().is_nan();
    let falling = |bits: u64| sign - 1 - (bits & (sign - 1));
    match (is_nan, bits & sign != 0) {
        (false, false) => (false, bits | sign),
        (false, true) => (false, falling(bits)),
        (true, false) => (true, bits & (sign - 1)),
        (true, true) => (true, sign | falling(bits)),
    }
}

fn sorts<T: TestNumber + SortKey>() {
    let (stream, mut random) = (stream(), Random::new());
    let bits = |x: &[T]| x.iter().map(|x| x.bits()).collect::<Vec<_>>();
    for n in [1, 2, 100, 3000, 20_011] {
        let x: Vec<T> = numbers(&mut random, n);
        let on_device = DeviceBuffer::from_host(&stream, &x).unwrap();
        for order in [Order::Ascending, Order::Descending] {
            let ordered = |x: &[T]| {
                let mut sorted = x.to_vec();
                sorted.sort_by_key(|x| key(*x));
                if order == Order::Descending {
                    sorted.reverse();
                }
                sorted
            };
            let expected = bits(&ordered(&x));
            let what = (T::NAME, n, order, "seed", random.seed);
            let mut out = DeviceBuffer::<T>::uninit(&stream, n).unwrap();
            ops::sort(&stream, order, &on_device, &mut out).unwrap();
            assert_eq!(bits(&out.to_host().unwrap()), expected, "{what:?}");

            let indices: Vec<u32> = (0..n as u32).collect();
            let indices = DeviceBuffer::from_host(&stream, &indices).unwrap();
            let mut places_out = DeviceBuffer::<u32>::uninit(&stream, n).unwrap();
            ops::sort_pairs(&stream, order, &on_device, &indices, &mut out, &mut places_out).unwrap();
            assert_eq!(bits(&out.to_host().unwrap()), expected, "pairs {what:?}");
            let from: Vec<T> = places_out.to_host().unwrap().iter().map(|&place| x[place as usize]).collect();
            assert_eq!(bits(&from), expected, "pairs {what:?}");

            let half = n / 3;
            let offsets = DeviceBuffer::from_host(&stream, &[0, half as u64, n as u64]).unwrap();
            ops::sort_segments(&stream, order, &on_device, &offsets, &mut out).unwrap();
            let [a, b] = [ordered(&x[..half]), ordered(&x[half..])];
            assert_eq!(bits(&out.to_host().unwrap()), [bits(&a), bits(&b)].concat(), "segments {what:?}");
        }
    }
}

#[test]
fn all_nan_are_sorted_last() {
    for_types!(sorts: f32, f64);
}

#[test]
fn nan_of_the_device_are_sorted_last() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[0.0f32, 1.0, -1.0, f32::INFINITY, -4.0]).unwrap();
    let mut out = DeviceBuffer::<f32>::uninit(&stream, 5).unwrap();
    // 0 / 0, 1, 1, ∞ / ∞, 1: two NaN values that the device produces.
    ops::div(&stream, &x, &x, &mut out).unwrap();
    let mut sorted = DeviceBuffer::<f32>::uninit(&stream, 5).unwrap();
    ops::sort(&stream, Order::Ascending, &out, &mut sorted).unwrap();
    let found = sorted.to_host().unwrap();
    assert!(found[..3] == [1.0; 3] && found[3..].iter().all(|x| x.is_nan()), "{found:?}");
    ops::sqrt(&stream, &x, &mut out).unwrap();
    ops::sort(&stream, Order::Ascending, &out, &mut sorted).unwrap();
    let found = sorted.to_host().unwrap();
    assert!(found[..3] == [0.0, 1.0, f32::INFINITY] && found[3..].iter().all(|x| x.is_nan()), "{found:?}");
    ops::sort(&stream, Order::Descending, &out, &mut sorted).unwrap();
    assert!(sorted.to_host().unwrap()[..2].iter().all(|x| x.is_nan()));
}

fn searches<T: TestNumber>() {
    let (stream, mut random) = (stream(), Random::new());
    let nan = f64::NAN;
    let mut sorted: Vec<T> = [f64::NEG_INFINITY, -1.0, -0.0, 0.0, 0.0, 1.0, f64::INFINITY, nan, -nan, nan]
        .map(T::nearest)
        .to_vec();
    if T::EPSILON == 0.0 {
        sorted =
            vec![T::nearest(f64::NEG_INFINITY), T::nearest(0.0), T::nearest(1.0), T::nearest(f64::INFINITY)];
        sorted.dedup();
    }
    let mut keys = sorted.clone();
    keys.extend(random.values::<T>(50, 3.0));
    let less = |a: &T, b: &T| a < b || !a.to_f64().is_nan() && b.to_f64().is_nan();
    let [x, k] = [&sorted, &keys].map(|x| DeviceBuffer::from_host(&stream, x).unwrap());
    let mut out = DeviceBuffer::<u64>::uninit(&stream, keys.len()).unwrap();
    ops::lower_bound(&stream, &x, &k, &mut out).unwrap();
    let expected: Vec<u64> = keys.iter().map(|k| sorted.partition_point(|x| less(x, k)) as u64).collect();
    assert_eq!(out.to_host().unwrap(), expected, "{} {keys:?}", T::NAME);
    ops::upper_bound(&stream, &x, &k, &mut out).unwrap();
    let expected: Vec<u64> = keys.iter().map(|k| sorted.partition_point(|x| !less(k, x)) as u64).collect();
    assert_eq!(out.to_host().unwrap(), expected, "{} {keys:?}", T::NAME);
}

#[test]
fn nan_is_found_after_all_numbers() {
    use half::{bf16, f16};
    for_types!(searches: f32, f64, f16, bf16, i32, u32, i64, u64);
}

fn choices<T: TestNumber + ops::Float>() {
    let (stream, mut random) = (stream(), Random::new());
    let x: Vec<T> = numbers(&mut random, 300);
    let on_device = DeviceBuffer::from_host(&stream, &x).unwrap();
    let what = (T::NAME, "seed", random.seed);
    let first = x.iter().position(|x| x.to_f64().is_nan()).unwrap() as u64;
    assert!(ops::min(&stream, &on_device).unwrap().to_f64().is_nan(), "{what:?}");
    assert!(ops::max(&stream, &on_device).unwrap().to_f64().is_nan(), "{what:?}");
    assert_eq!(ops::argmin(&stream, &on_device).unwrap(), first, "{what:?}");
    assert_eq!(ops::argmax(&stream, &on_device).unwrap(), first, "{what:?}");
    // The largest are NaN, in sort order.
    let (mut values, mut indices) =
        (DeviceBuffer::<T>::uninit(&stream, 20).unwrap(), DeviceBuffer::<u64>::uninit(&stream, 20).unwrap());
    let view = on_device.as_2d(1, 300).unwrap();
    ops::top_k(&stream, view, values.as_2d_mut(1, 20).unwrap(), indices.as_2d_mut(1, 20).unwrap()).unwrap();
    let nan: Vec<u64> = (0..300).filter(|&i| x[i as usize].to_f64().is_nan()).take(20).collect();
    assert_eq!(indices.to_host().unwrap(), nan, "{what:?}");
    // For NaN, only the comparison for inequality holds.
    let mut out = DeviceBuffer::<T>::uninit(&stream, 300).unwrap();
    let mut count = DeviceBuffer::<u64>::uninit(&stream, 1).unwrap();
    for bound in [0.0, f64::NEG_INFINITY, f64::INFINITY, f64::NAN].map(T::nearest) {
        type Holds<T> = fn(&T, &T) -> bool;
        let comparisons: [(Comparison, Holds<T>); 6] = [
            (Comparison::Less, |a, b| a < b),
            (Comparison::LessOrEqual, |a, b| a <= b),
            (Comparison::Greater, |a, b| a > b),
            (Comparison::GreaterOrEqual, |a, b| a >= b),
            (Comparison::Equal, |a, b| a == b),
            (Comparison::NotEqual, |a, b| a != b),
        ];
        for (comparison, holds) in comparisons {
            ops::select_if(&stream, comparison, bound, &on_device, &mut out, &mut count).unwrap();
            let expected: Vec<u64> = x.iter().filter(|x| holds(x, &bound)).map(|x| x.bits()).collect();
            let found = count.to_host().unwrap()[0] as usize;
            let kept: Vec<u64> = out.to_host().unwrap()[..found].iter().map(|x| x.bits()).collect();
            assert_eq!(kept, expected, "{comparison:?} {bound:?}, {what:?}");
        }
    }
    // Each NaN compares as different.
    let pairs: Vec<T> = x.iter().flat_map(|x| [*x, *x]).collect();
    let on_device = DeviceBuffer::from_host(&stream, &pairs).unwrap();
    let mut out = DeviceBuffer::<T>::uninit(&stream, 600).unwrap();
    ops::unique(&stream, &on_device, &mut out, &mut count).unwrap();
    let expected = pairs.iter().enumerate().filter(|(i, x)| *i == 0 || pairs[i - 1] != **x).count();
    assert_eq!(count.to_host().unwrap()[0], expected as u64, "{what:?}");
}

#[test]
fn nan_wins_and_is_selected_by_no_comparison() {
    use half::{bf16, f16};
    for_types!(choices: f32, f64, f16, bf16);
}
