//! [`Matrix`] and [`MatrixMut`]: views of device memory that are operands of matrix operations.

use crate::error::LibraryError;
use warpsmith_runtime::{
    DeviceCopy, DeviceSlice, DeviceSlice2, DeviceSlice3, DeviceSliceMut, DeviceSliceMut2, DeviceSliceMut3,
    Result,
};

const VIEW: &str = "a view of a matrix";

/// Memory layout of a matrix, or of a batch of matrices of the same shape, with any strides. Unlike in a [3-D
/// view](warpsmith_runtime::DeviceSlice3), the matrices of a batch can lie side by side within the rows, and the batch
/// stride need not be a multiple of the row stride. All sizes and strides are in elements.
///
/// ```
/// use warpsmith_libraries::blas::Layout;
///
/// // A 3 x 5 matrix in rows of 8 elements, read as its transpose.
/// let layout = Layout::new(3, 5).with_row_stride(8).transposed();
/// assert_eq!((layout.rows(), layout.columns()), (5, 3));
/// assert_eq!(layout.extent(), Some(2 * 8 + 5));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Numbers of rows and columns as stored in memory.
    pub(super) stored_rows: usize,
    pub(super) stored_cols: usize,
    pub(super) stride: usize,
    pub(super) is_transposed: bool,
    pub(super) count: usize,
    pub(super) batch_stride: usize,
}

impl Layout {
    /// Creates the layout of one contiguous row-major matrix.
    pub const fn new(rows: usize, columns: usize) -> Self {
        let batch_stride = rows.saturating_mul(columns);
        Self {
            stored_rows: rows,
            stored_cols: columns,
            stride: columns,
            is_transposed: false,
            count: 1,
            batch_stride,
        }
    }

    /// Sets the row stride (leading dimension) in memory, in elements.
    pub const fn with_row_stride(self, stride: usize) -> Self {
        Self { stride, ..self }
    }

    /// Converts the layout to a batch of `count` matrices that are `batch_stride` elements apart. A stride of 0
    /// broadcasts one matrix.
    pub const fn with_batch(self, count: usize, batch_stride: usize) -> Self {
        Self { count, batch_stride, ..self }
    }

    /// Transposes each matrix as a view, which moves no data.
    pub const fn transposed(self) -> Self {
        Self { is_transposed: !self.is_transposed, ..self }
    }

    /// Returns the number of rows of each matrix after any transposition.
    pub const fn rows(&self) -> usize {
        if self.is_transposed { self.stored_cols } else { self.stored_rows }
    }

    /// Returns the number of columns of each matrix after any transposition.
    pub const fn columns(&self) -> usize {
        if self.is_transposed { self.stored_rows } else { self.stored_cols }
    }

    /// Returns the number of matrices.
    pub const fn count(&self) -> usize {
        self.count
    }

    /// Returns the number of elements in memory from the first to the last, or `None` on overflow.
    pub fn extent(&self) -> Option<usize> {
        if self.is_empty() {
            return Some(0);
        }
        let last = self.batch_stride.checked_mul(self.count - 1)?;
        last.checked_add(self.matrix_extent()?)
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.stored_rows == 0 || self.stored_cols == 0 || self.count == 0
    }

    /// Returns the extent of one non-empty matrix.
    fn matrix_extent(&self) -> Option<usize> {
        (self.stored_rows - 1).checked_mul(self.stride)?.checked_add(self.stored_cols)
    }

    /// Returns the offset of an element. The layout must have been checked.
    pub(super) const fn index(&self, batch: usize, row: usize, col: usize) -> usize {
        let (row, col) = if self.is_transposed { (col, row) } else { (row, col) };
        batch * self.batch_stride + row * self.stride + col
    }

