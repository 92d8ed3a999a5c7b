//! GEMMs by our kernels, and by cuBLAS as a fallback.

use half::bf16;
use warpsmith::ops;
use warpsmith::prelude::*;

use crate::common;

/// Checks a GEMM of small integers with k columns, which is exact.
fn is_exact([m, n, k]: [usize; 3]) {
    let stream = common::stream();
    let number = |i: usize| (i * 7 % 5) as f32 - 2.0;
    let numbers = |len: usize| (0..len).map(|i| bf16::from_f32(number(i))).collect::<Vec<_>>();
    let a = DeviceBuffer::from_host(&stream, &numbers(m * k)).unwrap();
    let b = DeviceBuffer::from_host(&stream, &numbers(n * k)).unwrap();
    let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; m * n]).unwrap();
    let columns = ops::Matrix::from(b.as_2d(n, k).unwrap()).transposed();
    ops::matmul(&stream, a.as_2d(m, k).unwrap(), columns, c.as_2d_mut(m, n).unwrap()).unwrap();
    for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
        let sum: f32 = (0..k).map(|x| number(i / n * k + x) * number(i % n * k + x)).sum();
        assert_eq!(value, bf16::from_f32(sum), "{m} x {n} x {k}, element {i}");
    }
}

#[test]
fn products_of_aligned_rows_are_exact() {
    is_exact([70, 48, 136]);
}

#[test]
fn products_of_unaligned_rows_are_exact() {
    is_exact([70, 45, 33]);
}

/// `f32` numbers with 10 mantissa bits, whose products are exact in TF32; also row-major `b`, for which cuBLAS is used
/// if it is available.
#[test]
fn products_of_tf32_are_exact_in_both_layouts() {
    let stream = common::stream();
    let [m, n, k] = [30, 20, 24];
    let number = |i: usize| (i * 7 % 5) as f32 - 2.0;
    let numbers = |len: usize| (0..len).map(number).collect::<Vec<_>>();
    let a = DeviceBuffer::from_host(&stream, &numbers(m * k)).unwrap();
    let b = DeviceBuffer::from_host(&stream, &numbers(n * k)).unwrap();
    for is_transposed in [true, false] {
        let mut c = DeviceBuffer::from_host(&stream, &vec![f32::NAN; m * n]).unwrap();
        let b = if is_transposed {
            ops::Matrix::from(b.as_2d(n, k).unwrap()).transposed()
        } else {
            b.as_2d(k, n).unwrap().into()
        };
        let plain = ops::Epilogue::default();
        ops::matmul_tf32(&stream, &plain, a.as_2d(m, k).unwrap(), b, c.as_2d_mut(m, n).unwrap()).unwrap();
        for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
            let (row, column) = (i / n, i % n);
            let place = |x: usize| if is_transposed { column * k + x } else { x * n + column };
            let sum: f32 = (0..k).map(|x| number(row * k + x) * number(place(x))).sum();
            assert_eq!(value, sum, "transposed {is_transposed}, element {i}");
        }
    }
}

/// Our kernel for aligned operands, cuBLAS for unaligned ones: both apply the same epilogues.
#[test]
fn an_epilogue_is_the_same_by_both() {
    let stream = common::stream();
    for [m, n, k] in [[24, 40, 32], [24, 41, 33]] {
        let number = |i: usize| (i * 7 % 5) as f32 / 4.0 - 0.5;
        let numbers = |len: usize| (0..len).map(|i| bf16::from_f32(number(i))).collect::<Vec<_>>();
        let a = DeviceBuffer::from_host(&stream, &numbers(m * k)).unwrap();
        let b = DeviceBuffer::from_host(&stream, &numbers(n * k)).unwrap();
        let bias = DeviceBuffer::from_host(&stream, &numbers(n)).unwrap();
        let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; m * n]).unwrap();
        let epilogue = ops::Epilogue {
            scale: 0.5,
            bias: Some(bias.as_slice()),
            activation: ops::Activation::Gelu,
            ..ops::Epilogue::default()
        };
        let rows = (a.as_2d(m, k).unwrap(), b.as_2d(k, n).unwrap());
        ops::matmul_fused(&stream, &epilogue, rows.0, rows.1, c.as_2d_mut(m, n).unwrap()).unwrap();
        for (i, value) in c.to_host().unwrap().into_iter().enumerate() {
            let (row, column) = (i / n, i % n);
            let sum: f32 = (0..k).map(|x| number(row * k + x) * number(x * n + column)).sum();
            let x = f64::from(0.5 * sum + number(column));
            let z = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x * x * x);
            let expected = 0.5 * x * (1.0 + z.tanh());
            let error = (value.to_f64() - expected).abs();
            assert!(error <= expected.abs() / 128.0 + 1e-5, "{m} x {n} x {k}, {i}: {value}, not {expected}");
        }
    }
}
