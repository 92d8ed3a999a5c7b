//! The index of the least and the greatest element.
//!
//! Of equal elements the first counts. A NaN counts as less (for the least) or greater (for the greatest) than
//! every number, so that the first NaN's index comes out if there is one; +0 and -0 are equal.

use gpu_std::prelude::*;
use gpu_std::reduction::Partial;

/// A candidate: its value, and its index or `NONE`.
#[derive(Clone, Copy)]
pub struct Candidate<A> {
    value: A,
    index: u64,
}

/// The index of a candidate that stands for no element.
const NONE: u64 = u64::MAX;

impl<A: KernelType> Partial for Candidate<A> {
    #[inline(always)]
    fn shuffle_down(self, mask: u32, delta: u32) -> Self {
        Self { value: self.value.shuffle_down(mask, delta), index: self.index.shuffle_down(mask, delta) }
    }
}

/// The ordering of two values.
trait Order<A> {
    /// The initial value of the search: no element wins by being equal to it.
    fn worst() -> A;
    /// Whether number `a` beats number `b`; false when either is NaN.
    fn beats(a: A, b: A) -> bool;
}

/// The least.
struct Least;
/// The greatest.
struct Greatest;

impl<A: Scalar> Order<A> for Least {
    #[inline(always)]
    fn worst() -> A {
        A::MIN_IDENTITY
    }
    #[inline(always)]
    fn beats(a: A, b: A) -> bool {
        a < b
    }
}

impl<A: Scalar> Order<A> for Greatest {
    #[inline(always)]
    fn worst() -> A {
        A::MAX_IDENTITY
    }
    #[inline(always)]
    fn beats(a: A, b: A) -> bool {
        a > b
    }
}

#[inline(always)]
#[allow(clippy::eq_op)]
fn is_nan<A: Scalar>(value: A) -> bool {
    value != value
}

impl<A: Scalar> Candidate<A> {
    /// No element.
    #[inline(always)]
    fn none<O: Order<A>>() -> Self {
        Self { value: O::worst(), index: NONE }
    }

    /// The better of this one and an element of a higher index.
    #[inline(always)]
    fn fold<O: Order<A>>(self, value: A, index: u64) -> Self {
        // Indices increase, so an equal value never takes over.
        let better = O::beats(value, self.value) | (is_nan(value) & !is_nan(self.value));
        if better { Self { value, index } } else { self }
    }

    /// The better of two.
    #[inline(always)]
    fn better<O: Order<A>>(self, other: Self) -> Self {
        let (a_nan, b_nan) = (is_nan(self.value), is_nan(other.value));
        let equal = (self.value == other.value) | (a_nan & b_nan);
        let b_better =
            O::beats(other.value, self.value) | (b_nan & !a_nan) | (equal & (other.index < self.index));
        if b_better { other } else { self }
    }

    /// The index. No element beat the worst value there is, so all are equal to it: the first is the answer.
    #[inline(always)]
    fn answer(self) -> u64 {
        if self.index == NONE { 0 } else { self.index }
    }
}

/// The index of the first least element, of the first NaN if there is one; 0 of no elements.
#[reduction(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    identity = Candidate::none::<Least>(),
    fold = |best, x: T, index| best.fold::<Least>(x.to_acc(), index),
    finish = |best| -> u64 { best.answer() }
)]
pub fn reduce_argmin<T: Scalar>(
    a: Candidate<T::Accumulator>,
    b: Candidate<T::Accumulator>,
) -> Candidate<T::Accumulator> {
    a.better::<Least>(b)
}

/// The index of the first greatest element, of the first NaN if there is one; 0 of no elements.
#[reduction(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    identity = Candidate::none::<Greatest>(),
    fold = |best, x: T, index| best.fold::<Greatest>(x.to_acc(), index),
    finish = |best| -> u64 { best.answer() }
)]
pub fn reduce_argmax<T: Scalar>(
    a: Candidate<T::Accumulator>,
    b: Candidate<T::Accumulator>,
) -> Candidate<T::Accumulator> {
    a.better::<Greatest>(b)
}
