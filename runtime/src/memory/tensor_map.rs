//! [`TensorMap`] and [`TensorMapMut`]: elements of a buffer viewed as a tensor, whose boxes TMA
//! (`cp.async.bulk.tensor`) copies. They are arguments for kernel parameters of type `&TensorMap<T, RANK>` and borrow
//! the buffer like slices.
//!
//! ```
//! use warpsmith_runtime::{Device, DeviceBuffer, Swizzle, TensorLayout};
//!
//! let stream = Device::emulated(0)?.default_stream();
//! // 100 rows of 256 16-bit elements, copied in boxes of 128 rows and 64 columns.
//! let matrix = DeviceBuffer::<u16>::zeros(&stream, 100 * 256)?;
//! let layout = TensorLayout::packed([256, 100], [64, 128], Swizzle::Bytes128);
//! let map = matrix.as_slice().tensor_map(&layout)?;
//! assert_eq!(map.layout(), &layout);
//!
//! // Rows of 250 elements would violate the 16-byte alignment of row strides.
//! let error = matrix.as_slice().tensor_map(&TensorLayout { strides: [1, 250], ..layout }).unwrap_err();
//! assert!(error.to_string().contains("the stride of dimension 1 is 500 bytes"), "{error}");
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

use gpu_spec::tensor_map::MAX_RANK;
use gpu_spec::{Swizzle, TensorMapData, TensorMapSpec};

use super::{DeviceCopy, DeviceSlice, DeviceSliceMut};
use crate::error::{Error, Result};

/// Extents and strides of a tensor, and the extents of its boxes. Dimension 0 is the innermost.
///
/// See the [example](self).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorLayout<const RANK: usize> {
    /// Extent of each dimension in elements, at most 2^32.
    pub dims: [usize; RANK],
    /// Stride of each dimension in elements. The first must be 1; all others must be multiples of 16 bytes.
    pub strides: [usize; RANK],
    /// Extent of a box along each dimension in elements, at most 256. The innermost row of a box must be a multiple of
    /// 16 bytes long and fit in the swizzle span.
    pub tile: [u32; RANK],
    /// Swizzle of a box in shared memory.
    pub swizzle: Swizzle,
}

impl<const RANK: usize> TensorLayout<RANK> {
    /// Creates the layout of a contiguous tensor.
    pub fn packed(dims: [usize; RANK], tile: [u32; RANK], swizzle: Swizzle) -> Self {
        let mut strides = [1usize; RANK];
        for dimension in 1..RANK {
            strides[dimension] = strides[dimension - 1].saturating_mul(dims[dimension - 1]);
        }
        Self { dims, strides, tile, swizzle }
    }

    fn spec(&self, element_bytes: usize, address: u64) -> Result<TensorMapSpec> {
        const { assert!(RANK >= 1 && RANK <= MAX_RANK, "a tensor map must have 1 to 5 dimensions") };
        if self.strides[0] != 1 {
            let stride = self.strides[0];
            return Err(bad(format!("the stride of dimension 0 is {stride} elements, but must be 1")));
        }
        let mut spec = TensorMapSpec {
            element_bytes: u32::try_from(element_bytes).unwrap_or(u32::MAX),
            rank: RANK,
            address,
            dims: [0; MAX_RANK],
            strides: [0; MAX_RANK - 1],
            tile: [0; MAX_RANK],
            swizzle: self.swizzle,
        };
        for dimension in 0..RANK {
            spec.dims[dimension] = self.dims[dimension] as u64;
            spec.tile[dimension] = self.tile[dimension];
            if dimension > 0 {
                let bytes = self.strides[dimension].saturating_mul(element_bytes);
                spec.strides[dimension - 1] = bytes as u64;
            }
        }
        spec.check().map_err(|error| bad(error.to_string()))?;
        Ok(spec)
    }
}

#[cold]
fn bad(reason: String) -> Error {
    Error::BadTensorMap { reason }
}

