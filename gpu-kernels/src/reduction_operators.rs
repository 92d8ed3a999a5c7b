//! Operators of axis reductions, which fold elements one after another and combine the results of disjoint sets.

use core::marker::PhantomData;

use gpu_std::prelude::*;

use crate::reduce::{MeanSums, with_element};

/// A reduction, defined by its accumulator and its operator. The operator must be commutative.
pub(crate) trait Fold<T> {
    /// Type of the accumulator, which has at most 16 bytes.
    type Partial: KernelType;

    /// Returns the identity: the accumulator for zero elements.
    fn identity() -> Self::Partial;
    /// Folds element `index` into an accumulator. For each accumulator, calls have increasing indices.
    fn fold(partial: Self::Partial, value: T, index: usize) -> Self::Partial;
    /// Combines the accumulators of two disjoint sets of elements.
    fn combine(a: Self::Partial, b: Self::Partial) -> Self::Partial;
}

/// Addition.
pub(crate) struct Sum;
/// Multiplication.
pub(crate) struct Product;
/// Minimum, or NaN if any element is NaN.
pub(crate) struct Min;
/// Maximum, or NaN if any element is NaN.
pub(crate) struct Max;

macro_rules! folds {
    ($($fold:ty: <T: $bound:path> $partial:ty, $identity:expr, |$a:ident, $b:ident| $combine:expr, |$value:ident| $element:expr;)*) => { $(
        impl<T: $bound> Fold<T> for $fold {
            type Partial = $partial;

            #[inline(always)]
            fn identity() -> $partial {
                $identity
            }
            #[inline(always)]
            fn fold($a: $partial, $value: T, _: usize) -> $partial {
                let $b = $element;
                $combine
            }
            #[inline(always)]
            fn combine($a: $partial, $b: $partial) -> $partial {
                $combine
            }
        }
    )* };
}

folds! {
    Sum: <T: Number> T::SumAccumulator, T::SumAccumulator::ZERO, |a, b| a.wrapping_add(b), |value| value.cast();
    Product: <T: Number> T::SumAccumulator, T::SumAccumulator::ONE, |a, b| a.wrapping_mul(b), |value| value.cast();
    Min: <T: Scalar> T::Accumulator, T::Accumulator::MIN_IDENTITY, |a, b| a.min_propagate(b), |value| value.to_acc();
    Max: <T: Scalar> T::Accumulator, T::Accumulator::MAX_IDENTITY, |a, b| a.max_propagate(b), |value| value.to_acc();
}

/// The two sums from which a mean is computed.
pub(crate) struct Mean;

impl<T: Float> Fold<T> for Mean {
    type Partial = MeanSums<T::Accumulator>;

    #[inline(always)]
    fn identity() -> Self::Partial {
        [T::Accumulator::ZERO; 2]
    }
    #[inline(always)]
    fn fold(sums: Self::Partial, value: T, _: usize) -> Self::Partial {
        with_element(sums, value)
    }
    #[inline(always)]
    fn combine(a: Self::Partial, b: Self::Partial) -> Self::Partial {
        [a[0] + b[0], a[1] + b[1]]
    }
}

/// The order that an argmin or argmax uses.
pub(crate) trait Order<A> {
    /// Initial value of the search. An element that is equal to the initial value does not beat it.
    const WORST: A;
    /// Returns whether number `a` beats number `b`. The result is false if either is NaN.
    fn beats(a: A, b: A) -> bool;
}

/// Minimum.
pub(crate) struct Smallest;
/// Maximum.
pub(crate) struct Largest;

impl<A: Scalar> Order<A> for Smallest {
    const WORST: A = A::MIN_IDENTITY;
    #[inline(always)]
    fn beats(a: A, b: A) -> bool {
        a < b
    }
}

impl<A: Scalar> Order<A> for Largest {
    const WORST: A = A::MAX_IDENTITY;
    #[inline(always)]
    fn beats(a: A, b: A) -> bool {
        a > b
    }
}

/// The value and the index of a candidate element. If the candidate represents no element, all bits of the index are
/// set.
#[derive(Clone, Copy, KernelType)]
#[repr(C)]
pub(crate) struct Candidate<A> {
    value: A,
    /// Lower and upper half of the index. The index is split to avoid padding.
    index: [u32; 2],
}

impl<A> Candidate<A> {
    #[inline(always)]
    fn new(value: A, index: u64) -> Self {
        Self { value, index: [index as u32, (index >> 32) as u32] }
    }

    #[inline(always)]
    fn number(&self) -> u64 {
        self.index[0] as u64 | (self.index[1] as u64) << 32
    }

    /// Returns the index of the winning element.
    #[inline(always)]
    pub fn index(&self) -> u64 {
        // If no element beat the initial value, all elements are equal to it, so the first one wins.
        if self.number() == u64::MAX { 0 } else { self.number() }
    }
}

/// Selects the first element that no other element beats. If any element is NaN, the first NaN is selected.
pub(crate) struct First<O>(PhantomData<O>);

#[inline(always)]
#[allow(clippy::eq_op)]
fn is_nan<A: Scalar>(value: A) -> bool {
    value != value
}

impl<T: Scalar, O: Order<T::Accumulator>> Fold<T> for First<O> {
    type Partial = Candidate<T::Accumulator>;

    #[inline(always)]
    fn identity() -> Self::Partial {
        Candidate::new(O::WORST, u64::MAX)
    }
    #[inline(always)]
    fn fold(best: Self::Partial, value: T, index: usize) -> Self::Partial {
        let value = value.to_acc();
        // Indices increase, so a value that is equal to the best value never replaces it.
        let better = O::beats(value, best.value) | (is_nan(value) & !is_nan(best.value));
        if better { Candidate::new(value, index as u64) } else { best }
    }
    #[inline(always)]
    fn combine(a: Self::Partial, b: Self::Partial) -> Self::Partial {
        let (a_nan, b_nan) = (is_nan(a.value), is_nan(b.value));
        let equal = (a.value == b.value) | (a_nan & b_nan);
        let b_better = O::beats(b.value, a.value) | (b_nan & !a_nan) | (equal & (b.number() < a.number()));
        if b_better { b } else { a }
    }
}