    /// Returns the leading dimension to pass to cuBLAS, which requires at least 1. The stride of a single row is
    /// irrelevant and may be too large to pass, so the function instead returns the number of columns, rounded up to a
    /// multiple of 16. A multiple of 16 is valid for every type.
    pub(super) fn leading(&self) -> i64 {
        let stride = if self.stored_rows > 1 { self.stride } else { self.stored_cols.next_multiple_of(16) };
        stride.max(1) as i64
    }

    /// Broadcasts a single matrix to a batch of `count` matrices.
    pub(super) fn broadcast(self, count: usize) -> Self {
        if self.count == 1 && count != 1 { self.with_batch(count, 0) } else { self }
    }

    /// Returns true if two elements of the layout alias.
    fn overlaps(&self) -> bool {
        if self.count < 2 || self.is_empty() {
            return false;
        }
        let apart = self.matrix_extent().is_some_and(|extent| self.batch_stride >= extent);
        // In this layout, the matrices are side by side within the rows.
        let within = self.batch_stride >= self.stored_cols
            && self
                .batch_stride
                .checked_mul(self.count - 1)
                .and_then(|last| last.checked_add(self.stored_cols))
                .is_some_and(|width| width <= self.stride);
        !apart && !within
    }

    fn check(&self, len: usize) -> Result<()> {
        let Self { stored_rows, stored_cols, stride, count, batch_stride, .. } = *self;
        let problem = if stride < stored_cols {
            format!("the row stride of {stride} elements is smaller than a row of {stored_cols}")
        } else if self.extent().is_none_or(|extent| extent > len || extent > isize::MAX as usize) {
            let needed = self.extent().map_or_else(|| "too many".to_owned(), |extent| extent.to_string());
            format!(
                "{count} x {stored_rows} x {stored_cols} with strides {batch_stride} and {stride} needs {needed} \
                 elements, but the slice has {len}"
            )
        } else {
            return Ok(());
        };
        Err(LibraryError::shape(VIEW, problem))
    }
}

/// A read-only matrix, or a read-only batch of matrices. [`From`] converts a 2-D or 3-D view to a row-major matrix, and
/// all operations accept such views directly. [`Self::transposed`] represents column-major matrices, and
/// [`Self::with_layout`] allows any strides.
///
/// ```
/// use warpsmith_libraries::blas::Matrix;
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let buffer = DeviceBuffer::from_host(&Device::emulated(0)?.default_stream(), &[1f32; 6])?;
/// let matrix = Matrix::from(buffer.as_2d(2, 3)?).transposed();
/// assert_eq!((matrix.rows(), matrix.columns()), (3, 2));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct Matrix<'a, T: DeviceCopy> {
    pub(super) slice: DeviceSlice<'a, T>,
    pub(super) layout: Layout,
}

/// A writable matrix, or a writable batch of matrices. A `MatrixMut` is created like a [`Matrix`]. No two elements of
/// the matrix alias.
#[derive(Debug)]
pub struct MatrixMut<'a, T: DeviceCopy> {
    pub(super) slice: DeviceSliceMut<'a, T>,
    pub(super) layout: Layout,
}

macro_rules! matrix {
    ($matrix:ident: $slice2:ident, $slice3:ident, $elements:ident) => {
        impl<T: DeviceCopy> $matrix<'_, T> {
            /// Transposes each matrix without moving data.
            #[must_use]
            pub fn transposed(self) -> Self {
                Self { layout: self.layout.transposed(), ..self }
            }

            /// Returns the number of rows after any transposition.
            pub fn rows(&self) -> usize {
                self.layout.rows()
            }

            /// Returns the number of columns after any transposition.
            pub fn columns(&self) -> usize {
                self.layout.columns()
            }
        }

        impl<'a, T: DeviceCopy> From<$slice2<'a, T>> for $matrix<'a, T> {
            fn from(view: $slice2<'a, T>) -> Self {
                let layout = Layout::new(view.rows(), view.columns()).with_row_stride(view.row_stride());
                Self { slice: view.$elements(), layout }
            }
        }

        impl<'a, T: DeviceCopy> From<$slice3<'a, T>> for $matrix<'a, T> {
            fn from(view: $slice3<'a, T>) -> Self {
                let layout = Layout::new(view.rows(), view.columns()).with_row_stride(view.row_stride());
                let layout = layout.with_batch(view.planes(), view.plane_stride());
                Self { slice: view.$elements(), layout }
            }
        }
    };
}

