//! [`Tensor`]: an imported tensor that may be strided or read-only.

use std::ops::Range;

use warpsmith_runtime::{
    DeviceBuffer, DeviceSlice, DeviceSlice2, DeviceSlice3, DeviceSliceMut, DeviceSliceMut2, DeviceSliceMut3,
    Result, Stream,
};

use super::layout::row_major;
use super::{DLDataType, DlpackError, Element};

/// An imported tensor in device memory, with a shape and strides. Pass views of the tensor to kernels.
///
/// ```
/// use warpsmith_interop::dlpack::{Export, Imported};
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let x = DeviceBuffer::from_host(&stream, &[1u8, 2, 3, 4, 5, 6])?;
/// // The last two columns of a 2 x 3 matrix.
/// let raw = Export::new(x).with_strides(1, &[2, 2], &[3, 1])?.into_raw();
/// // SAFETY: the tensor was just exported, and all work on it is on `stream`.
/// let mut tensor = unsafe { Imported::from_raw(raw.as_ptr()) }?.into_tensor(&stream)?;
/// assert_eq!((tensor.shape(), tensor.strides()), (&[2, 2][..], &[3, 1][..]));
/// let mut rows = DeviceBuffer::<u8>::zeros(&stream, 4)?;
/// stream.copy_rows(tensor.as_2d()?, rows.as_2d_mut(2, 2)?)?;
/// assert_eq!(rows.to_host()?, [2, 3, 5, 6]);
/// stream.copy_rows(rows.as_2d(2, 2)?, tensor.as_2d_mut()?)?;
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct Tensor {
    /// The memory from the first element to the last.
    buffer: DeviceBuffer<u8>,
    data_type: DLDataType,
    extents: Extents,
    is_read_only: bool,
}

/// Shape and strides of an imported tensor.
#[derive(Debug)]
pub(super) struct Extents {
    shape: Vec<usize>,
    strides: Vec<usize>,
    is_packed: bool,
}

impl Extents {
    /// Converts a checked shape and its strides.
    pub(super) fn new(shape: &[i64], strides: Option<&[i64]>, is_packed: bool) -> Self {
        let shape: Vec<usize> = shape.iter().map(|extent| *extent as usize).collect();
        let mut packed = row_major(&shape);
        // The strides of dimensions of size 1, and all strides of empty tensors, are arbitrary.
        if let Some(strides) = strides.filter(|_| !is_packed) {
            let used = (0..shape.len()).filter(|&dimension| shape[dimension] > 1);
            used.for_each(|dimension| packed[dimension] = strides[dimension] as usize);
        }
        Self { shape, strides: packed, is_packed }
    }
}

impl Tensor {
    pub(super) fn new(
        buffer: DeviceBuffer<u8>,
        data_type: DLDataType,
        extents: Extents,
        is_read_only: bool,
    ) -> Self {
        Self { buffer, data_type, extents, is_read_only }
    }

