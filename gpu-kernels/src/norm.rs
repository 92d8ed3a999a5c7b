//! Layer norm and RMS norm of each row, and their backward passes.
//!
//! f16 and bf16 are computed in f32 and rounded once. Each warp finds the [moments](crate::moments) of its elements; these are
//! joined, so that the team meets once for a row. A row that its team cannot hold in registers is read twice.
//!
//! A row whose squares leave the accumulator's range is read again, and multiplied by a power of two.

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::vectorized::opaque;

use crate::axis_reduce::columns_with;
use crate::held::{BACKWARD_FEW, FEW, Part, converted, fold, held_vectors, kept, widened, with_held};
use crate::moments::{self, Moments, join_lanes, two_sum};
use crate::range::{down, gradients_down, gradients_up, is_finite, least_mean, least_product, up, usual};
use crate::teams::{Lanes, Team, each, lanes, lanewise, load, with_lanes};

/// What normalises a row: its mean, what is added to it, the reciprocal of the root of variance and epsilon, and by what all of
/// these have been multiplied.
type Statistics<A> = [A; 4];

/// An element, normalised.
#[inline(always)]
fn normalised<A: Math>(x: A, [mean, rest, inverse, scale]: Statistics<A>) -> A {
    (x.mul_add(scale, -mean) - rest) * inverse
}

/// Which norm.
#[derive(Clone, Copy)]
struct Norm {
    is_rms: bool,
    epsilon: f64,
    /// Elements of a row.
    width: u32,
}

impl Norm {
    #[inline(always)]
    fn count<A: Scalar>(&self) -> A {
        u64::from(opaque(self.width)).cast()
    }

    /// What normalises a row that was multiplied by `scale`, of its moments; or by what it has to be multiplied instead.
    #[inline(always)]
    fn statistics<A: Math>(
        &self,
        [_, mean, rest, squares]: Moments<A>,
        scale: A,
    ) -> Result<Statistics<A>, A> {
        let [low, high] = [self.epsilon.to_bits() as u32, (self.epsilon.to_bits() >> 32) as u32].map(opaque);
        let (epsilon, factor) = (f64::from_bits(u64::from(high) << 32 | u64::from(low)), scale.cast::<f64>());
        let mut sum = squares / self.count() + (epsilon * factor * factor).cast();
        if scale == A::ONE && !is_finite(sum) {
            return Err(down());
        }
        if sum < least_mean() {
            // Of numbers that are not small, with differences that are, all are equal.
            if scale == A::ONE && mean.abs() < usual::<A>()[0] {
                return Err(up());
            }
            // Of equal numbers the results are 0, also without an epsilon.
            sum = if squares == A::ZERO && sum == A::ZERO { A::ONE } else { sum };
        }
        Ok([mean, rest, A::ONE / sum.sqrt(), scale])
    }

    /// The moments of the elements, times `scale`, that a warp's lanes of the team hold, of which `vector` gives those of the
    /// part. The mean is 0 for RMS norm.
    #[inline(always)]
    fn moments<A: Math, const V: usize, const N: usize>(
        &self,
        vector: impl Fn(usize) -> [A; N],
        scale: A,
        part: &Part<N>,
        lanes: Lanes,
    ) -> Moments<A> {
        let add = |a: A, b: A| a + b;
        let (mut mean, mut rest) = (A::ZERO, A::ZERO);
        let own = part.again().count::<V>();
        let count = lanes.combine(own, |a, b| a + b) * N as u32;
        // Elements beyond the row are 0, and count for nothing.
        let subtracted = |i: usize, of_row: A| if (i as u32) < own { of_row } else { A::ZERO };
        if !self.is_rms {
            let mut sums = [A::ZERO; N];
            each::<V>(|i| {
                let values = vector(i);
                each::<N>(|lane| sums[lane] = values[lane].mul_add(scale, sums[lane]));
            });
            let sum = lanes.combine(fold(&[sums], add), add);
            let about = sum / count.max(1).cast();
            // What the mean is off by, which counts where the differences are not greater.
            let mut sums = [A::ZERO; N];
            each::<V>(|i| {
                let (values, about) = (vector(i), subtracted(i, about));
                each::<N>(|lane| sums[lane] = sums[lane] + values[lane].mul_add(scale, -about));
            });
            [mean, rest] = two_sum(about, lanes.combine(fold(&[sums], add), add) / count.max(1).cast());
        }
        let mut squares = [A::ZERO; N];
        each::<V>(|i| {
            let (values, mean, rest) = (vector(i), subtracted(i, mean), subtracted(i, rest));
            each::<N>(|lane| {
                let difference = values[lane].mul_add(scale, -mean) - rest;
                squares[lane] = difference.mul_add(difference, squares[lane]);
            });
        });
        [count.cast(), mean, rest, lanes.combine(fold(&[squares], add), add)]
    }
}

