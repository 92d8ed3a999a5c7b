//! Layer norm, RMS norm, softmax and their gradients for rows whose squares or sums overflow or underflow.

use half::{bf16, f16};
use warpsmith::ops::{self, Float};
use warpsmith::prelude::*;

use super::{exponents, largest, two_to};
use crate::common::{Random, TestNumber, for_types, stream};
use crate::ops::views::exact_sum;

fn rounding<T: TestNumber>() -> f64 {
    if size_of::<T>() == 8 { f64::EPSILON } else { f32::EPSILON as f64 }
}

/// Row widths for lane groups, for a block, and for rows that are read twice.
const WIDTHS: [usize; 7] = [2, 4, 33, 256, 1000, 5000, 140_000];

/// Normalized values of a row for an epsilon of 0, and the reciprocal of its standard deviation.
fn normalized(row: &[f64], is_rms: bool) -> (Vec<f64>, f64) {
    let n = row.len() as f64;
    let mean = if is_rms { 0.0 } else { exact_sum(row.iter().copied()) / n };
    let deviation = (exact_sum(row.iter().map(|x| (x - mean) * (x - mean))) / n).sqrt();
    (row.iter().map(|x| (x - mean) / deviation).collect(), 1.0 / deviation)
}

fn run<T: TestNumber + Float>(x: &[T], is_rms: bool, epsilon: f64) -> Vec<T> {
    let stream = stream();
    let on_device = DeviceBuffer::from_host(&stream, x).unwrap();
    let mut out = DeviceBuffer::uninit(&stream, x.len()).unwrap();
    let (view, target) = (on_device.as_2d(1, x.len()).unwrap(), out.as_2d_mut(1, x.len()).unwrap());
    match is_rms {
        true => ops::rms_norm(&stream, view, None, epsilon, target).unwrap(),
        false => ops::layer_norm(&stream, view, None, None, epsilon, target).unwrap(),
    }
    out.to_host().unwrap()
}

/// Powers of two from the smallest number to the largest.
fn scales<T: TestNumber>() -> Vec<i32> {
    let [smallest, normal, most] = exponents::<T>();
    // The last four bits still exist at this scale.
    vec![
        smallest + 4,
        smallest + 20,
        normal,
        normal / 2,
        normal / 3,
        -10,
        0,
        10,
        most / 3,
        most / 2,
        most - 9,
        most - 1,
    ]
}

fn norms<T: TestNumber + Float>() {
    let mut random = Random::new();
    for width in WIDTHS {
        for scale in scales::<T>() {
            if width > 10_000 && scale % 2 != 0 {
                continue;
            }
            let x: Vec<T> = (0..width).map(|_| T::nearest(random.unit() * two_to(scale))).collect();
            let exact: Vec<f64> =
                x.iter().map(|x| x.to_f64() * two_to(-scale / 2) * two_to(-scale - -scale / 2)).collect();
            for is_rms in [false, true] {
                let (expected, inverse) = normalized(&exact, is_rms);
                if !inverse.is_finite() || inverse > 1e4 {
                    continue;
                }
                let bound = 300.0 * rounding::<T>() * inverse.max(1.0);
                for (i, (found, expected)) in run(&x, is_rms, 0.0).iter().zip(expected).enumerate() {
                    let error = (found.to_f64() - expected).abs();
                    assert!(
                        error <= bound + T::EPSILON * expected.abs(),
                        "{} {width} × 2^{scale}, rms {is_rms}, {i}: {found:?} for {expected}, seed {}",
                        T::NAME,
                        random.seed
                    );
                }
            }
        }
    }
}

#[test]
fn norms_of_any_magnitude_are_close() {
    for_types!(norms: f32, f64, bf16, f16);
}

fn constants<T: TestNumber + Float>() {
    let most = largest::<T>();
    for width in [1, 2, 3, 7, 100, 1023, 5000, 140_000] {
        for value in
            [0.0, 100.1, 1000.1, 10000.1, -60000.0, most, -most, most / 3.0, two_to(exponents::<T>()[0])]
        {
            for epsilon in [1e-5, 1e-12, 1e-60, 0.0] {
                if width > 10_000 && epsilon == 1e-12 {
                    continue;
                }
                let found = run(&vec![T::nearest(value); width], false, epsilon);
                let what = (T::NAME, value, width, epsilon);
                assert!(found.iter().all(|found| found.to_f64() == 0.0), "{what:?}: {:?}", found[0]);
                if value != 0.0 && epsilon == 0.0 {
                    let found = run(&vec![T::nearest(value); width], true, epsilon);
                    let close =
                        |found: &T| (found.to_f64().abs() - 1.0).abs() <= T::EPSILON + 60.0 * rounding::<T>();
                    assert!(found.iter().all(close), "RMS of {what:?}: {:?}", found[0]);
                }
            }
        }
    }
}

#[test]
fn rows_of_one_value_become_zero() {
    for_types!(constants: f32, f64, bf16, f16);
}

