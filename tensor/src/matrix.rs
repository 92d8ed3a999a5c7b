//! [`Matrix`] and [`MatrixMut`]: 2-D and 3-D views as GEMM operands.

use warpsmith_runtime::{
    DeviceCopy, DeviceSlice, DeviceSlice2, DeviceSlice3, DeviceSliceMut, DeviceSliceMut2, DeviceSliceMut3,
    Result,
};

use crate::error::TensorError;

/// Sizes and strides of row-major matrices in memory, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Number of matrices.
    pub planes: usize,
    /// Number of rows per matrix.
    pub rows: usize,
    /// Number of elements per row.
    pub columns: usize,
    /// Plane stride, in elements.
    pub plane_stride: usize,
    /// Row stride, in elements.
    pub row_stride: usize,
}

/// Read-only matrix or batch of matrices. [`From`] a view creates a row-major matrix; [`Self::transposed`] turns it
/// into a column-major one.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
/// use warpsmith_tensor::Matrix;
///
/// let stream = Device::emulated(0)?.default_stream();
/// let weights = DeviceBuffer::<f32>::zeros(&stream, 12)?;
/// // Three rows of four.
/// let matrix = Matrix::from(weights.as_2d(3, 4)?);
/// assert_eq!((matrix.rows(), matrix.columns(), matrix.planes()), (3, 4, 1));
/// assert_eq!((matrix.transposed().rows(), matrix.transposed().columns()), (4, 3));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T: DeviceCopy> {
    pub(crate) elements: DeviceSlice<'a, T>,
    pub(crate) stored: Stored,
    pub(crate) is_transposed: bool,
}

/// Writable row-major matrix or batch of matrices.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
/// use warpsmith_tensor::MatrixMut;
///
/// let stream = Device::emulated(0)?.default_stream();
/// let mut c = DeviceBuffer::<f32>::zeros(&stream, 24)?;
/// // Two matrices of three rows of four.
/// let batch = MatrixMut::from(c.as_3d_mut(2, 3, 4)?);
/// assert_eq!((batch.planes(), batch.rows(), batch.columns()), (2, 3, 4));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct MatrixMut<'a, T: DeviceCopy> {
    pub(crate) elements: DeviceSliceMut<'a, T>,
    pub(crate) stored: Stored,
}

impl<'a, T: DeviceCopy> Matrix<'a, T> {
    /// Transposes the matrix without moving data.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { is_transposed: !self.is_transposed, ..self }
    }

    /// Returns the number of rows. For a transposed matrix, this is the number of columns in memory.
    pub fn rows(&self) -> usize {
        if self.is_transposed { self.stored.columns } else { self.stored.rows }
    }

    /// Returns the number of columns. For a transposed matrix, this is the number of rows in memory.
    pub fn columns(&self) -> usize {
        if self.is_transposed { self.stored.rows } else { self.stored.columns }
    }

    /// Returns the number of matrices in the batch.
    pub fn planes(&self) -> usize {
        self.stored.planes
    }

    /// Returns whether the matrix is the transpose of the row-major data in memory.
    pub fn is_transposed(&self) -> bool {
        self.is_transposed
    }

    /// Returns the row stride in memory, in elements.
    pub fn row_stride(&self) -> usize {
        self.stored.row_stride
    }

    /// Returns the plane stride, in elements.
    pub fn plane_stride(&self) -> usize {
        self.stored.plane_stride
    }

    /// Returns the elements from the first to the last, including gaps between rows.
    pub fn elements(&self) -> DeviceSlice<'a, T> {
        self.elements
    }
}

impl<'a, T: DeviceCopy> MatrixMut<'a, T> {
    /// Returns the number of rows.
    pub fn rows(&self) -> usize {
        self.stored.rows
    }

    /// Returns the number of columns.
    pub fn columns(&self) -> usize {
        self.stored.columns
    }

    /// Returns the number of matrices in the batch.
    pub fn planes(&self) -> usize {
        self.stored.planes
    }

    /// Returns the row stride, in elements.
    pub fn row_stride(&self) -> usize {
        self.stored.row_stride
    }

    /// Returns the plane stride, in elements.
    pub fn plane_stride(&self) -> usize {
        self.stored.plane_stride
    }