/// The norm of one row, `V` vectors of `N` elements a thread at once.
///
/// # Safety
///
/// The rows and the parameters that are there are valid for the part's length, and aligned where they are taken in vectors;
/// nothing else uses `target`.
#[inline(always)]
unsafe fn forward<T: Float, const V: usize, const N: usize>(
    source: impl Fn() -> *const T,
    target: impl Fn() -> *mut T,
    [weight, bias]: [Option<&[T]>; 2],
    (start, streams): (Part<N>, bool),
    team: &mut Team,
    norm: &Norm,
) {
    // SAFETY: by this function's contract.
    let load = |part: &Part<N>| unsafe { part.load::<T, V>(source(), T::ZERO) };
    let is_read_again = streams & !start.is_last::<V>();
    let (mut values, mut scale) = (load(&start), <T as Scalar>::Accumulator::ONE);
    let statistics = loop {
        let mut part = start.again();
        let mut moments = [T::Accumulator::ZERO; 4];
        loop {
            let of_chunk = norm.moments::<_, V, N>(|i| converted(values[i]), scale, &part, team.lanes());
            moments = if streams { moments::join(moments, of_chunk) } else { of_chunk };
            if !streams | part.is_last::<V>() {
                break;
            }
            part = part.next::<V>();
            values = load(&part);
        }
        match norm.statistics(team.combine_warps(moments, join_lanes), scale) {
            Ok(statistics) => break statistics,
            Err(other) => scale = other,
        }
        if is_read_again {
            values = load(&start);
        }
    };
    let mut part = start.again();
    loop {
        if is_read_again {
            values = load(&part);
        }
        part = part.again();
        let target = target();
        each::<V>(|i| {
            // SAFETY: by this function's contract.
            unsafe {
                let (weight, bias) = (part.parameter(weight, i, T::ONE), part.parameter(bias, i, T::ZERO));
                let vector = converted(values[i]);
                let results = lanewise(|lane| {
                    let normalised = normalised(vector[lane], statistics);
                    T::from_acc(normalised.mul_add(weight[lane].to_acc(), bias[lane].to_acc()))
                });
                part.store(target, i, results);
            }
        });
        if !is_read_again | part.is_last::<V>() {
            break;
        }
        part = part.next::<V>();
    }
}

/// `out` = layer norm, or with `is_rms` of 1 RMS norm, of each row of `x`, times `weight` plus `bias`.
///
/// # Safety
///
/// The launch is as the `teams` module says, of blocks of at most 512 threads. `x` and `out` have the same sides, `weight` and
/// `bias` an element for each column. With `in_vectors` of 1, rows of both and the parameters begin at multiples of 16 bytes and
/// have a multiple of 16 bytes. An instance of few vectors has teams that hold a row.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 2, 8),
    launch_bounds(512, 2),
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
    in_vectors: u32,
) {
    let (out, out_pitch) = (out.as_mut_ptr(), out.pitch());
    let norm = Norm { is_rms: is_rms != 0, epsilon, width: x.width() as u32 };
    Team::for_rows(team, x.height(), |row, team| {
        let source = || x.as_ptr().wrapping_add(row.get() * x.pitch());
        let target = || out.wrapping_add(row.get() * out_pitch);
        // SAFETY: the row lies in both views; each row has one team; the rest is the caller's promise.
        with_held!((ITEMS, FEW, in_vectors != 0, Part::new(team, x.width())), T: V, N, part, streams => unsafe {
            forward::<T, V, N>(source, target, [weight, bias], (part, streams), team, &norm)
        });
    });
}

