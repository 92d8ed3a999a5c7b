//! [`Imported`]: tensors of other code, checked.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;

use warpsmith_runtime::extension::{drop_elsewhere, in_host_function};
use warpsmith_runtime::{DeviceBuffer, DevicePtr, Result, Stream};

use super::export::{Exported, exported, exported_unversioned};
use super::layout::{Layout, MAX_DIMENSIONS};
use super::tensor::Extents;
use super::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLPackVersion, DLTensor, DlpackError, Element, Tensor,
};

/// A tensor that this program owns: dropping it calls the deleter, or drops the owner.
enum Managed {
    Versioned(NonNull<DLManagedTensorVersioned>),
    Unversioned(NonNull<DLManagedTensor>),
    /// A tensor with its flags and its owner, which is `None` once it was moved out.
    Described(DLTensor, u64, Option<Box<dyn Any + Send>>),
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
            Self::Described(tensor, ..) => tensor,
        }
    }

    /// Returns the flags; the unversioned form has none.
    fn flags(&self) -> u64 {
        match self {
            // SAFETY: as in `tensor`.
            Self::Versioned(managed) => unsafe { managed.as_ref().flags },
            Self::Unversioned(_) => 0,
            Self::Described(_, flags, _) => *flags,
        }
    }

    /// Returns the struct, if this library exported the tensor.
    fn exported(&self) -> Option<NonNull<Exported>> {
        match self {
            // SAFETY: as in `tensor`.
            Self::Versioned(managed) => exported(unsafe { managed.as_ref() }),
            // SAFETY: as in `tensor`.
            Self::Unversioned(managed) => exported_unversioned(unsafe { managed.as_ref() }),
            Self::Described(..) => None,
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
                Self::Described(tensor, flags, owner) => Self::Described(*tensor, *flags, owner.take()),
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
                Self::Described(.., owner) => drop(owner.take()),
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
    is_stream_ordered: bool,
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

    /// As [`Self::from_raw`], for a tensor of code without DLPack: `owner` takes the place of the deleter, and frees the
    /// tensor when it is dropped. `flags` are `DLPACK_FLAG_…`.
    ///
    /// # Errors
    /// As [`Self::from_raw`], except for the version.
    ///
    /// # Safety
    /// As for [`Self::from_raw`]. `shape` and `strides` stay valid until the owner is dropped, even if the owner is
    /// moved.
    pub unsafe fn from_tensor(tensor: DLTensor, flags: u64, owner: impl Any + Send) -> Result<Self> {
        // SAFETY: passed on from the caller.
        unsafe { Self::new(Managed::Described(tensor, flags, Some(Box::new(owner)))) }
    }

    /// Calls the deleter, or drops the owner, as soon as the buffer or tensor is dropped, without waiting for its work:
    /// see [`DeviceBuffer::from_raw_stream_ordered`]. It has no effect on host memory.
    ///
    /// # Safety
    /// The memory stays valid for the work that is enqueued on the stream of the conversion at that time. PyTorch and
    /// other frameworks with a caching allocator reuse memory in the order of the stream that `current_work_stream`
    /// returns.
    pub unsafe fn stream_ordered(self) -> Self {
        Self { is_stream_ordered: true, ..self }
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
        let layout = Layout { elements: 0, span: 0, is_packed: true };
        let mut imported = Self { managed, layout, is_stream_ordered: false };
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
        self.data_type().check(T::DATA_TYPE)?;
        if self.is_read_only() {
            return Err(DlpackError::ReadOnly.into());
        }
        if !self.layout.is_packed {
            let strides = self.strides().unwrap_or_default().to_vec();
            return Err(DlpackError::NotContiguous { shape: self.shape().to_vec(), strides }.into());
        }
        let Some(exported) = self.managed.exported() else { return self.adopt(stream, size_of::<T>()) };
        // SAFETY: this value owns the tensor.
        let Some(buffer) = (unsafe { Exported::take(exported, self.elements() * size_of::<T>()) }) else {
            return self.adopt(stream, size_of::<T>());
        };
        std::mem::forget(self.managed);
        buffer.record_stream(stream)?;
        buffer.cast()
    }

    /// Converts to a tensor on `stream`, in place, with elements of any type, any strides that do not overlap, and
    /// possibly read-only. The conditions are those of [`Self::into_buffer`].
    ///
    /// # Errors
    /// As [`Self::into_buffer`], except for `DataType`, `ReadOnly`, `NotContiguous` and `Misaligned`.
    pub fn into_tensor(self, stream: &Stream) -> Result<Tensor> {
        let (data_type, is_read_only) = (self.data_type(), self.is_read_only());
        data_type.check_whole()?;
        let extents = Extents::new(self.shape(), self.strides(), self.layout.is_packed);
        let buffer = self.adopt::<u8>(stream, usize::from(data_type.bits / 8))?;
        Ok(Tensor::new(buffer, data_type, extents, is_read_only))
    }

    /// Makes a buffer of whole elements of `bytes` bytes, as units of `T`, from the first element to the last. The
    /// buffer owns the tensor.
    fn adopt<T: Element>(self, stream: &Stream, bytes: usize) -> Result<DeviceBuffer<T>> {
        let Self { managed, layout: Layout { span, .. }, is_stream_ordered } = self;
        let span = span * (bytes / size_of::<T>());
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
                _ if is_stream_ordered => DeviceBuffer::from_raw_stream_ordered(stream, ptr, span, managed),
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
