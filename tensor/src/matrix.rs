//! [`Matrix`] and [`MatrixMut`]: views of rows, or of planes of rows, as matrices to multiply.

use warpsmith_runtime::{
    DeviceCopy, DeviceSlice, DeviceSlice2, DeviceSlice3, DeviceSliceMut, DeviceSliceMut2, DeviceSliceMut3,
    Result,
};

use crate::error::TensorError;

/// How matrices lie in memory, row by row. All figures are in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stored {
    /// Elements of a row.
    pub width: usize,
    /// Rows of a plane.
    pub height: usize,
    /// Matrices.
    pub planes: usize,
    /// From one row to the next.
    pub pitch: usize,
    /// From one matrix to the next.
    pub plane: usize,
}

/// A matrix, or a batch of them, to read: rows by [`From`] a view, columns by [`Self::transposed`].
///
/// ```
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// use warpsmith_runtime::{Device, DeviceBuffer};
/// use warpsmith_tensor::Matrix;
///
/// let stream = Device::emulated(0)?.default_stream();
/// let weights = DeviceBuffer::<f32>::zeros(&stream, 12)?;
/// // Three rows of four.
/// let matrix = Matrix::from(weights.as_2d(4, 3)?);
/// assert_eq!((matrix.rows(), matrix.columns(), matrix.planes()), (3, 4, 1));
/// assert_eq!((matrix.transposed().rows(), matrix.transposed().columns()), (4, 3));
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy)]
pub struct Matrix<'a, T: DeviceCopy> {
    pub(crate) elements: DeviceSlice<'a, T>,
    pub(crate) stored: Stored,
    pub(crate) is_transposed: bool,
}

/// A matrix, or a batch of them, to write, row by row.
#[derive(Debug)]
pub struct MatrixMut<'a, T: DeviceCopy> {
    pub(crate) elements: DeviceSliceMut<'a, T>,
    pub(crate) stored: Stored,
}

impl<'a, T: DeviceCopy> Matrix<'a, T> {
    /// The transpose, in the same memory.
    #[must_use]
    pub fn transposed(self) -> Self {
        Self { is_transposed: !self.is_transposed, ..self }
    }

    /// Rows, as it is read.
    pub fn rows(&self) -> usize {
        if self.is_transposed { self.stored.width } else { self.stored.height }
    }

    /// Columns, as it is read.
    pub fn columns(&self) -> usize {
        if self.is_transposed { self.stored.height } else { self.stored.width }
    }

    /// Matrices of the batch.
    pub fn planes(&self) -> usize {
        self.stored.planes
    }

    /// Whether it is the transpose of what lies in memory row by row.
    pub fn is_transposed(&self) -> bool {
        self.is_transposed
    }

    /// Elements from the beginning of a row in memory to that of the next.
    pub fn pitch(&self) -> usize {
        self.stored.pitch
    }

    /// Elements from the beginning of a matrix to that of the next.
    pub fn plane_stride(&self) -> usize {
        self.stored.plane
    }

    /// The elements from the first to the last, with those between rows.
    pub fn elements(&self) -> DeviceSlice<'a, T> {
        self.elements
    }
}

impl<'a, T: DeviceCopy> MatrixMut<'a, T> {
    /// Rows.
    pub fn rows(&self) -> usize {
        self.stored.height
    }

    /// Columns.
    pub fn columns(&self) -> usize {
        self.stored.width
    }

    /// Matrices of the batch.
    pub fn planes(&self) -> usize {
        self.stored.planes
    }

    /// Elements from the beginning of a row to that of the next.
    pub fn pitch(&self) -> usize {
        self.stored.pitch
    }

    /// Elements from the beginning of a matrix to that of the next.
    pub fn plane_stride(&self) -> usize {
        self.stored.plane
    }

    /// The elements from the first to the last, with those between rows, to write.
    pub fn into_elements(self) -> DeviceSliceMut<'a, T> {
        self.elements
    }

    /// The same, borrowed for a shorter time.
    pub fn reborrow(&mut self) -> MatrixMut<'_, T> {
        MatrixMut { elements: self.elements.reborrow(), stored: self.stored }
    }
}

macro_rules! stored_2 {
    ($view:expr) => {{
        let view = &$view;
        Stored {
            width: view.width(),
            height: view.height(),
            planes: 1,
            pitch: view.pitch(),
            plane: view.pitch() * view.height(),
        }
    }};
}

macro_rules! stored_3 {
    ($view:expr) => {{
        let view = &$view;
        Stored {
            width: view.width(),
            height: view.height(),
            planes: view.depth(),
            pitch: view.pitch(),
            plane: view.pitch() * view.rows(),
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

/// Fails for rows that begin where kernels cannot read or write them.
pub(crate) fn check_rows<T: DeviceCopy>(
    operation: &'static str,
    matrix: &'static str,
    elements: DeviceSlice<'_, T>,
    stored: Stored,
) -> Result<()> {
    let address = elements.as_device_ptr().0;
    for (count, stride) in [(stored.height, stored.pitch), (stored.planes, stored.plane)] {
        let bytes = stride * size_of::<T>();
        if !address.is_multiple_of(16) || (!bytes.is_multiple_of(16) && count > 1) {
            return Err(TensorError::Alignment { operation, matrix, bytes, address }.into());
        }
    }
    Ok(())
}

/// Fails for matrices that are no product.
pub(crate) fn check_sides<T: DeviceCopy, C: DeviceCopy>(
    operation: &'static str,
    a: &Matrix<'_, T>,
    b: &Matrix<'_, T>,
    c: &MatrixMut<'_, C>,
) -> Result<()> {
    let of_all = |planes| planes == c.planes() || planes == 1;
    let sides = (a.rows(), b.rows(), b.columns());
    if sides == (c.rows(), a.columns(), c.columns()) && of_all(a.planes()) && of_all(b.planes()) {
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
