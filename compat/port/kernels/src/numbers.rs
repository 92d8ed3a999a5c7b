//! Values of struct and enum types, vectors, float functions, heap memory and text.

use alloc::vec;
use cuda_std::glam::{Mat3, Vec3};
use cuda_std::prelude::*;
use cuda_std::{FloatExt, GpuFloat};
use cust_core::DeviceCopy;

/// Motion of a point.
#[derive(Clone, Copy, DeviceCopy)]
#[repr(C)]
pub enum Motion {
    /// The point stays.
    Rest,
    /// The point is rotated.
    Turn(Mat3),
    /// The point moves by a step.
    Step {
        /// The step.
        by: Vec3,
    },
}

/// Motions of points.
#[derive(Clone, Copy, DeviceCopy)]
#[repr(C)]
pub struct Scene {
    /// Motions of the points; point `i` uses the motion with index `i` modulo 3.
    pub motions: [Motion; 3],
    /// Common scale factor.
    pub scale: f32,
}

#[kernel]
pub unsafe fn advance(scene: &Scene, points: *mut Vec3, count: u32, shift: Vec3) {
    let i = thread::index_1d();
    if i < count {
        let point = unsafe { &mut *points.add(i as usize) };
        let moved = match scene.motions[i as usize % 3] {
            Motion::Rest => *point,
            Motion::Turn(turn) => turn * *point,
            Motion::Step { by } => *point + by,
        };
        *point = moved * scene.scale + shift;
    }
}

/// For each `x`, computes a row of function values.
#[kernel]
pub unsafe fn functions(x: &[f64], out: *mut [f64; 10]) {
    let i = thread::index() as usize;
    if i < x.len() {
        let x = x[i];
        let (sin, cos) = GpuFloat::sin_cos(x);
        let (mantissa, exponent) = FloatExt::frexp(x);
        unsafe {
            *out.add(i) = [
                sin,
                cos,
                GpuFloat::powi(x, 3),
                GpuFloat::log2(x),
                x.error_function(),
                FloatExt::j0(x),
                FloatExt::norm_cdf(x),
                mantissa * f64::from(exponent),
                GpuFloat::rem_euclid(-x, 1.5),
                FloatExt::sinpi(x),
            ];
        }
    }
}

/// Stores the digit sum of `i * 37` in `out[i]`, using a vector on the device heap.
#[kernel]
pub unsafe fn digits(out: *mut u32, count: u32) {
    let i = thread::index_1d();
    if i < count {
        let mut digits = vec![];
        let mut rest = i * 37;
        while rest > 0 {
            digits.push(rest % 10);
            rest /= 10;
        }
        unsafe { *out.add(i as usize) = digits.iter().sum() };
    }
}

/// Prints a line and panics if the index exceeds `limit`.
#[kernel]
pub unsafe fn checks(limit: u32) {
    let i = thread::index_1d();
    if i == 3 {
        println!("thread {i} of {:?}", thread::block_dim().to_array());
    }
    assert!(i < limit, "the limit is exceeded");
}
