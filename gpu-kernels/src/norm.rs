//! Layer norm and RMS norm of each row, and their backward passes.
//!
//! f16 and bf16 are computed in f32 and rounded once. The variance is the mean of the squares of what is left when the mean is
//! subtracted. A row that its team cannot hold in registers is read twice, by Welford's method (B. P. Welford, "Note on a
//! method for calculating corrected sums of squares and products", 1962); backward three times.

use gpu_std::math::Math;
use gpu_std::prelude::*;

use crate::axis_reduce::columns_with;
use crate::teams::{
    BACKWARD_FEW, FEW, RowMap, RowOperation, Source, Team, aligned, held_vectors, lanes, lanewise, load,
    with_lanes, with_rows,
};

/// How many elements, their mean, and the sum of their squared differences from it.
pub(crate) struct Moments;

impl Moments {
    /// Of no elements.
    #[inline(always)]
    pub fn none<A: Math>() -> [A; 3] {
        [A::ZERO; 3]
    }

    /// With one more element.
    #[inline(always)]
    pub fn add<A: Math>([count, mean, squares]: [A; 3], value: A) -> [A; 3] {
        let count = count + A::ONE;
        let before = value - mean;
        let mean = mean + before / count;
        [count, mean, before.mul_add(value - mean, squares)]
    }

    /// Of two disjoint sets (Chan, Golub and LeVeque, 1979), in a form in which they can change places.
    #[inline(always)]
    pub fn join<A: Math>(
        [a_count, a_mean, a_squares]: [A; 3],
        [b_count, b_mean, b_squares]: [A; 3],
    ) -> [A; 3] {
        let count = a_count + b_count;
        if count == A::ZERO {
            return Self::none();
        }
        let difference = b_mean - a_mean;
        let mean = (a_count * a_mean + b_count * b_mean) / count;
        [count, mean, a_squares + b_squares + difference * difference * (a_count * b_count / count)]
    }
}

/// The mean, 0 for RMS norm, and the reciprocal of the root of variance and epsilon, of the first of `K` rows.
#[inline(always)]
fn statistics<T: Float, S: Source<T, K>, const K: usize>(
    source: &S,
    team: &mut Team,
    of: &Norm<T::Accumulator>,
) -> [T::Accumulator; 2] {
    let (zero, one) = (T::Accumulator::ZERO, T::Accumulator::ONE);
    let inverse = |variance: T::Accumulator| one / (variance + of.epsilon).sqrt();
    if of.is_rms {
        let mut squares = zero;
        source.visit(|values, _| squares = values[0].to_acc().mul_add(values[0].to_acc(), squares));
        return [zero, inverse(team.combine(squares, |a, b| a + b) / of.count)];
    }
    if S::IS_HELD {
        let mut sum = zero;
        source.visit(|values, _| sum = sum + values[0].to_acc());
        let mean = team.combine(sum, |a, b| a + b) / of.count;
        let mut squares = zero;
        source.visit(|values, _| {
            let centred = values[0].to_acc() - mean;
            squares = centred.mul_add(centred, squares);
        });
        return [mean, inverse(team.combine(squares, |a, b| a + b) / of.count)];
    }
    let mut moments = Moments::none();
    source.visit(|values, _| moments = Moments::add(moments, values[0].to_acc()));
    let [_, mean, squares] = team.combine(moments, Moments::join);
    [mean, inverse(squares / of.count)]
}

/// Which norm.
#[derive(Clone, Copy)]
struct Norm<A> {
    is_rms: bool,
    epsilon: A,
    /// Elements of a row.
    count: A,
}

/// The parameters for `M` places from `place` on, or `otherwise` where there are none.
#[inline(always)]
fn parameters<T: Float, const M: usize>(
    array: Option<&[T]>,
    place: usize,
    otherwise: T::Accumulator,
) -> [T::Accumulator; M] {
    let Some(array) = array else { return [otherwise; M] };
    let own = array.as_ptr().wrapping_add(place);
    // SAFETY: parameters have an element for each of a row.
    let values: [T; M] =
        unsafe { if M > 1 && aligned::<T, M>(own) { load(own) } else { lanewise(|i| own.add(i).read()) } };
    lanewise(|i| values[i].to_acc())
}

/// The norm of one row, to `target`.
struct Forward<'a, T: Float> {
    target: *mut T,
    norm: Norm<T::Accumulator>,
    weight: Option<&'a [T]>,
    bias: Option<&'a [T]>,
}

struct Normalised<'a, T: Float> {
    mean: T::Accumulator,
    inverse: T::Accumulator,
    of: &'a Forward<'a, T>,
}

impl<T: Float> RowMap<T, 1> for Normalised<'_, T> {
    #[inline(always)]
    fn apply<const M: usize>(&self, [values]: [[T; M]; 1], place: usize) -> [T; M] {
        let weight = parameters::<T, M>(self.of.weight, place, T::Accumulator::ONE);
        let bias = parameters::<T, M>(self.of.bias, place, T::Accumulator::ZERO);
        lanewise(|i| {
            let normalised = (values[i].to_acc() - self.mean) * self.inverse;
            T::from_acc(normalised.mul_add(weight[i], bias[i]))
        })
    }
}

