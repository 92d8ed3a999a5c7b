//! 2-D and 3-D views of a buffer's elements: [`DeviceSlice2`] and [`DeviceSlice3`] for reading, [`DeviceSliceMut2`] and
//! [`DeviceSliceMut3`] for writing. They are arguments for kernel parameters such as `Slice2<T>` and `DisjointMut2<T>`,
//! and borrow the buffer like slices. [`Stream::copy_rows`](crate::Stream::copy_rows) copies between views.
//!
//! ```
//! let stream = warpsmith_runtime::Device::emulated(0)?.default_stream();
//! let mut image = warpsmith_runtime::DeviceBuffer::<f32>::zeros(&stream, 480 * 640)?;
//! let view = image.as_2d(480, 640)?;
//! assert_eq!((view.rows(), view.columns(), view.row_stride()), (480, 640, 640));
//! // All elements except the border.
//! let inner = image.as_2d_mut(480, 640)?.into_part(1..479, 1..639);
//! assert_eq!((inner.rows(), inner.columns(), inner.row_stride()), (478, 638, 640));
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

use std::fmt;
use std::ops::RangeBounds;

use gpu_spec::{Extents2, Extents3};

use super::slice::resolve_or_panic;
use super::{DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSliceMut};
use crate::device::Device;
use crate::driver::DevicePtr;
use crate::error::{Error, Result};

/// A read-only 2-D view of a buffer's elements, passed to a kernel's `Slice2<T>` parameter.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let buffer = DeviceBuffer::from_host(&stream, &[1u32, 2, 3, 4, 5, 6])?;
/// let view = buffer.as_2d(2, 3)?;
/// let last = view.part(1.., ..);
/// assert_eq!((last.rows(), last.columns(), last.row_stride()), (1, 3, 3));
/// assert_eq!(last.to_host()?, [4, 5, 6]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct DeviceSlice2<'a, T: DeviceCopy> {
    /// The range from the first to the last element of the view.
    elements: DeviceSlice<'a, T>,
    extents: Extents2,
}

/// A mutable 2-D view of a buffer's elements, passed to a kernel's `DisjointMut2<T>` parameter. No other code can
/// access the elements while the view exists.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let (x, mut y) = (DeviceBuffer::from_host(&stream, &[1u8, 2])?, DeviceBuffer::zeros(&stream, 6)?);
/// // The last column of a 2 x 3 view.
/// let column = y.as_2d_mut(2, 3)?.into_part(.., 2..);
/// stream.copy_rows(x.as_2d(2, 1)?, column)?;
/// assert_eq!(y.to_host()?, [0, 0, 1, 0, 0, 2]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct DeviceSliceMut2<'a, T: DeviceCopy> {
    /// The range from the first to the last element of the view.
    elements: DeviceSliceMut<'a, T>,
    extents: Extents2,
}

/// A read-only 3-D view (planes of rows) of a buffer's elements, passed to a kernel's `Slice3<T>` parameter.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let buffer = DeviceBuffer::from_host(&stream, &[1u32, 2, 3, 4, 5, 6])?;
/// // Three planes, each with one row of two elements.
/// let view = buffer.as_3d(3, 1, 2)?;
/// assert_eq!((view.planes(), view.rows(), view.columns(), view.plane_stride()), (3, 1, 2, 2));
/// assert_eq!(view.plane(1).to_host()?, [3, 4]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct DeviceSlice3<'a, T: DeviceCopy> {
    /// The range from the first to the last element of the view.
    elements: DeviceSlice<'a, T>,
    extents: Extents3,
}

/// A mutable 3-D view of a buffer's elements, passed to a kernel's `DisjointMut3<T>` parameter. No other code can
/// access the elements while the view exists.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let mut buffer = DeviceBuffer::<u32>::zeros(&stream, 12)?;
/// // Two planes, each with two rows of two elements, with a row stride of three.
/// let view = buffer.as_3d_strided_mut([2, 2, 2], [6, 3])?;
/// assert_eq!((view.planes(), view.rows(), view.columns()), (2, 2, 2));
/// assert_eq!((view.plane_stride(), view.row_stride()), (6, 3));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct DeviceSliceMut3<'a, T: DeviceCopy> {
    /// The range from the first to the last element of the view.
    elements: DeviceSliceMut<'a, T>,
    extents: Extents3,
}

