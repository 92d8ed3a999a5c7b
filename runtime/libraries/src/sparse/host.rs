//! Products on the emulated device: each element in turn, summed up in double precision and rounded once.

use std::marker::PhantomData;

use super::plan::{Dense, Operands};
use super::{Csr, Index, Value};
use warpsmith_core::driver::DevicePtr;

/// A product with the addresses of everything.
pub(super) struct Work<T, I> {
    rows: usize,
    offsets: DevicePtr,
    indices: DevicePtr,
    values: DevicePtr,
    nonzeros: usize,
    operands: Operands,
    input: usize,
    output: usize,
    types: PhantomData<(T, I)>,
}

impl<T: Value, I: Index> Work<T, I> {
    /// Input and output have these lengths.
    pub fn new(matrix: &Csr<T, I>, operands: Operands, input: usize, output: usize) -> Self {
        Self {
            rows: matrix.rows(),
            offsets: matrix.offsets().as_device_ptr(),
            indices: matrix.indices().as_device_ptr(),
            values: matrix.values().as_device_ptr(),
            nonzeros: matrix.nonzeros(),
            operands,
            input,
            output,
            types: PhantomData,
        }
    }

    /// # Safety
    /// Everything is memory of the process that is there, which nobody writes meanwhile.
    pub unsafe fn run(&self) {
        let Operands { input, output, dense, product } = self.operands;
        // SAFETY: passed on from the caller.
        let (offsets, indices, values, input) = unsafe {
            (
                slice::<I>(self.offsets, self.rows + 1),
                slice::<I>(self.indices, self.nonzeros),
                slice::<T>(self.values, self.nonzeros),
                slice::<T>(input, self.input),
            )
        };
        let (columns, input_stride, output_stride) = match dense {
            Dense::Vector => (1, 1, 1),
            Dense::Matrix { columns, input_stride, output_stride } => (columns, input_stride, output_stride),
        };
        let output_rows = self.output.div_ceil(output_stride);
        let mut sums = vec![0f64; output_rows * columns];
        let at = |index: &I| index.get().unwrap_or(usize::MAX);
        for (row, ends) in offsets.windows(2).enumerate() {
            for element in at(&ends[0])..at(&ends[1]) {
                let (column, value) = (at(&indices[element]), values[element].up());
                let (to, from) = if product.transpose { (column, row) } else { (row, column) };
                let from = &input[from * input_stride..][..columns];
                let to = &mut sums[to * columns..][..columns];
                to.iter_mut().zip(from).for_each(|(to, from)| *to += value * from.up());
            }
        }
        // SAFETY: passed on from the caller.
        let output = unsafe { std::slice::from_raw_parts_mut(output.0 as *mut T, self.output) };
        for (row, sums) in output.chunks_mut(output_stride).zip(sums.chunks(columns)) {
            for (to, sum) in row.iter_mut().zip(sums) {
                let before = if product.beta == 0.0 { 0.0 } else { product.beta * to.up() };
                *to = T::down(product.alpha * sum + before);
            }
        }
    }
}

/// # Safety
/// There are as many elements, which nobody writes while the slice lives.
unsafe fn slice<'a, E>(at: DevicePtr, len: usize) -> &'a [E] {
    if len == 0 {
        return &[];
    }
    // SAFETY: passed on from the caller.
    unsafe { std::slice::from_raw_parts(at.0 as *const E, len) }
}
