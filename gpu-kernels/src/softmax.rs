//! Softmax and log-softmax of each row, and their backward passes.
//!
//! f16 and bf16 are computed in f32 and rounded once. Each warp finds the maximum of its elements and the sum of their
//! exponentials; both are joined (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), so that the team
//! meets once for a row. An exponential of f32 or f64 is computed once; those of f16 and bf16 twice, since a register holds two
//! elements as they are. A row that its team cannot hold in registers is read twice. A row without a number above -∞, and one with +∞ or NaN, becomes NaN.

use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;
use gpu_std::vectorized::opaque;

use crate::held::{BACKWARD_FEW, FEW, Part, converted, fold, held_vectors, is_packed, widened, with_held};
use crate::range::{gradients_down, is_finite};
use crate::teams::{Lanes, Team, each, lanes, lanewise, with_lanes};

/// eˣ for values that are rounded to `T`: for the two 16-bit types, of which a GPU moves as many in a second as it computes
/// exact exponentials, the approximate one, whose error is far below theirs.
#[inline(always)]
pub(crate) fn exponential<T: Float>(x: T::Accumulator) -> T::Accumulator {
    if size_of::<T>() == 2 { fast::exp(x.cast::<f32>()).cast() } else { x.exp() }
}

/// The greatest element of a set, and the sum of the exponentials of all less that.
type Sums<A> = [A; 2];

/// Joins those of the sets of some lanes.
#[inline(always)]
fn join<T: Float>(lanes: Lanes, [most, sum]: Sums<T::Accumulator>) -> Sums<T::Accumulator> {
    let of_all = lanes.combine(most, Scalar::max_propagate);
    [of_all, lanes.combine(scaled::<T>(sum, most, of_all), |a, b| a + b)]
}

/// A sum of exponentials of values less `from`, of values less `to`.
#[inline(always)]
fn scaled<T: Float>(sum: T::Accumulator, from: T::Accumulator, to: T::Accumulator) -> T::Accumulator {
    // Also where both are -∞, whose difference is no number.
    if from == to { sum } else { sum * exponential::<T>(from - to) }
}

/// Softmax of one row, `V` vectors of `N` elements a thread at once.
///
/// # Safety
///
/// The rows are valid for the part's length, and aligned where they are taken in vectors; nothing else uses `target`.
#[inline(always)]
unsafe fn forward<T: Float, const V: usize, const N: usize>(
    source: impl Fn() -> *const T,
    target: impl Fn() -> *mut T,
    (start, streams): (Part<N>, bool),
    team: &mut Team,
    is_log: bool,
) {
    type Acc<T> = <T as Scalar>::Accumulator;
    let (zero, one, nothing) = (Acc::<T>::ZERO, Acc::<T>::ONE, Acc::<T>::MAX_IDENTITY);
    let mut part = start.again();
    let [mut most, mut sum] = [nothing, zero];
    let mut values: [[T; N]; V];
    loop {
        // SAFETY: by this function's contract.
        values = unsafe { part.load::<T, V>(source(), T::MAX_IDENTITY) };
        let before = most;
        let mut greatest = [nothing; N];
        each::<V>(|i| {
            let vector = converted(values[i]);
            each::<N>(|lane| greatest[lane] = greatest[lane].max_propagate(vector[lane]));
        });
        let of_chunk = team.lanes().combine(fold(&[greatest], Scalar::max_propagate), Scalar::max_propagate);
        most = most.max_propagate(of_chunk);
        // Of elements that all are -∞ the exponentials are 0.
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
        let own = team.lanes().combine(fold(&[sums], |a, b| a + b), |a, b| a + b);
        sum = scaled::<T>(sum, before, most) + own;
        if !streams | part.is_last::<V>() {
            break;
        }
        part = part.next::<V>();
    }
    let [of_row, total] = team.combine_warps([most, sum], join::<T>);
    let is_read_again = streams & !start.is_last::<V>();
    // Whether the values are powers already, of values less `most`.
    let are_powers = !is_packed::<T>() & !is_read_again & !is_log;
    let inverse = one / total;
    // What is subtracted, what multiplies, and what is added: to logarithms, or to powers.
    let (shift, scale, offset) = if is_log {
        (of_row, one, -total.ln())
    } else {
        let is_whole = !are_powers | (most == of_row);
        (zero, if is_whole { inverse } else { exponential::<T>(most - of_row) * inverse }, -zero)
    };
    part = start.again();
    loop {
        if is_read_again {
            // SAFETY: by this function's contract.
            values = unsafe { part.load::<T, V>(source(), T::MAX_IDENTITY) };
        }
        part = part.again();
        let target = target();
        each::<V>(|i| {
            let results = converted(values[i]).map(|value| {
                let value = if is_log | are_powers { value } else { exponential::<T>(value - of_row) };
                T::from_acc((value - shift).mul_add(scale, offset))
            });
            // SAFETY: by this function's contract.
            unsafe { part.store(target, i, results) };
        });
        if !is_read_again | part.is_last::<V>() {
            break;
        }
        part = part.next::<V>();
    }
}

