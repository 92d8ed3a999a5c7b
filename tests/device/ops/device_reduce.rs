//! Reductions of whole arrays that are not defined by one operator, compared with float64 references and the host.

use super::views::exact_sum;
use crate::common::{LENGTHS, Padded, Random, TestNumber, assert_close, for_types, stream};
use half::{bf16, f16};
use warpsmith::gpu_std::Checked;
use warpsmith::ops::{self, Float, Predicate};
use warpsmith::prelude::*;

/// Lengths of the other reductions, and one that needs several blocks.
fn lengths() -> impl Iterator<Item = usize> {
    LENGTHS.into_iter().chain([30_000])
}

fn rounding<T: TestNumber>() -> f64 {
    if size_of::<T>() == 8 { f64::EPSILON } else { f32::EPSILON as f64 }
}

fn floats<T: TestNumber + Float>()
where
    T::Sum: TestNumber,
    T::SumAccumulator: TestNumber,
{
    let (stream, mut random) = (stream(), Random::new());
    for (i, n) in lengths().enumerate() {
        let (x, y): (Vec<T>, Vec<T>) = (random.values(n, 1.0), random.values(n, 1.0));
        // With equal and different alignment.
        let (on_x, on_y) = (Padded::new(&stream, i % 3, &x), Padded::new(&stream, (i / 2) % 3, &y));
        let what = (n, "seed", random.seed);
        let exact = |values: &[T]| values.iter().map(|value| value.to_f64()).collect::<Vec<_>>();
        let (x, y) = (exact(&x), exact(&y));
        let sum = |of: &dyn Fn(usize) -> f64| exact_sum((0..n).map(of));
        let bound = |of: f64| 60.0 * rounding::<T>() * of;
        let found = ops::dot(&stream, on_x.get(), on_y.get()).unwrap();
        assert_eq!(found.bits(), ops::dot(&stream, on_x.get(), on_y.get()).unwrap().bits(), "{what:?}");
        assert_close(found, sum(&|i| x[i] * y[i]), 1.0, bound(sum(&|i| (x[i] * y[i]).abs())), &what);
        let l1 = sum(&|i| x[i].abs());
        let mut mean = DeviceBuffer::<T::SumAccumulator>::uninit(&stream, 1).unwrap();
        ops::mean_into(&stream, on_x.get(), &mut mean).unwrap();
        let expected = sum(&|i| x[i]) / n as f64;
        assert_close(mean.to_host().unwrap()[0], expected, 1.0, bound(l1 / n.max(1) as f64), &what);
        assert_close(ops::l1_norm(&stream, on_x.get()).unwrap(), l1, 1.0, bound(l1), &what);
        let l2 = sum(&|i| x[i] * x[i]).sqrt();
        assert_close(ops::l2_norm(&stream, on_x.get()).unwrap(), l2, 1.0, bound(l2), &what);
        // Far from 0, if the type has enough digits.
        let far = if size_of::<T>() == 2 { 0.0 } else { 1000.0 };
        let shifted: Vec<T> = x.iter().map(|value| T::nearest(value + far)).collect();
        let on_device = Padded::new(&stream, i % 3, &shifted);
        let shifted: Vec<f64> = exact(&shifted).iter().map(|value| value - far).collect();
        for correction in [0, 1, 5] {
            let mean = exact_sum(shifted.iter().copied()) / n as f64;
            let squares = exact_sum(shifted.iter().map(|value| (value - mean) * (value - mean)));
            let freedom = n as f64 - correction as f64;
            let expected = if freedom > 0.0 { squares / freedom } else { f64::NAN };
            let found = ops::variance(&stream, on_device.get(), correction).unwrap();
            // Differences from the mean have errors of roundings of 1000.
            assert_close(found, expected, 1.0, 30.0 * rounding::<T>() * (1.0 + far), &(what, correction));
        }
    }
}

#[test]
fn dot_norms_and_variance_are_close() {
    for_types!(floats: f32, f64, f16, bf16);
}

