//! Four kernels for the softmax of each row of a matrix, each faster than the one before: `docs/projects/softmax.md`
//! explains the steps.
#![no_std]

use gpu_std::prelude::*;
use gpu_std::vectorized::{aligned, each};

/// One thread per row.
#[kernel(same_len(x, out))]
pub fn naive(x: Slice2<f32>, mut out: DisjointMut2<f32, Rows>) {
    for index in thread::grid_stride(x.rows()) {
        if let (Some(x), Some(out)) = (x.row(index.get()), out.get_mut(index)) {
            let max = x.iter().fold(f32::NEG_INFINITY, |max, x| max.max(*x));
            let sum: f32 = x.iter().map(|x| (x - max).exp()).sum();
            for (out, x) in out.iter_mut().zip(x) {
                *out = (x - max).exp() / sum;
            }
        }
    }
}

/// Maximum number of columns for [`blocks()`].
pub const BLOCK_COLUMNS: usize = 4096;

/// One block per row of at most [`BLOCK_COLUMNS`] columns; block i has row i.
#[kernel(same_len(x, out))]
pub fn blocks(x: Slice2<f32>, mut out: DisjointMut2<f32, TransposedTiles<1, BLOCK_COLUMNS>>) {
    assert!(x.columns() <= BLOCK_COLUMNS, "a row has too many columns for a block");
    let Some(row) = x.row(block::linear_index()) else { return };
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    // The elements of a thread are one block size apart, so that adjacent threads read adjacent elements.
    let elements = || row.iter().skip(own).step_by(threads);

    let max = block::reduce(elements().fold(f32::NEG_INFINITY, |max, x| max.max(*x)), f32::max);
    let sum = block::reduce(elements().map(|x| (x - max).exp()).sum::<f32>(), |a, b| a + b);
    out.write_tile(|[_, column]| (row[column] - max).exp() / sum);
}

/// Maximum number of columns for [`warps()`] per vector that a thread holds.
pub const WARP_COLUMNS: usize = 32 * 4;

/// One warp per row, which stays in registers: `VECTORS` vectors of 4 elements per thread. The number of columns is a
/// multiple of 4, and at most [`WARP_COLUMNS`] times `VECTORS`.
#[kernel(consts(VECTORS = 1, 2, 4, 8), same_len(x, out))]
pub fn warps<const VECTORS: usize>(x: Slice2<f32>, mut out: DisjointMut2<f32, Rows>) {
    let columns = x.columns();
    assert!(columns <= WARP_COLUMNS * VECTORS, "a row has too many columns for a warp");
    let is_aligned = aligned::<f32, 4>(x.as_ptr())
        & aligned::<f32, 4>(out.as_mut_ptr())
        & (columns | x.row_stride() | out.row_stride()).is_multiple_of(4);
    assert!(is_aligned, "a row does not consist of aligned vectors");

    let warp = Tile::<32>::current();
    for row in warp.stride(x.rows()) {
        let from = x.as_ptr().wrapping_add(row.get() * x.row_stride());
        let to = out.as_mut_ptr().wrapping_add(row.get() * out.row_stride());
        let first_column = |vector: usize| 4 * (32 * vector + warp.rank() as usize);

        // exp(-∞) is 0, so elements beyond the row add nothing.
        let mut values = [Vector::<f32, 4>::splat(f32::NEG_INFINITY); VECTORS];
        each::<VECTORS>(|i| {
            if first_column(i) < columns {
                // SAFETY: the vector is within the row, whose vectors are aligned.
                values[i] = unsafe { Vector::load(from.add(first_column(i))) };
            }
        });
        let mut max = f32::NEG_INFINITY;
        each::<VECTORS>(|i| max = values[i].into_iter().fold(max, f32::max));
        let max = warp.reduce_max(max);
        let mut sum = 0.0;
        each::<VECTORS>(|i| {
            values[i] = values[i].map(|x| (x - max).exp());
            sum += values[i].into_iter().sum::<f32>();
        });
        let sum = warp.reduce_add(sum);
        each::<VECTORS>(|i| {
            if first_column(i) < columns {
                // SAFETY: as above. No other warp has the row, and no other lane has these columns.
                unsafe { values[i].map(|power| power / sum).store(to.add(first_column(i))) };
            }
        });
    }
}

/// Maximum of some elements, and the sum of their exponentials relative to it.
#[derive(Clone, Copy, KernelType)]
#[repr(C)]
struct Online {
    max: f32,
    sum: f32,
}

impl Online {
    /// Result for no elements. `MIN` instead of -∞, because the difference of two infinities is NaN.
    const EMPTY: Self = Self { max: f32::MIN, sum: 0.0 };

    /// Result for the elements of both.
    #[inline(always)]
    fn combine(self, other: Self) -> Self {
        let max = self.max.max(other.max);
        Self { max, sum: self.sum * (self.max - max).exp() + other.sum * (other.max - max).exp() }
    }

    /// Result with one more element, by a single exponential.
    #[inline(always)]
    fn with(self, x: f32) -> Self {
        let power = (-(x - self.max).abs()).exp();
        if x > self.max {
            Self { max: x, sum: self.sum * power + 1.0 }
        } else {
            Self { sum: self.sum + power, ..self }
        }
    }
}

/// One block per row of any length, which is read twice instead of three times.
#[kernel(same_len(x, out))]
pub fn online(x: Slice2<f32>, mut out: DisjointMut2<f32, Rows>) {
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    for index in block::stride(x.rows()) {
        let Some(row) = x.row(index.get()) else { return };
        let elements = || row.iter().enumerate().skip(own).step_by(threads);

        let of_thread = elements().fold(Online::EMPTY, |all, (_, x)| all.with(*x));
        let Online { max, sum } = block::reduce(of_thread, Online::combine);
        let to = out.as_mut_ptr().wrapping_add(index.get() * out.row_stride());
        for (column, x) in elements() {
            // SAFETY: the column is within the row. No other block has the row, and no other thread has the column.
            unsafe { to.add(column).write((x - max).exp() / sum) };
        }
    }
}
