//! Layer norm and RMS norm of each row, and their backward passes.
//!
//! For `f16` and `bf16`, the function is computed in `f32` and the result is rounded once. Each warp computes the mean
//! of its elements and the sum of their squared differences from the mean. The moments of the warps are then combined,
//! so that the thread group synchronizes only once per row (Chan, Golub and LeVeque, "Updating formulae and a pairwise
//! algorithm for computing sample variances", 1979). Rows that are too long for registers are read twice. If a row's
//! moments are out of range for the accumulator type, the module `careful` computes the row again.

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::vectorized::opaque;

use crate::axis_reduce::columns_with;
use crate::careful::{self, Statistics, normalized};
use crate::range::{is_finite, min_mean, min_product};
use crate::resident::{
    BACKWARD_FEW, FEW, Part, converted, fold, is_packed, kept, resident_vectors, widened, with_resident,
};
use crate::thread_group::{Lanes, ThreadGroup, each, lanes, lanewise, load, with_lanes};

/// The count, the mean, and the sum of squared differences from the mean.
struct Moments;

impl Moments {
    /// Returns the identity: the moments of zero elements.
    #[inline(always)]
    fn none<A: Math>() -> [A; 3] {
        [A::ZERO; 3]
    }

    /// Returns the moments of the union of two disjoint sets, with a symmetric formula (Chan, Golub and LeVeque, 1979).
    #[inline(always)]
    fn join<A: Math>([a_count, a_mean, a_squares]: [A; 3], [b_count, b_mean, b_squares]: [A; 3]) -> [A; 3] {
        let count = a_count + b_count;
        if count == A::ZERO {
            return Self::none();
        }
        let difference = b_mean - a_mean;
        let mean = (a_count * a_mean + b_count * b_mean) / count;
        [count, mean, a_squares + b_squares + difference * difference * (a_count * b_count / count)]
    }
}

/// Largest mean, in standard deviations, for which rounding errors of the mean are negligible.
const MAX_MEAN: f64 = 64.0;

/// Parameters of the norm.
#[derive(Clone, Copy)]
struct Norm {
    is_rms: bool,
    epsilon: f64,
    /// Elements per row.
    width: u32,
}

impl Norm {
    #[inline(always)]
    fn count<A: Scalar>(&self) -> A {
        u64::from(opaque(self.width)).cast()
    }

    /// Returns the mean (0 for RMS norm) and the reciprocal of √(variance + epsilon). Returns `None` if these values
    /// are less accurate than the elements.
    #[inline(always)]
    fn statistics<A: Math + Scalar<Accumulator = A>>(&self, [_, mean, squares]: [A; 3]) -> Option<[A; 2]> {
        let [low, high] = [self.epsilon.to_bits() as u32, (self.epsilon.to_bits() >> 32) as u32].map(opaque);
        let epsilon: A = f64::from_bits(u64::from(high) << 32 | u64::from(low)).cast();
        let variance = squares / self.count() + epsilon;
        let inverse = A::ONE / variance.sqrt();
        let is_known = is_finite(variance) & (variance >= min_mean());
        (is_known & (mean.abs() * inverse <= MAX_MEAN.cast())).then_some([mean, inverse])
    }

    /// Creates the row description for the computation in `f64`.
    #[inline(always)]
    fn row<T>(&self, x: *const T) -> careful::Row<T> {
        careful::Row { x, width: self.width as usize, is_rms: self.is_rms, epsilon: self.epsilon }
    }

