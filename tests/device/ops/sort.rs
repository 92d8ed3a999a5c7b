//! Sorts and searches compared with the host: odd lengths, unaligned arrays, equal keys, NaN and negative zero.

use std::cmp::Ordering;

use crate::common::{LENGTHS, Padded, Random, TestNumber, for_types, stream};
use half::{bf16, f16};
use warpsmith::ops::{self, Order, SortKey};
use warpsmith::prelude::*;

/// A key with the total order of the sorts.
trait Total: TestNumber + SortKey {
    fn order(&self, other: &Self) -> Ordering;
}

macro_rules! total {
    ($($t:ty: $order:expr;)*) => { $(
        impl Total for $t {
            fn order(&self, other: &Self) -> Ordering {
                $order(self, other)
            }
        }
    )* };
}
total! {
    // NaN with the sign bit set comes after all others.
    f32: |a: &f32, b: &f32| (a.is_nan() && a.is_sign_negative()).cmp(&(b.is_nan() && b.is_sign_negative())).then(a.total_cmp(b));
    f64: |a: &f64, b: &f64| (a.is_nan() && a.is_sign_negative()).cmp(&(b.is_nan() && b.is_sign_negative())).then(a.total_cmp(b));
    i32: i32::cmp; u32: u32::cmp; i64: i64::cmp; u64: u64::cmp;
}

/// Random bits (including NaN), few distinct keys, keys that differ in a single digit, or special keys.
fn keys<T: TestNumber>(random: &mut Random, n: usize, kind: usize) -> Vec<T> {
    let of_bits = |bits: u64| bytemuck::pod_read_unaligned(&bits.to_le_bytes()[..size_of::<T>()]);
    let special = [0.0, -0.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1.0, -1.0];
    (0..n)
        .map(|_| match kind % 4 {
            0 => of_bits(random.bits()),
            1 => T::nearest(random.below(7) as f64 - 3.0),
            2 => of_bits(0x4011_2233_4455_0077 | (random.bits() & 0xff) << 8),
            _ => T::nearest(special[random.below(special.len())]),
        })
        .collect()
}

fn in_order<T: Total>(order: Order) -> impl Fn(&T, &T) -> Ordering {
    move |a, b| match order {
        Order::Ascending => a.order(b),
        Order::Descending => b.order(a),
    }
}

fn bits<T: TestNumber>(values: &[T]) -> Vec<u64> {
    values.iter().map(|value| value.bits()).collect()
}

/// Lengths of the other tests, and lengths at and around a tile of 4-byte and 8-byte keys.
fn lengths() -> impl Iterator<Item = usize> {
    LENGTHS.into_iter().chain([3455, 3456, 6911, 6912, 6913])
}

fn keys_of<T: Total>() {
    let stream = stream();
    let mut random = Random::new();
    for (round, n) in lengths().enumerate() {
        let order = [Order::Ascending, Order::Descending][round % 2];
        let mut x: Vec<T> = keys(&mut random, n, round / 2);
        let input = Padded::new(&stream, round % 4, &x);
        let mut sorted = Padded::<T>::poisoned(&stream, round % 3, n);
        ops::sort(&stream, order, input.get(), sorted.get_mut()).unwrap();
        x.sort_by(in_order(order));
        assert_eq!(bits(&sorted.read()), bits(&x), "{n} {order:?}, seed {}", random.seed);
    }
}

#[test]
fn keys_are_sorted() {
    for_types!(keys_of: f32, f64, i32, u32, i64, u64);
}

fn pairs_of<K: Total, V: TestNumber>() {
    let stream = stream();
    let mut random = Random::new();
    for (round, n) in lengths().enumerate() {
        let order = [Order::Descending, Order::Ascending][round % 2];
        let x: Vec<K> = keys(&mut random, n, round / 2);
        // The values are the original indices of the keys, so that the test detects whether equal keys keep their
        // order.
        let indices: Vec<V> = (0..n).map(|i| V::nearest(i as f64)).collect();
        let mut pairs: Vec<(K, V)> = x.iter().copied().zip(indices.iter().copied()).collect();
        pairs.sort_by(|a, b| in_order(order)(&a.0, &b.0));
        let (expected_keys, expected): (Vec<K>, Vec<V>) = pairs.into_iter().unzip();
        let (keys, values) = (Padded::new(&stream, round % 4, &x), Padded::new(&stream, 1, &indices));
        let (mut keys_out, mut values_out) =
            (Padded::<K>::poisoned(&stream, 0, n), Padded::<V>::poisoned(&stream, 3, n));
        ops::sort_pairs(&stream, order, keys.get(), values.get(), keys_out.get_mut(), values_out.get_mut())
            .unwrap();
        let what = (n, order, "seed", random.seed);
        assert_eq!(bits(&keys_out.read()), bits(&expected_keys), "{what:?}");
        assert_eq!(bits(&values_out.read()), bits(&expected), "{what:?}");
    }
}

#[test]
fn pairs_keep_the_order_of_equal_keys() {
    pairs_of::<u32, u32>();
    pairs_of::<f32, u64>();
    pairs_of::<i64, i32>();
    pairs_of::<f64, f64>();
}

