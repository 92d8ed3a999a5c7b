//! Full reductions: sum, product, minimum, maximum.
//!
//! One launch each, with the same bits in every run of the same configuration. Results come in the type that
//! the reduction accumulates in: f32 for f16 and bf16, 64-bit integers for sums and products of integers
//! (which wrap at 64 bits), the element type otherwise.
//!
//! All take the same workspace: `workspace` is aligned to 16 bytes and has [`workspace_bytes`] of the grid's
//! number of blocks. Its first 16 bytes are zero before the first use; every launch leaves them zero, so that
//! launches on one stream can share it. Launches that may overlap must not.
//!
//! Their launch bounds ask for one block a multiprocessor at least: without that, ptxas spills registers in some
//! of them to let one more block in.

use gpu_std::prelude::*;

use crate::block_reduce::{Reduction, reduce};
use crate::tile::{lanes, with_lanes};

/// Bytes of workspace that a reduction over `blocks` blocks needs.
pub const fn workspace_bytes(blocks: usize) -> usize {
    16 + 16 * blocks
}

/// Numbers that can be summed up and multiplied: says in which type.
pub trait Summable: Scalar {
    /// f32 for f16, bf16 and f32; f64; i64 for signed and u64 for unsigned integers.
    type Wide: Scalar<Accumulator = Self::Wide>;

    /// The same number in the wider type.
    fn widen(self) -> Self::Wide;
}

macro_rules! summable {
    ($($t:ty => $sum:ty),*) => { $(
        impl Summable for $t {
            type Wide = $sum;

            #[inline(always)]
            fn widen(self) -> $sum {
                self.cast::<$sum>()
            }
        }
    )* };
}
summable!(f32 => f32, f64 => f64, f16 => f32, bf16 => f32, i32 => i64, i64 => i64, u32 => u64, u64 => u64);

/// Addition.
pub(crate) struct Sum;

impl<T: Summable> Reduction<T> for Sum {
    type Partial = T::Wide;

    #[inline(always)]
    fn identity() -> T::Wide {
        T::Wide::ZERO
    }
    #[inline(always)]
    fn fold(partial: T::Wide, value: T, _: u64) -> T::Wide {
        partial.wrapping_add(value.widen())
    }
    #[inline(always)]
    fn combine(a: T::Wide, b: T::Wide) -> T::Wide {
        a.wrapping_add(b)
    }
}

/// Multiplication.
struct Product;

impl<T: Summable> Reduction<T> for Product {
    type Partial = T::Wide;

    #[inline(always)]
    fn identity() -> T::Wide {
        T::Wide::ONE
    }
    #[inline(always)]
    fn fold(partial: T::Wide, value: T, _: u64) -> T::Wide {
        partial.wrapping_mul(value.widen())
    }
    #[inline(always)]
    fn combine(a: T::Wide, b: T::Wide) -> T::Wide {
        a.wrapping_mul(b)
    }
}

/// Minimum; NaN if there is one.
struct Min;

impl<T: Scalar> Reduction<T> for Min
where
    T::Accumulator: Scalar,
{
    type Partial = T::Accumulator;

    #[inline(always)]
    fn identity() -> T::Accumulator {
        T::Accumulator::MIN_IDENTITY
    }
    #[inline(always)]
    fn fold(partial: T::Accumulator, value: T, _: u64) -> T::Accumulator {
        partial.min_propagate(value.to_acc())
    }
    #[inline(always)]
    fn combine(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator {
        a.min_propagate(b)
    }
}

/// Maximum; NaN if there is one.
struct Max;

impl<T: Scalar> Reduction<T> for Max
where
    T::Accumulator: Scalar,
{
    type Partial = T::Accumulator;

    #[inline(always)]
    fn identity() -> T::Accumulator {
        T::Accumulator::MAX_IDENTITY
    }
    #[inline(always)]
    fn fold(partial: T::Accumulator, value: T, _: u64) -> T::Accumulator {
        partial.max_propagate(value.to_acc())
    }
    #[inline(always)]
    fn combine(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator {
        a.max_propagate(b)
    }
}

/// The common body of the kernels below.
///
/// # Safety
///
/// That of the kernels.
#[inline(always)]
unsafe fn run<T: Copy, R: Reduction<T>, const ITEMS: usize, const N: usize>(
    input: &[T],
    workspace: *mut u64,
    result: *mut R::Partial,
) {
    // SAFETY: by this function's contract.
    if let Some(total) = unsafe { reduce::<T, R, ITEMS, N>(input, workspace) } {
        // SAFETY: only one thread gets here, and `result` is valid.
        unsafe { result.write(total) };
    }
}

/// Writes the sum of `input` to `result`; 0 of no elements.
///
/// # Safety
///
/// The launch is one-dimensional, `workspace` is as the module's documentation says, `result` is valid for one
/// value, and nothing else uses either until the launch ends.
#[kernel(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    consts(ITEMS = 1, 2, 4, 8; VECTOR = 4, 16),
    launch_bounds(512, 1),
    bytes = input.bytes()
)]
pub unsafe fn reduce_sum<T: Summable, const ITEMS: usize, const VECTOR: usize>(
    input: &[T],
    workspace: *mut u64,
    result: *mut T::Wide,
) {
    // SAFETY: by this function's contract.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { run::<T, Sum, ITEMS, N>(input, workspace, result) })
}

/// Writes the product of `input` to `result`; 1 of no elements.
///
/// # Safety
///
/// As for [`reduce_sum()`].
#[kernel(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    consts(ITEMS = 4; VECTOR = 16),
    launch_bounds(512, 1),
    bytes = input.bytes()
)]
pub unsafe fn reduce_prod<T: Summable, const ITEMS: usize, const VECTOR: usize>(
    input: &[T],
    workspace: *mut u64,
    result: *mut T::Wide,
) {
    // SAFETY: by this function's contract.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { run::<T, Product, ITEMS, N>(input, workspace, result) })
}

/// Writes the least element of `input` to `result`, NaN if there is a NaN; the greatest value of the type of no
/// elements.
///
/// # Safety
///
/// As for [`reduce_sum()`].
#[kernel(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    consts(ITEMS = 4; VECTOR = 16),
    launch_bounds(512, 1),
    bytes = input.bytes()
)]
pub unsafe fn reduce_min<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
    input: &[T],
    workspace: *mut u64,
    result: *mut T::Accumulator,
) {
    // SAFETY: by this function's contract.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { run::<T, Min, ITEMS, N>(input, workspace, result) })
}

/// Writes the greatest element of `input` to `result`, NaN if there is a NaN; the least value of the type of no
/// elements.
///
/// # Safety
///
/// As for [`reduce_sum()`].
#[kernel(
    types(T = f32, f64, f16, bf16, i32, u32, i64, u64),
    consts(ITEMS = 4; VECTOR = 16),
    launch_bounds(512, 1),
    bytes = input.bytes()
)]
pub unsafe fn reduce_max<T: Scalar, const ITEMS: usize, const VECTOR: usize>(
    input: &[T],
    workspace: *mut u64,
    result: *mut T::Accumulator,
) {
    // SAFETY: by this function's contract.
    with_lanes!(lanes::<T>(VECTOR), N => unsafe { run::<T, Max, ITEMS, N>(input, workspace, result) })
}
