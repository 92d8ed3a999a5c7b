//! Argmin and argmax.
//!
//! Among equal elements, the first one wins. NaN ranks below every number for argmin and above every number for argmax,
//! so the first NaN, if any, wins. +0 and -0 are equal.
//!
//! For each vector, a thread compares the vector's best element with the best element so far. Only if the vector's best
//! element is better does the thread search for its position within the vector. Better elements are rare, so most
//! vectors need no search.

use core::marker::PhantomData;

use gpu_std::prelude::*;
use gpu_std::reduction::{Partial, Reduction, reduce_into};

use crate::tile::each;

/// A candidate: a value, and either its index or `NONE`.
#[derive(Clone, Copy)]
pub struct Candidate<A> {
    value: A,
    index: u64,
}

/// Index of a candidate that represents no element.
const NONE: u64 = u64::MAX;

impl<A: KernelType> Partial for Candidate<A> {
    #[inline(always)]
    fn shuffle_down(self, mask: u32, delta: u32) -> Self {
        Self { value: self.value.shuffle_down(mask, delta), index: self.index.shuffle_down(mask, delta) }
    }
}

/// An order of values that determines which of two values is better.
trait Order<A> {
    /// Returns the initial value of the search. An element that is equal to the initial value does not beat it.
    fn worst() -> A;
    /// Returns whether number `a` beats number `b`. The result is false if either is NaN.
    fn beats(a: A, b: A) -> bool;
    /// Returns the better number, or NaN if either number is NaN.
    fn best(a: A, b: A) -> A;
}

/// Minimum.
struct Smallest;
/// Maximum.
struct Largest;

impl<A: Scalar> Order<A> for Smallest {
    #[inline(always)]
    fn worst() -> A {
        A::MIN_IDENTITY
    }
    #[inline(always)]
    fn beats(a: A, b: A) -> bool {
        a < b
    }
    #[inline(always)]
    fn best(a: A, b: A) -> A {
        a.min_propagate(b)
    }
}

impl<A: Scalar> Order<A> for Largest {
    #[inline(always)]
    fn worst() -> A {
        A::MAX_IDENTITY
    }
    #[inline(always)]
    fn beats(a: A, b: A) -> bool {
        a > b
    }
    #[inline(always)]
    fn best(a: A, b: A) -> A {
        a.max_propagate(b)
    }
}

#[inline(always)]
#[allow(clippy::eq_op)]
fn is_nan<A: Scalar>(value: A) -> bool {
    value != value
}

impl<A: Scalar> Candidate<A> {
    /// Returns the identity: a candidate that represents no element.
    #[inline(always)]
    fn none<O: Order<A>>() -> Self {
        Self { value: O::worst(), index: NONE }
    }

    /// Returns whether an element with this value and a higher index is better than the candidate. Equal elements are
    /// not better.
    #[inline(always)]
    fn is_beaten<O: Order<A>>(self, value: A) -> bool {
        O::beats(value, self.value) | (is_nan(value) & !is_nan(self.value))
    }

    /// Returns the better of two candidates.
    #[inline(always)]
    fn better<O: Order<A>>(self, other: Self) -> Self {
        let (a_nan, b_nan) = (is_nan(self.value), is_nan(other.value));
        let equal = (self.value == other.value) | (a_nan & b_nan);
        let b_better =
            O::beats(other.value, self.value) | (b_nan & !a_nan) | (equal & (other.index < self.index));
        if b_better { other } else { self }
    }

    /// Returns the index of the winning element. If no element beat the initial value, all elements are equal to it, so
    /// the first one wins.
    #[inline(always)]
    fn answer(self) -> u64 {
        if self.index == NONE { 0 } else { self.index }
    }
}

/// Argmin or argmax as a reduction.
struct Search<T, O>(PhantomData<(T, O)>);

impl<T: Scalar, O: Order<T::Accumulator>> Reduction for Search<T, O> {
    type Item = T;
    type Partial = Candidate<T::Accumulator>;
    type Output = u64;

    #[inline(always)]
    fn identity() -> Self::Partial {
        Candidate::none::<O>()
    }
    #[inline(always)]
    fn fold(best: Self::Partial, x: T, index: u64) -> Self::Partial {
        let value = x.to_acc();
        if best.is_beaten::<O>(value) { Candidate { value, index } } else { best }
    }
    #[inline(always)]
    fn fold_vector<const N: usize>(partials: &mut [Self::Partial; N], vector: [T; N], index: u64) {
        let mut value = vector[0].to_acc();
        each::<N>(|lane| {
            if lane > 0 {
                value = O::best(value, vector[lane].to_acc());
            }
        });
        if partials[0].is_beaten::<O>(value) {
            let mut first = N - 1;
            each::<N>(|place| {
                let (lane, best) = (N - 1 - place, value);
                let own = vector[lane].to_acc();
                if (own == best) | (is_nan(own) & is_nan(best)) {
                    first = lane;
                }
            });
            partials[0] = Candidate { value, index: index + first as u64 };
        }
    }
    #[inline(always)]
    fn combine(a: Self::Partial, b: Self::Partial) -> Self::Partial {
        a.better::<O>(b)
    }
    #[inline(always)]
    fn finish(best: Self::Partial) -> u64 {
        best.answer()
    }
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $order:ident;)*) => { $(
        $(#[$doc])*
        ///
        /// # Safety
        /// The caller must uphold the safety contract of [`reduce_into`].
        #[kernel(
            types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
            consts(ITEMS = 4; VECTOR = 16),
            launch_bounds(256, 3),
            bytes = input.bytes()
        )]
        pub unsafe fn $name<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
            input: &[T],
            workspace: *mut u64,
            result: *mut u64,
        ) {
            // SAFETY: guaranteed by this function's contract.
            unsafe { reduce_into::<Search<T, $order>, ITEMS, VECTOR>(input, workspace, result) }
        }
    )* };
}

kernels! {
    /// Returns the index of the first minimum, or of the first NaN if any element is NaN. For zero elements, returns 0.
    reduce_argmin = Smallest;
    /// Returns the index of the first maximum, or of the first NaN if any element is NaN. For zero elements, returns 0.
    reduce_argmax = Largest;
}
