//! Copies between host and device by pointer.

use std::ffi::c_void;

use warpsmith_runtime::{DevicePtr, driver::StreamHandle};

use crate::context;
use crate::error::CudaResult;
use crate::stream::{Stream, wait_for_blocking};

/// Memory that can be copied synchronously to and from an `O`. When a function returns, its copy is complete.
///
/// Each copy is ordered after the work of all streams created without `NON_BLOCKING`. Before the copy, wait for all
/// other streams that use the memory.
pub trait CopyDestination<O: ?Sized> {
    /// Copies `source` to this memory.
    ///
    /// # Errors
    /// Returns a fault in earlier work, or a driver error.
    ///
    /// # Panics
    /// Panics if the lengths differ.
    fn copy_from(&mut self, source: &O) -> CudaResult<()>;

    /// Copies this memory to `dest`.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::copy_from`].
    ///
    /// # Panics
    /// Panics if the lengths differ.
    fn copy_to(&self, dest: &mut O) -> CudaResult<()>;
}

/// Memory that can be copied asynchronously to and from an `O` in a stream. The call returns immediately.
pub trait AsyncCopyDestination<O: ?Sized> {
    /// Enqueues a copy of `source` to this memory.
    ///
    /// # Errors
    /// Returns driver errors.
    ///
    /// # Panics
    /// Panics if the lengths differ.
    ///
    /// # Safety
    /// Both memory ranges must stay valid until the copy is complete. Until then, nothing else may write to either of
    /// them or read this memory.
    unsafe fn async_copy_from(&mut self, source: &O, stream: &Stream) -> CudaResult<()>;

    /// Enqueues a copy of this memory to `dest`.
    ///
    /// # Errors
    /// Returns driver errors.
    ///
    /// # Panics
    /// Panics if the lengths differ.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::async_copy_from`].
    unsafe fn async_copy_to(&self, dest: &mut O, stream: &Stream) -> CudaResult<()>;
}

/// Copy or memset.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Transfer {
    ToDevice { from: *const c_void, to: u64 },
    ToHost { from: u64, to: *mut c_void },
    OnDevice { from: u64, to: u64 },
    Set { value: u8, to: u64 },
}

impl Transfer {
    /// Performs the transfer, ordered after earlier work in blocking streams.
    ///
    /// # Safety
    /// Both memory ranges must have `bytes` bytes. During the call, nothing else may access them, except for reads of
    /// the source.
    pub unsafe fn run(self, bytes: usize) -> CudaResult<()> {
        if bytes == 0 {
            return Ok(());
        }
        let device = context::current()?;
        wait_for_blocking(&device)?;
        let stream = device.default_stream();
        // SAFETY: the caller guarantees the requirements, and nothing accesses the memory after the wait.
        unsafe { self.enqueue_on(&device, stream.handle(), bytes)? };
        Ok(stream.synchronize()?)
    }

    /// Enqueues the transfer.
    ///
    /// # Safety
    /// The safety contract of [`Self::run`] must be upheld until the stream has completed the transfer.
    pub unsafe fn enqueue(self, bytes: usize, stream: &Stream) -> CudaResult<()> {
        if bytes == 0 {
            return Ok(());
        }
        let stream = stream.runtime();
        // SAFETY: guaranteed by the caller.
        unsafe { self.enqueue_on(stream.device(), stream.handle(), bytes) }
    }

    /// # Safety
    /// The caller must uphold the safety contract of [`Self::enqueue`], and the stream must belong to the device.
    pub(super) unsafe fn enqueue_on(
        self,
        device: &warpsmith_runtime::Device,
        stream: StreamHandle,
        bytes: usize,
    ) -> CudaResult<()> {
        device.check()?;
        // SAFETY: the context and the stream belong to a live device; the caller guarantees valid memory.
        unsafe {
            let (driver, context) = device.driver();
            match self {
                Transfer::ToDevice { from, to } => {
                    driver.copy_to_device(context, DevicePtr(to), from, bytes, stream)?;
                }
                Transfer::ToHost { from, to } => {
                    driver.copy_to_host(context, to, DevicePtr(from), bytes, stream)?;
                }
                Transfer::OnDevice { from, to } => {
                    driver.copy_device(context, DevicePtr(to), DevicePtr(from), bytes, stream)?;
                }
                Transfer::Set { value, to } => driver.memset(context, DevicePtr(to), value, bytes, stream)?,
            }
        }
        Ok(())
    }
}
