//! Means, norms and variances of numbers whose sums or squares overflow or underflow.

use half::{bf16, f16};
use warpsmith::ops::{self, Float};
use warpsmith::prelude::*;

use super::{assert_near, exponents, largest, two_to};
use crate::common::{Random, TestNumber, for_types, stream};
use crate::ops::views::exact_sum;

fn rounding<T: TestNumber>() -> f64 {
    if size_of::<T>() == 8 { f64::EPSILON } else { f32::EPSILON as f64 }
}

/// Powers of two from the smallest number to the largest.
fn scales<T: TestNumber>() -> impl Iterator<Item = i32> {
    let [smallest, _, most] = exponents::<T>();
    let step = (most - smallest) / 11;
    (0..11).map(move |i| smallest + i * step).chain([most - 1])
}

/// Rows of numbers in ±1, some with many zeros or with one much larger number.
fn shapes<T: TestNumber>(random: &mut Random) -> Vec<Vec<f64>> {
    let mut rows = Vec::new();
    for n in [1, 2, 33, 1000, 20_000] {
        let row: Vec<f64> = (0..n).map(|_| T::nearest(random.unit()).to_f64()).collect();
        rows.push(row.iter().map(|x| if random.below(10) == 0 { *x } else { 0.0 }).collect());
        let mut steep: Vec<f64> = row.iter().map(|x| T::nearest(x * two_to(-60)).to_f64()).collect();
        steep[n / 2] = 1.0;
        rows.push(steep);
        rows.push(row);
    }
    rows
}

fn norms_and_variances<T: TestNumber + Float>()
where
    T::Sum: TestNumber,
{
    let (stream, mut random) = (stream(), Random::new());
    let (most, smallest) = (largest::<T>(), two_to(exponents::<T>()[0]));
    for row in shapes::<T>(&mut random) {
        let n = row.len() as f64;
        for scale in scales::<T>() {
            // Values rounded to the type, and their exact product with the power of two.
            let x: Vec<T> = row.iter().map(|x| T::nearest(x * two_to(scale))).collect();
            let exact: Vec<f64> =
                x.iter().map(|x| x.to_f64() * two_to(-scale / 2) * two_to(-scale - -scale / 2)).collect();
            let x = DeviceBuffer::from_host(&stream, &x).unwrap();
            let what = (row.len(), scale, "seed", random.seed);
            let bound = T::EPSILON + 60.0 * rounding::<T>();
            let times = |x: f64| T::nearest(x * two_to(scale)).to_f64();
            let l2 = exact_sum(exact.iter().map(|x| x * x)).sqrt();
            assert_near::<T>(
                ops::l2_norm(&stream, &x).unwrap().to_f64(),
                times(l2),
                bound,
                1.0,
                &("l2", what),
            );
            let l1 = exact_sum(exact.iter().map(|x| x.abs()));
            assert_near::<T>(
                ops::l1_norm(&stream, &x).unwrap().to_f64(),
                times(l1),
                bound,
                1.0,
                &("l1", what),
            );
            let sum = exact_sum(exact.iter().copied());
            let found = ops::mean(&stream, &x).unwrap().to_f64();
            let absolute =
                60.0 * rounding::<T>() * l1 / n * two_to(scale) + T::EPSILON * found.abs() + smallest;
            assert!((found - sum / n * two_to(scale)).abs() <= absolute, "mean {what:?}: {found:e}");
            for correction in [0, 1, row.len() as u64 - 1] {
                let mean = sum / n;
                let squares = exact_sum(exact.iter().map(|x| (x - mean) * (x - mean)));
                let freedom = n - correction as f64;
                let variance = if freedom > 0.0 { squares / freedom } else { f64::NAN };
                let expected = variance * two_to(scale) * two_to(scale);
                let expected = if expected > most { f64::INFINITY } else { T::nearest(expected).to_f64() };
                let found = ops::variance(&stream, &x, correction).unwrap().to_f64();
                // If the exact result is close to the end of the range, a finite or an infinite result is correct.
                let is_at_the_end = expected > most / 1.01;
                if !is_at_the_end || found.is_nan() {
                    assert_near::<T>(found, expected, bound, 1.0, &("variance", correction, what));
                }
            }
        }
    }
}

