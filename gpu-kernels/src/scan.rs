//! Prefix scans: running sums, minimums and maximums, inclusive and exclusive.
//!
//! Each scan is a single launch of [`gpu_std::scan`](mod@gpu_std::scan), which reads and writes every element once. The
//! block size must be a multiple of 32 threads. `f16` and `bf16` values are combined in `f32` and rounded once.
//! Integers wrap around on overflow. For the same configuration, data and alignment, the result is bit-identical. The
//! result does not depend on the grid.
//!
//! All kernels take a workspace of [`workspace_len`] words, as described in [`gpu_std::look_back`].

use core::marker::PhantomData;

use gpu_std::disjoint::Unclaimed;
use gpu_std::prelude::*;
use gpu_std::scan::{Operation, scan_slice};

pub use gpu_std::look_back::workspace_len;
pub use gpu_std::scan::max_tiles;

/// The operator of a scan, which combines accumulators.
trait Combine<T: Scalar> {
    /// The identity. Combining it with another operand does not change any bit of that operand.
    const IDENTITY: T;

    fn combine(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator;
}

/// Addition.
struct Sum;
/// Minimum, or NaN if either operand is NaN.
struct Min;
/// Maximum, or NaN if either operand is NaN.
struct Max;

/// A type with an additive identity that does not change any bit of the other operand. For floats, this is −0, because
/// −0 + 0 is 0.
pub trait Zero: Scalar {
    /// −0 for floats, and 0 for integers.
    const NOTHING: Self;
}

macro_rules! zeros {
    ($($t:ty => $nothing:expr),*) => { $(
        impl Zero for $t {
            const NOTHING: Self = $nothing;
        }
    )* };
}
zeros!(f32 => -0.0, f64 => -0.0, f16 => f16::NEG_ZERO, bf16 => bf16::NEG_ZERO, i32 => 0, u32 => 0, i64 => 0, u64 => 0);

impl<T: Zero> Combine<T> for Sum {
    const IDENTITY: T = T::NOTHING;

    #[inline(always)]
    fn combine(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator {
        a.wrapping_add(b)
    }
}

impl<T: Scalar> Combine<T> for Min {
    const IDENTITY: T = T::MIN_IDENTITY;

    #[inline(always)]
    fn combine(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator {
        a.min_propagate(b)
    }
}

impl<T: Scalar> Combine<T> for Max {
    const IDENTITY: T = T::MAX_IDENTITY;

    #[inline(always)]
    fn combine(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator {
        a.max_propagate(b)
    }
}

/// A scan of all elements as one sequence.
struct All<T, C>(PhantomData<(T, C)>);

impl<T: Scalar, C: Combine<T>> Operation for All<T, C> {
    type Item = T;
    type Value = T::Accumulator;
    type Output = T;

    #[inline(always)]
    fn absent() -> T {
        C::IDENTITY
    }
    #[inline(always)]
    fn identity() -> T::Accumulator {
        C::IDENTITY.to_acc()
    }
    #[inline(always)]
    fn value(item: T) -> T::Accumulator {
        item.to_acc()
    }
    #[inline(always)]
    fn combine(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator {
        C::combine(a, b)
    }
    #[inline(always)]
    fn output(value: T::Accumulator) -> T {
        T::from_acc(value)
    }
}

macro_rules! kernels {
    ($($(#[$doc:meta])* $name:ident = $combine:ident, $bound:ident, [$($t:ident),*];)*) => { $(
        $(#[$doc])*
        ///
        /// Each result combines the elements up to and including its own position. If `exclusive` is true, each result
        /// combines `initial` and the elements before its own position.
        ///
        /// # Safety
        /// `workspace` must point to `workspace_len` words that meet the requirements of
        /// [`TileQueue::new`](gpu_std::look_back::TileQueue::new) and suffice for the tiles.
        #[kernel(
            types(T = $($t),*),
            consts(ITEMS = 5; VECTOR = 16),
            launch_bounds(256, 4),
            bytes = x.bytes() + out.bytes()
        )]
        pub unsafe fn $name<T: $bound, const ITEMS: usize, const VECTOR: usize>(
            exclusive: bool,
            initial: T,
            x: &[T],
            workspace: *mut u64,
            workspace_len: usize,
            out: DisjointMut<T, Unclaimed>,
        ) {
            let workspace = (workspace, workspace_len);
            // SAFETY: guaranteed by this function's contract.
            unsafe { scan_slice::<All<T, $combine>, ITEMS, VECTOR>(exclusive, initial.to_acc(), x, workspace, out) }
        }
    )* };
}

kernels! {
    /// Running sum. Integers wrap around on overflow, so signed integers use the instance for unsigned integers.
    scan_sum = Sum, Zero, [f32, f64, f16, bf16, u32, u64];
    /// Running minimum. Results are NaN from the first NaN element on.
    scan_min = Min, Scalar, [f32, f64, f16, bf16, i32, u32, i64, u64];
    /// Running maximum. Results are NaN from the first NaN element on.
    scan_max = Max, Scalar, [f32, f64, f16, bf16, i32, u32, i64, u64];
}