#[test]
fn dot_of_integers_wraps_in_64_bits() {
    let (stream, mut random) = (stream(), Random::new());
    for n in lengths() {
        let (x, y): (Vec<i32>, Vec<i32>) = (random.values(n, 1.0), random.values(n, 1.0));
        let expected = x
            .iter()
            .zip(&y)
            .fold(0i64, |sum, (x, y)| sum.wrapping_add(i64::from(*x).wrapping_mul(i64::from(*y))));
        let (x, y) = (Padded::new(&stream, n % 4, &x), Padded::new(&stream, n % 3, &y));
        assert_eq!(ops::dot(&stream, x.get(), y.get()).unwrap(), expected, "{n}, seed {}", random.seed);
    }
}

fn counts<T: ops::Element + PartialEq + std::fmt::Debug>(values: &[T], zero: T) {
    let (stream, mut random) = (stream(), Random::new());
    for n in lengths() {
        let x: Vec<T> = (0..n).map(|_| values[random.below(values.len())]).collect();
        let on_device = DeviceBuffer::from_host(&stream, &x).unwrap();
        let slice = on_device.slice(n.min(1)..);
        let x = &x[n.min(1)..];
        let count = |holds: &dyn Fn(&T) -> bool| x.iter().filter(|value| holds(value)).count() as u64;
        for &of in values {
            let found = ops::count_if(&stream, Predicate::Equal(of), slice).unwrap();
            assert_eq!(found, count(&|value| *value == of), "{n}, {of:?}, seed {}", random.seed);
        }
        let non_zero = count(&|value| *value != zero);
        assert_eq!(ops::count_if(&stream, Predicate::NonZero, slice).unwrap(), non_zero, "{n}");
        #[allow(clippy::eq_op)]
        let nan = count(&|value| value != value);
        assert_eq!(ops::count_if(&stream, Predicate::Nan, slice).unwrap(), nan, "{n}");
        assert_eq!(ops::any(&stream, slice).unwrap(), non_zero > 0, "{n}");
        assert_eq!(ops::all(&stream, slice).unwrap(), non_zero == x.len() as u64, "{n}");
    }
}

#[test]
fn elements_of_a_predicate_are_counted() {
    counts(&[0.0f32, -0.0, 1.5, f32::NAN, f32::INFINITY, 1e-45], 0.0);
    counts(&[f16::ZERO, f16::NAN, f16::from_bits(1)], f16::ZERO);
    counts(&[bf16::ZERO, bf16::NEG_INFINITY, bf16::ONE], bf16::ZERO);
    counts(&[0i8, -1, 127], 0);
    counts(&[0u16, 9], 0);
    counts(&[0i64, i64::MIN, 5], 0);
    counts(&[Checked::from(false), Checked::from(true)], Checked::from(false));
}

#[test]
fn flags_that_all_hold_are_all() {
    let stream = stream();
    let mut flags = vec![1u8; 70_000];
    let on_device = DeviceBuffer::from_host(&stream, &flags).unwrap();
    assert!(ops::all(&stream, &on_device).unwrap() && ops::any(&stream, &on_device).unwrap());
    flags[69_999] = 0;
    let on_device = DeviceBuffer::from_host(&stream, &flags).unwrap();
    assert!(!ops::all(&stream, &on_device).unwrap());
}

#[test]
fn whole_arrays_that_do_not_fit_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 10]).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7.0f32; 2]).unwrap();
    let message = ops::dot(&stream, &x, x.slice(..9)).unwrap_err().to_string();
    assert!(message.contains("dot: x has 10 elements, but y has 9"), "{message}");
    let message = ops::l2_norm_into(&stream, &x, &mut out).unwrap_err().to_string();
    assert_eq!(message, "l2_norm: out has 2 elements, but must have 1: the value");
    assert!(
        ops::mean_into(&stream, &x, &mut out).unwrap_err().to_string().contains("mean: out has 2 elements")
    );
    assert_eq!(out.to_host().unwrap(), [7.0; 2]);
}