#[test]
fn norms_means_and_variances_are_in_range() {
    for_types!(norms_and_variances: f32, f64, f16, bf16);
}

fn constants<T: TestNumber + Float>()
where
    T::Sum: TestNumber,
{
    let stream = stream();
    let most = largest::<T>();
    for value in [
        most,
        -most,
        most / 3.0,
        1.0,
        0.1,
        1000.1,
        two_to(exponents::<T>()[0]),
        3.0 * two_to(exponents::<T>()[1]),
        0.0,
    ] {
        for n in [1, 2, 3, 7, 10, 255, 4097, 100_003] {
            let value = T::nearest(value);
            let x = DeviceBuffer::from_host(&stream, &vec![value; n]).unwrap();
            assert_eq!(ops::variance(&stream, &x, 0).unwrap().to_f64(), 0.0, "{value:?} × {n}");
            assert_near::<T>(
                ops::mean(&stream, &x).unwrap().to_f64(),
                value.to_f64(),
                60.0 * rounding::<T>(),
                1.0,
                &n,
            );
            let found = ops::variance(&stream, &x, 1).unwrap().to_f64();
            assert!(if n == 1 { found.is_nan() } else { found == 0.0 }, "{value:?} × {n}");
        }
    }
}

#[test]
fn equal_numbers_have_no_variance() {
    for_types!(constants: f32, f64, f16, bf16);
}

#[test]
fn the_variance_of_what_the_mean_cannot_hold() {
    let stream = stream();
    let of = |x: &[f32]| ops::variance(&stream, &DeviceBuffer::from_host(&stream, x).unwrap(), 0).unwrap();
    for n in [2, 10, 1000, 50_000] {
        let x: Vec<f32> = (0..n).map(|i| 16_777_216.0 + 2.0 * (i % 2) as f32).collect();
        assert!((of(&x) - 1.0).abs() < 1e-6, "{n}: {}", of(&x));
        let x: Vec<f32> = (0..n).map(|i| 1e20f32.to_bits() + i % 2).map(f32::from_bits).collect();
        let step = f64::from(x[1]) - f64::from(x[0]);
        assert!((f64::from(of(&x)) / (step * step / 4.0) - 1.0).abs() < 1e-6, "{n}: {}", of(&x));
    }
    // The differences overflow, and so does the variance.
    assert_eq!(of(&[3e38, -3e38]), f32::INFINITY);
    assert_eq!(of(&[1e20, -1e20]), f32::INFINITY);
    assert!((of(&[1e20, 1.0001e20]) / 2.5e31 - 1.0).abs() < 0.01);
    // The sum of squares overflows, but not the variance.
    let x: Vec<f32> = (0..100_000).map(|i| if i % 2 == 0 { 1e18 } else { -1e18 }).collect();
    assert!((of(&x) / 1e36 - 1.0).abs() < 1e-6);
    for x in [[f32::NAN, 1.0], [f32::INFINITY, 1.0], [f32::INFINITY, f32::NEG_INFINITY]] {
        assert!(of(&x).is_nan(), "{x:?}");
    }
}

#[test]
fn norms_of_what_is_no_number() {
    let stream = stream();
    let of = |x: &[f32]| {
        let x = DeviceBuffer::from_host(&stream, x).unwrap();
        [
            ops::l2_norm(&stream, &x).unwrap(),
            ops::l1_norm(&stream, &x).unwrap(),
            ops::mean(&stream, &x).unwrap(),
        ]
    };
    assert_eq!(of(&[f32::INFINITY, 1.0]), [f32::INFINITY; 3]);
    assert_eq!(of(&[f32::NEG_INFINITY, 1.0])[..2], [f32::INFINITY; 2]);
    assert!(of(&[f32::NAN, f32::INFINITY]).iter().all(|norm| norm.is_nan()));
    assert!(of(&[f32::INFINITY, f32::NEG_INFINITY])[2].is_nan());
    // In range although the running sums are not.
    assert_eq!(of(&[3e38, 3e38, -3e38, -3e38])[2], 0.0);
    assert!((of(&[f32::MAX; 4097])[2] / f32::MAX - 1.0).abs() < 1e-5);
}

