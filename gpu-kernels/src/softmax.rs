//! Softmax and log-softmax of each row, and their backward passes.
//!
//! f16 and bf16 are computed in f32 and rounded once. A row that its team cannot hold in registers is read twice, with the
//! maximum and the sum of exponentials found together (Milakov and Gimelshein, "Online normalizer calculation for softmax",
//! 2018). A row without a number above -∞, and one with +∞ or NaN, becomes NaN.

use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;

use crate::teams::{
    BACKWARD_FEW, FEW, RowMap, RowOperation, Source, Team, held_vectors, lanes, lanewise, with_lanes,
    with_rows,
};

/// eˣ for values that are rounded to `T`: for the two 16-bit types, of which a GPU moves as many in a second as it computes
/// exact exponentials, the approximate one, whose error is far below theirs.
#[inline(always)]
pub(crate) fn exponential<T: Float>(x: T::Accumulator) -> T::Accumulator {
    if size_of::<T>() == 2 { fast::exp(x.cast::<f32>()).cast() } else { x.exp() }
}

/// The greatest element of a set, and the sum of the exponentials of all less that.
type Sums<A> = [A; 2];

#[inline(always)]
fn join<T: Float>(
    [a_most, a]: Sums<T::Accumulator>,
    [b_most, b]: Sums<T::Accumulator>,
) -> Sums<T::Accumulator> {
    let most = a_most.max_propagate(b_most);
    // Also where both are -∞, whose difference is no number.
    let scaled = |sum: T::Accumulator, of| if of == most { sum } else { sum * exponential::<T>(of - most) };
    [most, scaled(a, a_most) + scaled(b, b_most)]
}

/// Takes in one more element.
#[inline(always)]
fn add<T: Float>([most, sum]: Sums<T::Accumulator>, value: T::Accumulator) -> Sums<T::Accumulator> {
    let (zero, one) = (T::Accumulator::ZERO, T::Accumulator::ONE);
    if value == T::Accumulator::MAX_IDENTITY {
        return [most, sum];
    }
    let difference = value - most;
    let is_above = difference > zero;
    // One exponential, of what is not positive.
    let factor = exponential::<T>(if is_above { -difference } else { difference });
    if is_above { [value, sum * factor + one] } else { [most.max_propagate(value), sum + factor] }
}

/// Softmax of one row, to `target`.
struct Forward<T> {
    target: *mut T,
    is_log: bool,
}

/// The result for each element, of the row's greatest element, and of the sum's reciprocal or logarithm.
struct Result<A> {
    most: A,
    sum: A,
    is_log: bool,
}

impl<T: Float> RowMap<T, 1> for Result<T::Accumulator> {
    #[inline(always)]
    fn apply<const M: usize>(&self, [values]: [[T; M]; 1], _: usize) -> [T; M] {
        lanewise(|i| {
            let difference = values[i].to_acc() - self.most;
            T::from_acc(if self.is_log {
                difference - self.sum
            } else {
                exponential::<T>(difference) * self.sum
            })
        })
    }
}

impl<T: Float> RowOperation<T, 1> for Forward<T> {
    #[inline(always)]
    fn run<S: Source<T, 1>>(&self, source: &S, team: &mut Team) {
        let [most, sum]: Sums<T::Accumulator> = if S::IS_HELD {
            let mut most = T::Accumulator::MAX_IDENTITY;
            source.visit(|[value], _| most = most.max_propagate(value.to_acc()));
            let most = team.combine(most, Scalar::max_propagate);
            let mut sum = T::Accumulator::ZERO;
            source.visit(|[value], _| sum = sum + exponential::<T>(value.to_acc() - most));
            [most, team.combine(sum, |a, b| a + b)]
        } else {
            let mut sums = [T::Accumulator::MAX_IDENTITY, T::Accumulator::ZERO];
            source.visit(|[value], _| sums = add::<T>(sums, value.to_acc()));
            let [most, sum] = team.combine(sums, join::<T>);
            // NaN where the greatest is infinite, as of a row that is held: so is its product with 0.
            [most, sum + most * T::Accumulator::ZERO]
        };
        let sum = if self.is_log { sum.ln() } else { T::Accumulator::ONE / sum };
        let result = Result { most, sum, is_log: self.is_log };
        // SAFETY: `target` is a row like the source's, and nothing else uses it.
        unsafe { source.write(self.target, &result) };
    }
}

