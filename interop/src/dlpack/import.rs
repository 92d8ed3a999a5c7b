//! [`Imported`]: tensors of other code, checked.

use std::fmt;
use std::ptr::NonNull;

use warpsmith_runtime::extension::{drop_elsewhere, in_host_function};
use warpsmith_runtime::{DeviceBuffer, DevicePtr, Result, Stream};

use super::export::{Exported, exported, exported_unversioned};
use super::layout::{Layout, MAX_DIMENSIONS};
use super::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLPackVersion, DLTensor, DlpackError, Element, Tensor,
};

/// A tensor that this program owns: dropping it calls the deleter.
enum Managed {
    Versioned(NonNull<DLManagedTensorVersioned>),
    Unversioned(NonNull<DLManagedTensor>),
}

// SAFETY: the protocol allows to use a tensor, and to call its deleter, on any thread.
unsafe impl Send for Managed {}

impl Managed {
    fn tensor(&self) -> &DLTensor {
        match self {
            // SAFETY: the struct is owned, and stays until its deleter is called.
            Self::Versioned(managed) => unsafe { &managed.as_ref().dl_tensor },
            // SAFETY: as above.
            Self::Unversioned(managed) => unsafe { &managed.as_ref().dl_tensor },
        }
    }

    /// Returns the flags; the unversioned form has none.
    fn flags(&self) -> u64 {
        match self {
            // SAFETY: as in `tensor`.
            Self::Versioned(managed) => unsafe { managed.as_ref().flags },
            Self::Unversioned(_) => 0,
        }
    }

    /// Returns the struct, if this library exported the tensor.
    fn exported(&self) -> Option<NonNull<Exported>> {
        match self {
            // SAFETY: as in `tensor`.
            Self::Versioned(managed) => exported(unsafe { managed.as_ref() }),
            // SAFETY: as in `tensor`.
            Self::Unversioned(managed) => exported_unversioned(unsafe { managed.as_ref() }),
        }
    }
}

impl Drop for Managed {
    fn drop(&mut self) {
        if in_host_function() {
            // The deleter may call the driver.
            let moved = match self {
                Self::Versioned(managed) => Self::Versioned(*managed),
                Self::Unversioned(managed) => Self::Unversioned(*managed),
            };
            return drop_elsewhere(Box::new(moved));
        }
        // SAFETY: the struct is owned, so its deleter was not called. Nothing uses the tensor any more.
        unsafe {
            match self {
                Self::Versioned(managed) => {
                    let deleter = managed.as_ref().deleter;
                    deleter.into_iter().for_each(|delete| delete(managed.as_ptr()));
                }
                Self::Unversioned(managed) => {
                    let deleter = managed.as_ref().deleter;
                    deleter.into_iter().for_each(|delete| delete(managed.as_ptr()));
                }
            }
        }
    }
}

/// A tensor of a DLPack producer, whose shape and strides are valid. Convert it to a buffer or a [`Tensor`].
///
/// Dropping it calls the tensor's deleter.
pub struct Imported {
    managed: Managed,
    layout: Layout,
}

impl Imported {
    /// Takes a tensor from a capsule `dltensor_versioned`, or from a function of the exchange table. Rename the capsule
    /// to `used_dltensor_versioned` afterwards, whatever is returned.
    ///
    /// # Errors
    /// [`DlpackError`]: `NoTensor`, `Version`, `Dimensions`, `NoShape`, `NegativeExtent`, `NegativeStride`,
    /// `Broadcast`, `Overlap`, `TooLarge`, `NoData`. The deleter has then been called.
    ///
    /// # Safety
    /// `tensor` is null or points to a tensor that the caller owns. All fields are valid if its major version is 1:
    /// `shape` and `strides` point to `ndim` numbers or are null. From the first element to the last, including gaps
    /// between them, the memory is valid until the deleter is called. Until then only this program uses it, or only
    /// reads it if the tensor is read-only. The stream condition is that of [`Self::into_buffer`].
    pub unsafe fn from_raw(tensor: *mut DLManagedTensorVersioned) -> Result<Self> {
        let tensor = NonNull::new(tensor).ok_or(DlpackError::NoTensor)?;
        let managed = Managed::Versioned(tensor);
        // SAFETY: the version has the same place in every layout.
        let DLPackVersion { major, minor } = unsafe { (&raw const (*tensor.as_ptr()).version).read() };
        if major != DLPACK_MAJOR_VERSION {
            return Err(DlpackError::Version { major, minor }.into());
        }
        // SAFETY: passed on from the caller.
        unsafe { Self::new(managed) }
    }