    /// Creates a contiguous tensor from the bytes of a buffer.
    ///
    /// # Errors
    /// Returns [`DlpackError::Shape`] if the shape does not match the size of the buffer, or [`DlpackError::Lanes`] or
    /// [`DlpackError::SubByte`] for an unsupported type. On error, the buffer is dropped.
    pub fn from_buffer(buffer: DeviceBuffer<u8>, data_type: DLDataType, shape: &[usize]) -> Result<Self> {
        data_type.check_whole()?;
        let bytes = usize::from(data_type.bits / 8);
        let product = shape.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent));
        if product.and_then(|elements| elements.checked_mul(bytes)) != Some(buffer.len()) {
            let (needed, len) = (product.unwrap_or(usize::MAX), buffer.len() / bytes);
            return Err(DlpackError::Shape { shape: shape.to_vec(), offset: 0, needed, len }.into());
        }
        let extents = Extents { shape: shape.to_vec(), strides: row_major(shape), is_packed: true };
        Ok(Self { buffer, data_type, extents, is_read_only: false })
    }

    /// Returns the parts that [`Export::from_tensor`](super::Export::from_tensor) needs.
    pub(super) fn into_parts(self) -> (DeviceBuffer<u8>, DLDataType, Vec<usize>, Vec<usize>, bool) {
        let Self { buffer, data_type, extents: Extents { shape, strides, .. }, is_read_only } = self;
        (buffer, data_type, shape, strides, is_read_only)
    }

    /// Swaps two dimensions without moving elements, like `torch.transpose`.
    ///
    /// ```
    /// # use warpsmith_interop::dlpack::{Element, Tensor};
    /// # use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    /// # let stream = Stream::new(&Device::emulated(0)?)?;
    /// let x = DeviceBuffer::from_host(&stream, &[1u8, 2, 3, 4, 5, 6])?;
    /// let mut x = Tensor::from_buffer(x, u8::DATA_TYPE, &[2, 3])?;
    /// x.swap_dimensions(0, 1);
    /// assert_eq!((x.shape(), x.strides()), (&[3, 2][..], &[1, 3][..]));
    /// assert!(x.as_slice::<u8>().is_err());
    /// x.swap_dimensions(0, 1);
    /// assert!(x.as_slice::<u8>().is_ok());
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Panics
    /// Panics if either dimension is out of range.
    pub fn swap_dimensions(&mut self, one: usize, other: usize) {
        let Extents { shape, strides, is_packed } = &mut self.extents;
        shape.swap(one, other);
        strides.swap(one, other);
        let packed = row_major(shape);
        *is_packed =
            shape.contains(&0) || (0..shape.len()).all(|at| shape[at] == 1 || strides[at] == packed[at]);
    }

    /// Returns the address range from the first element to the last.
    pub fn byte_range(&self) -> Range<u64> {
        let start = self.buffer.as_device_ptr().0;
        start..start + self.buffer.len() as u64
    }

    /// Returns the element type.
    pub fn data_type(&self) -> DLDataType {
        self.data_type
    }

    /// Returns the stream of the buffer.
    pub fn stream(&self) -> &Stream {
        self.buffer.stream()
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.extents.shape.iter().product()
    }

    /// Returns the shape.
    pub fn shape(&self) -> &[usize] {
        &self.extents.shape
    }

    /// Returns the strides in elements.
    pub fn strides(&self) -> &[usize] {
        &self.extents.strides
    }

    /// Returns true if the tensor is read-only.
    pub fn is_read_only(&self) -> bool {
        self.is_read_only
    }

    fn check_contiguous(&self) -> Result<()> {
        let Extents { shape, strides, is_packed } = &self.extents;
        if *is_packed {
            return Ok(());
        }
        let numbers = |numbers: &[usize]| numbers.iter().map(|number| *number as i64).collect();
        Err(DlpackError::NotContiguous { shape: numbers(shape), strides: numbers(strides) }.into())
    }

    fn check_writable(&self) -> Result<()> {
        if self.is_read_only { Err(DlpackError::ReadOnly.into()) } else { Ok(()) }
    }

    /// Returns all elements in memory order, including the gaps between them.
    fn elements_as<T: Element>(&self) -> Result<DeviceSlice<'_, T>> {
        self.data_type.check(T::DATA_TYPE)?;
        self.buffer.as_slice().cast()
    }

    /// Like [`Self::elements_as`], but returns a mutable slice.
    fn elements_as_mut<T: Element>(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        self.data_type.check(T::DATA_TYPE)?;
        self.buffer.as_mut_slice().cast()
    }

    /// Returns the elements of a contiguous tensor as a slice.
    ///
    /// # Errors
    /// Returns [`DlpackError::NotContiguous`], or [`DlpackError::DataType`] if `T` is not the element type.
    pub fn as_slice<T: Element>(&self) -> Result<DeviceSlice<'_, T>> {
        self.check_contiguous()?;
        self.elements_as()
    }

    /// Returns the elements of a contiguous tensor as a mutable slice.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::as_slice`], or [`DlpackError::ReadOnly`].
    pub fn as_mut_slice<T: Element>(&mut self) -> Result<DeviceSliceMut<'_, T>> {
        self.check_writable()?;
        self.check_contiguous()?;
        self.elements_as_mut()
    }

    /// Returns the buffer of a contiguous tensor.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::as_mut_slice`]. On error, the tensor is dropped.
    pub fn into_buffer<T: Element>(self) -> Result<DeviceBuffer<T>> {
        self.data_type.check(T::DATA_TYPE)?;
        self.check_contiguous()?;
        self.check_writable()?;
        self.buffer.cast()
    }

    /// Returns the shape and strides of an `N`-dimensional view, whose last stride is 1. Each stride of a view is at
    /// least as large as in contiguous order, even for dimensions of size 1.
    fn view<const N: usize>(&self) -> Result<([usize; N], [usize; N])> {
        let Extents { shape, strides: found, .. } = &self.extents;
        let rank = DlpackError::Rank { found: shape.len(), expected: N };
        let Ok(shape) = <[usize; N]>::try_from(&shape[..]) else { return Err(rank.into()) };
        let mut strides = [1usize; N];
        for dimension in (0..N).rev() {
            let packed =
                shape.get(dimension + 1).map_or(1, |&rows| strides[dimension + 1].saturating_mul(rows));
            strides[dimension] = match shape[dimension] {
                2.. if !shape.contains(&0) => found[dimension],
                _ => packed,
            };
        }
        match strides[N - 1] {
            1 => Ok((shape, strides)),
            stride => Err(DlpackError::ColumnStride { stride }.into()),
        }
    }

    /// Returns a two-dimensional tensor as a view of rows.
    ///
    /// # Errors
    /// Returns [`DlpackError::Rank`] for a different number of dimensions, [`DlpackError::ColumnStride`] if the last
    /// stride is not 1, [`DlpackError::DataType`], or the same errors as [`DeviceSlice::as_2d_strided`].
    pub fn as_2d<T: Element>(&self) -> Result<DeviceSlice2<'_, T>> {
        let ([rows, columns], [row_stride, _]) = self.view()?;
        self.elements_as()?.as_2d_strided(rows, columns, row_stride)
    }

    /// Returns a two-dimensional tensor as a mutable view of rows.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::as_2d`], or [`DlpackError::ReadOnly`].
    pub fn as_2d_mut<T: Element>(&mut self) -> Result<DeviceSliceMut2<'_, T>> {
        self.check_writable()?;
        let ([rows, columns], [row_stride, _]) = self.view()?;
        self.elements_as_mut()?.into_2d_strided(rows, columns, row_stride)
    }

    /// Returns a three-dimensional tensor as a view of planes.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::as_2d`] or [`DeviceSlice::as_3d_strided`].
    pub fn as_3d<T: Element>(&self) -> Result<DeviceSlice3<'_, T>> {
        let (shape, [plane_stride, row_stride, _]) = self.view()?;
        self.elements_as()?.as_3d_strided(shape, [plane_stride, row_stride])
    }

    /// Returns a three-dimensional tensor as a mutable view of planes.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::as_3d`], or [`DlpackError::ReadOnly`].
    pub fn as_3d_mut<T: Element>(&mut self) -> Result<DeviceSliceMut3<'_, T>> {
        self.check_writable()?;
        let (shape, [plane_stride, row_stride, _]) = self.view()?;
        self.elements_as_mut()?.into_3d_strided(shape, [plane_stride, row_stride])
    }
}