/// A read-only tensor in a buffer, passed to a kernel's `&TensorMap<T, RANK>` parameter.
///
/// See the [example](self).
#[derive(Debug, Clone, Copy)]
pub struct TensorMap<'a, T: DeviceCopy, const RANK: usize> {
    elements: DeviceSlice<'a, T>,
    layout: TensorLayout<RANK>,
    data: TensorMapData,
}

/// A mutable tensor in a buffer, passed to a kernel's `&TensorMap<T, RANK>` parameter. No other code can access the
/// elements while this value exists.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer, Swizzle, TensorLayout};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let mut x = DeviceBuffer::<f32>::zeros(&stream, 64 * 32)?;
/// let layout = TensorLayout::packed([32, 64], [32, 8], Swizzle::None);
/// let map = x.as_mut_slice().tensor_map_mut(&layout)?;
/// assert_eq!(map.elements().len(), 64 * 32);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug)]
pub struct TensorMapMut<'a, T: DeviceCopy, const RANK: usize> {
    elements: DeviceSliceMut<'a, T>,
    layout: TensorLayout<RANK>,
    data: TensorMapData,
}

impl<'a, T: DeviceCopy> DeviceSlice<'a, T> {
    /// Creates a tensor map for the elements. The tensor starts at the first element of the slice.
    ///
    /// # Errors
    /// Returns [`Error::BadTensorMap`] if TMA does not support the layout, if the layout exceeds the slice, or if the
    /// device's compute capability is below 9.0. Also returns any [driver error](crate::Error::Driver).
    pub fn tensor_map<const RANK: usize>(
        self,
        layout: &TensorLayout<RANK>,
    ) -> Result<TensorMap<'a, T, RANK>> {
        let spec = layout.spec(size_of::<T>(), self.as_device_ptr().0)?;
        let (span, bytes) = (spec.span(), (self.len() * size_of::<T>()) as u64);
        if span > bytes {
            return Err(bad(format!("the last element ends at byte {span}, but the slice has {bytes}")));
        }
        let (major, minor) = self.device().properties().capability;
        if (1..9).contains(&major) {
            let reason = format!(
                "{} has compute capability {major}.{minor}, but TMA copies require 9.0",
                self.device().id()
            );
            return Err(bad(reason));
        }
        let data = self.device().call(|driver, context| driver.tensor_map(context, &spec))?;
        Ok(TensorMap { elements: self, layout: *layout, data })
    }
}

impl<'a, T: DeviceCopy> DeviceSliceMut<'a, T> {
    /// Creates a tensor map for the elements, for reading and writing. The tensor starts at the first element of the
    /// slice.
    ///
    /// # Errors
    /// Returns the same errors as [`DeviceSlice::tensor_map`].
    pub fn tensor_map_mut<const RANK: usize>(
        self,
        layout: &TensorLayout<RANK>,
    ) -> Result<TensorMapMut<'a, T, RANK>> {
        let data = self.as_slice().tensor_map(layout)?.data;
        Ok(TensorMapMut { elements: self, layout: *layout, data })
    }
}

impl<'a, T: DeviceCopy, const RANK: usize> TensorMap<'a, T, RANK> {
    /// Returns the layout of the map.
    pub fn layout(&self) -> &TensorLayout<RANK> {
        &self.layout
    }

    /// Returns the elements.
    pub fn elements(&self) -> DeviceSlice<'a, T> {
        self.elements
    }

    pub(crate) fn data(&self) -> &TensorMapData {
        &self.data
    }
}

impl<T: DeviceCopy, const RANK: usize> TensorMapMut<'_, T, RANK> {
    /// Returns the layout of the map.
    pub fn layout(&self) -> &TensorLayout<RANK> {
        &self.layout
    }

    /// Returns the elements, for reading.
    pub fn elements(&self) -> DeviceSlice<'_, T> {
        self.elements.as_slice()
    }

    pub(crate) fn data(&self) -> &TensorMapData {
        &self.data
    }
}