    /// Returns the moments of the elements that the lanes of one warp hold. `vector` returns one of the thread's
    /// vectors. For RMS norm, the mean is 0.
    #[inline(always)]
    fn moments<A: Math + Scalar<Accumulator = A>, const V: usize, const N: usize>(
        &self,
        vector: impl Fn(usize) -> [A; N],
        part: &Part<N>,
        lanes: Lanes,
    ) -> [A; 3] {
        let add = |a: A, b: A| a + b;
        let mut mean = A::ZERO;
        let own = part.again().count::<V>();
        let count = lanes.combine(own, |a, b| a + b) * N as u32;
        if !self.is_rms {
            let mut sums = [A::ZERO; N];
            each::<V>(|i| {
                let values = vector(i);
                each::<N>(|lane| sums[lane] = sums[lane] + values[lane]);
            });
            let sum = lanes.combine(fold(&[sums], add), add);
            mean = if count == 0 { A::ZERO } else { sum / count.cast() };
        }
        let mut squares = [A::ZERO; N];
        each::<V>(|i| {
            // Elements beyond the end of the row are 0, so they do not contribute.
            let (values, subtracted) = (vector(i), if (i as u32) < own { mean } else { A::ZERO });
            each::<N>(|lane| {
                let difference = values[lane] - subtracted;
                squares[lane] = difference.mul_add(difference, squares[lane]);
            });
        });
        [count.cast(), mean, lanes.combine(fold(&[squares], add), add)]
    }
}

/// Combines the moments that the given lanes hold.
#[inline(always)]
fn join<A: Math + Scalar<Accumulator = A>>(lanes: Lanes, [count, mean, squares]: [A; 3]) -> [A; 3] {
    let add = |a: A, b: A| a + b;
    let of_all = lanes.combine(count, add);
    let mean_of_all = lanes.combine(count * mean, add) / of_all;
    let difference = mean - mean_of_all;
    [of_all, mean_of_all, lanes.combine((count * difference).mul_add(difference, squares), add)]
}

/// Normalizes one row. Each thread holds `V` vectors of `N` elements at once. `load` loads the thread's vectors of a
/// chunk; its second argument is true if the chunk is loaded again. Returns false, without completing the row, if the
/// row's statistics are not accurate enough.
///
/// # Safety
/// `target`, and the parameters that are present, must be valid for the part's length. If they are accessed in vectors,
/// they must be aligned. Nothing else may access `target`.
#[inline(always)]
unsafe fn forward<T: Float, const V: usize, const N: usize>(
    load: impl Fn(&Part<N>, bool) -> [[T; N]; V],
    target: impl Fn() -> *mut T,
    [weight, bias]: [Option<&[T]>; 2],
    (start, streams): (Part<N>, bool),
    group: &mut ThreadGroup,
    norm: &Norm,
) -> bool {
    let mut part = start.again();
    let mut moments = Moments::none();
    let (mut values, mut of_chunk);
    loop {
        values = load(&part, false);
        of_chunk = norm.moments::<_, V, N>(|i| converted(values[i]), &part, group.lanes());
        if !streams | part.is_last::<V>() {
            break;
        }
        moments = Moments::join(moments, of_chunk);
        part = part.next::<V>();
    }
    let is_read_again = streams & !start.is_last::<V>();
    if is_read_again {
        of_chunk = Moments::join(moments, of_chunk);
    }
    let of_row = group.combine_warps(of_chunk, join);
    let Some([mean, inverse]) = norm.statistics(of_row) else { return false };
    part = start.again();
    loop {
        if is_read_again {
            values = load(&part, true);
        }
        part = part.again();
        let target = target();
        each::<V>(|i| {
            // SAFETY: guaranteed by this function's contract.
            unsafe {
                let (weight, bias) = (part.parameter(weight, i, T::ONE), part.parameter(bias, i, T::ZERO));
                let vector = converted(values[i]);
                let results = lanewise(|lane| {
                    let normalized = (vector[lane] - mean) * inverse;
                    T::from_acc(normalized.mul_add(weight[lane].to_acc(), bias[lane].to_acc()))
                });
                part.store(target, i, results);
            }
        });
        if !is_read_again | part.is_last::<V>() {
            return true;
        }
        part = part.next::<V>();
    }
}