/// `out` = softmax of each row of `x`, or with `is_log` of 1 its logarithm.
///
/// # Safety
///
/// The launch is as the `teams` module says, of blocks of at most 512 threads. `x` and `out` have the same sides. With
/// `has_vectors` of 1, addresses of the same row in both are the same modulo 16 bytes.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 2, 8),
    launch_bounds(512, 1),
    bytes = x.bytes() + out.bytes()
)]
pub unsafe fn softmax<T: Float, const ITEMS: usize>(
    x: Slice2<T>,
    mut out: DisjointMut2<T>,
    is_log: u32,
    team: u32,
    has_vectors: u32,
) {
    let (out, out_pitch) = (out.as_mut_ptr(), out.pitch());
    let mut team = Team::new(team);
    let mut row = team.first();
    while row < x.height() {
        let operation = Forward { target: out.wrapping_add(row * out_pitch), is_log: is_log != 0 };
        let source = [x.as_ptr().wrapping_add(row * x.pitch())];
        // SAFETY: the row lies in both views; each row has one team; the rest is the caller's promise.
        with_lanes!(lanes::<T>(16), N => with_lanes!(held_vectors::<T>(ITEMS), V => unsafe {
            with_rows::<T, 1, V, N>(source, x.width(), (has_vectors != 0, ITEMS > FEW), &mut team, &operation)
        }));
        row += team.step();
    }
    team.finish();
}

/// The gradient of softmax for one row, to `target`.
struct Backward<T> {
    target: *mut T,
    is_log: bool,
}

/// The result for each output and its gradient, of their sum.
struct Gradient<A> {
    sum: A,
    is_log: bool,
}

impl<T: Float> RowMap<T, 2> for Gradient<T::Accumulator> {
    #[inline(always)]
    fn apply<const M: usize>(&self, [y, dy]: [[T; M]; 2], _: usize) -> [T; M] {
        lanewise(|i| {
            let (y, dy) = (y[i].to_acc(), dy[i].to_acc());
            T::from_acc(if self.is_log { dy - exponential::<T>(y) * self.sum } else { y * (dy - self.sum) })
        })
    }
}

impl<T: Float> RowOperation<T, 2> for Backward<T> {
    #[inline(always)]
    fn run<S: Source<T, 2>>(&self, source: &S, team: &mut Team) {
        let mut sum = T::Accumulator::ZERO;
        source.visit(|[y, dy], _| {
            let (y, dy) = (y.to_acc(), dy.to_acc());
            sum = if self.is_log { sum + dy } else { y.mul_add(dy, sum) };
        });
        let sum = team.combine(sum, |a, b| a + b);
        // SAFETY: `target` is a row like the source's, and nothing else uses it.
        unsafe { source.write(self.target, &Gradient { sum, is_log: self.is_log }) };
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
    launch_bounds(512, 1),
    bytes = y.bytes() + dy.bytes() + dx.bytes()
)]
pub unsafe fn softmax_backward<T: Float, const ITEMS: usize>(
    y: Slice2<T>,
    dy: Slice2<T>,
    mut dx: DisjointMut2<T>,
    is_log: u32,
    team: u32,
    has_vectors: u32,
) {
    let (dx, dx_pitch) = (dx.as_mut_ptr(), dx.pitch());
    let mut team = Team::new(team);
    let mut row = team.first();
    while row < y.height() {
        let operation = Backward { target: dx.wrapping_add(row * dx_pitch), is_log: is_log != 0 };
        let sources = [y.as_ptr().wrapping_add(row * y.pitch()), dy.as_ptr().wrapping_add(row * dy.pitch())];
        // SAFETY: as in `softmax`.
        with_lanes!(lanes::<T>(16), N => with_lanes!(held_vectors::<T>(ITEMS), V => unsafe {
            with_rows::<T, 2, V, N>(sources, y.width(), (has_vectors != 0, ITEMS > BACKWARD_FEW), &mut team, &operation)
        }));
        row += team.step();
    }
    team.finish();
}
