//! `__cuda_array_interface__` version 3, as plain data.
//!
//! The interface describes memory of a CUDA device. The object with the attribute owns the memory, so a consumer keeps
//! the object alive and makes its stream wait for [`stream`](CudaArrayInterface::stream). Prefer
//! [DLPack](crate::dlpack) if both sides support it: it defines an owner and supports more types and devices other than
//! CUDA.
//!
//! ```
//! use warpsmith_interop::cuda_array::CudaArrayInterface;
//! use warpsmith_interop::dlpack::Export;
//! use warpsmith_runtime::{Device, DeviceBuffer, Stream};
//!
//! let stream = Stream::new(&Device::emulated(0)?)?;
//! let mut export = Export::new(DeviceBuffer::from_host(&stream, &[1u16, 2, 3, 4])?).with_shape(&[2, 2])?;
//! let interface = CudaArrayInterface::of(&mut export)?;
//! assert_eq!((&interface.shape[..], interface.typestr.as_str(), interface.strides), (&[2, 2][..], "<u2", None));
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

use std::any::Any;
use std::ffi::c_void;
use std::ptr::null_mut;

use warpsmith_runtime::{Result, Stream};

use crate::dlpack::{
    DLDataType, DLDevice, DLPACK_FLAG_READ_ONLY, DLTensor, DlpackError, Export, Imported, adopt,
};

/// Value of `version`.
pub const VERSION: u32 = 3;

const TYPES: [(&str, u8, u8); 14] = [
    ("|b1", DLDataType::BOOL, 8),
    ("|i1", DLDataType::INT, 8),
    ("<i2", DLDataType::INT, 16),
    ("<i4", DLDataType::INT, 32),
    ("<i8", DLDataType::INT, 64),
    ("|u1", DLDataType::UINT, 8),
    ("<u2", DLDataType::UINT, 16),
    ("<u4", DLDataType::UINT, 32),
    ("<u8", DLDataType::UINT, 64),
    ("<f2", DLDataType::FLOAT, 16),
    ("<f4", DLDataType::FLOAT, 32),
    ("<f8", DLDataType::FLOAT, 64),
    ("<c8", DLDataType::COMPLEX, 64),
    ("<c16", DLDataType::COMPLEX, 128),
];

/// Items of the dictionary. `mask` and `descr` are not supported.
///
/// See the [example](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CudaArrayInterface {
    /// Size of each dimension.
    pub shape: Vec<i64>,
    /// Type of the elements, such as `<f4`.
    pub typestr: String,
    /// Address of the first element; 0 for an array without elements.
    pub address: u64,
    /// True if the array is read-only.
    pub is_read_only: bool,
    /// Strides in bytes; `None` for a contiguous array in row-major order.
    pub strides: Option<Vec<i64>>,
    /// Stream that the consumer must wait for: `None` if no wait is required, 1 for CUDA's legacy default stream, 2 for
    /// the per-thread default stream, or a handle.
    pub stream: Option<i64>,
}

impl CudaArrayInterface {
    /// Describes an exported tensor. The consumer must wait for the stream of the last call of [`Export::ready_on`], if
    /// any. The description is valid as long as the export is alive.
    ///
    /// # Errors
    /// Returns [`DlpackError::NoTypestr`] if the interface cannot describe the element type.
    pub fn of(export: &mut Export) -> Result<Self> {
        let (shape, strides) = export.extents();
        let (is_read_only, is_packed) = (export.is_read_only(), export.is_packed());
        let stream = export.consumer().and_then(crate::dlpack::stream_argument);
        let DLTensor { data, dtype: found, .. } = *export.tensor();
        let mut types = TYPES.iter();
        let known = types.find(|(_, code, bits)| (*code, *bits, 1) == (found.code, found.bits, found.lanes));
        let (typestr, ..) = known.ok_or(DlpackError::NoTypestr { found })?;
        let bytes = i64::from(found.bits / 8);
        let strides = (!is_packed).then(|| strides.iter().map(|stride| stride * bytes).collect());
        let address = data.addr() as u64;
        Ok(Self { shape, typestr: (*typestr).to_owned(), address, is_read_only, strides, stream })
    }