/// Creates the error for invalid extents of a view.
#[cold]
fn bad(sides: &[usize], len: usize, reason: String) -> Error {
    let sides: Vec<String> = sides.iter().map(usize::to_string).collect();
    Error::BadExtents { extents: sides.join(" x "), len, reason }
}

const TOO_LARGE: &str = "an extent or stride exceeds 2^31 - 1; use a slice, or views of parts";

/// Checks that the product of the dimensions equals the length. A single dimension may still exceed the limit.
fn check_len(sides: &[usize], len: usize) -> Result<()> {
    let product = sides.iter().try_fold(1usize, |product, side| product.checked_mul(*side));
    match product {
        Some(product) if product == len => Ok(()),
        Some(product) => Err(bad(
            sides,
            len,
            format!(
                "the extents have {product} elements; use extents that cover the whole slice, or view a part of \
                     it"
            ),
        )),
        None => Err(bad(sides, len, TOO_LARGE.to_owned())),
    }
}

/// Computes the extents of a 2-D view in `len` elements.
pub(crate) fn extents_2(rows: usize, columns: usize, row_stride: usize, len: usize) -> Result<Extents2> {
    let bad = |reason: String| bad(&[rows, columns], len, reason);
    if row_stride < columns {
        return Err(bad(format!(
            "the row stride of {row_stride} is smaller than the number of columns, so rows overlap"
        )));
    }
    let extents = Extents2::new(rows, columns, row_stride).ok_or_else(|| bad(TOO_LARGE.to_owned()))?;
    match extents.span() {
        span if span <= len => Ok(extents),
        span => Err(bad(format!("with a row stride of {row_stride} the last row ends at element {span}"))),
    }
}

/// Computes the extents of a 3-D view in `len` elements.
fn extents_3(shape: [usize; 3], strides: [usize; 2], len: usize) -> Result<Extents3> {
    let ([_, rows, columns], [plane_stride, row_stride]) = (shape, strides);
    let bad = |reason: String| bad(&shape, len, reason);
    if row_stride < columns {
        return Err(bad(format!(
            "the row stride of {row_stride} is smaller than the number of columns, so rows overlap"
        )));
    }
    if plane_stride.checked_rem(row_stride).unwrap_or(plane_stride) != 0 {
        let reason =
            format!("the plane stride of {plane_stride} is not a multiple of the row stride of {row_stride}");
        return Err(bad(reason));
    }
    if plane_stride < rows.saturating_mul(row_stride) {
        let reason = format!(
            "the plane stride of {plane_stride} is smaller than {rows} rows with a stride of {row_stride}, so planes \
             overlap"
        );
        return Err(bad(reason));
    }
    let too_large = "an extent or stride exceeds 2^31 - 1 elements or rows, or there are 2^32 or more rows";
    let extents = Extents3::new(shape, strides).ok_or_else(|| bad(too_large.to_owned()))?;
    match extents.span() {
        span if span <= len => Ok(extents),
        span => Err(bad(format!(
            "with strides of {plane_stride} and {row_stride} the last row ends at element {span}"
        ))),
    }
}

/// Returns the strides of a 3-D view without padding. The product cannot overflow for a valid shape.
fn packed([_, rows, columns]: [usize; 3]) -> [usize; 2] {
    [rows.saturating_mul(columns), columns]
}