/// Writes the layer norm of each row of `x`, multiplied by `weight` and with `bias` added, to `out`. If `is_rms` is 1,
/// the RMS norm is used instead.
///
/// # Safety
/// The launch must meet the requirements of the `thread_group` module, with blocks of at most 512 threads. `x` and
/// `out` must have the same shape, and `weight` and `bias` must have one element per column. If `in_vectors` is 1, the
/// rows of both views and the parameters must start and end on 16-byte boundaries. In an instance for a small number of
/// vectors, a thread group must be able to hold a whole row.
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
    group_size: u32,
    in_vectors: u32,
) {
    let (out, out_pitch) = (out.as_mut_ptr(), out.row_stride());
    let norm = Norm { is_rms: is_rms != 0, epsilon, width: x.columns() as u32 };
    ThreadGroup::for_rows(group_size, x.rows(), |row, group| {
        let source = || x.as_ptr().wrapping_add(row.get() * x.row_stride());
        let target = || out.wrapping_add(row.get() * out_pitch);
        // SAFETY: the row lies within both views, and each row belongs to one thread group; the caller guarantees the
        // rest.
        let is_done = with_resident!((ITEMS, FEW, in_vectors != 0, Part::new(group, x.columns())), T: V, N, part, streams => unsafe {
            let load = |part: &Part<N>, _: bool| part.load::<T, V>(source(), T::ZERO);
            forward::<T, V, N>(load, target, [weight, bias], (part, streams), group, &norm)
        });
        if !is_done {
            // SAFETY: as above.
            unsafe { careful::forward(&norm.row(source()), target(), [weight, bias], group) };
        }
    });
}

/// Adds `x` to `residual`, and writes the RMS norm of each row of the sum, multiplied by `weight`, to `out`.
///
/// # Safety
/// The conditions of [`norm()`] must hold for `x`, `residual`, `weight` and `out`.
#[kernel(
    types(T = f32, f64, f16, bf16),
    consts(ITEMS = 1, 4),
    launch_bounds(512, 2),
    dependent,
    bytes = 2 * x.bytes() + residual.bytes() + out.bytes()
)]
#[allow(clippy::too_many_arguments, reason = "they are what a launch passes")]
pub unsafe fn add_rms_norm<T: Float, const ITEMS: usize>(
    x: Slice2<T>,
    mut residual: DisjointMut2<T>,
    weight: Option<&[T]>,
    mut out: DisjointMut2<T>,
    epsilon: f64,
    group_size: u32,
    in_vectors: u32,
) {
    grid::launch_dependents();
    grid::dependency_wait();
    let (out, out_pitch) = (out.as_mut_ptr(), out.row_stride());
    let (sums, sums_pitch) = (residual.as_mut_ptr(), residual.row_stride());
    let norm = Norm { is_rms: true, epsilon, width: x.columns() as u32 };
    ThreadGroup::for_rows(group_size, x.rows(), |row, group| {
        let source = || x.as_ptr().wrapping_add(row.get() * x.row_stride());
        let sum = || sums.wrapping_add(row.get() * sums_pitch);
        let target = || out.wrapping_add(row.get() * out_pitch);
        // SAFETY: the row lies within all views, and each row belongs to one thread group; the caller guarantees the
        // rest.
        let is_done = with_resident!((ITEMS, BACKWARD_FEW, in_vectors != 0, Part::new(group, x.columns())), T: V, N, part, streams => unsafe {
            let load = |part: &Part<N>, is_again: bool| {
                let mut sums = part.load_written::<T, V>(sum());
                if !is_again {
                    let values = part.load::<T, V>(source(), T::ZERO);
                    let part = part.again();
                    each::<V>(|i| {
                        sums[i] = lanewise(|lane| T::from_acc(sums[i][lane].to_acc() + values[i][lane].to_acc()));
                        part.store(sum(), i, sums[i]);
                    });
                }
                sums
            };
            forward::<T, V, N>(load, target, [weight, None], (part, streams), group, &norm)
        });
        if !is_done {
            // Other threads of the group have written the elements that a thread reads.
            group.sync();
            // SAFETY: as above.
            unsafe { careful::forward(&norm.row(sum()), target(), [weight, None], group) };
        }
    });
}

/// The moments, the sum of the weighted gradients, and the sum of these gradients multiplied by the differences from
/// the mean.
type Sums<A> = [A; 5];

/// Combines the sums that the given lanes hold.
#[inline(always)]
fn join_sums<A: Math + Scalar<Accumulator = A>>(
    lanes: Lanes,
    [count, mean, squares, gradients, products]: Sums<A>,
) -> Sums<A> {
    let add = |a: A, b: A| a + b;
    let [count, of_all, squares] = join(lanes, [count, mean, squares]);
    let products = (mean - of_all).mul_add(gradients, products);
    [count, of_all, squares, lanes.combine(gradients, add), lanes.combine(products, add)]
}