/// Moments, the sum of weighted gradients, and that of these times what is left when the mean is subtracted.
type Sums<A> = [A; 6];

/// The sum of products of gradients with differences from another mean.
#[inline(always)]
fn shifted<A: Math>([_, mean, rest, _, gradients, products]: Sums<A>, to: Moments<A>) -> A {
    ((mean - to[1]) + (rest - to[2])).mul_add(gradients, products)
}

/// Joins those of two sets.
#[inline(always)]
fn join_two<A: Math>(a: Sums<A>, b: Sums<A>) -> Sums<A> {
    let of_all = moments::join([a[0], a[1], a[2], a[3]], [b[0], b[1], b[2], b[3]]);
    let [count, mean, rest, squares] = of_all;
    [count, mean, rest, squares, a[4] + b[4], shifted(a, of_all) + shifted(b, of_all)]
}

/// Joins those of the sets of some lanes.
#[inline(always)]
fn join_sums<A: Math>(lanes: Lanes, sums: Sums<A>) -> Sums<A> {
    let add = |a: A, b: A| a + b;
    let of_all = join_lanes(lanes, [sums[0], sums[1], sums[2], sums[3]]);
    let [count, mean, rest, squares] = of_all;
    let products = lanes.combine(shifted(sums, of_all), add);
    [count, mean, rest, squares, lanes.combine(sums[4], add), products]
}

/// By what the gradients of a row have to be multiplied instead of 1, of its sums of gradients and of products.
#[inline(always)]
fn gradient_scale<A: Math>([gradients, products]: [A; 2]) -> A {
    if !is_finite(gradients) | !is_finite(products) {
        gradients_down()
    } else if gradients.abs().max_propagate(products.abs()) < least_product() {
        gradients_up()
    } else {
        A::ONE
    }
}