fn segments_of<T: Total>() {
    let stream = stream();
    let mut random = Random::new();
    for round in 0..4 {
        let lengths = match round {
            0 => vec![0, 1, 0, 2, 33, 0],
            1 => vec![6912, 6913, 5, 3456, 3457],
            2 => vec![20_000],
            _ => (0..40).map(|_| random.below(40)).collect(),
        };
        let order = [Order::Ascending, Order::Descending][round % 2];
        // Elements before the first and after the last segment are unchanged.
        let mut offsets = vec![3_u64];
        offsets.extend(lengths.iter().scan(3, |sum, len| {
            *sum += *len as u64;
            Some(*sum)
        }));
        let n = *offsets.last().unwrap() as usize + 5;
        let x: Vec<T> = keys(&mut random, n, round);
        let mut expected = vec![T::poison(); n];
        for ends in offsets.windows(2) {
            let segment = ends[0] as usize..ends[1] as usize;
            expected[segment.clone()].copy_from_slice(&x[segment.clone()]);
            expected[segment].sort_by(in_order(order));
        }
        let (input, ends) = (Padded::new(&stream, 1, &x), Padded::new(&stream, 0, &offsets));
        let mut sorted = Padded::<T>::poisoned(&stream, 3, n);
        ops::sort_segments(&stream, order, input.get(), ends.get(), sorted.get_mut()).unwrap();
        assert_eq!(bits(&sorted.read()), bits(&expected), "{round}, seed {}", random.seed);
    }
}

#[test]
fn segments_are_sorted_each() {
    for_types!(segments_of: f32, u32, i64);
}

fn places_of<T: TestNumber>() {
    let stream = stream();
    let mut random = Random::new();
    for (round, n) in LENGTHS.into_iter().enumerate() {
        let mut sorted: Vec<T> = (0..n).map(|_| T::nearest(random.below(500) as f64)).collect();
        sorted.sort_by(|a, b| a.partial_cmp(b).unwrap());
        let mut keys: Vec<T> = (0..777).map(|_| T::nearest(random.below(520) as f64)).collect();
        keys[..3].copy_from_slice(&[
            T::nearest(f64::INFINITY),
            T::nearest(f64::NEG_INFINITY),
            T::nearest(-0.0),
        ]);
        let (array, wanted) = (Padded::new(&stream, round % 4, &sorted), Padded::new(&stream, 1, &keys));
        let mut first = Padded::<u64>::poisoned(&stream, 0, keys.len());
        let mut last = Padded::<u64>::poisoned(&stream, 1, keys.len());
        ops::lower_bound(&stream, array.get(), wanted.get(), first.get_mut()).unwrap();
        ops::upper_bound(&stream, array.get(), wanted.get(), last.get_mut()).unwrap();
        let expected = |holds: fn(&T, &T) -> bool| -> Vec<u64> {
            keys.iter().map(|key| sorted.partition_point(|element| holds(element, key)) as u64).collect()
        };
        assert_eq!(first.read(), expected(|a, b| a < b), "{n}, seed {}", random.seed);
        assert_eq!(last.read(), expected(|a, b| a <= b), "{n}, seed {}", random.seed);
    }
}

#[test]
fn bounds_are_those_of_the_host() {
    for_types!(places_of: f32, f64, f16, bf16, i32, u32, i64, u64);
}

#[test]
fn nan_is_searched_for_at_the_end() {
    let stream = stream();
    let sorted = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, f32::NAN, -f32::NAN]).unwrap();
    let keys = DeviceBuffer::from_host(&stream, &[f32::NAN, 3.0]).unwrap();
    let mut out = DeviceBuffer::zeros(&stream, 2).unwrap();
    ops::lower_bound(&stream, &sorted, &keys, &mut out).unwrap();
    assert_eq!(out.to_host().unwrap(), [2, 2]);
    ops::upper_bound(&stream, &sorted, &keys, &mut out).unwrap();
    assert_eq!(out.to_host().unwrap(), [4, 2]);
}

#[test]
fn sorts_of_other_lengths_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1u32; 10]).unwrap();
    let narrow = DeviceBuffer::from_host(&stream, &[1i8; 10]).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7u32; 9]).unwrap();
    let mut whole = DeviceBuffer::from_host(&stream, &[7u32; 10]).unwrap();
    let mut narrow_out = DeviceBuffer::from_host(&stream, &[7i8; 10]).unwrap();
    let [none, falling, beyond] = [&[][..], &[0, 5, 4], &[0, 5, 11]]
        .map(|offsets| DeviceBuffer::<u64>::from_host(&stream, offsets).unwrap());
    let errors = [
        (ops::sort(&stream, Order::Ascending, &x, &mut out), ["sort", "10", "9"]),
        (
            ops::sort_pairs(&stream, Order::Ascending, &x, x.slice(1..), &mut whole, &mut out),
            ["values has 9", "keys has 10", "sort_pairs"],
        ),
        (
            ops::sort_pairs(&stream, Order::Ascending, &x, &narrow, &mut whole, &mut narrow_out),
            ["1-byte values", "4 or 8", "sort_pairs"],
        ),
        (
            ops::sort_segments(&stream, Order::Ascending, &x, &none, &mut whole),
            ["sort_segments", "offsets is empty", "one offset more"],
        ),
        (
            ops::sort_segments(&stream, Order::Ascending, &x, &falling, &mut whole),
            ["sort_segments", "offsets[1] is 5", "at most 4"],
        ),
        (
            ops::sort_segments(&stream, Order::Ascending, &x, &beyond, &mut whole),
            ["sort_segments", "offsets[2] is 11", "at most 10"],
        ),
    ];
    for (error, words) in errors {
        let text = error.unwrap_err().to_string();
        assert!(words.iter().all(|word| text.contains(word)), "{words:?} are not in: {text}");
    }
    assert_eq!((out.to_host().unwrap(), whole.to_host().unwrap()), (vec![7; 9], vec![7; 10]));
}
