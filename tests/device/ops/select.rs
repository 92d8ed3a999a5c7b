//! Row-wise top-k compared with a stable sort, and sampling compared with its probabilities.

use std::cmp::Ordering;

use super::softmax::run;
use super::views::{PLACES, Rows};
use crate::common::{Random, TestNumber, for_types, stream};
use half::{bf16, f16};
use warpsmith::ops::{self, Sampling};
use warpsmith::prelude::*;
use warpsmith::random::Generator;

/// Descending order, NaN before all numbers.
fn falling<T: TestNumber>(a: T, b: T) -> Ordering {
    #[allow(clippy::eq_op)]
    let is_nan = |value: T| value != value;
    match (is_nan(a), is_nan(b)) {
        (false, false) => b.partial_cmp(&a).unwrap(),
        (a_nan, b_nan) => b_nan.cmp(&a_nan),
    }
}

fn largest<T: TestNumber>() {
    let (stream, mut random) = (stream(), Random::new());
    let cases = [
        (1, 1, 1),
        (3, 5, 5),
        (2, 33, 7),
        (2, 300, 64),
        (2, 1024, 1000),
        (1, 3000, 1024),
        (1, 20_001, 40),
        (70, 40, 3),
    ];
    for (i, (rows, columns, k)) in cases.into_iter().enumerate() {
        let mut x = Rows::<T>::random(&stream, &mut random, (rows, columns), PLACES[i % 3]);
        // Many equal values, some special ones.
        for value in x.values.iter_mut().flatten() {
            match random.below(8) {
                0 | 1 => *value = T::nearest(0.5),
                2 => *value = [T::nearest(0.0), T::nearest(-0.0)][random.below(2)],
                3 if random.below(50) == 0 => {
                    *value = T::nearest([f64::NAN, f64::INFINITY, f64::NEG_INFINITY][random.below(3)])
                }
                _ => {}
            }
        }
        let x = Rows::new(&stream, x.values, x.place);
        let mut indices = Rows::<u64>::poisoned(&stream, (rows, k), PLACES[(i + 1) % 3]);
        let values = run((rows, k), PLACES[(i + 2) % 3], |stream, values| {
            let mut values = values;
            let mut target = Rows::<u64>::poisoned(stream, (rows, k), PLACES[(i + 1) % 3]);
            target.write(|out| ops::top_k::<T>(stream, x.view(), values.reborrow(), out).unwrap());
        });
        let mut again = Rows::<T>::poisoned(&stream, (rows, k), (0, 0));
        indices.write(|indices| {
            again.write(|values| ops::top_k::<T>(&stream, x.view(), values, indices).unwrap())
        });
        for ((row, values), indices) in x.values.iter().zip(values).zip(indices.read()) {
            let mut expected: Vec<usize> = (0..columns).collect();
            expected.sort_by(|&a, &b| falling(row[a], row[b]));
            expected.truncate(k);
            let found: Vec<usize> = indices.into_iter().map(|index| index as usize).collect();
            assert_eq!(found, expected, "{rows} x {columns}, {k}, seed {}", random.seed);
            let bits: Vec<u64> = values.into_iter().map(|value| value.bits()).collect();
            assert_eq!(
                bits,
                found.iter().map(|&i| row[i].bits()).collect::<Vec<_>>(),
                "seed {}",
                random.seed
            );
        }
    }
}

#[test]
fn top_k_is_a_stable_sort_cut_off() {
    for_types!(largest: f32, f64, f16, bf16, i32, u32, i64, u64);
}

#[test]
fn impossible_k_is_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &vec![1.0f32; 4000]).unwrap();
    let mut values = DeviceBuffer::from_host(&stream, &vec![7.0f32; 2050]).unwrap();
    let mut indices = DeviceBuffer::from_host(&stream, &vec![7u64; 2050]).unwrap();
    for (k, width, words) in [
        (0, 2000, "must have 1 to 1024"),
        (1025, 2000, "must have 1 to 1024"),
        (11, 10, "the 10 columns of x"),
    ] {
        let rows = 4000 / width;
        let (values, indices) = (&mut values.slice_mut(..k * 2), &mut indices.slice_mut(..k * 2));
        let message = ops::top_k(
            &stream,
            x.slice(..2 * width).as_2d(2, width).unwrap(),
            values.as_2d_mut(2, k).unwrap(),
            indices.as_2d_mut(2, k).unwrap(),
        );
        let message = message.unwrap_err().to_string();
        assert!(message.contains(words) && message.contains(&k.to_string()), "{rows}: {message}");
    }
    assert!(values.to_host().unwrap().iter().all(|&value| value == 7.0));
}

