//! Full reductions that take two arrays or a predicate, or that compute in several steps. Each reduction is one
//! deterministic launch.
//!
//! The array is processed as one row that is divided into parts (see [`axis_reduce`](crate::axis_reduce)), with the
//! same kind of workspace.

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::thread;

use crate::axis_reduce::{is_last, shared_result};
use crate::moments::{self, Scaled};
use crate::range::{down, is_finite, min_sum, up};
use crate::thread_group::{Cut, ThreadGroup, each, lanes, lanewise, load_or_any, stream, with_lanes};

/// Launch parameters other than the arrays.
#[derive(Clone, Copy)]
struct Launch {
    workspace: *mut u64,
    /// Number of blocks in the launch.
    parts: u32,
    /// True if all arrays have the same alignment modulo 16 bytes.
    has_vectors: bool,
}

/// Reduces `K` arrays of `len` elements. Returns `Some` with the result in one thread of the launch, and `None` in all
/// others. `fold` adds the elements at one position to an accumulator, and `fold_vectors` adds the elements at `N`
/// positions.
///
/// # Safety
/// The caller must uphold the safety contract of [`dot()`].
#[inline(always)]
unsafe fn device_reduce<T: KernelType, P: KernelType, const K: usize, const N: usize>(
    arrays: [*const T; K],
    len: usize,
    launch: Launch,
    none: P,
    (fold_vectors, fold): (impl Fn(P, [[T; N]; K]) -> P, impl Fn(P, [T; K]) -> P),
    combine: impl Fn(P, P) -> P,
) -> Option<P> {
    let Launch { workspace, parts, has_vectors } = launch;
    let mut group = ThreadGroup::in_block(thread::block_dim_x());
    let part = thread::block_idx_x() as usize;
    let of_thread = (part * group.size + group.rank, parts as usize * group.size);
    let cut = Cut::new::<T, N>(arrays[0], len, has_vectors);
    let mut partial = none;
    stream::<_, [[T; N]; K], [T; K], 4, N>(
        &cut,
        of_thread,
        &mut partial,
        // SAFETY: `stream` passes only positions within the arrays, of whole vectors that exist and of single elements.
        |place, is_there| lanewise(|k| unsafe { load_or_any(arrays[k].wrapping_add(place), is_there) }),
        |partial, _, vectors| *partial = fold_vectors(*partial, vectors),
        // SAFETY: as above.
        |place| lanewise(|k| unsafe { arrays[k].add(place).read() }),
        |partial, _, values| *partial = fold(*partial, values),
    );
    let mut total = group.combine(partial, &combine);
    if parts > 1 {
        // SAFETY: the workspace contains a counter, and one slot per part.
        let (finished, partials) = unsafe { shared_result::<P>(workspace, 0) };
        if group.rank == 0 {
            // SAFETY: this slot belongs to this block.
            unsafe { partials.add(part).write(total) };
        }
        if !is_last(finished, parts) {
            return None;
        }
        total = none;
        let mut i = group.rank;
        while i < parts as usize {
            // SAFETY: all blocks have written their partial results.
            total = combine(total, unsafe { partials.add(i).read() });
            i += group.size;
        }
        total = group.combine(total, &combine);
    }
    (group.rank == 0).then_some(total)
}

/// Creates both function arguments of [`device_reduce`] from a function of the elements at one position.
#[inline(always)]
#[allow(clippy::type_complexity, reason = "two closures have no shorter type")]
fn one_by_one<T: Copy, P: Copy, const K: usize, const N: usize>(
    fold: impl Fn(P, [T; K]) -> P + Copy,
) -> (impl Fn(P, [[T; N]; K]) -> P, impl Fn(P, [T; K]) -> P) {
    let fold_vectors = move |mut partial: P, vectors: [[T; N]; K]| {
        each::<N>(|lane| partial = fold(partial, lanewise(|k| vectors[k][lane])));
        partial
    };
    (fold_vectors, fold)
}

/// Dot product: writes the sum of `x[i] * y[i]` to `out`.
///
/// # Safety
/// The launch must be one-dimensional, with `parts` blocks of 32, 64, 128 or 256 threads and without clusters. If there
/// is more than one block, `workspace` must meet the requirements of the module [`axis_reduce`](crate::axis_reduce),
/// for as many partial results as blocks, each of 48 bytes. If `has_vectors` is 1, the addresses of the arrays must be
/// equal modulo 16 bytes. `out` must be valid for one value. Nothing else may access `out` and the workspace until the
/// launch ends.
#[kernel(
    types(T = f32, f64, f16, bf16, i32, u32, u64),
    launch_bounds(256, 2),
    bytes = x.bytes() + y.bytes()
)]
pub unsafe fn dot<T: Number>(
    x: &[T],
    y: &[T],
    out: *mut T::SumAccumulator,
    workspace: *mut u64,
    parts: u32,
    has_vectors: u32,
) {
    let launch = Launch { workspace, parts, has_vectors: has_vectors != 0 };
    let (arrays, len) = ([x.as_ptr(), y.as_ptr()], x.len().min(y.len()));
    let add = |a: T::SumAccumulator, b: T::SumAccumulator| a.wrapping_add(b);
    let fold = |sum: T::SumAccumulator, [x, y]: [T; 2]| {
        add(sum, x.cast::<T::SumAccumulator>().wrapping_mul(y.cast()))
    };
    // SAFETY: guaranteed by this function's contract.
    with_lanes!(lanes::<T>(16), N => unsafe {
        if let Some(total) = device_reduce::<T, _, 2, N>(arrays, len, launch, T::SumAccumulator::ZERO, one_by_one(fold), add) {
            out.write(total);
        }
    })
}

