//! Numbers near and at zero: subnormal numbers are preserved, and zeros keep their sign in operations that only move or
//! select.

use half::bf16;
use warpsmith::ops::{self, Comparison, Order};
use warpsmith::prelude::*;

use crate::common::{TestNumber, for_types, stream};

fn subnormal_numbers_of<T: TestNumber + ops::Float>() {
    let stream = stream();
    let bits = |values: &[T]| values.iter().map(|value| value.bits()).collect::<Vec<_>>();
    let smallest = min_of::<T>();
    let values: Vec<T> = (1..=100).map(|i| T::nearest(f64::from(i) * smallest)).collect();
    let x = DeviceBuffer::from_host(&stream, &values).unwrap();
    let mut out = DeviceBuffer::zeros(&stream, 100).unwrap();

    ops::add(&stream, &x, &x, &mut out).unwrap();
    let doubled: Vec<T> = (1..=100).map(|i| T::nearest(2.0 * f64::from(i) * smallest)).collect();
    assert_eq!(bits(&out.to_host().unwrap()), bits(&doubled));
    ops::relu(&stream, &x, &mut out).unwrap();
    assert_eq!(bits(&out.to_host().unwrap()), bits(&values));
    ops::inclusive_sum(&stream, x.slice(..10), out.slice_mut(..10)).unwrap();
    assert_eq!(out.to_host().unwrap()[9].to_f64(), 55.0 * smallest);
    assert_eq!(ops::sum(&stream, x.slice(..10)).unwrap().to_f64(), 55.0 * smallest);
    assert_eq!(ops::max(&stream, &x).unwrap().to_f64(), 100.0 * smallest);
    assert_eq!(ops::argmax(&stream, &x).unwrap(), 99);
    let mut count = DeviceBuffer::zeros(&stream, 1).unwrap();
    ops::select_if(&stream, Comparison::Greater, T::nearest(50.0 * smallest), &x, &mut out, &mut count)
        .unwrap();
    assert_eq!((count.to_host().unwrap()[0], out.to_host().unwrap()[0].bits()), (50, values[50].bits()));
    let mut wide = DeviceBuffer::<f64>::zeros(&stream, 100).unwrap();
    ops::cast(&stream, &x, &mut wide).unwrap();
    assert_eq!(wide.to_host().unwrap()[2], 3.0 * smallest);
}

/// Smallest number above 0.
fn min_of<T: TestNumber>() -> f64 {
    bytemuck::pod_read_unaligned::<T>(&1u64.to_le_bytes()[..size_of::<T>()]).to_f64()
}

#[test]
fn subnormal_numbers_are_kept() {
    for_types!(subnormal_numbers_of: f32, f64, bf16);
}

#[test]
fn zeros_keep_their_sign() {
    let stream = stream();
    let values = [0.0f32, -0.0, 1.0, -0.0, 0.0];
    let x = DeviceBuffer::from_host(&stream, &values).unwrap();
    let mut out = DeviceBuffer::zeros(&stream, 5).unwrap();
    let signs = |out: &DeviceBuffer<f32>| {
        out.to_host().unwrap().iter().map(|value| value.is_sign_negative()).collect::<Vec<_>>()
    };
    ops::copy(&stream, &x, &mut out).unwrap();
    assert_eq!(signs(&out), [false, true, false, true, false]);
    ops::neg(&stream, &x, &mut out).unwrap();
    assert_eq!(signs(&out), [true, false, true, false, true]);
    // Keys are ordered by their bits: negative zeros come first.
    ops::sort(&stream, Order::Ascending, &x, &mut out).unwrap();
    assert_eq!(signs(&out), [true, true, false, false, false]);
    // Comparisons treat zeros of both signs as equal: the first of equal elements is found.
    assert_eq!(ops::argmin(&stream, &x).unwrap(), 0);
    let mut count = DeviceBuffer::zeros(&stream, 1).unwrap();
    ops::unique(&stream, &x, &mut out, &mut count).unwrap();
    assert_eq!((count.to_host().unwrap(), signs(&out)[..3].to_vec()), (vec![3], vec![false, false, true]));
}