    /// Imports the array of an object. `owner` keeps the object alive and is dropped when the deleter of a DLPack
    /// tensor would be called. Later work on `stream` waits for the array's stream.
    ///
    /// ```
    /// use warpsmith_interop::cuda_array::CudaArrayInterface;
    /// use warpsmith_interop::dlpack::Export;
    /// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
    ///
    /// let stream = Stream::new(&Device::emulated(0)?)?;
    /// let mut export = Export::new(DeviceBuffer::from_host(&stream, &[1.0_f32, 2.0])?);
    /// export.ready_on(&stream)?;
    /// let interface = CudaArrayInterface::of(&mut export)?;
    /// // SAFETY: the export owns the memory, and no other code uses it.
    /// let imported = unsafe { interface.import(&stream, export) }?;
    /// assert_eq!(imported.into_buffer::<f32>(&stream)?.to_host()?, [1.0, 2.0]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`DlpackError::CudaArray`], [`DlpackError::Stream`], or the same errors as [`Imported::from_raw`]. In
    /// these cases, the owner is dropped.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Imported::from_raw`] until `owner` is dropped. The array's
    /// stream must be alive and must not be in a capture.
    pub unsafe fn import(self, stream: &Stream, owner: impl Any + Send) -> Result<Imported> {
        let refused = |what| DlpackError::CudaArray { what };
        let Some((_, code, bits)) = TYPES.iter().find(|(typestr, ..)| *typestr == self.typestr) else {
            return Err(refused(format!("the type `{}`", self.typestr)).into());
        };
        let bytes = i64::from(*bits / 8);
        let in_elements = |stride: &i64| (stride % bytes == 0).then_some(stride / bytes);
        let strides: Option<Vec<i64>> = match &self.strides {
            None => None,
            Some(strides) if strides.len() != self.shape.len() => {
                return Err(
                    refused(format!("{} strides for {} extents", strides.len(), self.shape.len())).into()
                );
            }
            Some(strides) => {
                let of_type = || refused(format!("strides of {strides:?} bytes for elements of {bytes}"));
                Some(strides.iter().map(in_elements).collect::<Option<_>>().ok_or_else(of_type)?)
            }
        };
        if self.stream.is_some() && !stream.device().is_emulated() {
            // SAFETY: guaranteed by the caller.
            let theirs = unsafe { adopt(stream.device(), self.stream) }?;
            theirs.map_or(Ok(()), |theirs| stream.wait_stream(&theirs))?;
        }
        let device_type = if stream.device().is_emulated() { DLDevice::CPU } else { DLDevice::CUDA };
        let mut held = Held { shape: self.shape, strides, _owner: Box::new(owner) };
        let tensor = DLTensor {
            data: std::ptr::with_exposed_provenance_mut::<c_void>(self.address as usize),
            device: DLDevice { device_type, device_id: 0 },
            ndim: held.shape.len().try_into().unwrap_or(i32::MAX),
            dtype: DLDataType { code: *code, bits: *bits, lanes: 1 },
            shape: held.shape.as_mut_ptr(),
            strides: held.strides.as_mut().map_or(null_mut(), |strides| strides.as_mut_ptr()),
            byte_offset: 0,
        };
        let flags = if self.is_read_only { DLPACK_FLAG_READ_ONLY } else { 0 };
        // SAFETY: the caller guarantees that the tensor is valid; `held` keeps its shape and strides on the heap.
        unsafe { Imported::from_tensor(tensor, flags, held) }
    }
}

/// Shape, strides and owner of an imported array, kept until its last use.
struct Held {
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    _owner: Box<dyn Send>,
}
