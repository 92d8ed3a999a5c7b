//! [`Tensor`]: an imported tensor with strides, or for reading only.

use warpsmith_runtime::{
    DeviceBuffer, DeviceSlice, DeviceSlice2, DeviceSlice3, DeviceSliceMut, DeviceSliceMut2, DeviceSliceMut3,
    Result,
};

use super::layout::row_major;
use super::{DlpackError, Element};

/// An imported tensor: elements in device memory, with a shape and strides. Views of it are arguments of kernels.
///
/// ```
/// use warpsmith_interop::dlpack::{Export, Imported};
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1u8, 2, 3, 4, 5, 6])?;
/// // The last two columns of two rows of three.
/// let raw = Export::new(x).with_strides(1, &[2, 2], &[3, 1])?.into_raw();
/// // SAFETY: the tensor was just exported, and all work on it is on `stream`.
/// let mut tensor = unsafe { Imported::from_raw(raw.as_ptr()) }?.into_tensor::<u8>(&stream)?;
/// assert_eq!((tensor.shape(), tensor.strides()), (&[2, 2][..], &[3, 1][..]));
/// let mut rows = DeviceBuffer::zeros(&stream, 4)?;
/// stream.copy_rows(tensor.as_2d()?, rows.as_2d_mut(2, 2)?)?;
/// assert_eq!(rows.to_host()?, [2, 3, 5, 6]);
/// stream.copy_rows(rows.as_2d(2, 2)?, tensor.as_2d_mut()?)?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Tensor<T: Element> {
    /// From the first element to the last.
    buffer: DeviceBuffer<T>,
    shape: Vec<usize>,
    strides: Vec<usize>,
    is_packed: bool,
    is_read_only: bool,
}

impl<T: Element> Tensor<T> {
    /// Makes a tensor of checked extents and strides.
    pub(super) fn new(
        buffer: DeviceBuffer<T>,
        shape: &[i64],
        strides: Option<&[i64]>,
        is_packed: bool,
        is_read_only: bool,
    ) -> Self {
        let shape: Vec<usize> = shape.iter().map(|extent| *extent as usize).collect();
        let packed = row_major(&shape);
        // The strides of dimensions with one element, and of tensors without any, may be anything.
        let is_used = |dimension: usize| shape[dimension] > 1 && !shape.contains(&0);
        let strides = strides.map_or(packed.clone(), |strides| {
            let stride = |dimension| match is_used(dimension) {
                true => strides[dimension] as usize,
                false => packed[dimension],
            };
            (0..shape.len()).map(stride).collect()
        });
        Self { buffer, shape, strides, is_packed, is_read_only }
    }

    /// Extents.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Strides, in elements.
    pub fn strides(&self) -> &[usize] {
        &self.strides
    }

    /// Returns true if the tensor can only be read.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn check_contiguous(&self) -> Result<()> {
        if self.is_packed {
            return Ok(());
        }
        let numbers = |numbers: &[usize]| numbers.iter().map(|number| *number as i64).collect();
        Err(DlpackError::NotContiguous { shape: numbers(&self.shape), strides: numbers(&self.strides) }
            .into())
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only { Err(DlpackError::ReadOnly.into()) } else { Ok(()) }
    }

    /// Returns the elements of a contiguous tensor, for reading.
    ///
    /// # Errors
    /// [`DlpackError::NotContiguous`].
    pub fn as_slice(&self) -> Result<DeviceSlice<'_, T>> {
        self.check_contiguous()?;
        Ok(self.buffer.as_slice())
    }

    /// Returns the elements of a contiguous tensor, for writing.
    ///
    /// # Errors
    /// [`DlpackError::NotContiguous`], [`DlpackError::ReadOnly`].
    pub fn as_mut_slice(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        self.check_contiguous()?;
        self.check_writable()?;
        Ok(self.buffer.as_mut_slice())
    }

    /// Returns the buffer of a contiguous tensor.
    ///
    /// # Errors
    /// [`DlpackError::NotContiguous`], [`DlpackError::ReadOnly`]; the tensor is then dropped.
    pub fn into_buffer(self) -> Result<DeviceBuffer<T>> {
        self.check_contiguous()?;
        self.check_writable()?;
        Ok(self.buffer)
    }

    /// Returns the extents and strides of a view of `N` dimensions, whose last one has stride 1. A view's strides cannot
    /// be below those without gaps, also where a dimension has one element.
    fn view<const N: usize>(&self) -> Result<([usize; N], [usize; N])> {
        let rank = DlpackError::Rank { found: self.shape.len(), expected: N };
        let Ok(shape) = <[usize; N]>::try_from(&self.shape[..]) else { return Err(rank.into()) };
        let mut strides = [1usize; N];
        for dimension in (0..N).rev() {
            let packed =
                shape.get(dimension + 1).map_or(1, |&rows| strides[dimension + 1].saturating_mul(rows));
            strides[dimension] = match shape[dimension] {
                2.. if !shape.contains(&0) => self.strides[dimension],
                _ => packed,
            };
        }
        match strides[N - 1] {
            1 => Ok((shape, strides)),
            stride => Err(DlpackError::ColumnStride { stride }.into()),
        }
    }

    /// Returns a tensor of two dimensions as rows, for reading.
    ///
    /// # Errors
    /// [`DlpackError::Rank`], [`DlpackError::ColumnStride`]; as [`DeviceSlice::as_2d_strided`].
    pub fn as_2d(&self) -> Result<DeviceSlice2<'_, T>> {
        let ([rows, columns], [row_stride, _]) = self.view()?;
        self.buffer.as_2d_strided(rows, columns, row_stride)
    }

    /// Returns a tensor of two dimensions as rows, for writing.
    ///
    /// # Errors
    /// As [`Self::as_2d`]; [`DlpackError::ReadOnly`].
    pub fn as_2d_mut(&mut self) -> Result<DeviceSliceMut2<'_, T>> {
        self.check_writable()?;
        let ([rows, columns], [row_stride, _]) = self.view()?;
        self.buffer.as_2d_strided_mut(rows, columns, row_stride)
    }

    /// Returns a tensor of three dimensions as planes of rows, for reading.
    ///
    /// # Errors
    /// As [`Self::as_2d`]; as [`DeviceSlice::as_3d_strided`].
    pub fn as_3d(&self) -> Result<DeviceSlice3<'_, T>> {
        let (shape, [plane_stride, row_stride, _]) = self.view()?;
        self.buffer.as_3d_strided(shape, [plane_stride, row_stride])
    }

    /// Returns a tensor of three dimensions as planes of rows, for writing.
    ///
    /// # Errors
    /// As [`Self::as_3d`]; [`DlpackError::ReadOnly`].
    pub fn as_3d_mut(&mut self) -> Result<DeviceSliceMut3<'_, T>> {
        self.check_writable()?;
        let (shape, [plane_stride, row_stride, _]) = self.view()?;
        self.buffer.as_3d_strided_mut(shape, [plane_stride, row_stride])
    }
}
