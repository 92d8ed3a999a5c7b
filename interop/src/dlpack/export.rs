//! [`Export`]: exports buffers as DLPack tensors.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, addr_of_mut, fn_addr_eq, null_mut};
use std::sync::Arc;

use warpsmith_runtime::driver::StreamHandle;
use warpsmith_runtime::extension::{Access, BufferUse};
use warpsmith_runtime::{Device, DeviceBuffer, DevicePtr, Error, Result, Stream};

use super::layout::{Layout, MAX_DIMENSIONS, row_major};
use super::{
    DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_READ_ONLY, DLPACK_MAJOR_VERSION,
    DLPACK_MINOR_VERSION, DLPackVersion, DLTensor, DlpackError, Element,
};

/// CUDA's legacy default stream.
const LEGACY: i64 = 1;
/// CUDA's per-thread default stream.
const PER_THREAD: i64 = 2;
/// The consumer orders its own work, so no stream waits.
const NO_ORDER: i64 = -1;
/// Maximum number of dimensions whose shape and strides are stored inline, without a heap allocation.
const INLINE: usize = 4;

/// Returns the `stream` argument to pass to a producer's `__dlpack__`, so that the tensor is ready for later work on
/// `stream`. The argument is the stream's handle, or `None` for an emulated device, whose memory is host memory.
pub fn stream_argument(stream: &Stream) -> Option<i64> {
    if stream.device().is_emulated() {
        return None;
    }
    // The driver's null handle denotes the legacy default stream, for which the protocol uses 1.
    Some((stream.handle().0 as i64).max(LEGACY))
}

/// Returns the DLPack device of a buffer's memory.
fn device(device: &Device) -> DLDevice {
    match device.is_emulated() {
        true => DLDevice { device_type: DLDevice::CPU, device_id: 0 },
        false => DLDevice { device_type: DLDevice::CUDA, device_id: device.id().ordinal() as i32 },
    }
}

/// Returns the stream for a `stream` argument on a CUDA device, or `None` if the consumer orders its own work.
///
/// The per-thread default stream is a different stream in each thread. The legacy default stream replaces it, because
/// CUDA makes each of them wait for earlier work on the other.
///
/// # Safety
/// The caller must uphold the safety contract of [`Stream::adopt`], unless the argument is `None`, -1, 1 or 2.
pub(crate) unsafe fn adopt(device: &Device, stream: Option<i64>) -> Result<Option<Stream>> {
    let handle = match stream {
        Some(NO_ORDER) => return Ok(None),
        None | Some(LEGACY | PER_THREAD) => LEGACY,
        Some(handle @ PER_THREAD..) => handle,
        Some(stream) => return Err(DlpackError::Stream { stream }.into()),
    };
    // SAFETY: guaranteed by the caller for a handle; the legacy default stream is never destroyed.
    unsafe { Stream::adopt(device, StreamHandle(handle as u64), ()) }.map(Some)
}

/// A buffer that is being exported to a DLPack consumer. Set the shape, make the consumer's stream wait, and then take
/// the C struct.
///
/// ```
/// use std::sync::Arc;
/// use warpsmith_interop::dlpack::{Export, Imported};
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let table = Arc::new(DeviceBuffer::from_host(&stream, &[1u8, 2, 3, 4, 5, 6])?);
/// // The last two columns of a 2 x 3 matrix. The tensor is read-only, because the buffer is shared.
/// let export = Export::shared(Arc::clone(&table)).with_strides(1, &[2, 2], &[3, 1])?;
/// // SAFETY: the tensor was just exported, and all work on it is on `stream`.
/// let imported = unsafe { Imported::from_raw(export.into_raw().as_ptr()) }?;
/// assert!(imported.is_read_only());
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct Export(Box<Exported>);

// SAFETY: all pointers point to the box itself or to device memory that the value owns.
unsafe impl Send for Export {}
// SAFETY: shared references only allow reads.
unsafe impl Sync for Export {}

/// An exported tensor. It has the same address as its field `versioned`.
#[repr(C)]
pub(super) struct Exported {
    /// [`Export::new`] sets all fields except for the pointers into this struct.
    versioned: DLManagedTensorVersioned,
    legacy: MaybeUninit<DLManagedTensor>,
    extents: Extents,
    /// `None` after the buffer has been taken out.
    owner: Option<Owner>,
    /// Stream on which the consumer's work runs.
    consumer: Option<Stream>,
}

