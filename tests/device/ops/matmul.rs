//! Products by our kernels, and by cuBLAS where these cannot.

use half::bf16;
use warpsmith::ops;
use warpsmith::prelude::*;

use crate::common;

/// The product of small integers with k columns, which is exact.
fn is_exact([m, n, k]: [usize; 3]) {
    let stream = common::stream();
    let number = |i: usize| (i * 7 % 5) as f32 - 2.0;
    let numbers = |len: usize| (0..len).map(|i| bf16::from_f32(number(i))).collect::<Vec<_>>();
    let a = DeviceBuffer::from_host(&stream, &numbers(m * k)).unwrap();
    let b = DeviceBuffer::from_host(&stream, &numbers(n * k)).unwrap();
    let mut c = DeviceBuffer::from_host(&stream, &vec![bf16::NAN; m * n]).unwrap();
    let rows = (a.as_2d(k, m).unwrap(), b.as_2d(k, n).unwrap());
    ops::matmul_tn(&stream, &rows.0, &rows.1, &mut c.as_2d_mut(n, m).unwrap()).unwrap();
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
