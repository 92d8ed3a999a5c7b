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
pub const WIDTH: usize = 8;

/// `sum = x + residual`, and `out = sum / rms(sum) * weight` of each row, where `rms` is the square root of the mean
/// square plus `epsilon`. One block per row of `weight.len()` elements, which stays in registers: `VECTORS` vectors of
/// [`WIDTH`] elements per thread.
#[kernel(types(T = f32, f16, bf16), consts(VECTORS = 1, 2, 4), same_len(x, residual, sum, out))]
pub fn rms_norm<T: Float<Accumulator = f32>, const VECTORS: usize>(
    epsilon: f32,
    x: &[T],
    residual: &[T],
    weight: &[T],
    mut sum: DisjointMut<T>,
    mut out: DisjointMut<T>,
) {
    let columns = weight.len();
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    assert!(columns <= threads * VECTORS * WIDTH, "a row has too many columns for a block");
    let first = block::linear_index() * columns;
    assert!(first + columns <= x.len(), "a block has no row");
    let (sum, out) = (sum.as_mut_ptr().wrapping_add(first), out.as_mut_ptr().wrapping_add(first));
    let (x, residual) = (x.as_ptr().wrapping_add(first), residual.as_ptr().wrapping_add(first));
    let is_aligned = aligned::<T, WIDTH>(x)
        & aligned::<T, WIDTH>(residual)
        & aligned::<T, WIDTH>(weight.as_ptr())
        & aligned::<T, WIDTH>(sum)
        & aligned::<T, WIDTH>(out);
    // Adjacent threads have adjacent vectors.
    let column = |vector: usize| WIDTH * (threads * vector + own);

    let mut values = [Vector::<f32, WIDTH>::splat(0.0); VECTORS];
    let mut squares = 0.0;
    each::<VECTORS>(|i| {
        // SAFETY: the pointers are to rows of `columns` elements. No other thread writes these elements.
        let total = unsafe {
            let x = load(x, column(i), columns, is_aligned);
            let residual = load(residual, column(i), columns, is_aligned);
            let total = Vector::from_array(core::array::from_fn(|at| T::from_acc(x[at].to_acc() + residual[at].to_acc())));
            store(sum, column(i), columns, is_aligned, total);
            total
        };
        values[i] = total.map(T::to_acc);
        squares += values[i].into_iter().map(|value| value * value).sum::<f32>();
    });
    let mean = block::reduce(squares, |a, b| a + b) / columns as f32;
    let scale = 1.0 / (mean + epsilon).sqrt();
    each::<VECTORS>(|i| {
        // SAFETY: as above.
        unsafe {
            let weight = load(weight.as_ptr(), column(i), columns, is_aligned);
            let scaled = core::array::from_fn(|at| T::from_acc(values[i][at] * scale * weight[at].to_acc()));
            store(out, column(i), columns, is_aligned, Vector::from_array(scaled));
        }
    });
}

/// Loads the elements of a row from column `first` on, with zeros beyond the row.
///
/// # Safety
/// `row` has `columns` elements; it is aligned for vectors if `is_aligned`.
#[inline(always)]
unsafe fn load<T: Float>(row: *const T, first: usize, columns: usize, is_aligned: bool) -> Vector<T, WIDTH> {
    if is_aligned & (first + WIDTH <= columns) {
        // SAFETY: the vector is within the row, and aligned.
        return unsafe { Vector::load(row.add(first)) };
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
unsafe fn store<T: Float>(row: *mut T, first: usize, columns: usize, is_aligned: bool, vector: Vector<T, WIDTH>) {
    if is_aligned & (first + WIDTH <= columns) {
        // SAFETY: the vector is within the row, and aligned.
        return unsafe { vector.store(row.add(first)) };
    }
    for at in 0..WIDTH.min(columns.saturating_sub(first)) {
        // SAFETY: the element is within the row.
        unsafe { row.add(first + at).write(vector[at]) };
    }
}
