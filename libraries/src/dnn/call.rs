//! Common start of all cuDNN calls: loading the library, acquiring a handle, and shared checks.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};

use cudarc::cudnn::sys::cudnnHandle_t;

use super::options::Handle;
use super::tensor::Shape;
use crate::Vendor;
use crate::element::DataType;
use crate::element::FloatType;
use crate::error::{LibraryError, check_devices};
use crate::handles::HandleGuard;
use warpsmith_runtime::driver::LibraryCalls;
use warpsmith_runtime::extension::{Access, BufferUse};
use warpsmith_runtime::{Device, DeviceBuffer, DeviceSlice, DeviceSliceMut, Result, Stream};

/// A library handle for a stream. While this value exists, the thread may call the library, even during stream capture.
pub(super) struct Acquired<'a> {
    handle: HandleGuard<'a, Handle>,
    _calls: LibraryCalls,
}

impl Deref for Acquired<'_> {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl DerefMut for Acquired<'_> {
    fn deref_mut(&mut self) -> &mut Handle {
        &mut self.handle
    }
}

/// Acquires a handle for the stream and makes the device's context current.
pub(super) fn acquire(stream: &Stream) -> Result<Acquired<'_>> {
    Vendor::Cudnn.version()?;
    let device = stream.device();
    device.check()?;
    let calls = device.bind()?;
    Ok(Acquired { handle: crate::dnn::State::of(device).handles.acquire(stream)?, _calls: calls })
}

/// Returns an error if the device does not support computing in this type. The device must not be emulated.
pub(super) fn check_type<T: FloatType>(operation: &'static str, device: &Device) -> Result<()> {
    let needed = match T::TYPE {
        DataType::Bf16 => (8, 0),
        DataType::F16 => (5, 3),
        _ => (0, 0),
    };
    if device.properties().capability >= needed {
        return Ok(());
    }
    let needs = format!("compute capability {}.{} or higher", needed.0, needed.1);
    Err(LibraryError::unsupported(operation, format!("{} on {}", T::TYPE.name(), device.name()), &needs))
}

/// Returns an error unless two tensors have the same shape and layout.
pub(super) fn check_same(
    operation: &'static str,
    (left_name, left): (&str, &Shape),
    (right_name, right): (&str, &Shape),
) -> Result<()> {
    if left == right {
        return Ok(());
    }
    Err(LibraryError::shape(
        operation,
        format!(
            "{left_name} is {:?} {:?} and {right_name} is {:?} {:?}; they must be the same",
            left.shown(),
            left.layout,
            right.shown(),
            right.layout
        ),
    ))
}

/// An operand: a tensor, or one value per channel.
pub(super) struct Operand<'a> {
    /// Name of the operand in error messages.
    pub name: &'static str,
    /// The buffer range to use, or `None` if the operand is omitted.
    pub part: Option<BufferUse<'a>>,
    pub place: Place,
    bytes: Bytes<'a>,
}

/// The bytes of an operand, which may have to be copied.
enum Bytes<'a> {
    None,
    Read(DeviceSlice<'a, u8>),
    Written(DeviceSliceMut<'a, u8>),
}

impl<'a> Operand<'a> {
    pub fn read<T: FloatType>(name: &'static str, slice: &DeviceSlice<'a, T>) -> Self {
        let place = Place { address: slice.as_device_ptr().0, len: slice.len() };
        let bytes = slice.cast().map_or(Bytes::None, Bytes::Read);
        Self { name, part: Some(slice.used(Access::Read)), place, bytes }
    }

    pub fn written<T: FloatType>(name: &'static str, slice: &DeviceSliceMut<'a, T>) -> Self {
        let place = Place { address: slice.as_device_ptr().0, len: slice.len() };
        Self { name, part: Some(slice.used()), place, bytes: Bytes::None }
    }

    /// Like [`Self::written`], but for [`enqueue`], which may have to copy to the operand.
    pub fn target<T: FloatType>(name: &'static str, slice: &'a mut DeviceSliceMut<'_, T>) -> Self {
        let slice = slice.reborrow();
        let operand = Self::written(name, &slice);
        Self { bytes: slice.cast().map_or(Bytes::None, Bytes::Written), ..operand }
    }

    fn is_aligned(&self) -> bool {
        self.place.address.is_multiple_of(ALIGNMENT)
    }

    pub fn none(name: &'static str) -> Self {
        Self { name, part: None, place: Place { address: 0, len: 0 }, bytes: Bytes::None }
    }
}

/// Address and length of an operand, for work that runs later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub address: u64,
    pub len: usize,
}

impl Place {
    /// Returns the operand's address on a GPU.
    pub fn pointer(self) -> *mut c_void {
        self.address as usize as *mut c_void
    }

    /// Returns the elements on the emulated device, whose memory is memory of this process.
    ///
    /// # Safety
    /// The elements must be of this type and must belong to an operand of the work that is currently running.
    pub unsafe fn read<'a, T: FloatType>(self) -> &'a [T] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts(self.address as usize as *const T, self.len) }
    }

    /// Like [`Self::read`], but for writing.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::read`]. In addition, the work must be allowed to write
    /// this operand, and nothing else may access it.
    pub unsafe fn write<'a, T: FloatType>(self) -> &'a mut [T] {
        if self.len == 0 {
            return &mut [];
        }
        // SAFETY: guaranteed by the caller.
        unsafe { std::slice::from_raw_parts_mut(self.address as usize as *mut T, self.len) }
    }
}

