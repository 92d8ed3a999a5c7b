//! Sequential products on the emulated device. Sums are accumulated in double precision and rounded once.

use super::plan::{Dense, Operands};
use super::{FloatType, Index};
use warpsmith_runtime::driver::DevicePtr;

/// A product, with all addresses and the lengths of input and output.
pub(super) struct Work {
    pub rows: usize,
    pub offsets: DevicePtr,
    pub indices: DevicePtr,
    pub values: DevicePtr,
    pub nonzeros: usize,
    pub operands: Operands,
    pub lengths: [usize; 2],
}

impl Work {
    /// # Safety
    /// All addresses must refer to live process memory that contains elements of these types. Nothing else may write
    /// this memory during the call.
    pub unsafe fn run<T: FloatType, I: Index>(&self) {
        let Operands { input, output, dense, product } = self.operands;
        // SAFETY: guaranteed by the caller.
        let (offsets, indices, values, input) = unsafe {
            (
                slice::<I>(self.offsets, self.rows + 1),
                slice::<I>(self.indices, self.nonzeros),
                slice::<T>(self.values, self.nonzeros),
                slice::<T>(input, self.lengths[0]),
            )
        };
        let (columns, input_stride, output_stride) = match dense {
            Dense::Vector => (1, 1, 1),
            Dense::Matrix { columns, input_stride, output_stride } => (columns, input_stride, output_stride),
        };
        let output_rows = self.lengths[1].div_ceil(output_stride);
        let mut sums = vec![0f64; output_rows * columns];
        let at = |index: &I| index.get().unwrap_or(usize::MAX);
        for (row, ends) in offsets.windows(2).enumerate() {
            for element in at(&ends[0])..at(&ends[1]) {
                let (column, value) = (at(&indices[element]), values[element].to_f64());
                let (to, from) = if product.transpose { (column, row) } else { (row, column) };
                let from = &input[from * input_stride..][..columns];
                let to = &mut sums[to * columns..][..columns];
                to.iter_mut().zip(from).for_each(|(to, from)| *to += value * from.to_f64());
            }
        }
        // SAFETY: guaranteed by the caller.
        let output = unsafe { std::slice::from_raw_parts_mut(output.0 as *mut T, self.lengths[1]) };
        for (row, sums) in output.chunks_mut(output_stride).zip(sums.chunks(columns)) {
            for (to, sum) in row.iter_mut().zip(sums) {
                let before = if product.beta == 0.0 { 0.0 } else { product.beta * to.to_f64() };
                *to = T::from_f64(product.alpha * sum + before);
            }
        }
    }
}

/// # Safety
/// The address must refer to `len` elements, which nothing writes during the slice's lifetime.
unsafe fn slice<'a, E>(at: DevicePtr, len: usize) -> &'a [E] {
    if len == 0 {
        return &[];
    }
    // SAFETY: guaranteed by the caller.
    unsafe { std::slice::from_raw_parts(at.0 as *const E, len) }
}
