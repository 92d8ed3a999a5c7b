//! Layer norm, RMS norm and their gradients compared with float64 references, for rows as in the softmax tests.

use super::softmax::run;
use super::views::{PLACES, RESIDENT, Rows, exact_sum};
use crate::common::{Random, TestNumber, assert_close, for_types, stream};
use half::{bf16, f16};
use warpsmith::ops::{self, Float};
use warpsmith::prelude::*;

const EPSILON: f64 = 1e-5;

/// Mean (0 for RMS norm), and reciprocal of the standard deviation.
fn statistics(row: &[f64], is_rms: bool) -> (f64, f64) {
    let n = row.len() as f64;
    let mean = if is_rms { 0.0 } else { exact_sum(row.iter().copied()) / n };
    let variance = exact_sum(row.iter().map(|value| (value - mean) * (value - mean))) / n;
    (mean, 1.0 / (variance + EPSILON).sqrt())
}

fn exact<T: TestNumber>(row: &[T]) -> Vec<f64> {
    row.iter().map(|value| value.to_f64()).collect()
}

fn rounding<T: TestNumber>() -> f64 {
    if size_of::<T>() == 8 { f64::EPSILON } else { f32::EPSILON as f64 }
}

fn norms<T: TestNumber + Float>() {
    let (stream, mut random) = (stream(), Random::new());
    for (i, sides) in RESIDENT.into_iter().enumerate() {
        // Values far from 0, where a variance computed as a difference of two sums would lose digits.
        let row = |random: &mut Random| (0..sides.1).map(|_| T::nearest(random.unit() + 8.0)).collect();
        let x = Rows::<T>::new(&stream, (0..sides.0).map(|_| row(&mut random)).collect(), PLACES[i % 3]);
        let (weight, bias): (Vec<T>, Vec<T>) = (random.values(sides.1, 2.0), random.values(sides.1, 2.0));
        let on_device = [&weight, &bias].map(|values| DeviceBuffer::from_host(&stream, values).unwrap());
        let place = PLACES[if i % 4 == 3 { (i + 1) % 3 } else { i % 3 }];
        let affine = |has: bool, i: usize| on_device.get(i).filter(|_| has).map(|array| array.as_slice());
        for (is_rms, has_weight, has_bias) in
            [(false, i % 2 == 0, true), (false, i % 2 == 1, false), (true, i % 2 == 0, false)]
        {
            let (w, b) = (affine(has_weight, 0), affine(has_bias, 1));
            let found = run(sides, place, |stream, out| match is_rms {
                true => ops::rms_norm::<T>(stream, x.view(), w, EPSILON, out).unwrap(),
                false => ops::layer_norm::<T>(stream, x.view(), w, b, EPSILON, out).unwrap(),
            });
            for (row, found) in x.values.iter().zip(found) {
                let row = exact(row);
                let (mean, inverse) = statistics(&row, is_rms);
                // The mean has an error of a few roundings of 8.
                let absolute = 300.0 * rounding::<T>() * inverse.max(1.0);
                for (i, (value, found)) in row.iter().zip(found).enumerate() {
                    let w = if has_weight { weight[i].to_f64() } else { 1.0 };
                    let b = if has_bias { bias[i].to_f64() } else { 0.0 };
                    let expected = (value - mean) * inverse * w + b;
                    let what = (sides, is_rms, has_weight, has_bias, "seed", random.seed);
                    assert_close(found, expected, 1.0, absolute, &what);
                }
            }
        }
    }
}

#[test]
fn norms_are_close_to_the_exact() {
    for_types!(norms: f32, bf16);
}

#[test]
fn norms_of_other_floats_are_close() {
    for_types!(norms: f64, f16);
}

