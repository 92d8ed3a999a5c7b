//! The stack limit: the stack size per thread of a kernel, in bytes (`cudaLimitStackSize`).
//!
//! Some kernels declare their stack size; for kernels that recurse or call through pointers, it is unknown at compile
//! time. Looking up a kernel of either kind raises the limit to what the kernel needs; the runtime never lowers it.
//! Launching such a kernel fails if other code has lowered the limit, because a thread that exceeds it would access
//! memory outside its stack.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Device;
use crate::driver::{Context, Driver};
use crate::error::{Error, Result, StackError, code};

/// State of a device's stack limit.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    /// Limit last read from the driver, in bytes per thread; 0 before the first read.
    limit: AtomicUsize,
    /// Lock that is held while the limit is changed.
    changing: Mutex<()>,
    /// Kernels whose stack size is declared or unknown at compile time.
    kernels: Mutex<Vec<&'static str>>,
}

impl Stack {
    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn kernels(&self) -> MutexGuard<'_, Vec<&'static str>> {
        self.kernels.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, driver: &dyn Driver, context: Context) -> Result<usize> {
        let limit = driver.context_stack_limit(context)?;
        self.limit.store(limit, Ordering::Relaxed);
        Ok(limit)
    }

    /// Returns a note for a fault report if a suspected kernel depends on the stack limit and may have overflowed its
    /// stack.
    pub(super) fn note<'k>(&self, mut suspects: impl Iterator<Item = &'k str>) -> String {
        let kernels = self.kernels();
        let Some(kernel) = suspects.find(|suspect| kernels.contains(suspect)) else { return String::new() };
        format!(
            "; a thread of `{kernel}`, whose stack size is unknown at compile time, probably exceeded the stack \
             limit of {} bytes: declare the size with `#[kernel(stack = BYTES)]`, or raise the limit with \
             `Device::set_stack_limit`",
            self.limit.load(Ordering::Relaxed)
        )
    }
}

impl Device {
    /// Returns the stack limit in bytes per thread. On NVIDIA GPUs, it is 1024 until [`Self::set_stack_limit`] or a
    /// kernel that needs more raises it. A kernel can declare its stack size with `#[kernel(stack = BYTES)]`. Kernels
    /// that recurse or call through pointers are assumed to need 16 KiB. Other kernels do not depend on the limit,
    /// because the compiler knows their stack size.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    pub fn stack_limit(&self) -> Result<usize> {
        self.call(|driver, context| self.0.stack.read(driver, context))
    }

    /// Raises the stack limit to at least `bytes` per thread, for all later launches in the process, including those by
    /// other code.
    ///
    /// The call may wait for the device to become idle. The driver allocates `bytes` for each thread that can be
    /// resident on the device: 16 KiB per thread take 4.4 GB on an H100.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// let device = Device::emulated(0)?;
    /// device.set_stack_limit(32 << 10)?;
    /// assert_eq!(device.stack_limit()?, 32 << 10);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`StackError::Refused`] if `bytes` exceeds the device's maximum, or [`StackError::Capturing`] while a
    /// stream of the device is being captured.
    pub fn set_stack_limit(&self, bytes: usize) -> Result<()> {
        let _changing = self.0.stack.changing();
        self.change_stack_limit(bytes)
    }

    fn change_stack_limit(&self, bytes: usize) -> Result<()> {
        let device = self.id();
        self.call(|driver, context| driver.context_set_stack_limit(context, bytes)).map_err(|error| {
            match error.driver_code() {
                Some(code::STREAM_CAPTURE_UNSUPPORTED | code::STREAM_CAPTURE_IMPLICIT) => {
                    StackError::Capturing { device, bytes }.into()
                }
                Some(code::INVALID_VALUE | code::OUT_OF_MEMORY) => {
                    StackError::Refused { device, bytes, reason: error.to_string() }.into()
                }
                _ => error,
            }
        })?;
        self.stack_limit().map(|_| ())
    }

    /// Raises the limit to `bytes` if it is lower, so that each thread of a kernel can use a stack of this size.
    pub(crate) fn need_stack(&self, kernel: &'static str, bytes: usize) -> Result<()> {
        let _changing = self.0.stack.changing();
        if self.stack_limit()? < bytes {
            self.change_stack_limit(bytes)?;
        }
        let mut kernels = self.0.stack.kernels();
        if !kernels.contains(&kernel) {
            kernels.push(kernel);
        }
        Ok(())
    }

    /// Returns an error if the limit has been lowered below the stack size of a kernel for which [`Self::need_stack`]
    /// was called.
    #[cold]
    pub(crate) fn check_stack(&self, kernel: &'static str, needs: usize) -> Result<()> {
        let limit = self.0.stack.limit.load(Ordering::Relaxed);
        if limit >= needs {
            return Ok(());
        }
        let (kernel, device) = (kernel.to_owned(), self.id());
        Err(Error::from(StackError::TooLow { kernel, device, needs, limit }))
    }
}