    /// As [`Self::from_raw`], for the form of versions before 1.0: a capsule `dltensor`.
    ///
    /// # Errors
    /// As [`Self::from_raw`], except for the version.
    ///
    /// # Safety
    /// As for [`Self::from_raw`].
    pub unsafe fn from_raw_unversioned(tensor: *mut DLManagedTensor) -> Result<Self> {
        let tensor = NonNull::new(tensor).ok_or(DlpackError::NoTensor)?;
        // SAFETY: passed on from the caller.
        unsafe { Self::new(Managed::Unversioned(tensor)) }
    }

    /// # Safety
    /// As for [`Self::from_raw`], with a tensor of this version.
    unsafe fn new(managed: Managed) -> Result<Self> {
        let DLTensor { data, ndim, shape, .. } = *managed.tensor();
        if !(0..=MAX_DIMENSIONS as i32).contains(&ndim) {
            return Err(DlpackError::Dimensions { ndim: ndim.into() }.into());
        }
        if ndim > 0 && shape.is_null() {
            return Err(DlpackError::NoShape { ndim }.into());
        }
        let mut imported = Self { managed, layout: Layout { elements: 0, span: 0, is_packed: true } };
        imported.layout = Layout::new(imported.shape(), imported.strides())?;
        match imported.layout.elements {
            elements @ 1.. if data.is_null() => Err(DlpackError::NoData { elements }.into()),
            _ => Ok(imported),
        }
    }

    fn numbers(&self, numbers: *const i64) -> Option<&[i64]> {
        let rank = self.managed.tensor().ndim as usize;
        match numbers.is_null() || rank == 0 {
            true => None,
            // SAFETY: the tensor has this many numbers there, which stay until its deleter is called.
            false => Some(unsafe { std::slice::from_raw_parts(numbers, rank) }),
        }
    }

    /// Extents.
    pub fn shape(&self) -> &[i64] {
        self.numbers(self.managed.tensor().shape).unwrap_or_default()
    }

    /// Strides, in elements; `None` for row-major order without gaps.
    pub fn strides(&self) -> Option<&[i64]> {
        self.numbers(self.managed.tensor().strides)
    }

    /// Number of elements.
    pub fn elements(&self) -> usize {
        self.layout.elements
    }

    /// Type of the elements.
    pub fn data_type(&self) -> DLDataType {
        self.managed.tensor().dtype
    }

    /// Device of the memory. The index may be that of another numbering.
    pub fn device(&self) -> DLDevice {
        self.managed.tensor().device
    }

    /// `DLPACK_FLAG_…`; 0 for the unversioned form.
    pub fn flags(&self) -> u64 {
        self.managed.flags()
    }

    /// Returns true if the tensor may not be written. The unversioned form cannot say so.
    pub fn is_read_only(&self) -> bool {
        self.flags() & DLPACK_FLAG_READ_ONLY != 0
    }

