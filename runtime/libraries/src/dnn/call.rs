//! What every call of cuDNN begins with: the library, a handle, the checks that all operations share.

use std::ffi::c_void;
use std::ops::{Deref, DerefMut};

use cudarc::cudnn::sys::cudnnHandle_t;

use super::element::Float;
use super::options::Handle;
use super::tensor::{Shape, problem};
use crate::Vendor;
use crate::error::LibraryError;
use crate::handles::HandleGuard;
use crate::work::Work;
use warpsmith_core::device::Device;
use warpsmith_core::driver::LibraryCalls;
use warpsmith_core::error::Result;
use warpsmith_core::memory::{DeviceSlice, DeviceSliceMut};
use warpsmith_core::seam::BufferUse;
use warpsmith_core::stream::Stream;

/// A handle whose calls go to a stream. While it is there, this thread may call the library, also while it captures.
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

/// A handle whose calls go to the stream, with the device's context current.
pub(super) fn acquire(stream: &Stream) -> Result<Acquired<'_>> {
    Vendor::Cudnn.version()?;
    let device = stream.device();
    device.check()?;
    let calls = device.bind()?;
    Ok(Acquired { handle: crate::dnn::State::of(device).handles.acquire(stream)?, _calls: calls })
}

/// Fails unless the device, which is not emulated, computes with this type.
pub(super) fn check_type<T: Float>(operation: &'static str, device: &Device) -> Result<()> {
    let needed = match T::NAME {
        "bf16" => (8, 0),
        "f16" => (5, 3),
        _ => (0, 0),
    };
    if device.properties().capability >= needed {
        return Ok(());
    }
    let needs = Some(format!("compute capability {}.{} or newer", needed.0, needed.1));
    Err(LibraryError::Unsupported { operation, what: format!("{} on {}", T::NAME, device.name()), needs }
        .into())
}

/// Fails unless what an operation uses is on the stream's device.
pub(super) fn check_device(
    stream: &Stream,
    operation: &'static str,
    what: &'static str,
    device: &Device,
) -> Result<()> {
    stream.check_device(device, || (operation.to_owned(), what.to_owned()))
}

/// Fails unless two tensors have one shape and layout.
pub(super) fn check_same(
    operation: &'static str,
    (left_name, left): (&str, &Shape),
    (right_name, right): (&str, &Shape),
) -> Result<()> {
    if left == right {
        return Ok(());
    }
    Err(problem(
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

/// Elements of the emulated device.
///
/// # Safety
/// The slice is one that work underway reads, which was noted, and it runs now.
pub(super) unsafe fn elements<'a, T: Float>(address: u64, len: usize) -> &'a [T] {
    if len == 0 {
        return &[];
    }
    // SAFETY: memory of the emulated device is memory of the process at this address; the caller's promise.
    unsafe { std::slice::from_raw_parts(address as usize as *const T, len) }
}

/// As [`elements`], to write.
///
/// # Safety
/// As [`elements`], of a slice that the work writes and nothing else uses.
pub(super) unsafe fn elements_mut<'a, T: Float>(address: u64, len: usize) -> &'a mut [T] {
    if len == 0 {
        return &mut [];
    }
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(address as usize as *mut T, len) }
}

/// Where elements are, for work that runs later.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub address: u64,
    pub len: usize,
}

impl Place {
    pub fn of<T: Float>(slice: &DeviceSlice<'_, T>) -> Self {
        Self { address: slice.as_device_ptr().0, len: slice.len() }
    }

    pub fn of_mut<T: Float>(slice: &DeviceSliceMut<'_, T>) -> Self {
        Self { address: slice.as_device_ptr().0, len: slice.len() }
    }
}

/// Enqueues an operation of the older interface: on a GPU `library`, which is given the handle, on the emulated device
/// `host`. Of empty tensors nothing is done.
///
/// What both do stays inside of the parts, which have names for errors.
pub(super) fn enqueue<T: Float>(
    operation: &'static str,
    stream: &Stream,
    (parts, names): (&[BufferUse<'_>], &[&'static str]),
    library: impl FnOnce(cudnnHandle_t) -> Result<()>,
    host: impl Fn() + Send + Sync + 'static,
) -> Result<()> {
    for (part, name) in parts.iter().zip(names) {
        check_device(stream, operation, name, part.device())?;
    }
    if parts.iter().any(|part| part.bytes() == 0) {
        return Ok(());
    }
    let device = stream.device();
    if device.is_emulated() {
        let library = |_| Err(LibraryError::NeedsGpu { operation }.into());
        // SAFETY: the parts are the operands', which were checked not to overlap where one is written; the work stays
        // inside them, by their shapes.
        return unsafe { Work::new(stream, parts) }.enqueue(library, || Ok(Box::new(host)));
    }
    check_type::<T>(operation, device)?;
    let handle = acquire(stream)?;
    let raw = handle.raw.get();
    let host = || Err(LibraryError::NeedsGpu { operation }.into());
    // SAFETY: the parts are the operands', which were checked not to overlap where one is written; the work stays
    // inside them, by their shapes.
    unsafe { Work::new(stream, parts) }.enqueue(|_| library(raw), host)
}

/// An address of the device, to read.
pub(super) fn pointer(place: Place) -> *const c_void {
    place.address as usize as *const c_void
}

/// An address of the device, to write.
pub(super) fn pointer_mut(place: Place) -> *mut c_void {
    place.address as usize as *mut c_void
}
