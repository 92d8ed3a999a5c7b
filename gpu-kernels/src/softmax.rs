//! Softmax and log-softmax of each row, and their backward passes.
//!
//! For `f16` and `bf16`, the function is computed in `f32` and the result is rounded once. Each warp computes the
//! maximum of its elements and the sum of their exponentials. The results of the warps are then combined, so that the
//! thread group synchronizes only once per row (Milakov and Gimelshein, "Online normalizer calculation for softmax",
//! 2018). For `f32` and `f64`, each exponential is computed once. For `f16` and `bf16`, it is computed twice, because
//! the register-resident elements stay packed, two per register. Rows that are too long for registers are read twice.
//! If a row contains no number above -∞, or contains +∞ or NaN, all its results are NaN.

use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;
use gpu_std::vectorized::opaque;

use crate::range::{gradients_down, is_finite};
use crate::resident::{
    BACKWARD_FEW, FEW, Part, converted, fold, is_packed, resident_vectors, widened, with_resident,
};
use crate::thread_group::{Lanes, ThreadGroup, each, lanes, lanewise, with_lanes};

/// Computes the exponential function for results that are rounded to `T`. 16-bit types use the approximate function,
/// because on a GPU exact exponentials take as long as the memory accesses of these types. The error of the approximate
/// function is far below the precision of these types.
#[inline(always)]
pub(crate) fn exponential<T: Float>(x: T::Accumulator) -> T::Accumulator {
    if size_of::<T>() == 2 { fast::exp(x.cast::<f32>()).cast() } else { x.exp() }
}

/// The maximum of a set, and the sum of the exponentials relative to the maximum.
type Sums<A> = [A; 2];

/// Combines the sums that the given lanes hold.
#[inline(always)]
fn join<T: Float>(lanes: Lanes, [most, sum]: Sums<T::Accumulator>) -> Sums<T::Accumulator> {
    let of_all = lanes.combine(most, Scalar::max_propagate);
    [of_all, lanes.combine(scaled::<T>(sum, most, of_all), |a, b| a + b)]
}

/// Rescales a sum of exponentials from the base `from` to the base `to`.
#[inline(always)]
fn scaled<T: Float>(sum: T::Accumulator, from: T::Accumulator, to: T::Accumulator) -> T::Accumulator {
    // The comparison is also correct if both are -∞, for which the difference would be NaN.
    if from == to { sum } else { sum * exponential::<T>(from - to) }
}

/// Computes the softmax of one row. Each thread holds `V` vectors of `N` elements at once.
///
/// # Safety
/// The rows must be valid for the part's length. Rows and parameters that are accessed in vectors must be aligned.
/// Nothing else may access `target`.
#[inline(always)]
unsafe fn forward<T: Float, const V: usize, const N: usize>(
    source: impl Fn() -> *const T,
    target: impl Fn() -> *mut T,
    (start, streams): (Part<N>, bool),
    group: &mut ThreadGroup,
    is_log: bool,
) {
    type Acc<T> = <T as Scalar>::Accumulator;
    let (zero, one, nothing) = (Acc::<T>::ZERO, Acc::<T>::ONE, Acc::<T>::MAX_IDENTITY);
    let mut part = start.again();
    let [mut most, mut sum] = [nothing, zero];
    let mut values: [[T; N]; V];
    loop {
        // SAFETY: guaranteed by this function's contract.
        values = unsafe { part.load::<T, V>(source(), T::MAX_IDENTITY) };
        let before = most;
        let mut largest = [nothing; N];
        each::<V>(|i| {
            let vector = converted(values[i]);
            each::<N>(|lane| largest[lane] = largest[lane].max_propagate(vector[lane]));
        });
        let of_chunk = group.lanes().combine(fold(&[largest], Scalar::max_propagate), Scalar::max_propagate);
        most = most.max_propagate(of_chunk);
        // If all elements are -∞, their exponentials are 0.
        let base = if most == nothing { zero } else { most };
        let mut sums = [zero; N];
        each::<V>(|i| {
            let vector = converted(values[i]);
            each::<N>(|lane| {
                let power = exponential::<T>(vector[lane] - base);
                sums[lane] = sums[lane] + power;
                if !is_packed::<T>() {
                    values[i][lane] = T::from_acc(opaque(if is_log { vector[lane] } else { power }));
                }
            });
        });
        let own = group.lanes().combine(fold(&[sums], |a, b| a + b), |a, b| a + b);
        sum = scaled::<T>(sum, before, most) + own;
        if !streams | part.is_last::<V>() {
            break;
        }
        part = part.next::<V>();
    }
    let [of_row, total] = group.combine_warps([most, sum], join::<T>);
    let is_read_again = streams & !start.is_last::<V>();
    // True if the values are already exponentials, relative to `most`.
    let are_powers = !is_packed::<T>() & !is_read_again & !is_log;
    let inverse = one / total;
    // The shift, factor and offset of the values, for logarithms or for exponentials.
    let (shift, scale, offset) = if is_log {
        (of_row, one, -total.ln())
    } else {
        let is_whole = !are_powers | (most == of_row);
        (zero, if is_whole { inverse } else { exponential::<T>(most - of_row) * inverse }, -zero)
    };
    part = start.again();
    loop {
        if is_read_again {
            // SAFETY: guaranteed by this function's contract.
            values = unsafe { part.load::<T, V>(source(), T::MAX_IDENTITY) };
        }
        part = part.again();
        let target = target();
        each::<V>(|i| {
            let results = converted(values[i]).map(|value| {
                let value = if is_log | are_powers { value } else { exponential::<T>(value - of_row) };
                T::from_acc((value - shift).mul_add(scale, offset))
            });
            // SAFETY: guaranteed by this function's contract.
            unsafe { part.store(target, i, results) };
        });
        if !is_read_again | part.is_last::<V>() {
            break;
        }
        part = part.next::<V>();
    }
}