/// Calls `add_rms_norm` on poisoned outputs, and returns the sums and the normalized rows.
fn added<T: TestNumber + Float>(
    stream: &Stream,
    x: &Rows<T>,
    residual: &[Vec<T>],
    weight: Option<&[T]>,
    (place, epsilon): ((usize, usize), f64),
) -> [Vec<Vec<T>>; 2] {
    let mut sums = Rows::new(stream, residual.to_vec(), place);
    let mut out = Rows::poisoned(stream, x.sides(), place);
    let weight = weight.map(|values| DeviceBuffer::from_host(stream, values).unwrap());
    let weight = weight.as_ref().map(|array| array.as_slice());
    sums.write(|sums| {
        out.write(|out| ops::add_rms_norm::<T>(stream, x.view(), sums, weight, epsilon, out).unwrap());
    });
    [sums.read(), out.read()]
}

fn sums_and_norms<T: TestNumber + Float>() {
    let (stream, mut random) = (stream(), Random::new());
    for (i, sides) in RESIDENT.into_iter().enumerate() {
        let x = Rows::<T>::random(&stream, &mut random, sides, PLACES[i % 3]);
        let residual: Vec<Vec<T>> = (0..sides.0).map(|_| random.values(sides.1, 4.0)).collect();
        let weight: Vec<T> = random.values(sides.1, 2.0);
        let weight = (i % 2 == 0).then_some(&weight[..]);
        let place = PLACES[if i % 4 == 3 { (i + 1) % 3 } else { i % 3 }];
        let [sums, out] = added(&stream, &x, &residual, weight, (place, EPSILON));
        for row in 0..sides.0 {
            let what = (sides, row, "seed", random.seed);
            for (i, sum) in sums[row].iter().enumerate() {
                let exact = x.values[row][i].to_acc() + residual[row][i].to_acc();
                assert_eq!(sum.bits(), T::from_acc(exact).bits(), "{what:?}");
            }
            let (_, inverse) = statistics(&exact(&sums[row]), true);
            for (i, found) in out[row].iter().enumerate() {
                let expected = sums[row][i].to_f64() * inverse * weight.map_or(1.0, |all| all[i].to_f64());
                assert_close(*found, expected, 1.0, 100.0 * rounding::<T>() * inverse.max(1.0), &what);
            }
        }
    }
}

#[test]
fn sums_are_stored_and_normalized() {
    for_types!(sums_and_norms: f32, f64, f16, bf16);
}

#[test]
fn sums_of_extreme_rows_are_normalized() {
    let stream = stream();
    for columns in [7, 300, 5000, 140_000] {
        // The squares of the second row overflow, and those of the third underflow. The last two rows contain NaN and
        // infinity.
        let of = [3.0f32, 1e30, 1e-30, f32::NAN, f32::INFINITY];
        let row = |x: f32| (0..columns).map(|i| if x.is_finite() || i == 1 { x } else { 1.0 }).collect();
        let x = Rows::new(&stream, of.map(row).to_vec(), (0, 0));
        let residual = of.map(|x| vec![if x.is_finite() { x } else { 1.0 }; columns]);
        let [sums, out] = added(&stream, &x, &residual, None, ((0, 0), 0.0));
        for row in 0..3 {
            assert!(sums[row].iter().all(|&sum| sum == 2.0 * of[row]), "{columns}");
            assert!(out[row].iter().all(|value| (value - 1.0).abs() <= 1e-5), "{columns}, row {row}");
        }
        assert!(sums[3][1].is_nan() && sums[4][1] == f32::INFINITY && sums[4][0] == 2.0, "{columns}");
        let sums = Rows::new(&stream, sums, (0, 0));
        let alone = run(x.sides(), (0, 0), |stream, out| {
            ops::rms_norm(stream, sums.view(), None, 0.0, out).unwrap();
        });
        assert!(alone[3].iter().all(|value| value.is_nan()));
        let classes = |rows: &[Vec<f32>]| rows[3..].concat().iter().map(|x| x.classify()).collect::<Vec<_>>();
        assert_eq!(classes(&out), classes(&alone), "{columns}");
    }
}

