//! [`Imported`]: a tensor from another library, with checked shape and strides.

use std::any::Any;
use std::fmt;
use std::ptr::NonNull;
use std::sync::OnceLock;

use warpsmith_runtime::extension::{drop_elsewhere, in_host_function};
use warpsmith_runtime::{DeviceBuffer, DevicePtr, Result, Stream};

use super::export::{Exported, exported, exported_unversioned};
use super::layout::{Layout, MAX_DIMENSIONS};
use super::tensor::Extents;
use super::{
    DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_READ_ONLY,
    DLPACK_MAJOR_VERSION, DLPackVersion, DLTensor, DlpackError, Element, Tensor,
};

/// Condition that [`call_deleters_while`] has set.
static CONDITION: OnceLock<fn() -> bool> = OnceLock::new();

/// Sets the condition under which the deleters of imported tensors are called and their owners are dropped. While
/// `condition` returns false, the tensors are leaked. A deleter that needs Python, for example, cannot run while the
/// interpreter is being finalized. Only the first call in a process has an effect.
pub fn call_deleters_while(condition: fn() -> bool) {
    let _ = CONDITION.set(condition);
}

/// A tensor that this program owns. Dropping it calls the deleter or drops the owner.
enum Managed {
    Versioned(NonNull<DLManagedTensorVersioned>),
    Unversioned(NonNull<DLManagedTensor>),
    /// A tensor with its flags and its owner. The owner is `None` after it has been moved out.
    Described(DLTensor, u64, Option<Box<dyn Any + Send>>),
}

// SAFETY: the protocol allows any thread to use a tensor and to call its deleter.
unsafe impl Send for Managed {}

impl Managed {
    fn tensor(&self) -> &DLTensor {
        match self {
            // SAFETY: the struct is owned and stays valid until its deleter is called.
            Self::Versioned(managed) => unsafe { &managed.as_ref().dl_tensor },
            // SAFETY: as above.
            Self::Unversioned(managed) => unsafe { &managed.as_ref().dl_tensor },
            Self::Described(tensor, ..) => tensor,
        }
    }

    /// Returns the flags. The unversioned struct has no flags, so they are 0.
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
        if CONDITION.get().is_some_and(|condition| !condition()) {
            if let Self::Described(.., owner) = self {
                std::mem::forget(owner.take());
            }
            return;
        }
        // SAFETY: the struct is owned, so its deleter has not been called. The tensor is no longer in use.
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

/// A tensor from a DLPack producer. Its shape and strides are valid. Convert it to a buffer or to a [`Tensor`].
///
/// Dropping this value calls the tensor's deleter.
///
/// See the [example](super).
pub struct Imported {
    managed: Managed,
    layout: Layout,
    is_stream_ordered: bool,
}

impl Imported {
    /// Takes ownership of a tensor from a capsule named `dltensor_versioned` or from a function of the C exchange API.
    /// Rename the capsule to `used_dltensor_versioned` afterwards, even if this function returns an error.
    ///
    /// See the [example](super).
    ///
    /// # Errors
    /// Returns [`DlpackError`] of the kind `NoTensor`, `Version`, `Dimensions`, `NoShape`, `NegativeExtent`,
    /// `NegativeStride`, `Broadcast`, `Overlap`, `TooLarge` or `NoData`. In these cases, the deleter has been called.
    ///
    /// # Safety
    /// `tensor` must be null or point to a tensor that the caller owns. If its major version is 1, all fields must be
    /// valid: `shape` and `strides` must be null or point to `ndim` numbers. The memory from the first element to the
    /// last, including the gaps between elements, must be valid until the deleter is called. Until then, only this
    /// program may use the memory. If the tensor is read-only, other code may also read it. The tensor must be ready on
    /// the stream, as described for [`Self::into_buffer`].
    pub unsafe fn from_raw(tensor: *mut DLManagedTensorVersioned) -> Result<Self> {
        let tensor = NonNull::new(tensor).ok_or(DlpackError::NoTensor)?;
        let managed = Managed::Versioned(tensor);
        // SAFETY: the version has the same offset in every layout of the struct.
        let DLPackVersion { major, minor } = unsafe { (&raw const (*tensor.as_ptr()).version).read() };
        if major != DLPACK_MAJOR_VERSION {
            return Err(DlpackError::Version { major, minor }.into());
        }
        // SAFETY: guaranteed by the caller.
        unsafe { Self::new(managed) }
    }