impl<T: Float> RowOperation<T, 1> for Forward<'_, T> {
    #[inline(always)]
    fn run<S: Source<T, 1>>(&self, source: &S, team: &mut Team) {
        let [mean, inverse] = statistics::<T, S, 1>(source, team, &self.norm);
        // SAFETY: `target` is a row like the source's, and nothing else uses it.
        unsafe { source.write(self.target, &Normalised { mean, inverse, of: self }) };
    }
}

/// `out` = layer norm, or with `is_rms` of 1 RMS norm, of each row of `x`, times `weight` plus `bias`.
///
/// # Safety
///
/// The launch is as the `teams` module says, of blocks of at most 512 threads. `x` and `out` have the same sides, `weight` and
/// `bias` an element for each column. With `has_vectors` of 1, addresses of the same row in `x` and `out` are the same modulo
/// 16 bytes.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 2, 8),
    launch_bounds(512, 1),
    bytes = x.bytes() + out.bytes()
)]
#[allow(clippy::too_many_arguments, reason = "they are what a launch passes")]
pub unsafe fn norm<T: Float, const ITEMS: usize>(
    x: Slice2<T>,
    weight: Option<&[T]>,
    bias: Option<&[T]>,
    mut out: DisjointMut2<T>,
    epsilon: f64,
    is_rms: u32,
    team: u32,
    has_vectors: u32,
) {
    let (out, out_pitch) = (out.as_mut_ptr(), out.pitch());
    let count = (x.width() as u64).cast::<T::Accumulator>();
    let norm = Norm { is_rms: is_rms != 0, epsilon: epsilon.cast(), count };
    let mut team = Team::new(team);
    let mut row = team.first();
    while row < x.height() {
        let operation = Forward { target: out.wrapping_add(row * out_pitch), norm, weight, bias };
        let source = [x.as_ptr().wrapping_add(row * x.pitch())];
        // SAFETY: the row lies in both views; each row has one team; the rest is the caller's promise.
        with_lanes!(lanes::<T>(16), N => with_lanes!(held_vectors::<T>(ITEMS), V => unsafe {
            with_rows::<T, 1, V, N>(source, x.width(), (has_vectors != 0, ITEMS > FEW), &mut team, &operation)
        }));
        row += team.step();
    }
    team.finish();
}

/// The gradient of the input for one row, to `target`; its mean and inverse go to `statistics`.
struct Backward<'a, T: Float> {
    target: *mut T,
    statistics: *mut [T::Accumulator; 2],
    norm: Norm<T::Accumulator>,
    weight: Option<&'a [T]>,
}

struct Gradient<'a, T: Float> {
    mean: T::Accumulator,
    inverse: T::Accumulator,
    /// The means of weighted gradients, and of those times the normalised values.
    of_gradient: T::Accumulator,
    of_product: T::Accumulator,
    of: &'a Backward<'a, T>,
}

impl<T: Float> RowMap<T, 2> for Gradient<'_, T> {
    #[inline(always)]
    fn apply<const M: usize>(&self, [x, dy]: [[T; M]; 2], place: usize) -> [T; M] {
        let weight = parameters::<T, M>(self.of.weight, place, T::Accumulator::ONE);
        lanewise(|i| {
            let normalised = (x[i].to_acc() - self.mean) * self.inverse;
            let rest = dy[i].to_acc() * weight[i] - self.of_gradient - normalised * self.of_product;
            T::from_acc(rest * self.inverse)
        })
    }
}

impl<T: Float> RowOperation<T, 2> for Backward<'_, T> {
    #[inline(always)]
    fn run<S: Source<T, 2>>(&self, source: &S, team: &mut Team) {
        let [mean, inverse] = statistics::<T, S, 2>(source, team, &self.norm);
        if team.rank == 0 {
            // SAFETY: the row's own place, which one thread writes.
            unsafe { self.statistics.write([mean, inverse]) };
        }
        let mut sums = [T::Accumulator::ZERO; 2];
        source.visit(|[x, dy], place| {
            let [weight] = parameters::<T, 1>(self.weight, place, T::Accumulator::ONE);
            let gradient = dy.to_acc() * weight;
            let normalised = (x.to_acc() - mean) * inverse;
            sums = [sums[0] + gradient, gradient.mul_add(normalised, sums[1])];
        });
        let [gradients, products] = team.combine(sums, |a, b| [a[0] + b[0], a[1] + b[1]]);
        // RMS norm does not subtract the mean, so the mean of the gradients is of no effect.
        let of_gradient = if self.norm.is_rms { T::Accumulator::ZERO } else { gradients / self.norm.count };
        let gradient =
            Gradient { mean, inverse, of_gradient, of_product: products / self.norm.count, of: self };
        // SAFETY: `target` is a row like the source's, and nothing else uses it.
        unsafe { source.write(self.target, &gradient) };
    }
}

