//! The kernels. `../build.rs` compiles them for GPUs, and cargo compiles them for the CPU.
#![no_std]

use gpu_std::prelude::*;
use gpu_std::vectorized::{aligned, each};

/// Computes `a * x + y`.
#[elementwise(types(T = f32, f16, bf16), scalars(a))]
pub fn axpy<T: Float<Accumulator = f32>>(a: f32, x: T, y: T) -> T {
    T::from_acc(a * x.to_acc() + y.to_acc())
}

/// Vector width of the memory accesses in [`rms_norm()`], in elements.
pub const WIDTH: usize = 4;

/// Computes `sum = x + residual` and, for each row, `out = sum / sqrt(mean(sum * sum) + epsilon) * weight`.
///
/// One block processes each row of `weight.len()` elements. The row stays in registers: each thread holds `VECTORS`
/// vectors of [`WIDTH`] elements. Every row of every array must be aligned to the size of a vector.
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
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    assert!(first + columns <= x.len(), "the grid has more blocks than rows");
    assert!(columns <= threads * VECTORS * WIDTH, "a row has too many columns for a block");
    let (x, residual, weight) = (x.as_ptr().wrapping_add(first), residual.as_ptr().wrapping_add(first), weight.as_ptr());
    let (sum, out) = (sum.as_mut_ptr().wrapping_add(first), out.as_mut_ptr().wrapping_add(first));
    // A loop over an array of these pointers would put the array into local memory.
    let are_inputs_aligned = aligned::<T, WIDTH>(x) & aligned::<T, WIDTH>(residual) & aligned::<T, WIDTH>(weight);
    let are_outputs_aligned = aligned::<T, WIDTH>(sum) & aligned::<T, WIDTH>(out);
    let is_aligned = columns.is_multiple_of(WIDTH) & are_inputs_aligned & are_outputs_aligned;
    assert!(is_aligned, "a row does not consist of aligned vectors");

    // Adjacent threads process adjacent vectors.
    let column = |i: usize| WIDTH * (threads * i + own);
    let load = |array: *const T, i: usize| match column(i) < columns {
        // SAFETY: the vector is within the row and aligned.
        true => unsafe { Vector::<T, WIDTH>::load(array.add(column(i))) },
        false => Vector::splat(T::ZERO),
    };
    let store = |array: *mut T, i: usize, vector: Vector<T, WIDTH>| {
        if column(i) < columns {
            // SAFETY: the vector is within the row and aligned. No other block writes the row, and no other thread of
            // the block writes these columns.
            unsafe { vector.store(array.add(column(i))) };
        }
    };

    // Issue all loads of the row before the first store, so that they overlap.
    let zeros = [Vector::<T, WIDTH>::splat(T::ZERO); VECTORS];
    let (mut sums, mut residuals) = (zeros, zeros);
    each::<VECTORS>(|i| sums[i] = load(x, i));
    each::<VECTORS>(|i| residuals[i] = load(residual, i));
    let mut squares = 0.0;
    each::<VECTORS>(|i| {
        let add = |at| T::from_acc(sums[i][at].to_acc() + residuals[i][at].to_acc());
        sums[i] = Vector::from_array(core::array::from_fn(add));
        squares += sums[i].into_iter().map(|value| value.to_acc() * value.to_acc()).sum::<f32>();
        store(sum, i, sums[i]);
    });
    let mean = block::reduce(squares, |a, b| a + b) / columns as f32;
    let scale = 1.0 / (mean + epsilon).sqrt();
    each::<VECTORS>(|i| {
        let weights = load(weight, i);
        let scaled = |at| T::from_acc(sums[i][at].to_acc() * scale * weights[at].to_acc());
        store(out, i, Vector::from_array(core::array::from_fn(scaled)));
    });
}

/// Computes the same results as [`rms_norm()`] for rows of any length and alignment. The kernel reads each row twice.
#[kernel(types(T = f32, f16, bf16), same_len(x, residual, sum, out))]
pub fn rms_norm_any<T: Float<Accumulator = f32>>(
    epsilon: f32,
    x: Slice2<T>,
    residual: Slice2<T>,
    weight: &[T],
    mut sum: DisjointMut2<T, Rows>,
    mut out: DisjointMut2<T, Rows>,
) {
    let columns = weight.len();
    assert!(columns == x.columns(), "`weight` and the rows differ in length");
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    for index in block::stride(x.rows()) {
        let (Some(x), Some(residual)) = (x.row(index.get()), residual.row(index.get())) else { return };
        let sum = sum.as_mut_ptr().wrapping_add(index.get() * sum.row_stride());
        let out = out.as_mut_ptr().wrapping_add(index.get() * out.row_stride());
        let add = |column: usize| T::from_acc(x[column].to_acc() + residual[column].to_acc());
        let mut squares = 0.0;
        for column in (own..columns).step_by(threads) {
            let value = add(column).to_acc();
            squares += value * value;
        }
        let mean = block::reduce(squares, |a, b| a + b) / columns as f32;
        let scale = 1.0 / (mean + epsilon).sqrt();
        for column in (own..columns).step_by(threads) {
            let value = add(column);
            let scaled = T::from_acc(value.to_acc() * scale * weight[column].to_acc());
            // SAFETY: the column is within the row. No other block writes the row, and no other thread of the block
            // writes the column.
            unsafe {
                sum.add(column).write(value);
                out.add(column).write(scaled);
            }
        }
    }
}
