//! Products of small matrices against sums of `f64`, from poisoned outputs.

use half::{bf16, f16};
use warpsmith_core::{DeviceBuffer, Stream};
use warpsmith_tensor::{Element, TensorError, matmul_tn};

use crate::under_test;

/// m, n, k, at the edges of tiles and beyond.
const SHAPES: [[usize; 3]; 12] = [
    [1, 8, 8],
    [3, 16, 24],
    [64, 64, 64],
    [63, 248, 56],
    [128, 256, 64],
    [127, 264, 72],
    [129, 256, 320],
    [256, 512, 128],
    [257, 504, 136],
    [300, 296, 584],
    [385, 264, 64],
    [512, 24, 264],
];

/// A type of matrices, by its `f32`.
trait Number: Element + PartialEq + std::fmt::Debug {
    const POISON: Self;
    /// The part of a number that rounding may change.
    const PRECISION: f64;
    fn of(number: f32) -> Self;
}

impl Number for bf16 {
    const POISON: Self = Self::NAN;
    const PRECISION: f64 = 1.0 / 256.0;
    fn of(number: f32) -> Self {
        Self::from_f32(number)
    }
}

impl Number for f16 {
    const POISON: Self = Self::NAN;
    const PRECISION: f64 = 1.0 / 2048.0;
    fn of(number: f32) -> Self {
        Self::from_f32(number)
    }
}

/// The product of `a` (m rows of k) and `b` (n rows of k), on the device.
fn multiply<T: Number>(a: &[T], b: &[T], [m, n, k]: [usize; 3]) -> Vec<T> {
    let device = under_test::device();
    let stream = Stream::new(&device).unwrap();
    let a = DeviceBuffer::from_host(&stream, a).unwrap();
    let b = DeviceBuffer::from_host(&stream, b).unwrap();
    let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; m * n]).unwrap();
    let (a, b) = (a.as_2d(k, m).unwrap(), b.as_2d(k, n).unwrap());
    matmul_tn(&stream, &a, &b, &mut c.as_2d_mut(n, m).unwrap()).unwrap();
    c.to_host().unwrap()
}

/// The sum of products for row `r` and column `s`, and that of their absolute values.
fn sum<T: Number>(a: &[T], b: &[T], k: usize, r: usize, s: usize) -> (f64, f64) {
    let pairs = a[r * k..][..k].iter().zip(&b[s * k..][..k]);
    pairs.fold((0.0, 0.0), |(sum, all), (&x, &y)| {
        let (x, y): (f32, f32) = (x.into(), y.into());
        let product = f64::from(x) * f64::from(y);
        (sum + product, all + product.abs())
    })
}

fn random<T: Number>(seed: u64, len: usize, of: impl Fn(&mut fastrand::Rng) -> f32) -> Vec<T> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| T::of(of(&mut random))).collect()
}

fn exact_on_integers<T: Number>() {
    for (number, [m, n, k]) in SHAPES.into_iter().enumerate() {
        let integer = |random: &mut fastrand::Rng| random.i32(-2..=2) as f32;
        let a = random::<T>(number as u64, m * k, integer);
        let b = random::<T>(100 + number as u64, n * k, integer);
        let c = multiply(&a, &b, [m, n, k]);
        for (i, &value) in c.iter().enumerate() {
            let (expected, _) = sum(&a, &b, k, i / n, i % n);
            assert_eq!(value, T::of(expected as f32), "{m} x {n} x {k}, row {}, column {}", i / n, i % n);
        }
    }
}

#[test]
fn integers_are_exact() {
    exact_on_integers::<bf16>();
    exact_on_integers::<f16>();
}

#[test]
fn random_numbers_are_within_rounding() {
    let seed = fastrand::u64(..);
    let [m, n, k] = [200, 272, 520];
    let number = |random: &mut fastrand::Rng| random.f32() * 2.0 - 1.0;
    let (a, b) = (random::<bf16>(seed, m * k, number), random::<bf16>(seed ^ 1, n * k, number));
    for (i, value) in multiply(&a, &b, [m, n, k]).into_iter().enumerate() {
        let (expected, all) = sum(&a, &b, k, i / n, i % n);
        let allowed = expected.abs() * bf16::PRECISION + all * 1e-5;
        let error = (f64::from(value.to_f32()) - expected).abs();
        assert!(error <= allowed, "seed {seed}, element {i}: {value} instead of {expected}");
    }
}

