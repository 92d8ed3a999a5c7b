//! Scale factors (powers of two) that bring the squares of accumulator values into range if the unscaled squares are
//! not.

use gpu_std::prelude::*;

use crate::powers::two_to;

/// Returns 2 to the power `narrow` for `f32`, or `wide` for `f64`.
#[inline(always)]
const fn of<A>(narrow: i32, wide: i32) -> f64 {
    two_to(if size_of::<A>() == 4 { narrow } else { wide })
}

/// Returns the factor for small numbers. If the smallest number is scaled by this factor, its square is a normal
/// number.
#[inline(always)]
pub(crate) fn up<A: Scalar>() -> A {
    of::<A>(100, 600).cast()
}

/// Returns the factor for large numbers. If the largest number is scaled by this factor, the sum of 2⁴⁰ such squares is
/// in range.
#[inline(always)]
pub(crate) fn down<A: Scalar>() -> A {
    of::<A>(-88, -600).cast()
}

/// Returns the smallest sum of squares that has not lost significant digits because of underflow.
#[inline(always)]
pub(crate) fn min_sum<A: Scalar>() -> A {
    of::<A>(-80, -900).cast()
}

/// Returns the smallest mean of squares that has not lost significant digits because of underflow.
#[inline(always)]
pub(crate) fn min_mean<A: Scalar>() -> A {
    of::<A>(-110, -960).cast()
}

/// Returns the range in which the largest magnitude must lie for the squares to be in range without scaling.
#[inline(always)]
pub(crate) fn usual<A: Scalar>() -> [A; 2] {
    [of::<A>(-50, -440), of::<A>(44, 450)].map(Scalar::cast)
}

/// Returns the scale factor for gradients whose sums overflow.
#[inline(always)]
pub(crate) fn gradients_down<A: Scalar>() -> A {
    of::<A>(-90, -600).cast()
}

/// Returns the limit below which a sum of products may have lost digits because of underflow.
#[inline(always)]
pub(crate) fn min_product<A: Scalar>() -> A {
    of::<A>(-90, -900).cast()
}

/// Returns whether a number is neither infinite nor NaN.
#[inline(always)]
pub(crate) fn is_finite<A: gpu_std::math::Math>(x: A) -> bool {
    x.abs() < A::MIN_IDENTITY
}
