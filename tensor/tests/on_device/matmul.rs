//! Tests GEMM of small matrices for every type and layout, against sums of integers and of `f64`, with poisoned
//! outputs.

use half::{bf16, f16};
use warpsmith_runtime::{DeviceBuffer, DeviceSlice2, Stream};
use warpsmith_tensor::{Epilogue, F8E4M3, GemmElement, Matrix, TensorError, matmul, matmul_or_library};

use crate::number::{Stored, TestNumber, random, random_integers};
use crate::under_test;

/// Values of m, n and k at the edges of tiles and beyond.
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

/// Transpositions of A and B.
const LAYOUTS: [[bool; 2]; 4] = [[false, true], [false, false], [true, true], [true, false]];

/// Computes `a` (m x k) times `b` (k x n) on the device; each is stored row-major or column-major.
fn multiply<T: TestNumber>(a: &Stored<T>, b: &Stored<T>) -> Vec<T::Output> {
    let stream = Stream::new(&under_test::device()).unwrap();
    let (on_a, on_b) = (a.on(&stream), b.on(&stream));
    let mut c = DeviceBuffer::from_host(&stream, &vec![T::POISON; a.rows * b.columns]).unwrap();
    let (a, b) = (a.view(&on_a), b.view(&on_b));
    let (m, n) = (a.rows(), b.columns());
    matmul(&stream, a, b, c.as_2d_mut(m, n).unwrap()).unwrap();
    c.to_host().unwrap()
}

/// Tests integers in rows and columns whose lengths and strides are multiples of 16 bytes.
fn exact<T: TestNumber>(shapes: &[[usize; 3]], layouts: &[[bool; 2]]) {
    for &[a_transposed, b_transposed] in layouts {
        for (seed, &[m, n, k]) in shapes.iter().enumerate() {
            let unit = 16 / size_of::<T>();
            let up = |side: usize| side.next_multiple_of(unit);
            let m = if a_transposed { m.next_multiple_of(8) } else { m };
            let k = if a_transposed && !b_transposed { k } else { up(k) };
            let a = Stored::<T>::new([m, k], a_transposed, random_integers(seed as u64, m * k));
            let b = Stored::<T>::new([k, n], b_transposed, random_integers(100 + seed as u64, n * k));
            let case =
                format!("{} {m} x {n} x {k} {a_transposed} {b_transposed}", std::any::type_name::<T>());
            for (i, (value, (expected, _))) in multiply(&a, &b).into_iter().zip(a.times(&b)).enumerate() {
                let (row, column) = (i / n, i % n);
                assert_eq!(T::number_of(value), T::rounded(expected), "{case}, row {row}, column {column}");
            }
        }
    }
}

#[test]
fn integers_are_exact_in_all_layouts() {
    exact::<bf16>(&SHAPES, &LAYOUTS[..2]);
    exact::<bf16>(&SHAPES[..9], &LAYOUTS[2..]);
    exact::<f16>(&SHAPES[..9], &LAYOUTS[1..2]);
}

#[test]
fn integers_are_exact_of_all_types() {
    exact::<f16>(&SHAPES[..9], &LAYOUTS[..1]);
    exact::<f32>(&SHAPES[..9], &LAYOUTS[..1]);
    exact::<F8E4M3>(&SHAPES[..9], &LAYOUTS[..1]);
    exact::<i8>(&SHAPES[..9], &LAYOUTS[..1]);
}

/// k can have any value if K is not the contiguous dimension of either operand: column-major A, row-major B.
#[test]
fn any_k_is_exact_where_k_is_not_adjacent() {
    for k in [1, 7, 63, 65, 129] {
        let a = Stored::<bf16>::new([72, k], true, random_integers(k as u64, 72 * k));
        let b = Stored::<bf16>::new([k, 136], false, random_integers(1 + k as u64, 136 * k));
        for (i, (value, (expected, _))) in multiply(&a, &b).into_iter().zip(a.times(&b)).enumerate() {
            assert_eq!(f64::from(value), expected, "k {k}, element {i}");
        }
    }
}

fn within_rounding<T: TestNumber>(precision: f64) {
    let seed = fastrand::u64(..);
    let [m, n, k] = [200, 272, 528];
    let a = Stored::<T>::new([m, k], false, random(seed, m * k));
    let b = Stored::<T>::new([k, n], true, random(seed ^ 1, n * k));
    for (i, (value, (expected, all))) in multiply(&a, &b).into_iter().zip(a.times(&b)).enumerate() {
        let allowed = expected.abs() * precision + all * T::SUM_PRECISION;
        let error = (T::number_of(value) - expected).abs();
        let name = std::any::type_name::<T>();
        assert!(
            error <= allowed,
            "{name}, seed {seed}, element {i}: {} instead of {expected}",
            T::number_of(value)
        );
    }
}

#[test]
fn random_numbers_are_within_rounding() {
    within_rounding::<bf16>(1.0 / 256.0);
    within_rounding::<f16>(1.0 / 2048.0);
    within_rounding::<F8E4M3>(1.0 / 256.0);
    // Each factor is truncated to 10 bits of mantissa.
    within_rounding::<f32>(1e-6);
}