/// `dx` = the gradient of the input of [`norm()`], of the gradient `dy` of its output; `statistics` = mean and reciprocal of the
/// deviation of each row.
///
/// # Safety
///
/// As for [`norm()`], of `x`, `dy` and `dx`; `statistics` has an element for each row.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 1, 4),
    launch_bounds(512, 1),
    bytes = x.bytes() + dy.bytes() + dx.bytes()
)]
#[allow(clippy::too_many_arguments, reason = "they are what a launch passes")]
pub unsafe fn norm_backward<T: Float, const ITEMS: usize>(
    x: Slice2<T>,
    dy: Slice2<T>,
    weight: Option<&[T]>,
    mut dx: DisjointMut2<T>,
    statistics: *mut [T::Accumulator; 2],
    epsilon: f64,
    is_rms: u32,
    team: u32,
    has_vectors: u32,
) {
    let (dx, dx_pitch) = (dx.as_mut_ptr(), dx.pitch());
    let count = (x.width() as u64).cast::<T::Accumulator>();
    let norm = Norm { is_rms: is_rms != 0, epsilon: epsilon.cast(), count };
    let mut team = Team::new(team);
    let mut row = team.first();
    while row < x.height() {
        let target = dx.wrapping_add(row * dx_pitch);
        let operation = Backward { target, statistics: statistics.wrapping_add(row), norm, weight };
        let sources = [x.as_ptr().wrapping_add(row * x.pitch()), dy.as_ptr().wrapping_add(row * dy.pitch())];
        // SAFETY: as in `norm`.
        with_lanes!(lanes::<T>(16), N => with_lanes!(held_vectors::<T>(ITEMS), V => unsafe {
            with_rows::<T, 2, V, N>(sources, x.width(), (has_vectors != 0, ITEMS > BACKWARD_FEW), &mut team, &operation)
        }));
        row += team.step();
    }
    team.finish();
}

/// `dweight` and `dbias` = the gradients of the parameters of [`norm()`]: sums over all rows, of `dy` times the normalised
/// values, and of `dy`.
///
/// # Safety
///
/// The launch and the workspace are as those of [`sum_columns`](crate::axis_reduce::sum_columns()), of `x`, with 16 bytes for
/// each partial result. `x` and `dy` have the same sides; with a `VECTOR` of 16 the rows of both are as there. `statistics` is
/// what [`norm_backward()`] wrote. The gradients have an element for each column.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(VECTOR = 1, 16),
    launch_bounds(256, 2),
    bytes = x.bytes() + dy.bytes()
)]
#[allow(clippy::too_many_arguments, reason = "they are what a launch passes")]
pub unsafe fn norm_backward_parameters<T: Float, const VECTOR: usize>(
    x: Slice2<T>,
    dy: Slice2<T>,
    statistics: *const [T::Accumulator; 2],
    dweight: Option<DisjointMut<T>>,
    dbias: Option<DisjointMut<T>>,
    workspace: *mut u64,
    lanes: u32,
    parts: u32,
) {
    let dweight = dweight.map_or(core::ptr::null_mut(), |mut out| out.as_mut_ptr());
    let dbias = dbias.map_or(core::ptr::null_mut(), |mut out| out.as_mut_ptr());
    with_lanes!(crate::teams::lanes::<T>(VECTOR), N => {
        let fetch = |row: usize, column: usize| {
            let (x_place, dy_place) = (row * x.pitch() + column, row * dy.pitch() + column);
            // SAFETY: the vectors lie in the views, and are aligned.
            unsafe { (load::<T, N>(x.as_ptr().add(x_place)), load::<T, N>(dy.as_ptr().add(dy_place))) }
        };
        let fold = |sums: [T::Accumulator; 2], (x, dy): &([T; N], [T; N]), lane: usize, row: usize| {
            // SAFETY: there is an element for each row.
            let [mean, inverse] = unsafe { statistics.add(row).read() };
            let (normalised, dy) = ((x[lane].to_acc() - mean) * inverse, dy[lane].to_acc());
            [dy.mul_add(normalised, sums[0]), sums[1] + dy]
        };
        let add = |a: [T::Accumulator; 2], b: [T::Accumulator; 2]| [a[0] + b[0], a[1] + b[1]];
        let write = |column: usize, sums: [T::Accumulator; 2]| {
            // SAFETY: there is an element for each column, which has one writer.
            unsafe {
                if !dweight.is_null() {
                    dweight.add(column).write(T::from_acc(sums[0]));
                }
                if !dbias.is_null() {
                    dbias.add(column).write(T::from_acc(sums[1]));
                }
            }
        };
        let none = [T::Accumulator::ZERO; 2];
        // SAFETY: by this function's contract.
        unsafe {
            columns_with::<_, _, N>([x.width(), x.height()], workspace, (lanes, parts), none, fetch, fold, add, write)
        }
    })
}