/// Computes the input gradient of one row, and stores the row's mean and inverse deviation in `statistics`. Returns
/// false, without completing the row, if the row's statistics or the sums of its gradients are not accurate enough.
///
/// # Safety
/// The caller must uphold the safety contract of [`forward`], and `statistics` must be the slot of this row.
#[inline(always)]
unsafe fn backward<T: Float, const V: usize, const N: usize>(
    (x, dy): &(impl Fn() -> *const T, impl Fn() -> *const T),
    target: impl Fn() -> *mut T,
    weight: Option<&[T]>,
    statistics: impl Fn() -> *mut Statistics<T::Accumulator>,
    (start, streams): (Part<N>, bool),
    group: &mut ThreadGroup,
    norm: &Norm,
) -> bool {
    type Acc<T> = <T as Scalar>::Accumulator;
    let add = |a: Acc<T>, b: Acc<T>| a + b;
    // Loads the input and the weighted gradient of the output.
    let load = |part: &Part<N>| {
        // SAFETY: guaranteed by this function's contract.
        unsafe {
            let values = part.load::<T, V>(x(), T::ZERO);
            let part = part.again();
            let mut gradients = widened(part.load::<T, V>(dy(), T::ZERO));
            let part = part.again();
            each::<V>(|i| {
                let weight = part.parameter(weight, i, T::ONE);
                each::<N>(|lane| gradients[i][lane] = gradients[i][lane] * weight[lane].to_acc());
            });
            (widened(values), kept(gradients))
        }
    };
    let mut part = start.again();
    let mut sums = [Acc::<T>::ZERO; 5];
    let (mut values, mut gradients);
    loop {
        (values, gradients) = load(&part);
        let of_chunk = norm.moments::<_, V, N>(|i| values[i], &part, group.lanes());
        let mut products = [Acc::<T>::ZERO; N];
        each::<V>(|i| {
            each::<N>(|lane| {
                // Gradients beyond the end of the row are 0.
                let difference = values[i][lane] - of_chunk[1];
                products[lane] = gradients[i][lane].mul_add(difference, products[lane]);
            });
        });
        let own = [fold(&gradients, add), fold(&[products], add)].map(|own| group.lanes().combine(own, add));
        sums = if streams {
            // If the first of these two sets is empty, so is the second.
            let [count, mean, squares] = Moments::join([sums[0], sums[1], sums[2]], of_chunk);
            let before = (sums[1] - mean).mul_add(sums[3], sums[4]);
            let product = (of_chunk[1] - mean).mul_add(own[0], own[1]);
            [count, mean, squares, sums[3] + own[0], before + product]
        } else {
            [of_chunk[0], of_chunk[1], of_chunk[2], own[0], own[1]]
        };
        if !streams | part.is_last::<V>() {
            break;
        }
        part = part.next::<V>();
    }
    let is_read_again = streams & !start.is_last::<V>();
    let [count, mean, squares, of_gradients, products] = group.combine_warps(sums, join_sums);
    let Some([mean, inverse]) = norm.statistics([count, mean, squares]) else { return false };
    // Largest factor in the computation of the results.
    let largest = (of_gradients.abs() + products.abs() * inverse) * inverse;
    if !is_finite(largest) | (of_gradients.abs().max_propagate(products.abs() * inverse) < min_product()) {
        return false;
    }
    if group.rank == 0 {
        // SAFETY: this slot belongs to the row, and only one thread writes it.
        unsafe { statistics().write([mean, Acc::<T>::ZERO, inverse, Acc::<T>::ONE]) };
    }
    // RMS norm does not subtract the mean, so the mean of the gradients has no effect.
    let of_gradient = if norm.is_rms { Acc::<T>::ZERO } else { of_gradients / norm.count() };
    let of_product = products * inverse * inverse / norm.count();
    part = start.again();
    loop {
        if is_read_again {
            (values, gradients) = load(&part);
        }
        part = part.again();
        let target = target();
        each::<V>(|i| {
            let results = lanewise(|lane| {
                let centered = values[i][lane] - mean;
                T::from_acc((gradients[i][lane] - of_gradient - centered * of_product) * inverse)
            });
            // SAFETY: guaranteed by this function's contract.
            unsafe { part.store(target, i, results) };
        });
        if !is_read_again | part.is_last::<V>() {
            return true;
        }
        part = part.next::<V>();
    }
}