impl<'a, T: DeviceCopy> DeviceSlice<'a, T> {
    /// Views all elements as `rows` rows of `columns` elements.
    ///
    /// # Errors
    /// Returns [`Error::BadExtents`] if `rows * columns` differs from the number of elements, or if a dimension exceeds
    /// 2^31 - 1.
    pub fn as_2d(&self, rows: usize, columns: usize) -> Result<DeviceSlice2<'a, T>> {
        check_len(&[rows, columns], self.len())?;
        self.as_2d_strided(rows, columns, columns)
    }

    /// Views the elements as `rows` rows of `columns` elements, starting at the first element. `row_stride` is the
    /// leading dimension, in elements. Elements between rows and after the last row are not part of the view.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let buffer = DeviceBuffer::from_host(&stream, &[1u8, 2, 0, 3, 4])?;
    /// // Two rows of two elements, with one padding element between them.
    /// let view = buffer.as_slice().as_2d_strided(2, 2, 3)?;
    /// let mut rows = DeviceBuffer::uninit(&stream, 4)?;
    /// stream.copy_rows(view, rows.as_2d_mut(2, 2)?)?;
    /// assert_eq!(rows.to_host()?, [1, 2, 3, 4]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::BadExtents`] if the last row extends past the last element, if the row stride is less than the
    /// number of columns, or if a dimension exceeds 2^31 - 1.
    pub fn as_2d_strided(
        &self,
        rows: usize,
        columns: usize,
        row_stride: usize,
    ) -> Result<DeviceSlice2<'a, T>> {
        let extents = extents_2(rows, columns, row_stride, self.len())?;
        Ok(DeviceSlice2 { elements: self.slice(..extents.span()), extents })
    }

    /// Views all elements as `planes` planes of `rows` rows of `columns` elements.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::as_2d`], and [`Error::BadExtents`] if the view has 2^32 rows or more.
    pub fn as_3d(&self, planes: usize, rows: usize, columns: usize) -> Result<DeviceSlice3<'a, T>> {
        check_len(&[planes, rows, columns], self.len())?;
        self.as_3d_strided([planes, rows, columns], packed([planes, rows, columns]))
    }

    /// Views the elements as planes of rows, starting at the first element. `shape` is the number of planes, rows and
    /// columns; `strides` are the plane stride and the row stride, in elements.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::as_2d_strided`], and [`Error::BadExtents`] if planes overlap, if the plane
    /// stride is not a multiple of the row stride, or if the view has 2^32 rows or more.
    pub fn as_3d_strided(&self, shape: [usize; 3], strides: [usize; 2]) -> Result<DeviceSlice3<'a, T>> {
        let extents = extents_3(shape, strides, self.len())?;
        Ok(DeviceSlice3 { elements: self.slice(..extents.span()), extents })
    }
}

