//! The kernels: compiled for the GPU by `../build.rs`, and for the CPU like any crate.
#![no_std]

use gpu_std::prelude::*;
use gpu_std::vectorized::{aligned, each};

/// `a * x + y`.
#[elementwise(types(T = f32, f16, bf16), scalars(a))]
pub fn axpy<T: Float<Accumulator = f32>>(a: f32, x: T, y: T) -> T {
    T::from_acc(a * x.to_acc() + y.to_acc())
}

/// Elements of one access in [`rms_norm()`].
pub const WIDTH: usize = 4;

/// `sum = x + residual`, and `out = sum / rms(sum) * weight` of each row, where `rms` is the square root of the mean
/// square plus `epsilon`. One block per row of `weight.len()` elements, which stays in registers: `VECTORS` vectors of
/// [`WIDTH`] elements per thread.
#[kernel(types(T = f32, f16, bf16), consts(VECTORS = 1, 2, 4, 8), same_len(x, residual, sum, out))]
pub fn rms_norm<T: Float<Accumulator = f32>, const VECTORS: usize>(
    epsilon: f32,
    x: &[T],
    residual: &[T],
    weight: &[T],
    mut sum: DisjointMut<T>,
    mut out: DisjointMut<T>,
) {
    let columns = weight.len();
    let first = block::linear_index() * columns;
    assert!(first + columns <= x.len(), "a block has no row");
    let threads = block::threads() as usize;
    assert!(columns <= threads * VECTORS * WIDTH, "a row has too many columns for a block");
    let row = Row {
        columns,
        x: x.as_ptr().wrapping_add(first),
        residual: residual.as_ptr().wrapping_add(first),
        weight: weight.as_ptr(),
        sum: sum.as_mut_ptr().wrapping_add(first),
        out: out.as_mut_ptr().wrapping_add(first),
    };
    let starts = [row.x, row.residual, row.weight, row.sum.cast_const(), row.out.cast_const()];
    let is_aligned = columns.is_multiple_of(WIDTH) & starts.into_iter().all(aligned::<T, WIDTH>);
    // SAFETY: the pointers are to rows of this many columns, which no other block writes.
    unsafe {
        match is_aligned {
            true => normalize::<T, VECTORS, true>(row, epsilon),
            false => normalize::<T, VECTORS, false>(row, epsilon),
        }
    }
}

/// Arrays of one row.
struct Row<T> {
    columns: usize,
    x: *const T,
    residual: *const T,
    weight: *const T,
    sum: *mut T,
    out: *mut T,
}

/// # Safety
/// The arrays have as many elements as columns, and start at vectors if `ALIGNED`. No other block writes them.
#[inline(always)]
unsafe fn normalize<T: Float<Accumulator = f32>, const VECTORS: usize, const ALIGNED: bool>(
    Row { columns, x, residual, weight, sum, out }: Row<T>,
    epsilon: f32,
) {
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    // Adjacent threads have adjacent vectors.
    let column = |i: usize| WIDTH * (threads * i + own);
    // SAFETY: the arrays are this long, by the caller's promise.
    let read = |array, i| unsafe { load::<T, ALIGNED>(array, column(i), columns) };

    // All loads are issued before the first store.
    let zeros = [Vector::<T, WIDTH>::splat(T::ZERO); VECTORS];
    let (mut xs, mut residuals, mut weights) = (zeros, zeros, zeros);
    each::<VECTORS>(|i| xs[i] = read(x, i));
    each::<VECTORS>(|i| residuals[i] = read(residual, i));
    each::<VECTORS>(|i| weights[i] = read(weight, i));
    let mut squares = 0.0;
    each::<VECTORS>(|i| {
        let sums = |at| T::from_acc(xs[i][at].to_acc() + residuals[i][at].to_acc());
        xs[i] = Vector::from_array(core::array::from_fn(sums));
        squares += xs[i].map(|value| value.to_acc() * value.to_acc()).into_iter().sum::<f32>();
        // SAFETY: as above; no other thread has these columns.
        unsafe { store::<T, ALIGNED>(sum, column(i), columns, xs[i]) };
    });
    let mean = block::reduce(squares, |a, b| a + b) / columns as f32;
    let scale = 1.0 / (mean + epsilon).sqrt();
    each::<VECTORS>(|i| {
        let scaled = |at| T::from_acc(xs[i][at].to_acc() * scale * weights[i][at].to_acc());
        // SAFETY: as above.
        unsafe { store::<T, ALIGNED>(out, column(i), columns, Vector::from_array(core::array::from_fn(scaled))) };
    });
}

/// Loads the elements of a row from column `first` on, with zeros beyond the row.
///
/// # Safety
/// `row` has `columns` elements; vectors begin at `row` and fill it if `ALIGNED`.
#[inline(always)]
unsafe fn load<T: Float, const ALIGNED: bool>(row: *const T, first: usize, columns: usize) -> Vector<T, WIDTH> {
    if ALIGNED {
        return match first < columns {
            // SAFETY: the vector is within the row, and aligned.
            true => unsafe { Vector::load(row.add(first)) },
            false => Vector::splat(T::ZERO),
        };
    }
    let element = |at| match first + at < columns {
        // SAFETY: the element is within the row.
        true => unsafe { *row.add(first + at) },
        false => T::ZERO,
    };
    Vector::from_array(core::array::from_fn(element))
}

/// Stores elements of a row from column `first` on.
///
/// # Safety
/// As for [`load`]; no other thread uses these elements.
#[inline(always)]
unsafe fn store<T: Float, const ALIGNED: bool>(
    row: *mut T,
    first: usize,
    columns: usize,
    vector: Vector<T, WIDTH>,
) {
    if ALIGNED {
        if first < columns {
            // SAFETY: the vector is within the row, and aligned.
            unsafe { vector.store(row.add(first)) };
        }
        return;
    }
    for at in 0..WIDTH.min(columns.saturating_sub(first)) {
        // SAFETY: the element is within the row.
        unsafe { row.add(first + at).write(vector[at]) };
    }
}