#[test]
fn infinities_and_nan_reach_their_rows_and_columns() {
    let [m, n, k] = [130, 264, 72];
    let mut a = vec![bf16::ONE; m * k];
    let b = vec![bf16::ONE; n * k];
    a[129 * k + 71] = bf16::INFINITY;
    a[5 * k] = bf16::NAN;
    for (i, value) in multiply(&a, &b, [m, n, k]).into_iter().enumerate() {
        match i / n {
            129 => assert_eq!(value, bf16::INFINITY),
            5 => assert!(value.is_nan()),
            _ => assert_eq!(value, bf16::from_f32(k as f32)),
        }
    }
}

#[test]
fn padded_rows_are_multiplied_and_gaps_kept() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let ([m, n, k], pitch) = ([70, 40, 36], 72);
    let number = |random: &mut fastrand::Rng| random.i32(-2..=2) as f32;
    let (a, b) = (random::<bf16>(1, m * pitch, number), random::<bf16>(2, n * pitch, number));
    let (on_a, on_b) =
        (DeviceBuffer::from_host(&stream, &a).unwrap(), DeviceBuffer::from_host(&stream, &b).unwrap());
    let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::from_f32(7.5); m * pitch]).unwrap();
    let rows = |buffer, rows| DeviceBuffer::as_slice(buffer).as_2d_pitched(k, rows, pitch).unwrap();
    let mut c_rows = c.as_2d_pitched_mut(n, m, pitch).unwrap();
    matmul_tn(&stream, &rows(&on_a, m), &rows(&on_b, n), &mut c_rows).unwrap();
    let packed = |from: &[bf16], rows: usize| -> Vec<bf16> {
        from.chunks(pitch).take(rows).flat_map(|row| row[..k].to_vec()).collect()
    };
    let (a, b) = (packed(&a, m), packed(&b, n));
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let (row, column) = (i / pitch, i % pitch);
        let expected = if column < n { sum(&a, &b, k, row, column).0 as f32 } else { 7.5 };
        assert_eq!(value, bf16::from_f32(expected), "row {row}, column {column}");
    }
}

#[test]
fn sums_of_nothing_are_zero() {
    assert_eq!(multiply::<bf16>(&[], &[], [3, 8, 0]), [bf16::ZERO; 24]);
    assert!(multiply::<bf16>(&[], &[bf16::ONE; 64], [0, 8, 8]).is_empty());
}

#[test]
fn wrong_matrices_are_named() {
    let stream = Stream::new(&under_test::device()).unwrap();
    let x = DeviceBuffer::<bf16>::zeros(&stream, 4096).unwrap();
    let mut c = DeviceBuffer::<bf16>::zeros(&stream, 4096).unwrap();
    let mut refused = |a: [usize; 2], b: [usize; 2], from: usize| {
        let view =
            |[width, height]: [usize; 2]| x.slice(from..from + width * height).as_2d(width, height).unwrap();
        let (rows, columns) = (a[1], b[1]);
        let mut c = c.as_2d_pitched_mut(columns, rows, columns).unwrap();
        let error = matmul_tn(&stream, &view(a), &view(b), &mut c).unwrap_err();
        (error.downcast_ref::<TensorError>().cloned().unwrap(), error.to_string())
    };
    let (error, text) = refused([16, 8], [24, 8], 0);
    assert!(
        matches!(error, TensorError::Shape { .. }) && text.contains("a is 8 x 16, b is 8 x 24"),
        "{text}"
    );
    let (error, text) = refused([9, 8], [9, 8], 0);
    assert!(matches!(error, TensorError::Alignment { matrix: "a", bytes: 18, .. }), "{text}");
    let (error, text) = refused([8, 8], [8, 9], 0);
    assert!(matches!(error, TensorError::Alignment { matrix: "c", bytes: 18, .. }), "{text}");
    let (error, text) = refused([8, 8], [8, 8], 1);
    assert!(matches!(error, TensorError::Alignment { matrix: "a", bytes: 16, .. }), "{text}");
}
