//! Softmax, log-softmax and their gradients compared with float64 references. They cover rows of 1 to 300 000 elements,
//! register-resident in lanes, blocks and clusters, or read twice. They also cover row strides, views with equal and
//! different alignment, infinities and NaN.

use super::views::{PLACES, RESIDENT, Rows, exact_sum};
use crate::common::{Random, TestNumber, assert_close, for_types, stream};
use half::{bf16, f16};
use warpsmith::ops::{self, Float};
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

type Forward<T> = fn(&Stream, DeviceSlice2<'_, T>, DeviceSliceMut2<'_, T>) -> Result<(), Error>;

/// Runs an operation twice on poisoned rows, and returns the results, which must be bit-identical.
pub fn run<T: TestNumber>(
    sides: (usize, usize),
    place: (usize, usize),
    work: impl Fn(&Stream, DeviceSliceMut2<'_, T>),
) -> Vec<Vec<T>> {
    let stream = stream();
    let once = || {
        let mut out = Rows::<T>::poisoned(&stream, sides, place);
        out.write(|out| work(&stream, out));
        out.read()
    };
    let (first, second) = (once(), once());
    let bits = |rows: &[Vec<T>]| rows.iter().flatten().map(|value| value.bits()).collect::<Vec<_>>();
    assert_eq!(bits(&first), bits(&second), "two runs differ");
    first
}

/// Relative error (in units of the type's epsilon) and absolute error of values that are computed in f32 and rounded.
fn bounds<T: TestNumber>() -> (f64, f64) {
    match size_of::<T>() {
        2 => (1.0, 1e-6),
        4 => (64.0, 1e-44),
        _ => (64.0, 1e-300),
    }
}

fn exponentials<T: TestNumber>(row: &[T]) -> (f64, f64) {
    let most = row.iter().map(|value| value.to_f64()).fold(f64::NEG_INFINITY, f64::max);
    (most, exact_sum(row.iter().map(|value| (value.to_f64() - most).exp())))
}

fn rows_become_distributions<T: TestNumber + Float>() {
    let (stream, mut random) = (stream(), Random::new());
    for (i, sides) in RESIDENT.into_iter().enumerate() {
        let values = (0..sides.0).map(|_| random.values(sides.1, 10.0)).collect();
        let x = Rows::<T>::new(&stream, values, PLACES[i % 3]);
        // Mostly with the alignment of the input.
        let place = PLACES[if i % 4 == 3 { (i + 1) % 3 } else { i % 3 }];
        let (relative, absolute) = bounds::<T>();
        let found = run(sides, place, |stream, out| ops::softmax::<T>(stream, x.view(), out).unwrap());
        let logs = run(sides, place, |stream, out| ops::log_softmax::<T>(stream, x.view(), out).unwrap());
        for ((row, found), logs) in x.values.iter().zip(found).zip(logs) {
            let (most, sum) = exponentials(row);
            let rounding = if size_of::<T>() == 8 { f64::EPSILON } else { f32::EPSILON as f64 };
            for ((value, found), log) in row.iter().zip(found).zip(logs) {
                let what = (sides, x.place, place, "seed", random.seed);
                let exact = (value.to_f64() - most).exp() / sum;
                assert_close(found, exact, relative, absolute, &what);
                assert_close(log, value.to_f64() - most - sum.ln(), 1.0, 200.0 * rounding, &what);
            }
        }
    }
}

#[test]
fn softmax_is_close_to_the_exact() {
    for_types!(rows_become_distributions: f32, bf16);
}

#[test]
fn softmax_of_other_floats_is_close() {
    for_types!(rows_become_distributions: f64, f16);
}

fn gradients<T: TestNumber + Float>() {
    let (stream, mut random) = (stream(), Random::new());
    for (i, sides) in RESIDENT.into_iter().enumerate().filter(|(i, _)| i % 2 == 1) {
        let y = Rows::<T>::random(&stream, &mut random, sides, PLACES[i % 3]);
        let dy = Rows::<T>::random(&stream, &mut random, sides, PLACES[i % 3]);
        let place = PLACES[if i % 4 == 3 { (i + 1) % 3 } else { i % 3 }];
        let found = run(sides, place, |stream, dx| {
            ops::softmax_backward::<T>(stream, y.view(), dy.view(), dx).unwrap();
        });
        let of_logs = run(sides, place, |stream, dx| {
            ops::log_softmax_backward::<T>(stream, y.view(), dy.view(), dx).unwrap();
        });
        let rounding = if size_of::<T>() == 8 { f64::EPSILON } else { f32::EPSILON as f64 };
        for (row, (y, dy)) in y.values.iter().zip(&dy.values).enumerate() {
            let pairs = || y.iter().zip(dy).map(|(y, dy)| (y.to_f64(), dy.to_f64()));
            let (dot, sum) = (exact_sum(pairs().map(|(y, dy)| y * dy)), exact_sum(pairs().map(|(_, dy)| dy)));
            // Sums of terms up to 1, in chains of 32 and more.
            let absolute = 60.0 * rounding * (sides.1 as f64 + 4.0);
            for (i, (y, dy)) in pairs().enumerate() {
                let what = (sides, row, i, "seed", random.seed);
                assert_close(found[row][i], y * (dy - dot), 1.0, absolute, &what);
                assert_close(of_logs[row][i], dy - y.exp() * sum, 4.0, 3.0 * absolute, &what);
            }
        }
    }
}

#[test]
fn gradients_are_close_to_the_exact() {
    for_types!(gradients: f32, f64, f16, bf16);
}

#[test]
fn infinities_and_nan_reach_their_row_only() {
    let (stream, mut random) = (stream(), Random::new());
    let special: [fn(&mut [f32], usize); 4] = [
        |row, _| row.fill(f32::NEG_INFINITY),
        |row, i| row[i] = f32::INFINITY,
        |row, i| row[i] = f32::NAN,
        |row, i| {
            row.iter_mut().enumerate().for_each(|(j, value)| {
                if j != i {
                    *value = f32::NEG_INFINITY
                }
            })
        },
    ];
    for columns in [1, 33, 1025, 5000, 140_000] {
        let mut values: Vec<Vec<f32>> = (0..5).map(|_| random.values(columns, 5.0)).collect();
        let place = random.below(columns);
        special.iter().zip(&mut values).for_each(|(change, row)| change(row, place));
        let x = Rows::new(&stream, values, (0, 0));
        for (operation, one) in [(ops::softmax as Forward<f32>, 1.0), (ops::log_softmax, 0.0)] {
            let found = run(x.sides(), (0, 0), |stream, out| operation(stream, x.view(), out).unwrap());
            for row in &found[..3] {
                assert!(row.iter().all(|value| value.is_nan()), "{columns}, seed {}", random.seed);
            }
            assert_eq!(found[3][place], one, "{columns}, seed {}", random.seed);
            assert!(found[4].iter().all(|value| value.is_finite()), "{columns}, seed {}", random.seed);
        }
    }
}

#[test]
fn views_of_different_sides_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 12]).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7.0f32; 12]).unwrap();
    let (view, other) = (x.as_2d(3, 4).unwrap(), x.as_2d(4, 3).unwrap());
    let message = ops::softmax(&stream, view, out.as_2d_mut(4, 3).unwrap()).unwrap_err().to_string();
    assert_eq!(message, "softmax: x has 3 rows of 4, but out has 4 rows of 3; pass views of equal shape");
    let error = ops::log_softmax_backward(&stream, view, other, out.as_2d_mut(3, 4).unwrap()).unwrap_err();
    assert!(error.to_string().contains("y has 3 rows of 4, but dy has 4 rows of 3"), "{error}");
    assert_eq!(out.to_host().unwrap(), [7.0; 12]);
    let none = DeviceBuffer::<f32>::from_host(&stream, &[]).unwrap();
    let mut nothing = DeviceBuffer::<f32>::from_host(&stream, &[]).unwrap();
    ops::softmax(&stream, none.as_2d(5, 0).unwrap(), nothing.as_2d_mut(5, 0).unwrap()).unwrap();
}