#[test]
fn a_small_spread_around_a_great_mean() {
    for (mean, spread) in [(1e4, 5e-3), (1e6, 0.5), (1e6, 20.0), (1e30, 1e24), (-3e38, 1e33)] {
        for width in [3, 16, 257, 4096, 20_000, 140_000] {
            let mut random = Random::new();
            let x: Vec<f32> = (0..width).map(|_| (mean + spread * random.unit()) as f32).collect();
            let exact: Vec<f64> = x.iter().map(|x| (f64::from(*x) - mean) / spread).collect();
            let (expected, inverse) = normalized(&exact, false);
            if !inverse.is_finite() || inverse > 1e3 {
                continue;
            }
            for (found, expected) in run(&x, false, 0.0).iter().zip(expected) {
                let error = (f64::from(*found) - expected).abs();
                assert!(
                    error <= 1e-4 * inverse.max(1.0),
                    "{mean} ± {spread}, {width}: {found} for {expected}, seed {}",
                    random.seed
                );
            }
        }
    }
}

#[test]
fn epsilon_counts_below_the_range_of_squares() {
    // A variance of 10⁻⁶⁰ and an equal epsilon, neither of which f32 can represent.
    let x = [1e-30f32, -1e-30];
    for is_rms in [false, true] {
        let found = run(&x, is_rms, 1e-60);
        assert!((f64::from(found[0]) - 0.5f64.sqrt()).abs() < 1e-6, "{found:?}");
        assert_eq!(found[1], -found[0]);
        assert!((f64::from(run(&x, is_rms, 1e-5)[0]) / (1e-30 / 1e-5f64.sqrt()) - 1.0).abs() < 1e-6);
    }
    // An epsilon beyond the range of f32.
    assert_eq!(run(&[1.0f32, -1.0], false, 1e300), [0.0, -0.0]);
}

fn gradients<T: TestNumber + Float>() {
    let (stream, mut random) = (stream(), Random::new());
    let [_, normal, most] = exponents::<T>();
    for width in [2, 7, 256, 1000, 5000, 70_000] {
        for (scale, of_gradients) in [
            (0, 0),
            (most - 2, most - 2),
            (most - 2, 0),
            (normal, normal / 2),
            (normal / 2, 3),
            (2, normal),
            (0, most - 2),
        ] {
            let random_row = |random: &mut Random, scale: i32| -> Vec<T> {
                (0..width).map(|_| T::nearest(random.unit() * two_to(scale))).collect()
            };
            let (x, dy) = (random_row(&mut random, scale), random_row(&mut random, of_gradients));
            let plain = |x: &[T], scale: i32| -> Vec<f64> {
                x.iter().map(|x| x.to_f64() * two_to(-scale / 2) * two_to(-scale - -scale / 2)).collect()
            };
            let (x_plain, dy_plain) = (plain(&x, scale), plain(&dy, of_gradients));
            let (x, dy) = (
                DeviceBuffer::from_host(&stream, &x).unwrap(),
                DeviceBuffer::from_host(&stream, &dy).unwrap(),
            );
            for is_rms in [false, true] {
                let (expected, inverse) = normalized(&x_plain, is_rms);
                if inverse > 1e4 {
                    continue;
                }
                let mut out = DeviceBuffer::<T>::uninit(&stream, width).unwrap();
                let mut dweight = DeviceBuffer::<T>::uninit(&stream, width).unwrap();
                let (x, dy, dx) = (
                    x.as_2d(1, width).unwrap(),
                    dy.as_2d(1, width).unwrap(),
                    out.as_2d_mut(1, width).unwrap(),
                );
                let dw = Some(dweight.as_mut_slice());
                match is_rms {
                    true => ops::rms_norm_backward(&stream, x, dy, None, 0.0, dx, dw).unwrap(),
                    false => ops::layer_norm_backward(&stream, x, dy, None, 0.0, dx, dw, None).unwrap(),
                }
                let n = width as f64;
                let of_gradient = if is_rms { 0.0 } else { exact_sum(dy_plain.iter().copied()) / n };
                let of_product = exact_sum(expected.iter().zip(&dy_plain).map(|(x, dy)| x * dy)) / n;
                let bound = 300.0 * rounding::<T>() * inverse * inverse.max(1.0);
                for (i, found) in out.to_host().unwrap().iter().enumerate() {
                    let exact = (dy_plain[i] - of_gradient - expected[i] * of_product) * inverse;
                    let power = of_gradients - scale;
                    let [exact_result, error] = [exact, bound + T::EPSILON * exact.abs()]
                        .map(|x| x * two_to(power / 2) * two_to(power - power / 2));
                    let what = (T::NAME, width, scale, of_gradients, is_rms, i, "seed", random.seed);
                    let rounded = T::nearest(exact_result);
                    // Close to the end of the range, or below it.
                    let is_in_range = exact_result.abs() + error < largest::<T>();
                    let smallest = two_to(exponents::<T>()[0]);
                    assert!(
                        if is_in_range {
                            (found.to_f64() - exact_result).abs() <= error + smallest
                        } else {
                            !found.to_f64().is_nan()
                        },
                        "{what:?}: {found:?} for {rounded:?}"
                    );
                }
                for (i, found) in dweight.to_host().unwrap().iter().enumerate() {
                    let exact = T::nearest(expected[i] * dy_plain[i] * two_to(of_gradients));
                    let error =
                        (bound + T::EPSILON * (expected[i] * dy_plain[i]).abs()) * two_to(of_gradients);
                    let smallest = two_to(exponents::<T>()[0]);
                    assert!(
                        exact.to_f64().is_infinite()
                            || (found.to_f64() - exact.to_f64()).abs() <= error + smallest,
                        "{:?}: {found:?} for {exact:?}",
                        (T::NAME, width, scale, of_gradients, is_rms, i, "weight")
                    );
                }
            }
        }
    }
}