fn means_along<T: TestNumber + Float>()
where
    T::SumAccumulator: TestNumber,
{
    let stream = stream();
    let most = T::nearest(largest::<T>());
    for (width, height) in [(1, 3), (2, 300), (7, 5), (64, 64), (5000, 3), (3, 5000)] {
        let mut x = vec![most; width * height];
        // One row and one column have a mean of 0.
        x.iter_mut()
            .take(width)
            .enumerate()
            .for_each(|(i, x)| *x = if i % 2 == 0 { most } else { T::nearest(-most.to_f64()) });
        let x = DeviceBuffer::from_host(&stream, &x).unwrap();
        let mut rows = DeviceBuffer::<T::SumAccumulator>::uninit(&stream, height).unwrap();
        let mut columns = DeviceBuffer::<T::SumAccumulator>::uninit(&stream, width).unwrap();
        let mut segments = DeviceBuffer::<T::SumAccumulator>::uninit(&stream, 2).unwrap();
        let offsets = DeviceBuffer::from_host(&stream, &[0, width as u64, (width * height) as u64]).unwrap();
        ops::mean_rows(&stream, x.as_2d(height, width).unwrap(), &mut rows).unwrap();
        ops::mean_columns(&stream, x.as_2d(height, width).unwrap(), &mut columns).unwrap();
        ops::mean_segments(&stream, &x, &offsets, &mut segments).unwrap();
        let (rows, columns, segments) =
            (rows.to_host().unwrap(), columns.to_host().unwrap(), segments.to_host().unwrap());
        let bound = 60.0 * rounding::<T>();
        for found in rows[1..].iter().chain(&segments[1..]) {
            assert_near::<T>(found.to_f64(), most.to_f64(), bound, 0.0, &(width, height));
        }
        let first = if width % 2 == 0 { 0.0 } else { most.to_f64() / width as f64 };
        for found in [rows[0], segments[0]] {
            assert!((found.to_f64() - first).abs() <= bound * most.to_f64(), "{width} × {height}: {found:?}");
        }
        for (i, found) in columns.iter().enumerate() {
            let expected = most.to_f64() * if i % 2 == 0 { 1.0 } else { 1.0 - 2.0 / height as f64 };
            assert_near::<T>(found.to_f64(), expected, bound, 0.0, &(i, width, height));
        }
    }
}

#[test]
fn means_of_rows_columns_and_segments_are_in_range() {
    for_types!(means_along: f32, f64, bf16, f16);
}

macro_rules! integers {
    ($($t:ident)*) => { $({
        let stream = stream();
        for x in [[$t::MIN; 5].as_slice(), &[$t::MAX; 7], &[$t::MIN, $t::MAX, 1, $t::MIN, 0], &[$t::MAX, $t::MIN]] {
            let on_device = DeviceBuffer::from_host(&stream, x).unwrap();
            let wide = |of: &dyn Fn(i128, i128) -> i128, from| x.iter().fold(from, |sum, x| of(sum, *x as i128));
            let (sum, product) = (wide(&i128::wrapping_add, 0), wide(&i128::wrapping_mul, 1));
            // Both results wrap at 64 bits.
            assert_eq!(ops::sum(&stream, &on_device).unwrap() as u64, sum as u64, "{x:?}");
            assert_eq!(ops::prod(&stream, &on_device).unwrap() as u64, product as u64, "{x:?}");
            let square = x.iter().fold(0u64, |sum, x| sum.wrapping_add((*x as u64).wrapping_mul(*x as u64)));
            assert_eq!(ops::dot(&stream, &on_device, &on_device).unwrap() as u64, square, "{x:?}");
            let (smallest, most) = (*x.iter().min().unwrap(), *x.iter().max().unwrap());
            assert_eq!([ops::min(&stream, &on_device).unwrap(), ops::max(&stream, &on_device).unwrap()], [smallest, most]);
            let place = |of| x.iter().position(|x| *x == of).unwrap() as u64;
            assert_eq!(ops::argmin(&stream, &on_device).unwrap(), place(smallest), "{x:?}");
            assert_eq!(ops::argmax(&stream, &on_device).unwrap(), place(most), "{x:?}");
        }
    })* };
}

#[test]
fn integers_wrap_in_64_bits() {
    integers! { i32 u32 i64 u64 }
}