matrix!(Matrix: DeviceSlice2, DeviceSlice3, elements);
matrix!(MatrixMut: DeviceSliceMut2, DeviceSliceMut3, into_elements);

impl<'a, T: DeviceCopy> Matrix<'a, T> {
    /// Creates a view with this layout.
    ///
    /// # Errors
    /// Returns [`LibraryError::Shape`] if some elements are out of bounds or the row stride is smaller than a row.
    pub fn with_layout(slice: impl Into<DeviceSlice<'a, T>>, layout: Layout) -> Result<Self> {
        let slice = slice.into();
        layout.check(slice.len())?;
        Ok(Self { slice, layout })
    }
}

impl<'a, T: DeviceCopy> MatrixMut<'a, T> {
    /// Creates a view with this layout.
    ///
    /// # Errors
    /// Returns [`LibraryError::Shape`] if some elements are out of bounds, the row stride is smaller than a row, or
    /// matrices of the batch overlap.
    pub fn with_layout(slice: impl Into<DeviceSliceMut<'a, T>>, layout: Layout) -> Result<Self> {
        let slice = slice.into();
        layout.check(slice.len())?;
        if layout.overlaps() {
            let stride = layout.batch_stride;
            let problem = format!(
                "the output matrices overlap: the batch stride of {stride} is smaller than one matrix"
            );
            return Err(LibraryError::shape(VIEW, problem));
        }
        Ok(Self { slice, layout })
    }

    /// Reborrows the view for a shorter lifetime.
    pub fn reborrow(&mut self) -> MatrixMut<'_, T> {
        MatrixMut { slice: self.slice.reborrow(), layout: self.layout }
    }
}

impl<T: DeviceCopy> Clone for Matrix<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: DeviceCopy> Copy for Matrix<'_, T> {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_extent_is_that_of_the_last_element() {
        for (layout, extent) in [
            (Layout::new(0, 7), Some(0)),
            (Layout::new(7, 0).with_row_stride(3), Some(0)),
            (Layout::new(2, 3).with_row_stride(10), Some(13)),
            (Layout::new(2, 3).with_batch(4, 6), Some(24)),
            (Layout::new(2, 3).with_batch(4, 0), Some(6)),
            (Layout::new(2, 3).with_batch(0, 6), Some(0)),
            (Layout::new(usize::MAX, 2), None),
            (Layout::new(2, 3).with_batch(usize::MAX, 2), None),
        ] {
            assert_eq!(layout.extent(), extent, "{layout:?}");
            if let Some(extent) = extent.filter(|extent| *extent > 0) {
                let last = layout.index(layout.count() - 1, layout.rows() - 1, layout.columns() - 1);
                assert_eq!(last + 1, extent);
                assert!(layout.check(extent).is_ok() && layout.check(extent - 1).is_err());
            }
        }
    }

    #[test]
    fn overlapping_batches_are_detected() {
        let layout = Layout::new(3, 4);
        assert!(!layout.with_batch(5, 12).overlaps());
        assert!(layout.with_batch(5, 11).overlaps());
        assert!(layout.with_batch(2, 0).overlaps());
        assert!(!layout.with_batch(1, 0).overlaps());
        assert!(!layout.with_row_stride(20).with_batch(5, 4).overlaps());
        assert!(layout.with_row_stride(19).with_batch(5, 4).overlaps());
        assert!(layout.with_row_stride(20).with_batch(5, 3).overlaps());
        assert!(!layout.with_row_stride(20).with_batch(5, 44).overlaps());
    }
}