/// The shape, followed by the strides.
enum Extents {
    Inline([i64; 2 * INLINE]),
    Heap(Box<[i64]>),
}

impl Extents {
    fn new(shape: &[usize], stride: impl Fn(usize) -> usize) -> Self {
        let rank = shape.len();
        // `Layout::new` has checked these numbers, so they fit into `i64`.
        let number = |at| if at < rank { shape[at] as i64 } else { stride(at - rank) as i64 };
        if rank <= INLINE {
            let mut values = [0; 2 * INLINE];
            (0..2 * rank).for_each(|at| values[at] = number(at));
            return Self::Inline(values);
        }
        Self::Heap((0..2 * rank).map(number).collect())
    }

    fn values(&mut self) -> &mut [i64] {
        match self {
            Self::Inline(values) => values,
            Self::Heap(values) => values,
        }
    }
}

enum Owner {
    Unique(DeviceBuffer<u8>),
    Shared(Arc<dyn Buffer>),
}

/// A buffer of any type.
trait Buffer: Send + Sync {
    fn as_bytes(&self) -> (DevicePtr, usize);
    fn used(&self, access: Access) -> BufferUse<'_>;
    fn stream(&self) -> &Stream;
    fn record_stream(&self, stream: &Stream) -> Result<()>;
}

impl<T: Element> Buffer for DeviceBuffer<T> {
    fn as_bytes(&self) -> (DevicePtr, usize) {
        (self.as_device_ptr(), self.len() * size_of::<T>())
    }

    fn used(&self, access: Access) -> BufferUse<'_> {
        self.as_slice().used(access)
    }

    fn stream(&self) -> &Stream {
        self.stream()
    }

    fn record_stream(&self, stream: &Stream) -> Result<()> {
        self.record_stream(stream)
    }
}

impl Exported {
    fn buffer(&self) -> &dyn Buffer {
        match &self.owner {
            Some(Owner::Unique(buffer)) => buffer,
            Some(Owner::Shared(buffer)) => &**buffer,
            None => unreachable!("a tensor whose buffer was taken out is dropped"),
        }
    }

    /// Takes out the buffer and frees the struct, if the buffer is not shared and the tensor consists of all `bytes`
    /// bytes of the buffer.
    ///
    /// # Safety
    /// The struct must come from [`Export::publish`], and the caller must own it. If a buffer is returned, the struct
    /// has been freed.
    #[inline]
    pub(super) unsafe fn take(exported: NonNull<Self>, bytes: usize) -> Option<DeviceBuffer<u8>> {
        // SAFETY: the caller owns the struct.
        let Self { versioned, owner, .. } = unsafe { exported.as_ref() };
        let Some(Owner::Unique(buffer)) = owner else { return None };
        let is_start = bytes == 0 || buffer.as_device_ptr().0 == versioned.dl_tensor.data.addr() as u64;
        if !is_start || buffer.len() != bytes {
            return None;
        }
        // SAFETY: the caller owns the struct, which `publish` leaked from a box.
        let mut exported = unsafe { Box::from_raw(exported.as_ptr()) };
        exported.record_consumer();
        match exported.owner.take() {
            Some(Owner::Unique(buffer)) => Some(buffer),
            _ => unreachable!("checked above"),
        }
    }

    /// Orders later uses of the memory after all work that is already enqueued on the consumer's stream.
    #[inline]
    fn record_consumer(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            // This call fails only in a forked process, which does not free the memory.
            let _ = self.buffer().record_stream(&consumer);
        }
    }
}

impl Drop for Exported {
    fn drop(&mut self) {
        self.record_consumer();
    }
}

/// Deleter of the versioned struct.
unsafe extern "C" fn delete(tensor: *mut DLManagedTensorVersioned) {
    // SAFETY: the consumer calls the deleter once, with the struct that it received.
    drop(unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Exported>()) });
}

/// Deleter of the unversioned struct.
unsafe extern "C" fn delete_unversioned(tensor: *mut DLManagedTensor) {
    // SAFETY: the consumer calls the deleter once, with the struct that it received.
    drop(unsafe { Box::from_raw((*tensor).manager_ctx.cast::<Exported>()) });
}

/// Returns the struct of the tensor if this library exported it.
pub(super) fn exported(tensor: &DLManagedTensorVersioned) -> Option<NonNull<Exported>> {
    let is_own = tensor.deleter.is_some_and(|deleter| fn_addr_eq(deleter, delete as Deleter<_>));
    NonNull::new(tensor.manager_ctx.cast()).filter(|_| is_own)
}

