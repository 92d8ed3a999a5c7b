//! Moments of sets of numbers, which can be combined without loss of precision. The moments are the count, the mean, a
//! correction for the rounding of the mean, and the sum of squared differences from the mean.
//!
//! The method follows Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample
//! variances", 1979. The mean of equal numbers is exactly that number, and the differences from it are 0.

use gpu_std::math::Math;
use gpu_std::prelude::*;

use crate::range::{down, up, usual};
use crate::thread_group::{each, lanewise};

/// The count, the mean, the correction of the mean, and the sum of squared differences.
type Moments<A> = [A; 4];

/// Returns the sum of two numbers and its rounding error (Knuth's two-sum).
#[inline(always)]
fn two_sum<A: Math>(a: A, b: A) -> [A; 2] {
    let sum = a + b;
    let of_b = sum - a;
    [sum, (a - (sum - of_b)) + (b - of_b)]
}

/// Returns the moments of the union of two disjoint sets.
#[inline(always)]
fn join<A: Math>(a: Moments<A>, b: Moments<A>) -> Moments<A> {
    if a[0] == A::ZERO || b[0] == A::ZERO {
        return if a[0] == A::ZERO { b } else { a };
    }
    let count = a[0] + b[0];
    let share = b[0] / count;
    let difference = (b[1] - a[1]) + (b[2] - a[2]);
    let [mean, rest] = two_sum(a[1], difference.mul_add(share, a[2]));
    [count, mean, rest, (difference * difference).mul_add(a[0] * share, a[3] + b[3])]
}

/// Moments of scaled numbers, followed by the scale. The scale is a power of two that keeps the squares of all numbers
/// in range.
pub(crate) type Scaled<A> = [A; 5];

/// Returns the identity: the moments of an empty set.
#[inline(always)]
pub(crate) fn nothing<A: Math>() -> Scaled<A> {
    let zero = A::ZERO;
    [zero, zero, zero, zero, up()]
}

/// Rescales moments to a different power of two, which must not be larger.
#[inline(always)]
fn scaled<A: Math>([count, mean, rest, squares, scale]: Scaled<A>, to: A) -> Moments<A> {
    if scale == to {
        return [count, mean, rest, squares];
    }
    let factor = to / scale;
    [count, mean * factor, rest * factor, squares * factor * factor]
}

/// Returns the pairwise sum of `N` numbers, where `N` is a power of two. If all numbers are equal, the sum is exact.
#[inline(always)]
fn pairwise<A: Math, const N: usize>(mut values: [A; N]) -> A {
    let mut count = N / 2;
    while count > 0 {
        each::<N>(|i| {
            if i < count {
                values[i] = values[i] + values[i + count];
            }
        });
        count /= 2;
    }
    values[0]
}

/// Adds `N` numbers to the moments, where `N` is a power of two.
#[inline(always)]
pub(crate) fn with_values<A: Math, const N: usize>(moments: Scaled<A>, values: [A; N]) -> Scaled<A> {
    let [small, great] = usual::<A>();
    let mut most = A::ZERO;
    each::<N>(|i| most = if values[i].abs() > most { values[i].abs() } else { most });
    let needed = if most > great {
        down()
    } else if most < small {
        up()
    } else {
        A::ONE
    };
    let scale = if needed < moments[4] { needed } else { moments[4] };
    let values: [A; N] = lanewise(|i| values[i] * scale);
    let count: A = (N as f64).cast();
    let mean = pairwise(values) / count;
    let differences: [A; N] = lanewise(|i| values[i] - mean);
    let rest = pairwise(differences) / count;
    let squares = pairwise(lanewise::<A, N>(|i| {
        let difference = differences[i] - rest;
        difference * difference
    }));
    let [count, mean, rest, squares] = join(scaled(moments, scale), [count, mean, rest, squares]);
    [count, mean, rest, squares, scale]
}

/// Returns the moments of the union of two disjoint sets.
#[inline(always)]
pub(crate) fn join_scaled<A: Math>(a: Scaled<A>, b: Scaled<A>) -> Scaled<A> {
    let scale = if a[4] < b[4] { a[4] } else { b[4] };
    let [count, mean, rest, squares] = join(scaled(a, scale), scaled(b, scale));
    [count, mean, rest, squares, scale]
}

/// Returns the sum of squared differences divided by `divisor`. The scaling is undone before the result is rounded to
/// the accumulator type.
#[inline(always)]
pub(crate) fn variance<A: Math>([_, _, _, squares, scale]: Scaled<A>, divisor: f64) -> A {
    let scale = 1.0 / scale.cast::<f64>();
    (squares.cast::<f64>() / divisor * scale * scale).cast()
}