/// Draws indices for many rows of the same logits.
fn drawn(logits: &[f32], sampling: Sampling, rows: usize, seed: u64) -> Vec<u64> {
    let stream = stream();
    let generator = Generator::new(stream.device());
    generator.manual_seed(seed).unwrap();
    let x = DeviceBuffer::from_host(&stream, &logits.repeat(rows)).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &vec![7u64; rows]).unwrap();
    ops::sample(&stream, &generator, sampling, x.as_2d(rows, logits.len()).unwrap(), &mut out).unwrap();
    out.to_host().unwrap().to_vec()
}

#[test]
fn columns_are_drawn_with_their_probability() {
    let mut random = Random::new();
    let (columns, rows) = (300, 3000);
    let logits: Vec<f32> =
        (0..columns).map(|i| if i % 60 == 7 { 4.0 + (i / 60) as f32 * 0.25 } else { -2.0 }).collect();
    for (temperature, top_k, top_p) in [
        (1.0, None, None),
        (0.5, None, None),
        (1.0, Some(3), None),
        (1.0, None, Some(0.5)),
        (2.0, Some(4), Some(0.7)),
    ] {
        let sampling = Sampling { temperature, top_k, top_p };
        let seed = random.bits();
        let found = drawn(&logits, sampling, rows, seed);
        assert_eq!(found, drawn(&logits, sampling, rows, seed), "the same seed");
        // Groups of equal logits: the tail, and five rising ones.
        let mut order: Vec<usize> = (0..columns).collect();
        order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
        let smallest = logits[order[top_k.map_or(columns, |k| k as usize).min(columns) - 1]];
        order.retain(|&i| logits[i] >= smallest);
        let weight = |i: usize| f64::from((logits[i] - 5.0) / temperature).exp();
        let mut total: f64 = order.iter().map(|&i| weight(i)).sum();
        let (mut sum, mut count) = (0.0, 0);
        while sum < total * top_p.unwrap_or(1.0) && count < order.len() {
            sum += weight(order[count]);
            count += 1;
        }
        let smallest = logits[order[count - 1]];
        order.retain(|&i| logits[i] >= smallest);
        total = order.iter().map(|&i| weight(i)).sum();
        let mut counts = vec![0usize; columns];
        found.iter().for_each(|&i| counts[i as usize] += 1);
        for (i, &count) in counts.iter().enumerate() {
            let probability = if order.contains(&i) { weight(i) / total } else { 0.0 };
            let expected = rows as f64 * probability;
            // Seven standard deviations: a false failure once in 10¹¹, plus some slack for rare indices.
            let off = (count as f64 - expected).abs();
            let bound = if probability == 0.0 { 0.0 } else { 7.0 * expected.sqrt() + 10.0 };
            assert!(
                off <= bound,
                "column {i}: {count} times, {expected} expected; {sampling:?}, seed {seed}"
            );
        }
    }
}

#[test]
fn temperature_zero_takes_the_first_largest() {
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    assert_eq!(drawn(&[0.0, 3.0, 1.0, 3.0], sampling, 5, 1), [1; 5]);
}

#[test]
fn rows_without_probabilities_are_marked() {
    let nothing = f32::NEG_INFINITY;
    for row in [[nothing; 3], [0.0, f32::NAN, 1.0], [0.0, f32::INFINITY, 1.0]] {
        assert_eq!(drawn(&row, Sampling::default(), 2, 3), [u64::MAX; 2], "{row:?}");
        let sampling = Sampling { top_k: Some(2), top_p: Some(0.5), ..Sampling::default() };
        assert_eq!(drawn(&row, sampling, 2, 3), [u64::MAX; 2], "{row:?}");
    }
    assert_eq!(drawn(&[nothing, 0.0, nothing], Sampling::default(), 4, 5), [1; 4]);
}

#[test]
fn impossible_sampling_is_refused() {
    let stream = stream();
    let generator = Generator::new(stream.device());
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 12]).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7u64; 3]).unwrap();
    let usual = Sampling::default();
    for (sampling, words) in [
        (Sampling { temperature: -1.0, ..usual }, "temperature is -1"),
        (Sampling { temperature: f32::NAN, ..usual }, "temperature is NaN"),
        (Sampling { temperature: f32::INFINITY, ..usual }, "temperature is inf"),
        (Sampling { top_k: Some(0), ..usual }, "top_k is 0"),
        (Sampling { top_p: Some(0.0), ..usual }, "top_p is 0"),
        (Sampling { top_p: Some(1.5), ..usual }, "top_p is 1.5"),
    ] {
        let outcome = ops::sample(&stream, &generator, sampling, x.as_2d(3, 4).unwrap(), &mut out);
        let message = outcome.unwrap_err().to_string();
        assert!(message.contains(words), "{message}");
    }
    let outcome = ops::sample(&stream, &generator, usual, x.as_2d(3, 4).unwrap(), out.slice_mut(..2));
    assert!(outcome.unwrap_err().to_string().contains("out has 2 elements, but must have 3"));
    assert_eq!(out.to_host().unwrap(), [7; 3]);
}