#[test]
fn sums_of_mismatched_shapes_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 12]).unwrap();
    let (mut sums, mut out) = (x.clone_on(&stream).unwrap(), x.clone_on(&stream).unwrap());
    let mut refused = |rows, weight: usize, epsilon, expected: &str| {
        let (sums, out) = (sums.as_2d_mut(rows, 12 / rows).unwrap(), out.as_2d_mut(3, 4).unwrap());
        let weight = Some(x.slice(..weight));
        let error = ops::add_rms_norm(&stream, x.as_2d(3, 4).unwrap(), sums, weight, epsilon, out);
        let text = error.unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    };
    refused(4, 4, 0.0, "x has 3 rows of 4, but residual has 4 rows of 3");
    refused(3, 3, 0.0, "weight has 3 elements, but must have 4");
    refused(3, 4, -1.0, "epsilon is -1");
    assert_eq!(sums.to_host().unwrap(), [1.0; 12]);
}

fn gradients<T: TestNumber + Float>() {
    let (stream, mut random) = (stream(), Random::new());
    for (i, sides) in
        RESIDENT.into_iter().enumerate().filter(|(i, sides)| i % 2 == 0 || sides.0 == 40 || sides.1 > 100_000)
    {
        let x = Rows::<T>::random(&stream, &mut random, sides, PLACES[i % 3]);
        let dy = Rows::<T>::random(&stream, &mut random, sides, PLACES[i % 3]);
        let weight: Vec<T> = random.values(sides.1, 2.0);
        let on_device = DeviceBuffer::from_host(&stream, &weight).unwrap();
        let poison = || DeviceBuffer::from_host(&stream, &vec![T::poison(); sides.1]).unwrap();
        for (is_rms, has_weight) in [(false, true), (true, true), (false, false)] {
            let w = has_weight.then(|| on_device.as_slice());
            let parameters = std::cell::RefCell::new(Vec::<Vec<T>>::new());
            let found = run(sides, PLACES[i % 3], |stream, dx| {
                let (mut dweight, mut dbias) = (poison(), poison());
                let (x, dy, dw) = (x.view(), dy.view(), Some(dweight.as_mut_slice()));
                match is_rms {
                    true => ops::rms_norm_backward::<T>(stream, x, dy, w, EPSILON, dx, dw).unwrap(),
                    false => {
                        let db = Some(dbias.as_mut_slice());
                        ops::layer_norm_backward::<T>(stream, x, dy, w, EPSILON, dx, dw, db).unwrap();
                    }
                }
                parameters
                    .borrow_mut()
                    .extend([dweight, dbias].map(|array| array.to_host().unwrap().to_vec()));
            });
            let what = (sides, is_rms, has_weight, "seed", random.seed);
            let parameters = parameters.into_inner();
            let bits = |values: &[T]| values.iter().map(|value| value.bits()).collect::<Vec<_>>();
            assert_eq!(bits(&parameters[0]), bits(&parameters[2]), "two runs differ: {what:?}");
            let (mut dweight, mut dbias) = (vec![0.0; sides.1], vec![0.0; sides.1]);
            let mut steepest = 1.0f64;
            for ((x, dy), found) in x.values.iter().zip(&dy.values).zip(found) {
                let (x, dy) = (exact(x), exact(dy));
                let (mean, inverse) = statistics(&x, is_rms);
                steepest = steepest.max(inverse);
                let n = sides.1 as f64;
                let gradient = |i: usize| dy[i] * if has_weight { weight[i].to_f64() } else { 1.0 };
                let normalized = |i: usize| (x[i] - mean) * inverse;
                let of_gradient = if is_rms { 0.0 } else { exact_sum((0..x.len()).map(gradient)) / n };
                let of_product = exact_sum((0..x.len()).map(|i| gradient(i) * normalized(i))) / n;
                for (i, found) in found.into_iter().enumerate() {
                    let expected = (gradient(i) - of_gradient - normalized(i) * of_product) * inverse;
                    assert_close(
                        found,
                        expected,
                        1.0,
                        300.0 * rounding::<T>() * inverse * inverse.max(1.0),
                        &what,
                    );
                    dweight[i] += dy[i] * normalized(i);
                    dbias[i] += dy[i];
                }
            }
            let absolute = 100.0 * rounding::<T>() * steepest * sides.0 as f64;
            for i in 0..sides.1 {
                assert_close(parameters[0][i], dweight[i], 1.0, absolute, &what);
                if !is_rms {
                    assert_close(parameters[1][i], dbias[i], 1.0, absolute, &what);
                }
            }
        }
    }
}