/// Writes the softmax of each row of `x` (or the log-softmax, if `is_log` is 1) to `out`.
///
/// # Safety
/// The launch must meet the requirements of the `thread_group` module, with blocks of at most 512 threads. `x` and
/// `out` must have the same shape. If `in_vectors` is 1, the rows of both views must start and end on 16-byte
/// boundaries. In an instance for a small number of vectors, a thread group must be able to hold a whole row.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 2, 8),
    launch_bounds(512, 2),
    bytes = x.bytes() + out.bytes()
)]
pub unsafe fn softmax<T: Float, const ITEMS: usize>(
    x: Slice2<T>,
    mut out: DisjointMut2<T>,
    is_log: u32,
    group_size: u32,
    in_vectors: u32,
) {
    let (out, out_pitch) = (out.as_mut_ptr(), out.row_stride());
    ThreadGroup::for_rows(group_size, x.rows(), |row, group| {
        let source = || x.as_ptr().wrapping_add(row.get() * x.row_stride());
        let target = || out.wrapping_add(row.get() * out_pitch);
        // SAFETY: the row lies within both views, and each row belongs to one thread group; the caller guarantees the
        // rest.
        with_resident!((ITEMS, FEW, in_vectors != 0, Part::new(group, x.columns())), T: V, N, part, streams => unsafe {
            forward::<T, V, N>(source, target, (part, streams), group, is_log != 0)
        });
    });
}

/// Computes the softmax gradient of one row from the row's output `y` and the gradient `dy` of that output.
///
/// # Safety
/// The caller must uphold the safety contract of [`forward`].
#[inline(always)]
unsafe fn backward<T: Float, const V: usize, const N: usize>(
    (y, dy): &(impl Fn() -> *const T, impl Fn() -> *const T),
    target: impl Fn() -> *mut T,
    (start, streams): (Part<N>, bool),
    group: &mut ThreadGroup,
    is_log: bool,
) {
    type Acc<T> = <T as Scalar>::Accumulator;
    let load = |part: &Part<N>, row: *const T| -> [[Acc<T>; N]; V] {
        // SAFETY: guaranteed by this function's contract.
        widened(unsafe { part.load::<T, V>(row, T::ZERO) })
    };
    let is_read_again = streams & !start.is_last::<V>();
    let (mut outputs, mut gradients);
    // Gradients whose sum overflows are summed again after they are scaled by a power of two.
    let mut scale = Acc::<T>::ONE;
    let sum = loop {
        let mut part = start.again();
        let mut sums = [Acc::<T>::ZERO; N];
        loop {
            (outputs, gradients) = (load(&part, y()), load(&part.again(), dy()));
            each::<V>(|i| {
                each::<N>(|lane| {
                    let y = if is_log { scale } else { outputs[i][lane] * scale };
                    sums[lane] = y.mul_add(gradients[i][lane], sums[lane]);
                });
            });
            if !streams | part.is_last::<V>() {
                break;
            }
            part = part.next::<V>();
        }
        let sum = group.combine(fold(&[sums], |a, b| a + b), |a, b| a + b);
        if is_finite(sum) | (scale != Acc::<T>::ONE) {
            break sum;
        }
        scale = gradients_down();
    };
    let inverse = Acc::<T>::ONE / scale;
    let mut part = start.again();
    loop {
        if is_read_again {
            (outputs, gradients) = (load(&part, y()), load(&part.again(), dy()));
        }
        part = part.again();
        let target = target();
        each::<V>(|i| {
            let results = lanewise(|lane| {
                let (y, dy) = (outputs[i][lane], gradients[i][lane]);
                // The difference of the gradients is not first multiplied by the output, because the product could
                // overflow even if the result does not.
                let result = if is_log {
                    exponential::<T>(y).mul_add(-sum, dy * scale)
                } else {
                    y.mul_add(dy * scale, -(y * sum))
                };
                T::from_acc(result * inverse)
            });
            // SAFETY: guaranteed by this function's contract.
            unsafe { part.store(target, i, results) };
        });
        if !is_read_again | part.is_last::<V>() {
            break;
        }
        part = part.next::<V>();
    }
}

/// Computes the backward pass of [`softmax()`]: the gradient `dx` of the input, from the output `y` and the gradient
/// `dy` of the output.
///
/// # Safety
/// The conditions of [`softmax()`] must hold for all three views.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 1, 4),
    launch_bounds(512, 2),
    bytes = y.bytes() + dy.bytes() + dx.bytes()
)]
pub unsafe fn softmax_backward<T: Float, const ITEMS: usize>(
    y: Slice2<T>,
    dy: Slice2<T>,
    mut dx: DisjointMut2<T>,
    is_log: u32,
    group_size: u32,
    in_vectors: u32,
) {
    let (dx, dx_pitch) = (dx.as_mut_ptr(), dx.row_stride());
    ThreadGroup::for_rows(group_size, y.rows(), |row, group| {
        let target = || dx.wrapping_add(row.get() * dx_pitch);
        let sources = (
            || y.as_ptr().wrapping_add(row.get() * y.row_stride()),
            || dy.as_ptr().wrapping_add(row.get() * dy.row_stride()),
        );
        // SAFETY: as in `softmax()`.
        with_resident!((ITEMS, BACKWARD_FEW, in_vectors != 0, Part::new(group, y.columns())), T: V, N, part, streams => unsafe {
            backward::<T, V, N>(&sources, target, (part, streams), group, is_log != 0)
        });
    });
}
