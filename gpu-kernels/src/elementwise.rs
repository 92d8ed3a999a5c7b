//! Elementwise arithmetic and activation functions.
//!
//! f16 and bf16 are computed in f32 and rounded once. Where several arrays have different lengths, the
//! shortest counts.

use gpu_std::math::Math;
use gpu_std::prelude::*;

use crate::map::{map1, map2, map3};
use crate::tile::{lanes, with_lanes};

/// `f(x)` in the type that `T` accumulates in.
#[inline(always)]
fn widened<T: Float>(x: T, f: impl Fn(T::Accumulator) -> T::Accumulator) -> T {
    T::from_acc(f(x.to_acc()))
}

/// `y[i] = a * x[i] + y[i]`, rounded once.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 1, 2, 4, 8; VECTOR = 4, 16),
    launch_bounds(512),
    bytes = x.bytes() + 2 * y.bytes()
)]
pub fn axpy<T: Float, const ITEMS: usize, const VECTOR: usize>(a: T, x: &[T], mut y: DisjointMut<T>) {
    let len = x.len().min(y.len());
    let (x, y) = (x.as_ptr(), y.as_mut_ptr());
    let a = a.to_acc();
    let f = |x: T, y: T| T::from_acc(a.mul_add(x.to_acc(), y.to_acc()));
    // SAFETY: both are valid for `len` elements; the disjoint view overlaps nothing but itself; each element is
    // written by one thread.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { map2::<T, ITEMS, N>(x, y, y, len, f) })
}

/// `out[i] = x[i] + y[i]`; integers wrap.
#[kernel(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    consts(ITEMS = 1, 4; VECTOR = 16),
    launch_bounds(512),
    bytes = x.bytes() + y.bytes() + out.bytes()
)]
pub fn add<T: Scalar, const ITEMS: usize, const VECTOR: usize>(x: &[T], y: &[T], mut out: DisjointMut<T>) {
    let len = x.len().min(y.len()).min(out.len());
    let (x, y, out) = (x.as_ptr(), y.as_ptr(), out.as_mut_ptr());
    let f = |x: T, y: T| T::from_acc(x.to_acc().wrapping_add(y.to_acc()));
    // SAFETY: all are valid for `len` elements; the disjoint view overlaps nothing; each element is written by
    // one thread.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { map2::<T, ITEMS, N>(x, y, out, len, f) })
}

/// `out[i] = x[i] * y[i]`; integers wrap.
#[kernel(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    consts(ITEMS = 1, 4; VECTOR = 16),
    launch_bounds(512),
    bytes = x.bytes() + y.bytes() + out.bytes()
)]
pub fn mul<T: Scalar, const ITEMS: usize, const VECTOR: usize>(x: &[T], y: &[T], mut out: DisjointMut<T>) {
    let len = x.len().min(y.len()).min(out.len());
    let (x, y, out) = (x.as_ptr(), y.as_ptr(), out.as_mut_ptr());
    let f = |x: T, y: T| T::from_acc(x.to_acc().wrapping_mul(y.to_acc()));
    // SAFETY: all are valid for `len` elements; the disjoint view overlaps nothing; each element is written by
    // one thread.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { map2::<T, ITEMS, N>(x, y, out, len, f) })
}

/// `out[i] = x[i] * y[i] + z[i]`, rounded once.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 1, 4; VECTOR = 16),
    launch_bounds(512),
    bytes = x.bytes() + y.bytes() + z.bytes() + out.bytes()
)]
pub fn fma<T: Float, const ITEMS: usize, const VECTOR: usize>(
    x: &[T],
    y: &[T],
    z: &[T],
    mut out: DisjointMut<T>,
) {
    let len = x.len().min(y.len()).min(z.len()).min(out.len());
    let (x, y, z, out) = (x.as_ptr(), y.as_ptr(), z.as_ptr(), out.as_mut_ptr());
    let f = |x: T, y: T, z: T| T::from_acc(x.to_acc().mul_add(y.to_acc(), z.to_acc()));
    // SAFETY: all are valid for `len` elements; the disjoint view overlaps nothing; each element is written by
    // one thread.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { map3::<T, ITEMS, N>(x, y, z, out, len, f) })
}

/// `out[i] = max(x[i], 0)`; NaN stays NaN.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 1, 4; VECTOR = 16),
    launch_bounds(512),
    bytes = x.bytes() + out.bytes()
)]
pub fn relu<T: Float, const ITEMS: usize, const VECTOR: usize>(x: &[T], mut out: DisjointMut<T>) {
    let len = x.len().min(out.len());
    let (x, out) = (x.as_ptr(), out.as_mut_ptr());
    let f = |x: T| x.max_propagate(T::ZERO);
    // SAFETY: both are valid for `len` elements; the disjoint view overlaps nothing; each element is written by
    // one thread.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { map1::<T, T, ITEMS, N>(x, out, len, f) })
}

/// `out[i] = x[i] / 2 * (1 + erf(x[i] / √2))`, the exact form, computed with `erfc` so that negative inputs
/// keep their accuracy.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 1, 4; VECTOR = 16),
    launch_bounds(512),
    bytes = x.bytes() + out.bytes()
)]
pub fn gelu<T: Float, const ITEMS: usize, const VECTOR: usize>(x: &[T], mut out: DisjointMut<T>) {
    let len = x.len().min(out.len());
    let (x, out) = (x.as_ptr(), out.as_mut_ptr());
    let f = |x: T| widened(x, Math::gelu);
    // SAFETY: both are valid for `len` elements; the disjoint view overlaps nothing; each element is written by
    // one thread.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { map1::<T, T, ITEMS, N>(x, out, len, f) })
}

/// `out[i] = 1 / (1 + exp(-x[i]))`.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 1, 4; VECTOR = 16),
    launch_bounds(512),
    bytes = x.bytes() + out.bytes()
)]
pub fn sigmoid<T: Float, const ITEMS: usize, const VECTOR: usize>(x: &[T], mut out: DisjointMut<T>) {
    let len = x.len().min(out.len());
    let (x, out) = (x.as_ptr(), out.as_mut_ptr());
    let f = |x: T| widened(x, |x| T::Accumulator::ONE / (T::Accumulator::ONE + (-x).exp()));
    // SAFETY: both are valid for `len` elements; the disjoint view overlaps nothing; each element is written by
    // one thread.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { map1::<T, T, ITEMS, N>(x, out, len, f) })
}

/// `out[i] = exp(x[i])`.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 1, 4; VECTOR = 16),
    launch_bounds(512),
    bytes = x.bytes() + out.bytes()
)]
pub fn exp<T: Float, const ITEMS: usize, const VECTOR: usize>(x: &[T], mut out: DisjointMut<T>) {
    let len = x.len().min(out.len());
    let (x, out) = (x.as_ptr(), out.as_mut_ptr());
    let f = |x: T| widened(x, |x| x.exp());
    // SAFETY: both are valid for `len` elements; the disjoint view overlaps nothing; each element is written by
    // one thread.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { map1::<T, T, ITEMS, N>(x, out, len, f) })
}