#[test]
fn gradients_are_close_to_the_exact() {
    for_types!(gradients: f32, f64);
}

#[test]
fn gradients_of_narrow_floats_are_close() {
    for_types!(gradients: f16, bf16);
}

#[test]
fn constant_rows_become_small() {
    let stream = stream();
    for columns in [1, 100, 5000, 140_000] {
        let x = Rows::new(&stream, vec![vec![3.7f32; columns]; 2], (0, 0));
        let found = run((2, columns), (0, 0), |stream, out| {
            ops::layer_norm(stream, x.view(), None, None, EPSILON, out).unwrap();
        });
        // Error of the mean, divided by √epsilon.
        assert!(found.iter().flatten().all(|value| value.abs() <= 0.01), "{columns}");
        let found = run((2, columns), (0, 0), |stream, out| {
            ops::rms_norm(stream, x.view(), None, 0.0, out).unwrap();
        });
        assert!(found.iter().flatten().all(|value| (value - 1.0).abs() <= 1e-5), "{columns}");
    }
}

#[test]
fn nan_and_infinity_reach_their_row_only() {
    let (stream, mut random) = (stream(), Random::new());
    for columns in [7, 1025, 140_000] {
        let mut values: Vec<Vec<f32>> = (0..3).map(|_| random.values(columns, 1.0)).collect();
        values[0][columns / 2] = f32::NAN;
        values[1][columns / 3] = f32::INFINITY;
        let x = Rows::new(&stream, values, (0, 0));
        let found = run(x.sides(), (0, 0), |stream, out| {
            ops::layer_norm(stream, x.view(), None, None, EPSILON, out).unwrap();
        });
        assert!(found[..2].iter().flatten().all(|value| value.is_nan()), "{columns}, seed {}", random.seed);
        assert!(found[2].iter().all(|value| value.is_finite()), "{columns}, seed {}", random.seed);
    }
}

#[test]
fn wrong_parameters_are_refused() {
    let stream = stream();
    let x = DeviceBuffer::from_host(&stream, &[1.0f32; 12]).unwrap();
    let mut out = DeviceBuffer::from_host(&stream, &[7.0f32; 12]).unwrap();
    let view = x.as_2d(3, 4).unwrap();
    let mut message = |weight: Option<DeviceSlice<'_, f32>>, epsilon: f64, sides: (usize, usize)| {
        let out = out.as_2d_mut(sides.1, sides.0).unwrap();
        ops::layer_norm(&stream, view, weight, None, epsilon, out).unwrap_err().to_string()
    };
    assert_eq!(
        message(Some(x.slice(..5)), 0.0, (4, 3)),
        "layer_norm: weight has 5 elements, but must have 4: one per column"
    );
    assert!(message(None, f64::NAN, (4, 3)).contains("epsilon is NaN"));
    assert!(message(None, -1.0, (4, 3)).contains("epsilon is -1"));
    assert!(message(None, 0.0, (6, 2)).contains("x has 3 rows of 4, but out has 2 rows of 6"));
    assert_eq!(out.to_host().unwrap(), [7.0; 12]);
}
