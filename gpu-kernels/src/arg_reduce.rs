//! The index of the least and the greatest element.
//!
//! Of equal elements the first counts. A NaN counts as less (for the least) or greater (for the greatest) than
//! every number, so that the first NaN's index comes out if there is one; +0 and -0 are equal.

use core::marker::PhantomData;

use gpu_std::prelude::*;

use crate::block_reduce::{Partial, Reduction, reduce};
use crate::tile::{lanes, with_lanes};

/// A candidate: its value, and its index or [`NONE`].
#[derive(Clone, Copy)]
struct Candidate<A> {
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

/// Search for the first element that none beats.
struct First<O>(PhantomData<O>);

#[inline(always)]
#[allow(clippy::eq_op)]
fn is_nan<A: Scalar>(value: A) -> bool {
    value != value
}

impl<T: Scalar, O: Order<T::Accumulator>> Reduction<T> for First<O>
where
    T::Accumulator: Scalar,
{
    type Partial = Candidate<T::Accumulator>;

    #[inline(always)]
    fn identity() -> Self::Partial {
        Candidate { value: O::worst(), index: NONE }
    }
    #[inline(always)]
    fn fold(best: Self::Partial, value: T, index: u64) -> Self::Partial {
        let value = value.to_acc();
        // Indices increase, so an equal value never takes over.
        let better = O::beats(value, best.value) | (is_nan(value) & !is_nan(best.value));
        if better { Candidate { value, index } } else { best }
    }
    #[inline(always)]
    fn combine(a: Self::Partial, b: Self::Partial) -> Self::Partial {
        let (a_nan, b_nan) = (is_nan(a.value), is_nan(b.value));
        let equal = (a.value == b.value) | (a_nan & b_nan);
        let b_better = O::beats(b.value, a.value) | (b_nan & !a_nan) | (equal & (b.index < a.index));
        if b_better { b } else { a }
    }
}

/// The common body of the kernels below.
///
/// # Safety
///
/// That of the kernels.
#[inline(always)]
unsafe fn run<T, O, const ITEMS: usize, const N: usize>(input: &[T], workspace: *mut u64, result: *mut u64)
where
    T: Scalar,
    T::Accumulator: Scalar,
    O: Order<T::Accumulator>,
{
    // SAFETY: by this function's contract.
    if let Some(best) = unsafe { reduce::<T, First<O>, ITEMS, N>(input, workspace) } {
        // No element beat the worst value there is, so all are equal to it: the first is the answer.
        let index = if best.index == NONE { 0 } else { best.index };
        // SAFETY: only one thread gets here, and `result` is valid.
        unsafe { result.write(index) };
    }
}

/// Writes the index of the first least element of `input` to `result`, of the first NaN if there is one; 0 of no
/// elements.
///
/// # Safety
///
/// As for [`reduce_sum`](crate::reduce::reduce_sum()).
#[kernel(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    consts(ITEMS = 4; VECTOR = 16),
    launch_bounds(512, 1),
    bytes = input.bytes()
)]
pub unsafe fn reduce_argmin<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
    input: &[T],
    workspace: *mut u64,
    result: *mut u64,
) {
    // SAFETY: by this function's contract.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { run::<T, Least, ITEMS, N>(input, workspace, result) })
}

/// Writes the index of the first greatest element of `input` to `result`, of the first NaN if there is one; 0 of
/// no elements.
///
/// # Safety
///
/// As for [`reduce_sum`](crate::reduce::reduce_sum()).
#[kernel(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    consts(ITEMS = 4; VECTOR = 16),
    launch_bounds(512, 1),
    bytes = input.bytes()
)]
pub unsafe fn reduce_argmax<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
    input: &[T],
    workspace: *mut u64,
    result: *mut u64,
) {
    // SAFETY: by this function's contract.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { run::<T, Greatest, ITEMS, N>(input, workspace, result) })
}