/// The gradient of the input for one row; its mean and inverse go to `statistics`.
///
/// # Safety
///
/// As for [`forward`]; `statistics` is the row's own place.
#[inline(always)]
unsafe fn backward<T: Float, const V: usize, const N: usize>(
    (x, dy): &(impl Fn() -> *const T, impl Fn() -> *const T),
    target: impl Fn() -> *mut T,
    weight: Option<&[T]>,
    statistics: impl Fn() -> *mut Statistics<T::Accumulator>,
    (start, streams): (Part<N>, bool),
    team: &mut Team,
    norm: &Norm,
) {
    type Acc<T> = <T as Scalar>::Accumulator;
    let (add, one) = (|a: Acc<T>, b: Acc<T>| a + b, Acc::<T>::ONE);
    // The input, and the weighted gradient of the output, multiplied.
    let load = |part: &Part<N>, of_gradients: Acc<T>| {
        // SAFETY: by this function's contract.
        unsafe {
            let values = part.load::<T, V>(x(), T::ZERO);
            let part = part.again();
            let mut gradients = widened(part.load::<T, V>(dy(), T::ZERO));
            let part = part.again();
            each::<V>(|i| {
                let weight = part.parameter(weight, i, T::ONE);
                each::<N>(|lane| {
                    gradients[i][lane] = gradients[i][lane] * (weight[lane].to_acc() * of_gradients);
                });
            });
            (widened(values), kept(gradients))
        }
    };
    let is_read_again = streams & !start.is_last::<V>();
    let (mut scale, mut of_gradients, mut has_tried) = (one, one, false);
    let (mut values, mut gradients) = load(&start, of_gradients);
    let (own, [of_gradient, of_product]) = loop {
        let mut part = start.again();
        let mut sums = [Acc::<T>::ZERO; 6];
        loop {
            let [count, mean, rest, squares] =
                norm.moments::<_, V, N>(|i| values[i], scale, &part, team.lanes());
            let mut products = [Acc::<T>::ZERO; N];
            each::<V>(|i| {
                each::<N>(|lane| {
                    // Gradients beyond the row are 0.
                    let difference = values[i][lane].mul_add(scale, -mean) - rest;
                    products[lane] = gradients[i][lane].mul_add(difference, products[lane]);
                });
            });
            let [of_chunk, product] =
                [fold(&gradients, add), fold(&[products], add)].map(|own| team.lanes().combine(own, add));
            let chunk = [count, mean, rest, squares, of_chunk, product];
            sums = if streams { join_two(sums, chunk) } else { chunk };
            if !streams | part.is_last::<V>() {
                break;
            }
            part = part.next::<V>();
            (values, gradients) = load(&part, of_gradients);
        }
        let [count, mean, rest, squares, gradient, product] = team.combine_warps(sums, join_sums);
        match norm.statistics([count, mean, rest, squares], scale) {
            Err(other) => scale = other,
            Ok(own) => {
                let wanted = gradient_scale([gradient, product]);
                // Gradients that are not small may have small sums, and may leave the range when they are multiplied.
                let is_over = of_gradients == gradients_up() && wanted == gradients_down();
                if is_over {
                    of_gradients = one;
                } else if has_tried || wanted == one {
                    // RMS norm does not subtract the mean, so the mean of the gradients is of no effect.
                    let gradient = if norm.is_rms { Acc::<T>::ZERO } else { gradient / norm.count() };
                    break (own, [gradient, product / norm.count() * own[2]]);
                } else {
                    of_gradients = wanted;
                }
                has_tried = true;
            }
        }
        (values, gradients) = load(&start, of_gradients);
    };
    if team.rank == 0 {
        // SAFETY: the row's own place, which one thread writes.
        unsafe { statistics().write(own) };
    }
    // What the results have to be multiplied by: the reciprocal of the deviation and two powers of two, of which one below 1 comes
    // before what it brings back into the range.
    let powers = [own[3], one / of_gradients];
    let [low, high] = if powers[0] < powers[1] { powers } else { [powers[1], powers[0]] };
    let factors = if low < one { [own[2] * low, one, high] } else { [own[2], low, high] };
    let mut part = start.again();
    loop {
        if is_read_again {
            (values, gradients) = load(&part, of_gradients);
        }
        part = part.again();
        let target = target();
        each::<V>(|i| {
            let results = lanewise(|lane| {
                let normalised = normalised(values[i][lane], own);
                let gradient = gradients[i][lane] - of_gradient;
                let result = normalised.mul_add(-of_product, gradient);
                T::from_acc(result * factors[0] * factors[1] * factors[2])
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

/// `dx` = the gradient of the input of [`norm()`], of the gradient `dy` of its output; `statistics` = what normalises each
/// row.
///
/// # Safety
///
/// As for [`norm()`], of `x`, `dy`, `weight` and `dx`; `statistics` has an element for each row.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 1, 4),
    launch_bounds(512, 2),
    bytes = x.bytes() + dy.bytes() + dx.bytes()
)]
#[allow(clippy::too_many_arguments, reason = "they are what a launch passes")]
pub unsafe fn norm_backward<T: Float, const ITEMS: usize>(
    x: Slice2<T>,
    dy: Slice2<T>,
    weight: Option<&[T]>,
    mut dx: DisjointMut2<T>,
    statistics: *mut Statistics<T::Accumulator>,
    epsilon: f64,
    is_rms: u32,
    team: u32,
    in_vectors: u32,
) {
    let (dx, dx_pitch) = (dx.as_mut_ptr(), dx.pitch());
    let norm = Norm { is_rms: is_rms != 0, epsilon, width: x.width() as u32 };
    Team::for_rows(team, x.height(), |row, team| {
        let target = || dx.wrapping_add(row.get() * dx_pitch);
        let sources = (
            || x.as_ptr().wrapping_add(row.get() * x.pitch()),
            || dy.as_ptr().wrapping_add(row.get() * dy.pitch()),
        );
        let statistics = || statistics.wrapping_add(row.get());
        // SAFETY: as in `norm`.
        with_held!((ITEMS, BACKWARD_FEW, in_vectors != 0, Part::new(team, x.width())), T: V, N, part, streams => unsafe {
            backward::<T, V, N>(&sources, target, weight, statistics, (part, streams), team, &norm)
        });
    });
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
    statistics: *const Statistics<T::Accumulator>,
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
            let own = unsafe { statistics.add(row).read() };
            let (normalised, dy) = (normalised(x[lane].to_acc(), own), dy[lane].to_acc());
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
