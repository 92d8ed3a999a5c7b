//! Full reductions: sum, product, mean, minimum and maximum.
//!
//! Each reduction takes one launch, and its result is deterministic for a given configuration. Results have the
//! accumulator type, which is `f32` for `f16` and `bf16` elements. Sums and products of integers have 64 bits and wrap
//! around on overflow. All other results have the element type.
//!
//! All kernels take a workspace as described in [`gpu_std::reduction::workspace_bytes`].
//!
//! The kernels' launch bounds request at least one block per SM. Without this request, ptxas spills registers in some
//! of these kernels to fit one more block.

use gpu_std::math::Math;
use gpu_std::prelude::*;

/// Sum of all elements, which is 0 for zero elements. For i64, use the instance for u64, which produces the same bits.
#[reduction(
    types(T = f32, f64, f16, bf16, i32, u32, u64),
    consts(ITEMS = 4, 8; VECTOR = 16),
    identity = T::SumAccumulator::ZERO,
    fold = |sum, x: T| sum.wrapping_add(x.cast())
)]
pub fn reduce_sum<T: Number>(a: T::SumAccumulator, b: T::SumAccumulator) -> T::SumAccumulator {
    a.wrapping_add(b)
}

/// Product of all elements, which is 1 for zero elements. For i64, use the instance for u64, which produces the same
/// bits.
#[reduction(
    types(T = f32, f64, f16, bf16, i32, u32, u64),
    identity = T::SumAccumulator::ONE,
    fold = |product, x: T| product.wrapping_mul(x.cast())
)]
pub fn reduce_prod<T: Number>(a: T::SumAccumulator, b: T::SumAccumulator) -> T::SumAccumulator {
    a.wrapping_mul(b)
}

/// The two sums from which a mean is computed.
pub type MeanSums<A> = [A; 2];

/// 2⁶⁴, the inverse of the factor by which the second sum of a mean is scaled.
const MEAN_SCALE: f64 = (1_u128 << 64) as f64;

/// Adds one element to the sums from which a mean is computed. The first sum adds the elements. The second sum adds the
/// elements times 2⁻⁶⁴, so that it cannot overflow. For f16, whose sum cannot overflow f32, the second sum is always 0.
#[inline(always)]
pub fn with_element<T: Float>([sum, small]: MeanSums<T::Accumulator>, x: T) -> MeanSums<T::Accumulator> {
    let x = x.to_acc();
    [sum + x, if const { is_f16::<T>() } { small } else { x.mul_add((1.0 / MEAN_SCALE).cast(), small) }]
}

const fn is_f16<T: Scalar>() -> bool {
    size_of::<T>() == 2 && T::NAME.as_bytes()[0] == b'f'
}

/// Returns the mean of `count` elements from their sums. The mean of finite elements is finite.
#[inline(always)]
pub fn mean_of<T: Float, R: Scalar>(sums: MeanSums<T::Accumulator>, count: usize) -> R {
    let ([sum, small], count) = (sums.map(Scalar::cast::<f64>), count as f64);
    let is_sum = sum.is_finite() || is_f16::<T>();
    if is_sum || !small.is_finite() {
        return ((if is_sum { sum } else { small }) / count).cast();
    }
    // The mean is clamped because the rounding of the sum must not move it beyond the largest number.
    let (mean, most) = (
        small / count * MEAN_SCALE,
        if size_of::<T::Accumulator>() == 4 { f32::MAX as f64 } else { f64::MAX },
    );
    let within = if mean > most {
        most
    } else if mean < -most {
        -most
    } else {
        mean
    };
    within.cast()
}

/// Computes the sums from which [`mean_of`] computes the mean of all elements.
#[reduction(
    types(T = f32, f64, f16, bf16),
    identity = [T::Accumulator::ZERO; 2],
    fold = |sums, x: T| with_element(sums, x)
)]
pub fn reduce_mean<T: Float>(
    a: MeanSums<T::Accumulator>,
    b: MeanSums<T::Accumulator>,
) -> MeanSums<T::Accumulator> {
    [a[0] + b[0], a[1] + b[1]]
}

/// Minimum, or NaN if any element is NaN. The result for zero elements is the largest value of the type.
#[reduction(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    identity = T::Accumulator::MIN_IDENTITY,
    fold = |smallest, x: T| smallest.min_propagate(x.to_acc())
)]
pub fn reduce_min<T: Scalar>(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator {
    a.min_propagate(b)
}

/// Maximum, or NaN if any element is NaN. The result for zero elements is the smallest value of the type.
#[reduction(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    identity = T::Accumulator::MAX_IDENTITY,
    fold = |largest, x: T| largest.max_propagate(x.to_acc())
)]
pub fn reduce_max<T: Scalar>(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator {
    a.max_propagate(b)
}