/// Counts the elements of `x` that are equal to `value` (if `predicate` is 0), nonzero (1) or NaN (2), and writes the
/// count to `out`. For signed integers, use the instance for unsigned integers of the same size.
///
/// # Safety
/// The caller must uphold the safety contract of [`dot()`].
#[kernel(
    types(T = f32, f64, f16, bf16, u8, u16, u32, u64),
    launch_bounds(256, 2),
    bytes = x.bytes()
)]
#[allow(clippy::eq_op, reason = "NaN is not equal to itself")]
pub unsafe fn count_if<T: Scalar>(
    x: &[T],
    predicate: u32,
    value: T,
    out: *mut u64,
    workspace: *mut u64,
    parts: u32,
) {
    let launch = Launch { workspace, parts, has_vectors: true };
    let counts = |x: T| match predicate {
        0 => x == value,
        1 => x != T::ZERO,
        _ => x != x,
    };
    let fold = |count: u64, [x]: [T; 1]| count + counts(x) as u64;
    // SAFETY: guaranteed by this function's contract.
    with_lanes!(lanes::<T>(16), N => unsafe {
        if let Some(total) = device_reduce::<T, _, 1, N>([x.as_ptr()], x.len(), launch, 0, one_by_one(fold), |a, b| a + b) {
            out.write(total);
        }
    })
}

/// Writes the sum of the absolute values of `x` to `out`. If `is_root` is 1, writes the square root of the sum of
/// squares instead. The root is correct whenever it is in range, even if the squares are not. Three sums of squares are
/// computed: one of the unscaled numbers, and one for each of two scalings by powers of two. The method follows Blue,
/// "A Portable Fortran Program to Find the Euclidean Norm of a Vector", 1978, but without branches.
///
/// # Safety
/// The caller must uphold the safety contract of [`dot()`].
#[kernel(types(T = f32, f64, f16, bf16), launch_bounds(256, 2), bytes = x.bytes())]
pub unsafe fn vector_norm<T: Float>(
    x: &[T],
    is_root: u32,
    out: *mut T::Accumulator,
    workspace: *mut u64,
    parts: u32,
) {
    let launch = Launch { workspace, parts, has_vectors: true };
    let (up, down) = (up::<T::Accumulator>(), down::<T::Accumulator>());
    let fold = |[small, sum, great]: [T::Accumulator; 3], [x]: [T; 1]| {
        let x = x.to_acc();
        if is_root != 0 {
            let square = |x: T::Accumulator, sum| x.mul_add(x, sum);
            [square(x * up, small), square(x, sum), square(x * down, great)]
        } else {
            [small, sum + x.abs(), great]
        }
    };
    let add = |a: [T::Accumulator; 3], b: [T::Accumulator; 3]| [a[0] + b[0], a[1] + b[1], a[2] + b[2]];
    // SAFETY: guaranteed by this function's contract.
    with_lanes!(lanes::<T>(16), N => unsafe {
        let none = [T::Accumulator::ZERO; 3];
        let total = device_reduce::<T, _, 1, N>([x.as_ptr()], x.len(), launch, none, one_by_one(fold), add);
        if let Some([small, sum, great]) = total {
            out.write(if is_root == 0 {
                sum
            } else if sum < min_sum() {
                small.sqrt() / up
            } else if is_finite(sum) {
                sum.sqrt()
            } else {
                great.sqrt() / down
            });
        }
    })
}

/// Writes the variance of `x` to `out`: the sum of squared differences from the mean, divided by the number of elements
/// minus `correction`. The result is NaN if the divisor is not positive. The module `moments` explains the computation.
///
/// # Safety
/// The caller must uphold the safety contract of [`dot()`].
#[kernel(types(T = f32, f64, f16, bf16), launch_bounds(256, 2), bytes = x.bytes())]
pub unsafe fn variance<T: Float>(
    x: &[T],
    correction: u64,
    out: *mut T::Accumulator,
    workspace: *mut u64,
    parts: u32,
) {
    let launch = Launch { workspace, parts, has_vectors: true };
    let fold = |moments: Scaled<T::Accumulator>, [x]: [T; 1]| moments::with_values(moments, [x.to_acc()]);
    // SAFETY: guaranteed by this function's contract.
    with_lanes!(lanes::<T>(16), N => unsafe {
        let fold_vectors = |moments: Scaled<T::Accumulator>, [vector]: [[T; N]; 1]| {
            moments::with_values::<_, N>(moments, lanewise(|lane| vector[lane].to_acc()))
        };
        let (none, folds) = (moments::nothing(), (fold_vectors, fold));
        let total = device_reduce::<T, _, 1, N>([x.as_ptr()], x.len(), launch, none, folds, moments::join_scaled);
        if let Some(moments) = total {
            let freedom = x.len() as f64 - correction as f64;
            let freedom = if freedom > 0.0 { freedom } else { f64::NAN };
            out.write(moments::variance(moments, freedom));
        }
    })
}
