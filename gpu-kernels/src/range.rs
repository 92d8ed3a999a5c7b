//! Powers of two that keep the squares of an accumulator's numbers in its range, where those of the numbers themselves are not.

use gpu_std::prelude::*;

use crate::powers::two_to;

/// One of f32, another of f64.
#[inline(always)]
const fn of<A>(narrow: i32, wide: i32) -> f64 {
    two_to(if size_of::<A>() == 4 { narrow } else { wide })
}

/// Multiplies small numbers: the square of the least one is a normal number then.
#[inline(always)]
pub(crate) fn up<A: Scalar>() -> A {
    of::<A>(100, 600).cast()
}

/// Multiplies great numbers: the sum of the squares of 2⁴⁰ of the greatest is in range then.
#[inline(always)]
pub(crate) fn down<A: Scalar>() -> A {
    of::<A>(-88, -600).cast()
}

/// A sum of squares from this on has lost nothing that counts below the least normal number.
#[inline(always)]
pub(crate) fn least_sum<A: Scalar>() -> A {
    of::<A>(-80, -900).cast()
}

/// The same of a mean of squares.
#[inline(always)]
pub(crate) fn least_mean<A: Scalar>() -> A {
    of::<A>(-110, -960).cast()
}

/// Numbers of which the greatest magnitude is between these two have squares in range as they are.
#[inline(always)]
pub(crate) fn usual<A: Scalar>() -> [A; 2] {
    [of::<A>(-50, -440), of::<A>(44, 450)].map(Scalar::cast)
}

/// Multiplies gradients whose sums leave the range.
#[inline(always)]
pub(crate) fn gradients_down<A: Scalar>() -> A {
    of::<A>(-90, -600).cast()
}

/// Sums of products below this may have lost digits below the least normal number.
#[inline(always)]
pub(crate) fn least_product<A: Scalar>() -> A {
    of::<A>(-90, -900).cast()
}

/// Whether a number is neither infinite nor NaN.
#[inline(always)]
pub(crate) fn is_finite<A: gpu_std::math::Math>(x: A) -> bool {
    x.abs() < A::MIN_IDENTITY
}
