//! Elementwise arithmetic and activation functions.
//!
//! For `f16` and `bf16`, the function is computed in `f32` and the result is rounded once. If arrays have different
//! lengths, the length of the shortest array applies. One access in flight per thread is sufficient, because all
//! resident blocks together keep enough accesses in flight. Wrapping integer operations have one instance for signed
//! and unsigned integers.

use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;

/// Computes `f(x)` in the accumulator type of `T`.
#[inline(always)]
fn widened<T: Float>(x: T, f: impl Fn(T::Accumulator) -> T::Accumulator) -> T {
    T::from_acc(f(x.to_acc()))
}

/// `a * x + y`, rounded once.
#[elementwise(types(T = f32, f64, f16, bf16), consts(ITEMS = 1, 2, 4, 8; VECTOR = 4, 16), scalars(a), updates(y))]
pub fn axpy<T: Float>(a: T, x: T, y: T) -> T {
    a.fused_mul_add(x, y)
}

/// `x + y`, where integers wrap around on overflow.
#[elementwise(types(T = f32, f64, f16, bf16, u32, u64), consts(ITEMS = 1; VECTOR = 16))]
pub fn add<T: Scalar>(x: T, y: T) -> T {
    T::from_acc(x.to_acc().wrapping_add(y.to_acc()))
}

/// `x * y`, where integers wrap around on overflow.
#[elementwise(types(T = f32, f64, f16, bf16, u32, u64), consts(ITEMS = 1; VECTOR = 16))]
pub fn mul<T: Scalar>(x: T, y: T) -> T {
    T::from_acc(x.to_acc().wrapping_mul(y.to_acc()))
}

/// `x * y + z`, rounded once.
#[elementwise(types(T = f32, f64, f16, bf16), consts(ITEMS = 1; VECTOR = 16))]
pub fn fma<T: Float>(x: T, y: T, z: T) -> T {
    x.fused_mul_add(y, z)
}

/// `max(x, 0)`, and NaN stays NaN.
#[elementwise(types(T = f32, f64, f16, bf16), consts(ITEMS = 1; VECTOR = 16))]
pub fn relu<T: Float>(x: T) -> T {
    x.max_propagate(T::ZERO)
}

/// `x / 2 * (1 + erf(x / √2))`, the exact version, computed with `erfc` so that the result is accurate for negative
/// inputs. For `f16` and `bf16`, [`fast::gelu`] is used. The relative error of 2⁻¹⁶ is negligible compared to the
/// rounding of these types.
#[elementwise(types(T = f32, f64, f16, bf16), consts(ITEMS = 1; VECTOR = 16))]
pub fn gelu<T: Float>(x: T) -> T {
    if const { size_of::<T>() == 2 } {
        return fast::gelu(x.cast::<f32>()).cast::<T>();
    }
    widened(x, Math::gelu)
}

/// `1 / (1 + exp(-x))`.
#[elementwise(types(T = f32, f64, f16, bf16), consts(ITEMS = 1; VECTOR = 16))]
pub fn sigmoid<T: Float>(x: T) -> T {
    widened(x, |x| {
        // The exponential of a large number is avoided, because it could overflow even if the result does not.
        let (one, power) = (T::Accumulator::ONE, (-x.abs()).exp());
        (if x < T::Accumulator::ZERO { power } else { one }) / (one + power)
    })
}

/// `exp(x)`.
#[elementwise(types(T = f32, f64, f16, bf16), consts(ITEMS = 1; VECTOR = 16))]
pub fn exp<T: Float>(x: T) -> T {
    widened(x, |x| x.exp())
}