/// Like [`exported`], but for the unversioned struct.
pub(super) fn exported_unversioned(tensor: &DLManagedTensor) -> Option<NonNull<Exported>> {
    let is_own = tensor.deleter.is_some_and(|deleter| fn_addr_eq(deleter, delete_unversioned as Deleter<_>));
    NonNull::new(tensor.manager_ctx.cast()).filter(|_| is_own)
}

type Deleter<T> = unsafe extern "C" fn(*mut T);

impl Export {
    /// Exports a buffer as a one-dimensional tensor. The consumer may write to it.
    pub fn new<T: Element>(buffer: DeviceBuffer<T>) -> Self {
        let (ptr, len, buffer) = buffer.into_raw();
        let device = device(buffer.device());
        Self::with_owner::<T>(ptr, len, device, 0, Owner::Unique(buffer))
    }

    /// Exports a shared buffer as a read-only one-dimensional tensor. The program can continue to read the buffer.
    pub fn shared<T: Element>(buffer: Arc<DeviceBuffer<T>>) -> Self {
        let (ptr, len, device) = (buffer.as_device_ptr(), buffer.len(), device(buffer.device()));
        Self::with_owner::<T>(ptr, len, device, DLPACK_FLAG_READ_ONLY, Owner::Shared(buffer))
    }

    /// Exports a tensor with its shape and strides. This function is the inverse of
    /// [`Imported::into_tensor`](super::Imported::into_tensor).
    pub fn from_tensor(tensor: super::Tensor) -> Self {
        let (buffer, dtype, shape, strides, is_read_only) = tensor.into_parts();
        let device = device(buffer.device());
        let flags = if is_read_only { DLPACK_FLAG_READ_ONLY } else { 0 };
        let mut export =
            Self::with_owner::<u8>(buffer.as_device_ptr(), 0, device, flags, Owner::Unique(buffer));
        export.0.versioned.dl_tensor.dtype = dtype;
        export.0.versioned.dl_tensor.ndim = shape.len() as i32;
        export.0.extents = Extents::new(&shape, |dimension| strides[dimension]);
        export
    }

    #[inline]
    fn with_owner<T: Element>(
        ptr: DevicePtr,
        len: usize,
        device: DLDevice,
        flags: u64,
        owner: Owner,
    ) -> Self {
        let dl_tensor = DLTensor {
            data: std::ptr::with_exposed_provenance_mut::<c_void>(ptr.0 as usize),
            device,
            ndim: 1,
            dtype: T::DATA_TYPE,
            shape: null_mut(),
            strides: null_mut(),
            byte_offset: 0,
        };
        let version = DLPackVersion { major: DLPACK_MAJOR_VERSION, minor: DLPACK_MINOR_VERSION };
        let (manager_ctx, deleter) = (null_mut(), Some(delete as _));
        let versioned = DLManagedTensorVersioned { version, manager_ctx, deleter, flags, dl_tensor };
        let mut exported = Box::<Exported>::new_uninit();
        let raw = exported.as_mut_ptr();
        // SAFETY: every field is written in place except for `legacy`, which may be uninitialized.
        unsafe {
            (&raw mut (*raw).versioned).write(versioned);
            (&raw mut (*raw).extents).write(Extents::Inline([len as i64, 1, 0, 0, 0, 0, 0, 0]));
            (&raw mut (*raw).owner).write(Some(owner));
            (&raw mut (*raw).consumer).write(None);
            Self(exported.assume_init())
        }
    }

    /// Sets the shape. The tensor contains all elements of the buffer in row-major order.
    ///
    /// # Errors
    /// Returns [`DlpackError::Shape`] if the number of elements differs from the buffer's length, or
    /// [`DlpackError::Dimensions`] for more than 64 dimensions. On error, the buffer is dropped.
    pub fn with_shape(self, shape: &[usize]) -> Result<Self> {
        let len = self.len();
        let product = shape.iter().try_fold(1usize, |product, extent| product.checked_mul(*extent));
        if product != Some(len) {
            let needed = product.unwrap_or(usize::MAX);
            return Err(DlpackError::Shape { shape: shape.to_vec(), offset: 0, needed, len }.into());
        }
        self.with_strides(0, shape, &row_major(shape))
    }