/// Computes the backward pass of [`norm()`]: the gradient `dx` of the input, from the gradient `dy` of the output.
/// `statistics` receives the statistics of each row.
///
/// # Safety
/// The conditions of [`norm()`] must hold for `x`, `dy`, `weight` and `dx`, and `statistics` must have one element per
/// row.
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
    group_size: u32,
    in_vectors: u32,
) {
    let (dx, dx_pitch) = (dx.as_mut_ptr(), dx.row_stride());
    let norm = Norm { is_rms: is_rms != 0, epsilon, width: x.columns() as u32 };
    ThreadGroup::for_rows(group_size, x.rows(), |row, group| {
        let target = || dx.wrapping_add(row.get() * dx_pitch);
        let sources = (
            || x.as_ptr().wrapping_add(row.get() * x.row_stride()),
            || dy.as_ptr().wrapping_add(row.get() * dy.row_stride()),
        );
        let statistics = || statistics.wrapping_add(row.get());
        // SAFETY: as in `norm()`.
        let is_done = with_resident!((ITEMS, BACKWARD_FEW, in_vectors != 0, Part::new(group, x.columns())), T: V, N, part, streams => unsafe {
            backward::<T, V, N>(&sources, target, weight, statistics, (part, streams), group, &norm)
        });
        if !is_done {
            let (x, dy) = (sources.0(), sources.1());
            // SAFETY: as in `norm()`.
            unsafe { careful::backward(&norm.row(x), dy, target(), weight, statistics(), group) };
        }
    });
}

/// Computes the gradients of the parameters of [`norm()`]. `dweight` is the sum over all rows of `dy` multiplied by the
/// normalized values, and `dbias` is the sum of `dy` over all rows.
///
/// # Safety
/// The launch and the workspace must meet the requirements of [`sum_columns`](crate::axis_reduce::sum_columns()) for
/// `x`, with 16 bytes per partial result. `x` and `dy` must have the same shape. If `VECTOR` is 16, the alignment
/// conditions apply to the rows of both views. `statistics` must have been written by [`norm_backward()`]. The
/// gradients must have one element per column.
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
    with_lanes!(crate::thread_group::lanes::<T>(VECTOR), N => {
        let fetch = |row: usize, column: usize| {
            let (x_place, dy_place) = (row * x.row_stride() + column, row * dy.row_stride() + column);
            // SAFETY: the vectors lie within the views and are aligned.
            unsafe { (load::<T, N>(x.as_ptr().add(x_place)), load::<T, N>(dy.as_ptr().add(dy_place))) }
        };
        let fold = |sums: [T::Accumulator; 2], (x, dy): &([T; N], [T; N]), lane: usize, row: usize| {
            // SAFETY: there is one element per row.
            let mut own = unsafe { statistics.add(row).read() };
            if is_packed::<T>() {
                // For 16-bit elements, the mean is accurate enough without the correction.
                own[1] = T::Accumulator::ZERO;
            }
            let (normalized, dy) = (normalized(x[lane].to_acc(), own), dy[lane].to_acc());
            [dy.mul_add(normalized, sums[0]), sums[1] + dy]
        };
        let add = |a: [T::Accumulator; 2], b: [T::Accumulator; 2]| [a[0] + b[0], a[1] + b[1]];
        let write = |column: usize, sums: [T::Accumulator; 2]| {
            // SAFETY: there is one element per column, and each column has only one writer.
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
        // SAFETY: guaranteed by this function's contract.
        unsafe {
            columns_with::<_, _, N>([x.columns(), x.rows()], workspace, (lanes, parts), none, fetch, fold, add, write)
        }
    })
}