    /// Like [`Self::from_raw`], but for the unversioned struct of DLPack before 1.0, in a capsule named `dltensor`.
    ///
    /// ```
    /// use warpsmith_interop::dlpack::{Export, Imported};
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let tensor = Export::new(DeviceBuffer::from_host(&stream, &[1_u8, 2])?).into_raw_unversioned()?;
    /// // SAFETY: the tensor was just exported, and is used only on its own stream.
    /// let imported = unsafe { Imported::from_raw_unversioned(tensor.as_ptr()) }?;
    /// assert_eq!(imported.into_buffer::<u8>(&stream)?.to_host()?, [1, 2]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`Self::from_raw`], except for `Version`.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::from_raw`].
    pub unsafe fn from_raw_unversioned(tensor: *mut DLManagedTensor) -> Result<Self> {
        let tensor = NonNull::new(tensor).ok_or(DlpackError::NoTensor)?;
        // SAFETY: guaranteed by the caller.
        unsafe { Self::new(Managed::Unversioned(tensor)) }
    }

    /// Like [`Self::from_raw`], but for a tensor from code that does not use DLPack. `owner` replaces the deleter and
    /// frees the tensor when it is dropped. `flags` is a combination of `DLPACK_FLAG_…` values.
    ///
    /// ```
    /// use warpsmith_interop::dlpack::{DLDevice, DLTensor, Element, Imported};
    /// use warpsmith_runtime::Device;
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let (mut numbers, mut shape) = (vec![1.0_f32, 2.0, 3.0], Box::new([3_i64]));
    /// let tensor = DLTensor {
    ///     data: numbers.as_mut_ptr().cast(),
    ///     device: DLDevice { device_type: DLDevice::CPU, device_id: 0 },
    ///     ndim: 1,
    ///     dtype: f32::DATA_TYPE,
    ///     shape: shape.as_mut_ptr(),
    ///     strides: std::ptr::null_mut(),
    ///     byte_offset: 0,
    /// };
    /// // SAFETY: the owner keeps the numbers and the shape, and no other code uses them.
    /// let imported = unsafe { Imported::from_tensor(tensor, 0, (numbers, shape)) }?;
    /// assert_eq!(imported.into_buffer::<f32>(&stream)?.to_host()?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`Self::from_raw`], except for `NoTensor` and `Version`.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::from_raw`]. In addition, `shape` and `strides` must stay
    /// valid until the owner is dropped, even if the owner is moved.
    pub unsafe fn from_tensor(tensor: DLTensor, flags: u64, owner: impl Any + Send) -> Result<Self> {
        // SAFETY: guaranteed by the caller.
        unsafe { Self::new(Managed::Described(tensor, flags, Some(Box::new(owner)))) }
    }

    /// Marks the memory as stream-ordered. The deleter is then called, or the owner dropped, as soon as the buffer or
    /// tensor is dropped, without waiting for its work: see [`DeviceBuffer::from_raw_stream_ordered`]. This function
    /// has no effect on host memory.
    ///
    /// ```
    /// use warpsmith_interop::dlpack::{Export, Imported};
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let tensor = Export::new(DeviceBuffer::from_host(&stream, &[1_u8, 2])?).into_raw();
    /// // SAFETY: the tensor was just exported, and its memory is freed in the order of `stream`.
    /// let imported = unsafe { Imported::from_raw(tensor.as_ptr())?.stream_ordered() };
    /// assert_eq!(imported.into_buffer::<u8>(&stream)?.to_host()?, [1, 2]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Safety
    /// After the deleter is called, the memory must stay valid for the work enqueued at that time on the stream passed
    /// to the conversion. PyTorch and other frameworks with a caching allocator satisfy this requirement for the stream
    /// that `current_work_stream` returns.
    pub unsafe fn stream_ordered(self) -> Self {
        Self { is_stream_ordered: true, ..self }
    }