    /// Sets the index of the first element in the buffer, the shape, and the strides in elements. These values replace
    /// earlier values.
    ///
    /// The pointer `data` includes the offset, and `byte_offset` is 0, because some consumers ignore `byte_offset`.
    ///
    /// # Errors
    /// Returns [`DlpackError::Shape`] if an element is outside the buffer, [`DlpackError::Strides`] if the number of
    /// strides differs from the number of dimensions, [`DlpackError::Dimensions`] for more than 64 dimensions, or
    /// [`DlpackError::Broadcast`] or [`DlpackError::Overlap`] for strides that use an element twice. On error, the
    /// buffer is dropped.
    pub fn with_strides(mut self, offset: usize, shape: &[usize], strides: &[usize]) -> Result<Self> {
        if shape.len() != strides.len() {
            return Err(DlpackError::Strides { shape: shape.len(), strides: strides.len() }.into());
        }
        if shape.len() > MAX_DIMENSIONS {
            return Err(DlpackError::Dimensions { ndim: shape.len() as i64 }.into());
        }
        // `i64::MAX` is also rejected as too large, so larger numbers can be clamped to it.
        let clamp = |numbers: &[usize]| -> Vec<i64> {
            numbers.iter().map(|number| i64::try_from(*number).unwrap_or(i64::MAX)).collect()
        };
        let needed = Layout::new(&clamp(shape), Some(&clamp(strides)))?.span;
        let len = self.len();
        if offset.checked_add(needed).is_none_or(|end| end > len) {
            return Err(DlpackError::Shape { shape: shape.to_vec(), offset, needed, len }.into());
        }
        let start = self.0.buffer().as_bytes().0.offset(offset * self.element_bytes());
        let start = if needed == 0 { DevicePtr::NULL } else { start };
        let tensor = &mut self.0.versioned.dl_tensor;
        tensor.data = std::ptr::with_exposed_provenance_mut(start.0 as usize);
        tensor.ndim = shape.len() as i32;
        self.0.extents = Extents::new(shape, |dimension| strides[dimension]);
        Ok(self)
    }

    /// Adds flags: [`DLPACK_FLAG_READ_ONLY`], or [`DLPACK_FLAG_IS_COPIED`](super::DLPACK_FLAG_IS_COPIED) if the buffer
    /// is a copy for the consumer. Flags that are already set stay set.
    pub fn with_flags(mut self, flags: u64) -> Self {
        self.0.versioned.flags |= flags;
        self
    }

    /// Returns the device of the memory.
    pub fn device(&self) -> DLDevice {
        self.tensor().device
    }

    /// Returns the stream on which the buffer was allocated.
    pub fn stream(&self) -> &Stream {
        self.0.buffer().stream()
    }

    /// Returns the tensor without shape and strides.
    pub(crate) fn tensor(&self) -> &DLTensor {
        &self.0.versioned.dl_tensor
    }

    /// Returns the shape and the strides.
    pub(crate) fn extents(&mut self) -> (Vec<i64>, Vec<i64>) {
        let rank = self.tensor().ndim as usize;
        let values = &self.0.extents.values()[..2 * rank];
        (values[..rank].to_vec(), values[rank..].to_vec())
    }

    /// Returns true if the elements are contiguous in row-major order.
    pub(crate) fn is_packed(&mut self) -> bool {
        let (shape, strides) = self.extents();
        Layout::new(&shape, Some(&strides)).is_ok_and(|layout| layout.is_packed)
    }

    /// Returns the stream passed to [`Self::ready_on`].
    pub(crate) fn consumer(&self) -> Option<&Stream> {
        self.0.consumer.as_ref()
    }

    pub(crate) fn is_read_only(&self) -> bool {
        self.0.versioned.flags & DLPACK_FLAG_READ_ONLY != 0
    }

    fn element_bytes(&self) -> usize {
        usize::from(self.tensor().dtype.bits / 8)
    }

    /// Returns the length of the buffer in elements.
    fn len(&self) -> usize {
        self.0.buffer().as_bytes().1 / self.element_bytes()
    }

    /// Makes later work on the consumer's stream `stream` wait for all earlier work on the buffer. The memory is reused
    /// only after all work that has been enqueued on `stream` by the time the consumer calls the deleter.
    ///
    /// # Errors
    /// Returns [`Error::DifferentDevices`] for a stream of another device, any [driver error](Error::Driver), or
    /// [`GraphError`](warpsmith_runtime::GraphError) if a capture of the stream or of the buffer's earlier work does
    /// not allow the wait.
    pub fn ready_on(&mut self, stream: &Stream) -> Result<()> {
        let what = || ("exporting a tensor".to_owned(), "the buffer".to_owned());
        stream.check_device(self.stream().device(), what)?;
        let access = if self.is_read_only() { Access::Read } else { Access::Write };
        let used = [self.0.buffer().used(access)];
        // SAFETY: only waits are enqueued.
        unsafe { stream.enqueue_named("DLPack export", &used, |_| Ok::<_, Error>(())) }?;
        self.0.consumer = Some(stream.clone());
        Ok(())
    }

