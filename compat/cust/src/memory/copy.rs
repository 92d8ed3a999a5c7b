//! Copies between host and device, by pointer.

use std::ffi::c_void;

use warpsmith_runtime::{DevicePtr, driver::StreamHandle};

use crate::context;
use crate::error::CudaResult;
use crate::stream::{Stream, wait_for_blocking};

/// Memory that can be copied from and to an `O`; the copy is done when the call returns.
///
/// A copy is ordered behind the work of streams made without `NON_BLOCKING`. Wait for other streams first.
pub trait CopyDestination<O: ?Sized> {
    /// Copies `source` here.
    ///
    /// # Errors
    ///
    /// A fault of earlier work; whatever the driver reports.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn copy_from(&mut self, source: &O) -> CudaResult<()>;

    /// Copies this to `dest`.
    ///
    /// # Errors
    ///
    /// As [`Self::copy_from`].
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    fn copy_to(&self, dest: &mut O) -> CudaResult<()>;
}

/// Memory that can be copied from and to an `O` in a stream; the call returns at once.
pub trait AsyncCopyDestination<O: ?Sized> {
    /// Enqueues a copy of `source` here.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    ///
    /// # Safety
    ///
    /// Until the copy is done, both memories stay, and nothing else writes either or reads this.
    unsafe fn async_copy_from(&mut self, source: &O, stream: &Stream) -> CudaResult<()>;

    /// Enqueues a copy of this to `dest`.
    ///
    /// # Errors
    ///
    /// Whatever the driver reports.
    ///
    /// # Panics
    ///
    /// If the lengths differ.
    ///
    /// # Safety
    ///
    /// As for [`Self::async_copy_from`].
    unsafe fn async_copy_to(&self, dest: &mut O, stream: &Stream) -> CudaResult<()>;
}

/// One copy, or setting bytes.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Transfer {
    ToDevice { from: *const c_void, to: u64 },
    ToHost { from: u64, to: *mut c_void },
    OnDevice { from: u64, to: u64 },
    Set { value: u8, to: u64 },
}

impl Transfer {
    /// Does it, behind earlier work of blocking streams.
    ///
    /// # Safety
    ///
    /// Both memories have `bytes` bytes, and nothing else accesses them meanwhile but reads of the source.
    pub unsafe fn run(self, bytes: usize) -> CudaResult<()> {
        if bytes == 0 {
            return Ok(());
        }
        let device = context::current()?;
        wait_for_blocking(&device)?;
        let stream = device.default_stream();
        // SAFETY: the caller's promise; the memory is not accessed after the wait.
        unsafe { self.enqueue_on(&device, stream.handle(), bytes)? };
        Ok(stream.synchronize()?)
    }

    /// Enqueues it.
    ///
    /// # Safety
    ///
    /// As for [`Self::run`], until the stream has done it.
    pub unsafe fn enqueue(self, bytes: usize, stream: &Stream) -> CudaResult<()> {
        if bytes == 0 {
            return Ok(());
        }
        let stream = stream.runtime();
        // SAFETY: the caller's promise.
        unsafe { self.enqueue_on(stream.device(), stream.handle(), bytes) }
    }

    /// # Safety
    ///
    /// As for [`Self::enqueue`]; the stream is of the device.
    pub(super) unsafe fn enqueue_on(
        self,
        device: &warpsmith_runtime::Device,
        stream: StreamHandle,
        bytes: usize,
    ) -> CudaResult<()> {
        device.check()?;
        // SAFETY: the context and the stream are of a device that lives; the memory is the caller's promise.
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