#[test]
fn infinities_and_nan_reach_their_rows_and_columns() {
    let [m, n, k] = [130, 264, 72];
    let mut a = vec![bf16::ONE; m * k];
    a[129 * k + 71] = bf16::INFINITY;
    a[5 * k] = bf16::NAN;
    let a = Stored::new([m, k], false, a);
    let b = Stored::new([k, n], true, vec![bf16::ONE; n * k]);
    for (i, value) in multiply(&a, &b).into_iter().enumerate() {
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
    let number = |seed, rows: usize| random_integers::<bf16>(seed, rows * pitch);
    let (a, b) = (number(1, m), number(2, n));
    let (on_a, on_b) =
        (DeviceBuffer::from_host(&stream, &a).unwrap(), DeviceBuffer::from_host(&stream, &b).unwrap());
    let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::from_f32(7.5); m * pitch]).unwrap();
    let rows = |buffer, rows| DeviceBuffer::as_slice(buffer).as_2d_strided(rows, k, pitch).unwrap();
    let c_rows = c.as_2d_strided_mut(m, n, pitch).unwrap();
    matmul(&stream, rows(&on_a, m), Matrix::from(rows(&on_b, n)).transposed(), c_rows).unwrap();
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let (row, column) = (i / pitch, i % pitch);
        let dot = || (0..k).map(|x| a[row * pitch + x].to_f32() * b[column * pitch + x].to_f32()).sum();
        let expected = if column < n { dot() } else { 7.5 };
        assert_eq!(value, bf16::from_f32(expected), "row {row}, column {column}");
    }
}

/// The rows of C can have any alignment and can follow other elements.
#[test]
fn a_product_of_16_bits_begins_anywhere() {
    let stream = Stream::new(&under_test::device()).unwrap();
    for ([m, n, k], first) in [([20, 9, 24], 1), ([70, 131, 72], 3), ([300, 257, 200], 5)] {
        let a = Stored::<bf16>::new([m, k], false, random_integers(1, m * k));
        let b = Stored::<bf16>::new([k, n], true, random_integers(2, n * k));
        let (on_a, on_b) = (a.on(&stream), b.on(&stream));
        let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::from_f32(7.5); first + m * n + 1]).unwrap();
        let mut c_elements = c.slice_mut(first..first + m * n);
        let c_view = c_elements.as_2d_strided_mut(m, n, n).unwrap();
        matmul(&stream, a.view(&on_a), b.view(&on_b), c_view).unwrap();
        let found = c.to_host().unwrap();
        let sums = a.times(&b).into_iter().map(|(sum, _)| bf16::rounded(sum));
        let around = |count| std::iter::repeat_n(7.5, count);
        let expected = around(first).chain(sums).chain(around(1));
        assert!(found.into_iter().map(f64::from).eq(expected), "{m} x {n} x {k} from {first} on");
    }
}

#[test]
fn sums_of_nothing_are_zero() {
    let of = |[rows, columns]: [usize; 2], is_transposed| {
        Stored::new([rows, columns], is_transposed, vec![bf16::ONE; rows * columns])
    };
    assert_eq!(multiply(&of([3, 0], false), &of([0, 8], true)), [bf16::ZERO; 24]);
    assert!(multiply(&of([0, 8], false), &of([8, 8], true)).is_empty());
}

/// A library that is faster for unaligned matrices can be preferred, so that those are errors.
#[test]
fn wrong_matrices_are_named() {
    fn refused<T: GemmElement>(
        a: [usize; 2],
        b: [usize; 2],
        from: usize,
        b_transposed: bool,
    ) -> (TensorError, String) {
        let stream = Stream::new(&under_test::device()).unwrap();
        let x = DeviceBuffer::<T>::zeros(&stream, 4096).unwrap();
        let mut c = DeviceBuffer::<T::Output>::zeros(&stream, 4096).unwrap();
        let view = |[width, height]: [usize; 2]| -> DeviceSlice2<'_, T> {
            x.slice(from..from + width * height).as_2d(height, width).unwrap()
        };
        let b = Matrix::from(view(b));
        let b = if b_transposed { b.transposed() } else { b };
        let c = c.as_2d_strided_mut(a[1], b.columns(), b.columns()).unwrap();
        let (a, plain) = (view(a).into(), Epilogue::default());
        let error = matmul_or_library(&stream, true, &plain, a, b, c.into()).unwrap_err();
        (error.downcast_ref::<TensorError>().cloned().unwrap(), error.to_string())
    }
    let (error, text) = refused::<bf16>([16, 8], [24, 8], 0, true);
    assert!(
        matches!(error, TensorError::Shape { .. }) && text.contains("a is 8 x 16, b is 24 x 8, c is 8 x 8"),
        "{text}"
    );
    let (error, text) = refused::<F8E4M3>([9, 8], [9, 8], 0, true);
    assert!(matches!(error, TensorError::Alignment { matrix: "a", bytes: 9, .. }), "{text}");
    let (error, text) = refused::<f32>([8, 8], [8, 8], 1, true);
    assert!(matches!(error, TensorError::Alignment { matrix: "a", bytes: 32, .. }), "{text}");
    let (error, text) = refused::<i8>([16, 16], [16, 16], 0, false);
    assert!(matches!(error, TensorError::Layout { matrix: "b", .. }), "{text}");
    assert!(
        text.contains("for i8, the kernels need") && text.contains("contiguous along k, and b is not"),
        "{text}"
    );
}