    /// Like [`Self::ready_on`], but takes the `stream` argument that a consumer passed to `__dlpack__`:
    ///
    /// | argument | CUDA device | emulated device |
    /// | --- | --- | --- |
    /// | `None` | CUDA's legacy default stream waits | this call waits for the buffer's work |
    /// | 1, 2 | the legacy or per-thread default stream waits | error |
    /// | a handle | the stream with this handle waits | error |
    /// | -1 | no stream waits: the consumer orders all its work before it calls the deleter | the same |
    ///
    /// A stream that the consumer is capturing cannot wait. The consumer must then pass -1 and order the work before
    /// the capture.
    ///
    /// See the [example](super).
    ///
    /// # Errors
    /// Returns [`DlpackError::Stream`] for 0 and for negative numbers other than -1, [`DlpackError::HostStream`] for a
    /// stream on an emulated device, the same errors as [`Self::ready_on`], or a fault of a kernel for which the call
    /// waited.
    ///
    /// # Safety
    /// If the argument is a handle, the stream must belong to the buffer's device, must stay alive until the deleter
    /// has been called, and must not be in a capture.
    pub unsafe fn ready_for(&mut self, stream: Option<i64>) -> Result<()> {
        let home = self.stream().clone();
        if !home.device().is_emulated() {
            // SAFETY: guaranteed by the caller.
            let stream = unsafe { adopt(home.device(), stream) }?;
            return stream.map_or(Ok(()), |stream| self.ready_on(&stream));
        }
        match stream {
            None => {
                home.check_not_capturing(
                    "Export::ready_for",
                    "export before the capture begins or after it ends",
                )?;
                self.ready_on(&home)?;
                home.synchronize()
            }
            Some(NO_ORDER) => Ok(()),
            Some(stream) => Err(DlpackError::HostStream { stream }.into()),
        }
    }

    /// Returns the versioned C struct for a capsule named `dltensor_versioned` or for a function of the C exchange API.
    /// Its deleter frees the buffer.
    #[inline]
    pub fn into_raw(self) -> NonNull<DLManagedTensorVersioned> {
        self.publish().cast()
    }

    /// Returns the unversioned C struct of DLPack before 1.0 for a capsule named `dltensor`. Consumers that pass no
    /// `max_version` expect this struct.
    ///
    /// # Errors
    /// Returns [`DlpackError::ReadOnlyUnversioned`] for a read-only tensor. On error, the buffer is dropped.
    pub fn into_raw_unversioned(self) -> Result<NonNull<DLManagedTensor>> {
        if self.is_read_only() {
            return Err(DlpackError::ReadOnlyUnversioned.into());
        }
        let exported = self.publish();
        // SAFETY: the struct was just created, and no other code uses it.
        let Exported { versioned: DLManagedTensorVersioned { dl_tensor, .. }, legacy, .. } =
            unsafe { &mut *exported.as_ptr() };
        let deleter = Some(delete_unversioned as _);
        legacy.write(DLManagedTensor {
            dl_tensor: *dl_tensor,
            manager_ctx: exported.as_ptr().cast(),
            deleter,
        });
        // SAFETY: as above; the field is within the struct.
        Ok(unsafe { NonNull::new_unchecked(addr_of_mut!((*exported.as_ptr()).legacy).cast()) })
    }

    /// Sets the pointers into the struct, which does not move afterwards.
    #[inline]
    fn publish(self) -> NonNull<Exported> {
        let exported = NonNull::from(Box::leak(self.0));
        let raw = exported.as_ptr();
        // SAFETY: the box is owned here. No reference outlives its statement. The derived pointers stay valid, because
        // later accesses go through `raw`.
        unsafe {
            let rank = (*raw).versioned.dl_tensor.ndim as usize;
            let values = (*raw).extents.values().as_mut_ptr();
            (*raw).versioned.manager_ctx = raw.cast();
            (*raw).versioned.dl_tensor.shape = values;
            (*raw).versioned.dl_tensor.strides = values.add(rank);
        }
        exported
    }
}