impl<'a, T: DeviceCopy> DeviceSliceMut<'a, T> {
    /// Views all elements as rows, for writing, like [`DeviceSlice::as_2d`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_2d`].
    pub fn as_2d_mut(&mut self, rows: usize, columns: usize) -> Result<DeviceSliceMut2<'_, T>> {
        self.reborrow().into_2d(rows, columns)
    }

    /// Like [`Self::as_2d_mut`], but the view has the slice's full lifetime.
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_2d`].
    pub fn into_2d(self, rows: usize, columns: usize) -> Result<DeviceSliceMut2<'a, T>> {
        check_len(&[rows, columns], self.len())?;
        self.into_2d_strided(rows, columns, columns)
    }

    /// Views the elements as rows with a stride, for writing, like [`DeviceSlice::as_2d_strided`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_2d_strided`].
    pub fn as_2d_strided_mut(
        &mut self,
        rows: usize,
        columns: usize,
        row_stride: usize,
    ) -> Result<DeviceSliceMut2<'_, T>> {
        self.reborrow().into_2d_strided(rows, columns, row_stride)
    }

    /// Like [`Self::as_2d_strided_mut`], but the view has the slice's full lifetime.
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_2d_strided`].
    pub fn into_2d_strided(
        self,
        rows: usize,
        columns: usize,
        row_stride: usize,
    ) -> Result<DeviceSliceMut2<'a, T>> {
        let extents = extents_2(rows, columns, row_stride, self.len())?;
        Ok(DeviceSliceMut2 { elements: self.into_slice(..extents.span()), extents })
    }

    /// Views all elements as planes of rows, for writing, like [`DeviceSlice::as_3d`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_3d`].
    pub fn as_3d_mut(
        &mut self,
        planes: usize,
        rows: usize,
        columns: usize,
    ) -> Result<DeviceSliceMut3<'_, T>> {
        self.reborrow().into_3d([planes, rows, columns])
    }

    fn into_3d(self, shape: [usize; 3]) -> Result<DeviceSliceMut3<'a, T>> {
        check_len(&shape, self.len())?;
        self.into_3d_strided(shape, packed(shape))
    }

    /// Views the elements as planes of rows with strides, for writing, like [`DeviceSlice::as_3d_strided`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_3d_strided`].
    pub fn as_3d_strided_mut(
        &mut self,
        shape: [usize; 3],
        strides: [usize; 2],
    ) -> Result<DeviceSliceMut3<'_, T>> {
        self.reborrow().into_3d_strided(shape, strides)
    }

    /// Like [`Self::as_3d_strided_mut`], but the view has the slice's full lifetime.
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_3d_strided`].
    pub fn into_3d_strided(self, shape: [usize; 3], strides: [usize; 2]) -> Result<DeviceSliceMut3<'a, T>> {
        let extents = extents_3(shape, strides, self.len())?;
        Ok(DeviceSliceMut3 { elements: self.into_slice(..extents.span()), extents })
    }
}

impl<T: DeviceCopy> DeviceBuffer<T> {
    /// Views all elements as rows, for reading, like [`DeviceSlice::as_2d`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_2d`].
    pub fn as_2d(&self, rows: usize, columns: usize) -> Result<DeviceSlice2<'_, T>> {
        self.as_slice().as_2d(rows, columns)
    }

    /// Views the elements as rows with a stride, for reading, like [`DeviceSlice::as_2d_strided`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_2d_strided`].
    pub fn as_2d_strided(
        &self,
        rows: usize,
        columns: usize,
        row_stride: usize,
    ) -> Result<DeviceSlice2<'_, T>> {
        self.as_slice().as_2d_strided(rows, columns, row_stride)
    }

    /// Views all elements as planes of rows, for reading, like [`DeviceSlice::as_3d`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_3d`].
    pub fn as_3d(&self, planes: usize, rows: usize, columns: usize) -> Result<DeviceSlice3<'_, T>> {
        self.as_slice().as_3d(planes, rows, columns)
    }

    /// Views the elements as planes of rows with strides, for reading, like [`DeviceSlice::as_3d_strided`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_3d_strided`].
    pub fn as_3d_strided(&self, shape: [usize; 3], strides: [usize; 2]) -> Result<DeviceSlice3<'_, T>> {
        self.as_slice().as_3d_strided(shape, strides)
    }

    /// Views all elements as rows, for writing, like [`DeviceSlice::as_2d`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_2d`].
    pub fn as_2d_mut(&mut self, rows: usize, columns: usize) -> Result<DeviceSliceMut2<'_, T>> {
        self.as_mut_slice().into_2d(rows, columns)
    }

    /// Views the elements as rows with a stride, for writing, like [`DeviceSlice::as_2d_strided`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_2d_strided`].
    pub fn as_2d_strided_mut(
        &mut self,
        rows: usize,
        columns: usize,
        row_stride: usize,
    ) -> Result<DeviceSliceMut2<'_, T>> {
        self.as_mut_slice().into_2d_strided(rows, columns, row_stride)
    }

    /// Views all elements as planes of rows, for writing, like [`DeviceSlice::as_3d`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_3d`].
    pub fn as_3d_mut(
        &mut self,
        planes: usize,
        rows: usize,
        columns: usize,
    ) -> Result<DeviceSliceMut3<'_, T>> {
        self.as_mut_slice().into_3d([planes, rows, columns])
    }

    /// Views the elements as planes of rows with strides, for writing, like [`DeviceSlice::as_3d_strided`].
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::as_3d_strided`].
    pub fn as_3d_strided_mut(
        &mut self,
        shape: [usize; 3],
        strides: [usize; 2],
    ) -> Result<DeviceSliceMut3<'_, T>> {
        self.as_mut_slice().into_3d_strided(shape, strides)
    }
}

/// Implements the methods common to read-only and mutable views.
macro_rules! view {
    ($name:ident: $extents:ty, [$($(#[$doc:meta])* $side:ident),*]) => {
        impl<T: DeviceCopy> $name<'_, T> {
            $(
                $(#[$doc])*
                pub fn $side(&self) -> usize {
                    self.extents.$side() as usize
                }
            )*

            /// Returns true if the view has no elements.
            pub fn is_empty(&self) -> bool {
                self.extents.is_empty()
            }

            /// Returns the device that owns the memory.
            pub fn device(&self) -> &Device {
                self.elements.device()
            }

            /// Returns the address of the first element; null for an empty buffer.
            pub fn as_device_ptr(&self) -> DevicePtr {
                self.elements.as_device_ptr()
            }

            #[inline]
            pub(crate) fn extents(&self) -> &$extents {
                &self.extents
            }
        }

        impl<T: DeviceCopy + fmt::Debug> fmt::Debug for $name<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut view = f.debug_struct(stringify!($name));
                $(view.field(stringify!($side), &self.$side());)*
                view.field("elements", &self.elements).finish()
            }
        }
    };
}

macro_rules! views {
    ($($read:ident, $write:ident: $extents:ty, $sides:tt;)*) => { $(
        view!($read: $extents, $sides);
        view!($write: $extents, $sides);

        impl<'a, T: DeviceCopy> $read<'a, T> {
            /// Returns the range from the first to the last element of the view, including the elements between rows.
            pub fn elements(&self) -> DeviceSlice<'a, T> {
                self.elements
            }
        }

        impl<'a, T: DeviceCopy> $write<'a, T> {
            /// Returns the same view, for reading.
            pub fn as_slice(&self) -> $read<'_, T> {
                $read { elements: self.elements.as_slice(), extents: self.extents }
            }

            /// Returns the range from the first to the last element of the view, including the elements between rows,
            /// for writing.
            pub fn into_elements(self) -> DeviceSliceMut<'a, T> {
                self.elements
            }

            /// Reborrows the view for a shorter lifetime.
            pub fn reborrow(&mut self) -> $write<'_, T> {
                $write { elements: self.elements.reborrow(), extents: self.extents }
            }
        }
    )* };
}

views! {
    DeviceSlice2, DeviceSliceMut2: Extents2, [
        /// Returns the number of rows.
        rows,
        /// Returns the number of elements per row.
        columns,
        /// Returns the row stride, in elements.
        row_stride
    ];
    DeviceSlice3, DeviceSliceMut3: Extents3, [
        /// Returns the number of planes.
        planes,
        /// Returns the number of rows per plane.
        rows,
        /// Returns the number of elements per row.
        columns,
        /// Returns the plane stride, in elements.
        plane_stride,
        /// Returns the row stride, in elements.
        row_stride
    ];
}

/// Returns the extents and the element range of a subview of a 2-D view.
fn part(
    extents: Extents2,
    rows: &impl RangeBounds<usize>,
    columns: &impl RangeBounds<usize>,
) -> (Extents2, std::ops::Range<usize>) {
    let columns = resolve_or_panic(columns, extents.columns() as usize);
    let rows = resolve_or_panic(rows, extents.rows() as usize);
    // The extents and the stride do not exceed those of the existing view.
    let part = Extents2::new(rows.len(), columns.len(), extents.row_stride() as usize).unwrap_or(extents);
    let start = if part.is_empty() { 0 } else { extents.offset([rows.start as u32, columns.start as u32]) };
    (part, start..start + part.span())
}

impl<'a, T: DeviceCopy> DeviceSlice2<'a, T> {
    /// Returns the subview of these rows and columns.
    ///
    /// # Panics
    /// Panics if a range is out of bounds, like slice indexing.
    #[track_caller]
    pub fn part(&self, rows: impl RangeBounds<usize>, columns: impl RangeBounds<usize>) -> Self {
        let (extents, range) = part(self.extents, &rows, &columns);
        Self { elements: self.elements.slice(range), extents }
    }
}

impl<'a, T: DeviceCopy> DeviceSliceMut2<'a, T> {
    /// Returns the subview of these rows and columns, for writing.
    ///
    /// # Panics
    /// Panics if a range is out of bounds, like slice indexing.
    #[track_caller]
    pub fn into_part(self, rows: impl RangeBounds<usize>, columns: impl RangeBounds<usize>) -> Self {
        let (extents, range) = part(self.extents, &rows, &columns);
        Self { elements: self.elements.into_slice(range), extents }
    }
}

impl<'a, T: DeviceCopy> DeviceSlice3<'a, T> {
    /// Returns the plane with index `plane` as a 2-D view.
    ///
    /// # Panics
    /// Panics if `plane` is out of bounds.
    #[track_caller]
    pub fn plane(&self, plane: usize) -> DeviceSlice2<'a, T> {
        let (extents, planes) = (self.extents.plane(), self.planes());
        assert!(plane < planes, "plane {plane} is not within {planes} planes");
        let start = if extents.is_empty() { 0 } else { self.extents.offset([plane as u32, 0, 0]) };
        DeviceSlice2 { elements: self.elements.slice(start..start + extents.span()), extents }
    }
}