/// Returns an error if any operand is not on the stream's device. Otherwise, returns the buffer parts and the addresses
/// of the operands.
pub(super) fn check<'a, const N: usize>(
    operation: &'static str,
    stream: &Stream,
    operands: [Operand<'a>; N],
) -> Result<(Vec<BufferUse<'a>>, [Place; N])> {
    check_operands(operation, stream, &operands)?;
    let places = operands.each_ref().map(|operand| operand.place);
    let mut parts = Vec::with_capacity(N + 1);
    parts.extend(operands.into_iter().filter_map(|operand| operand.part));
    Ok((parts, places))
}

fn check_operands(operation: &'static str, stream: &Stream, operands: &[Operand<'_>]) -> Result<()> {
    let used = operands.iter().filter_map(|operand| Some((operand.part.as_ref()?.device(), operand.name)));
    used.into_iter().try_for_each(|used| check_devices(stream, operation, [used]))
}

/// Enqueues an operation of the legacy API. On a GPU, the work calls `library` with the handle and the operands'
/// addresses. On the emulated device, it calls `host`. If all tensors are empty, nothing is enqueued. Both functions
/// must access only the operands.
pub(super) fn enqueue<T: FloatType, const N: usize>(
    operation: &'static str,
    stream: &Stream,
    operands: [Operand<'_>; N],
    library: impl FnOnce(cudnnHandle_t, [*mut c_void; N]) -> Result<()>,
    host: impl Fn([Place; N]) + Send + Sync + 'static,
) -> Result<()> {
    let is_empty = |operand: &Operand<'_>| operand.part.as_ref().is_some_and(|part| part.bytes() == 0);
    if !stream.device().is_emulated()
        && !operands.iter().any(is_empty)
        && !operands.iter().all(Operand::is_aligned)
    {
        check_operands(operation, stream, &operands)?;
        return enqueue_aligned::<T, N>(operation, stream, operands, library);
    }
    let (parts, places) = check(operation, stream, operands)?;
    if parts.iter().any(|part| part.bytes() == 0) {
        return Ok(());
    }
    if stream.device().is_emulated() {
        // SAFETY: `parts` are the operands, and no written operand overlaps another one. The shapes were checked, so
        // the work accesses only the operands.
        return unsafe { stream.enqueue_host_named(operation, &parts, move || host(places)) };
    }
    enqueue_gpu::<T>(operation, stream, &parts, |handle| library(handle, places.map(Place::pointer)))
}

/// Alignment in bytes that kernels of the legacy API rely on. With a smaller alignment, the batch-normalization kernels
/// fail with a misaligned address, which invalidates the context (observed with cuDNN 9 on an H200). The cuDNN
/// documentation does not state this requirement.
const ALIGNMENT: u64 = 16;

/// Like [`enqueue_gpu`], but uses aligned copies of unaligned operands. Copies of operands that the operation writes
/// are then copied back.
fn enqueue_aligned<T: FloatType, const N: usize>(
    operation: &'static str,
    stream: &Stream,
    operands: [Operand<'_>; N],
    library: impl FnOnce(cudnnHandle_t, [*mut c_void; N]) -> Result<()>,
) -> Result<()> {
    let mut copies = Vec::with_capacity(N);
    for operand in &operands {
        let from = match &operand.bytes {
            _ if operand.is_aligned() => None,
            Bytes::None => None,
            Bytes::Read(bytes) => Some(*bytes),
            Bytes::Written(bytes) => Some(bytes.as_slice()),
        };
        copies.push(match from {
            None => None,
            Some(from) => {
                let mut copy = DeviceBuffer::<u8>::uninit(stream, from.len())?;
                stream.copy(from, &mut copy)?;
                Some(copy)
            }
        });
    }
    let mut places = operands.each_ref().map(|operand| operand.place);
    let mut parts = Vec::with_capacity(N);
    for ((operand, copy), place) in operands.iter().zip(&mut copies).zip(&mut places) {
        match copy {
            None => parts.extend(operand.part.clone()),
            Some(copy) => {
                place.address = copy.as_device_ptr().0;
                parts.push(match operand.bytes {
                    Bytes::Written(_) => copy.as_mut_slice().used(),
                    _ => copy.as_slice().used(Access::Read),
                });
            }
        }
    }
    enqueue_gpu::<T>(operation, stream, &parts, |handle| library(handle, places.map(Place::pointer)))?;
    drop(parts);
    for (operand, copy) in operands.into_iter().zip(copies) {
        if let (Bytes::Written(bytes), Some(copy)) = (operand.bytes, copy) {
            stream.copy(&copy, bytes)?;
        }
    }
    Ok(())
}

/// Enqueues the operation on a GPU. `library` must access only the parts.
pub(super) fn enqueue_gpu<T: FloatType>(
    operation: &'static str,
    stream: &Stream,
    parts: &[BufferUse<'_>],
    library: impl FnOnce(cudnnHandle_t) -> Result<()>,
) -> Result<()> {
    check_type::<T>(operation, stream.device())?;
    let handle = acquire(stream)?;
    let raw = handle.raw.get();
    // SAFETY: `parts` are the operands, and no written operand overlaps another one. The shapes were checked, so the
    // work accesses only the operands.
    unsafe { stream.enqueue_named(operation, parts, |_| library(raw)) }
}