    /// # Safety
    /// The caller must uphold the safety contract of [`Self::from_raw`]. The major version of a versioned struct must
    /// be 1.
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
            // SAFETY: the pointer is to `ndim` numbers, which stay valid until the deleter is called.
            false => Some(unsafe { std::slice::from_raw_parts(numbers, rank) }),
        }
    }

    /// Returns the shape.
    pub fn shape(&self) -> &[i64] {
        self.numbers(self.managed.tensor().shape).unwrap_or_default()
    }

    /// Returns the strides in elements, or `None` if the tensor has no strides, which means contiguous row-major order.
    pub fn strides(&self) -> Option<&[i64]> {
        self.numbers(self.managed.tensor().strides)
    }

    /// Returns the number of elements.
    pub fn elements(&self) -> usize {
        self.layout.elements
    }

    /// Returns the element type.
    pub fn data_type(&self) -> DLDataType {
        self.managed.tensor().dtype
    }

    /// Returns the producer's device. The producer may number devices differently than this program.
    pub fn device(&self) -> DLDevice {
        self.managed.tensor().device
    }

    /// Returns the flags, a combination of `DLPACK_FLAG_…` values. They are 0 for the unversioned struct.
    pub fn flags(&self) -> u64 {
        self.managed.flags()
    }

    /// Returns true if the tensor must not be written. The unversioned struct cannot express this, so the result is
    /// then false.
    pub fn is_read_only(&self) -> bool {
        self.flags() & DLPACK_FLAG_READ_ONLY != 0
    }

    /// Converts the tensor to a buffer on `stream`, without a copy. The deleter is called after the buffer's last use.
    ///
    /// The tensor must be ready for later work on `stream`: pass [`stream_argument`](super::stream_argument) to the
    /// producer's `__dlpack__`, or use the stream that `current_work_stream` of its C exchange API returns. For a
    /// tensor that this library exported, the result is the original buffer, with its original stream.
    ///
    /// Work on host memory runs asynchronously on an emulated device. Synchronize before other code uses the memory.
    ///
    /// # Errors
    /// Returns [`DlpackError`] of the kind `DataType`, `Lanes`, `SubByte`, `ReadOnly`, `NotContiguous`, `Device`,
    /// `Offset` or `Misaligned`, or the same errors as [`DeviceBuffer::from_raw`]. In these cases, the deleter has been
    /// called.
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

    /// Converts the imported tensor to a [`Tensor`] on `stream`, without a copy. The conversion supports every element
    /// type of whole bytes, all strides without overlap, and read-only tensors. The tensor must be ready for later work
    /// on `stream`, as described for [`Self::into_buffer`].
    ///
    /// # Errors
    /// Returns the same errors as [`Self::into_buffer`], except for `DataType`, `ReadOnly`, `NotContiguous` and
    /// `Misaligned`.
    pub fn into_tensor(self, stream: &Stream) -> Result<Tensor> {
        let (data_type, is_read_only) = (self.data_type(), self.is_read_only());
        data_type.check_whole()?;
        let extents = Extents::new(self.shape(), self.strides(), self.layout.is_packed);
        let buffer = self.adopt::<u8>(stream, usize::from(data_type.bits / 8))?;
        Ok(Tensor::new(buffer, data_type, extents, is_read_only))
    }

    /// Converts the memory from the first element to the last to a buffer with elements of type `T`. An element of the
    /// tensor has `bytes` bytes, a multiple of the size of `T`. The buffer owns the tensor.
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
        // SAFETY: the elements are valid until the deleter is called, which happens when `managed` is dropped. The
        // caller of `from_raw` guarantees the other conditions.
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