#[test]
fn gradients_of_norms_of_any_magnitude_are_close() {
    for_types!(gradients: f32, f64, bf16);
}

#[test]
fn gradients_whose_sums_leave_the_range() {
    let stream = stream();
    let of = |x: [f32; 2], dy: [f32; 2]| {
        let (x, dy) =
            (DeviceBuffer::from_host(&stream, &x).unwrap(), DeviceBuffer::from_host(&stream, &dy).unwrap());
        let mut dx = DeviceBuffer::<f32>::uninit(&stream, 2).unwrap();
        let (x, dy) = (x.as_2d(1, 2).unwrap(), dy.as_2d(1, 2).unwrap());
        ops::layer_norm_backward(&stream, x, dy, None, 0.0, dx.as_2d_mut(1, 2).unwrap(), None, None).unwrap();
        dx.to_host().unwrap()
    };
    // Two elements become ±1 for any values, so the gradient is zero.
    for x in [[-1.0, 1.0], [-1e30, 1e30], [-1e-20, 3e-20]] {
        for dy in [[3e38, 3e38], [3e38, -3e38], [1e-38, -1e-38]] {
            let limit = dy[0] * 1e-5 / (x[1] - x[0]);
            assert!(of(x, dy).iter().all(|dx| dx.abs() <= limit), "{x:?}, {dy:?}: {:?}", of(x, dy));
        }
    }
}

#[test]
fn softmax_at_the_ends_of_the_range() {
    let stream = stream();
    let run = |x: &[f32], is_log: bool| {
        let on_device = DeviceBuffer::from_host(&stream, x).unwrap();
        let mut out = DeviceBuffer::<f32>::uninit(&stream, x.len()).unwrap();
        let (x, target) = (on_device.as_2d(1, x.len()).unwrap(), out.as_2d_mut(1, x.len()).unwrap());
        if is_log { ops::log_softmax(&stream, x, target) } else { ops::softmax(&stream, x, target) }.unwrap();
        out.to_host().unwrap()
    };
    let most = f32::MAX;
    assert_eq!(run(&[most, -most, most], false), [0.5, 0.0, 0.5]);
    assert_eq!(run(&[most, -most], true), [0.0, f32::NEG_INFINITY]);
    assert_eq!(run(&[-most; 4], false), [0.25; 4]);
    assert_eq!(run(&[1e-45, -1e-45], false), [0.5; 2]);
    assert_eq!(run(&[0.0, f32::NEG_INFINITY], false), [1.0, 0.0]);
    let gradients = |y: &[f32], dy: &[f32], is_log: bool| {
        let n = y.len();
        let (y, dy) =
            (DeviceBuffer::from_host(&stream, y).unwrap(), DeviceBuffer::from_host(&stream, dy).unwrap());
        let mut out = DeviceBuffer::<f32>::uninit(&stream, n).unwrap();
        let (y, dy, dx) = (y.as_2d(1, n).unwrap(), dy.as_2d(1, n).unwrap(), out.as_2d_mut(1, n).unwrap());
        match is_log {
            true => ops::log_softmax_backward(&stream, y, dy, dx),
            false => ops::softmax_backward(&stream, y, dy, dx),
        }
        .unwrap();
        out.to_host().unwrap()
    };
    let close = |found: &[f32], expected: &[f64]| {
        found
            .iter()
            .zip(expected)
            .all(|(found, expected)| (f64::from(*found) - expected).abs() <= 1e-6 * expected.abs() + 2e32)
    };
    // The difference of the gradients overflows, and so does their sum.
    let found = gradients(&[0.25, 0.75], &[3e38, -3e38], false);
    assert!(close(&found, &[1.125e38, -1.125e38]), "{found:?}");
    let found = gradients(&[0.5f32.ln(); 2], &[3e38, 3e38], true);
    assert!(close(&found, &[0.0, 0.0]), "{found:?}");
    let found = gradients(&[0.25f32.ln(), 0.75f32.ln()], &[3e38, 2e38], true);
    assert!(close(&found, &[1.75e38, -1.75e38]), "{found:?}");
}