/// `out` = softmax of each row of `x`, or with `is_log` of 1 its logarithm.
///
/// # Safety
///
/// The launch is as the `teams` module says, of blocks of at most 512 threads. `x` and `out` have the same sides. With
/// `in_vectors` of 1, rows of both begin at multiples of 16 bytes and have a multiple of 16 bytes. An instance of few
/// vectors has teams that hold a row.
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
    team: u32,
    in_vectors: u32,
) {
    let (out, out_pitch) = (out.as_mut_ptr(), out.pitch());
    Team::for_rows(team, x.height(), |row, team| {
        let source = || x.as_ptr().wrapping_add(row.get() * x.pitch());
        let target = || out.wrapping_add(row.get() * out_pitch);
        // SAFETY: the row lies in both views; each row has one team; the rest is the caller's promise.
        with_held!((ITEMS, FEW, in_vectors != 0, Part::new(team, x.width())), T: V, N, part, streams => unsafe {
            forward::<T, V, N>(source, target, (part, streams), team, is_log != 0)
        });
    });
}

/// The gradient of softmax for one row, of its output `y` and the gradient `dy` of that.
///
/// # Safety
///
/// As for [`forward`].
#[inline(always)]
unsafe fn backward<T: Float, const V: usize, const N: usize>(
    (y, dy): &(impl Fn() -> *const T, impl Fn() -> *const T),
    target: impl Fn() -> *mut T,
    (start, streams): (Part<N>, bool),
    team: &mut Team,
    is_log: bool,
) {
    type Acc<T> = <T as Scalar>::Accumulator;
    let load = |part: &Part<N>, row: *const T| -> [[Acc<T>; N]; V] {
        // SAFETY: by this function's contract.
        widened(unsafe { part.load::<T, V>(row, T::ZERO) })
    };
    let is_read_again = streams & !start.is_last::<V>();
    let (mut outputs, mut gradients);
    // Gradients whose sum leaves the range are summed up again, multiplied by a power of two.
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
        let sum = team.combine(fold(&[sums], |a, b| a + b), |a, b| a + b);
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
                // Not the difference of the gradients times the output: that may leave the range where the result does not.
                let result = if is_log {
                    exponential::<T>(y).mul_add(-sum, dy * scale)
                } else {
                    y.mul_add(dy * scale, -(y * sum))
                };
                T::from_acc(result * inverse)
            });
            // SAFETY: by this function's contract.
            unsafe { part.store(target, i, results) };
        });
        if !is_read_again | part.is_last::<V>() {
            break;
        }
        part = part.next::<V>();
    }
}

/// `dx` = the gradient of the input of [`softmax()`] that gave `y`, of the gradient `dy` of its output.
///
/// # Safety
///
/// As for [`softmax()`], of all three views.
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
    team: u32,
    in_vectors: u32,
) {
    let (dx, dx_pitch) = (dx.as_mut_ptr(), dx.pitch());
    Team::for_rows(team, y.height(), |row, team| {
        let target = || dx.wrapping_add(row.get() * dx_pitch);
        let sources = (
            || y.as_ptr().wrapping_add(row.get() * y.pitch()),
            || dy.as_ptr().wrapping_add(row.get() * dy.pitch()),
        );
        // SAFETY: as in `softmax`.
        with_held!((ITEMS, BACKWARD_FEW, in_vectors != 0, Part::new(team, y.width())), T: V, N, part, streams => unsafe {
            backward::<T, V, N>(&sources, target, (part, streams), team, is_log != 0)
        });
    });
}