    /// Returns the elements from the first to the last, including gaps between rows, as a writable slice.
    pub fn into_elements(self) -> DeviceSliceMut<'a, T> {
        self.elements
    }

    /// Reborrows the matrix for a shorter lifetime.
    pub fn reborrow(&mut self) -> MatrixMut<'_, T> {
        MatrixMut { elements: self.elements.reborrow(), stored: self.stored }
    }
}

macro_rules! stored_2 {
    ($view:expr) => {{
        let view = &$view;
        let (rows, columns, row_stride) = (view.rows(), view.columns(), view.row_stride());
        Stored { planes: 1, rows, columns, plane_stride: rows * row_stride, row_stride }
    }};
}

macro_rules! stored_3 {
    ($view:expr) => {{
        let view = &$view;
        Stored {
            planes: view.planes(),
            rows: view.rows(),
            columns: view.columns(),
            plane_stride: view.plane_stride(),
            row_stride: view.row_stride(),
        }
    }};
}

macro_rules! from_views {
    ($($read:ident, $write:ident: $stored:ident;)*) => { $(
        impl<'a, T: DeviceCopy> From<$read<'a, T>> for Matrix<'a, T> {
            fn from(view: $read<'a, T>) -> Self {
                Self { elements: view.elements(), stored: $stored!(view), is_transposed: false }
            }
        }

        impl<'a, T: DeviceCopy> From<&$read<'a, T>> for Matrix<'a, T> {
            fn from(view: &$read<'a, T>) -> Self {
                Self::from(*view)
            }
        }

        impl<'a, T: DeviceCopy> From<$write<'a, T>> for MatrixMut<'a, T> {
            fn from(view: $write<'a, T>) -> Self {
                let stored = $stored!(view);
                Self { elements: view.into_elements(), stored }
            }
        }

        impl<'a, T: DeviceCopy> From<&'a mut $write<'_, T>> for MatrixMut<'a, T> {
            fn from(view: &'a mut $write<'_, T>) -> Self {
                Self::from(view.reborrow())
            }
        }
    )* };
}

from_views! {
    DeviceSlice2, DeviceSliceMut2: stored_2;
    DeviceSlice3, DeviceSliceMut3: stored_3;
}

/// Fails if the address or a stride is not aligned as the kernels require.
pub(crate) fn check_rows<T: DeviceCopy>(
    operation: &'static str,
    matrix: &'static str,
    elements: DeviceSlice<'_, T>,
    stored: Stored,
) -> Result<()> {
    let address = elements.as_device_ptr().0;
    for (count, stride) in [(stored.rows, stored.row_stride), (stored.planes, stored.plane_stride)] {
        let bytes = stride * size_of::<T>();
        if !address.is_multiple_of(16) || (!bytes.is_multiple_of(16) && count > 1) {
            return Err(TensorError::Alignment { operation, matrix, bytes, address }.into());
        }
    }
    Ok(())
}

/// Returns whether tensor cores multiply the elements in the layouts of `a` and `b`. Only 16-bit elements can be
/// transposed on their way from shared memory.
pub(crate) fn has_layout<T: DeviceCopy>(a: &Matrix<'_, T>, b: &Matrix<'_, T>) -> bool {
    size_of::<T>() == 2 || !a.is_transposed && b.is_transposed
}

/// Fails if the shapes of the matrices do not match.
pub(crate) fn check_sides<T: DeviceCopy, C: DeviceCopy>(
    operation: &'static str,
    a: &Matrix<'_, T>,
    b: &Matrix<'_, T>,
    c: &MatrixMut<'_, C>,
    columns_of_b: usize,
) -> Result<()> {
    let of_all = |planes| planes == c.planes() || planes == 1;
    let sides = (a.rows(), b.rows(), b.columns());
    if sides == (c.rows(), a.columns(), columns_of_b) && of_all(a.planes()) && of_all(b.planes()) {
        return Ok(());
    }
    let sides = |name: &str, rows, columns, planes| match planes {
        1 => format!("{name} is {rows} x {columns}"),
        _ => format!("{name} is {planes} matrices of {rows} x {columns}"),
    };
    let what = [
        sides("a", a.rows(), a.columns(), a.planes()),
        sides("b", b.rows(), b.columns(), b.planes()),
        sides("c", c.rows(), c.columns(), c.planes()),
    ];
    Err(TensorError::Shape { operation, what: what.join(", ") }.into())
}