    /// Converts to a buffer on `stream`, in place. The deleter is called after the buffer's last use.
    ///
    /// The tensor must be ready for later work on `stream`: pass [`stream_argument`](super::stream_argument) to the
    /// producer's `__dlpack__`, or use the stream that `current_work_stream` of its exchange table returns. A tensor
    /// that this library exported comes back as the same buffer, whose own stream is unchanged.
    ///
    /// Work on host memory runs on an emulated device, in the background: synchronize before other code uses it.
    ///
    /// # Errors
    /// [`DlpackError`]: `DataType`, `Lanes`, `SubByte`, `ReadOnly`, `NotContiguous`, `Device`, `Offset`, `Misaligned`;
    /// as [`DeviceBuffer::from_raw`]. The deleter has then been called.
    pub fn into_buffer<T: Element>(self, stream: &Stream) -> Result<DeviceBuffer<T>> {
        self.check_type(T::DATA_TYPE)?;
        if self.is_read_only() {
            return Err(DlpackError::ReadOnly.into());
        }
        if !self.layout.is_packed {
            let strides = self.strides().unwrap_or_default().to_vec();
            return Err(DlpackError::NotContiguous { shape: self.shape().to_vec(), strides }.into());
        }
        let Some(exported) = self.managed.exported() else { return self.adopt(stream) };
        // SAFETY: this value owns the tensor.
        let Some(buffer) = (unsafe { Exported::take(exported, self.elements() * size_of::<T>()) }) else {
            return self.adopt(stream);
        };
        std::mem::forget(self.managed);
        buffer.record_stream(stream)?;
        buffer.cast()
    }

    /// Converts to a tensor on `stream`, in place, with any strides that do not overlap, and possibly read-only. The
    /// conditions are those of [`Self::into_buffer`].
    ///
    /// # Errors
    /// As [`Self::into_buffer`], except for `ReadOnly` and `NotContiguous`.
    pub fn into_tensor<T: Element>(self, stream: &Stream) -> Result<Tensor<T>> {
        self.check_type(T::DATA_TYPE)?;
        let (shape, is_read_only, is_packed) =
            (self.shape().to_vec(), self.is_read_only(), self.layout.is_packed);
        let strides = self.strides().map(<[i64]>::to_vec);
        let buffer = self.adopt(stream)?;
        Ok(Tensor::new(buffer, &shape, strides.as_deref(), is_packed, is_read_only))
    }

    /// Checks that the elements are of a type.
    fn check_type(&self, expected: DLDataType) -> Result<()> {
        let found = self.data_type();
        Err(match found {
            _ if found == expected => return Ok(()),
            DLDataType { bits: ..8, .. } => DlpackError::SubByte { found },
            DLDataType { lanes: 0 | 2.., .. } => DlpackError::Lanes { found },
            _ => DlpackError::DataType { found, expected },
        }
        .into())
    }

    /// Makes a buffer from the first element to the last, which owns the tensor. Its type was checked.
    fn adopt<T: Element>(self, stream: &Stream) -> Result<DeviceBuffer<T>> {
        let Self { managed, layout: Layout { span, .. } } = self;
        let DLTensor { data, device: found, byte_offset, .. } = *managed.tensor();
        let is_host = match found.device_type {
            DLDevice::CPU if stream.device().is_emulated() => true,
            DLDevice::CUDA | DLDevice::CUDA_HOST | DLDevice::CUDA_MANAGED
                if !stream.device().is_emulated() =>
            {
                false
            }
            _ => return Err(DlpackError::Device { found, stream: stream.device().id() }.into()),
        };
        let (mut ptr, start) = (DevicePtr::NULL, data.expose_provenance() as u64);
        if span > 0 {
            let offset = DlpackError::Offset { address: start, byte_offset };
            let address = start.checked_add(byte_offset).ok_or(offset)?;
            let align = align_of::<T>();
            if !address.is_multiple_of(align as u64) {
                return Err(DlpackError::Misaligned { address, align }.into());
            }
            ptr = DevicePtr(address);
        }
        let host = NonNull::new(std::ptr::with_exposed_provenance_mut::<T>(ptr.0 as usize));
        // SAFETY: the tensor has these elements until its deleter is called, which dropping `managed` does. The caller
        // of `from_raw` promised the rest.
        unsafe {
            match host {
                Some(host) if is_host => DeviceBuffer::from_host_raw(stream, host, span, managed),
                _ => DeviceBuffer::from_raw(stream, ptr, span, managed),
            }
        }
    }
}

impl fmt::Debug for Imported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DLDevice { device_type, device_id } = self.device();
        write!(
            f,
            "Imported({} {:?} on DLPack device {device_type}:{device_id})",
            self.data_type(),
            self.shape()
        )
    }
}
