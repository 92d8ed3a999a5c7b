//! The stack limit: bytes of stack that each thread of a kernel can use.
//!
//! Kernels whose stack is not known when they are compiled, because they recurse or call through pointers, and those that
//! declare one, have the limit raised to what they need when they are looked up. It is never lowered by itself. A launch of
//! such a kernel with a lower limit is refused: a thread that exceeds the limit accesses memory that is not its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Device;
use crate::driver::{Context, Driver};
use crate::error::{Error, Result, StackError, code};

/// The state of a device's stack limit.
#[derive(Debug, Default)]
pub(crate) struct Stack {
    /// The limit as last read, in bytes per thread; 0 before that.
    limit: AtomicUsize,
    /// Held while the limit is changed.
    changing: Mutex<()>,
    /// The kernels that need a stack which is not known when they are compiled, or declare one.
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

    /// The addition to a fault that one of these kernels can have caused: that the limit is the likely cause.
    pub(super) fn note<'k>(&self, mut suspects: impl Iterator<Item = &'k str>) -> String {
        let kernels = self.kernels();
        let Some(kernel) = suspects.find(|suspect| kernels.contains(suspect)) else { return String::new() };
        format!(
            "; the likely cause is that a thread of `{kernel}`, whose stack is not known when it is compiled, used more \
             than the stack limit of {} bytes: declare what it needs with `#[kernel(stack = BYTES)]`, or raise the limit \
             with `Device::set_stack_limit`",
            self.limit.load(Ordering::Relaxed)
        )
    }
}

impl Device {
    /// The stack limit in bytes per thread. It is 1024 on NVIDIA's GPUs until it is raised, here or for a kernel that
    /// needs more: one that declares it with `#[kernel(stack = BYTES)]`, or that recurses or calls through pointers,
    /// which is given 16 KiB. Other kernels need no limit: their stack is known.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn stack_limit(&self) -> Result<usize> {
        self.call(|driver, context| self.0.stack.read(driver, context))
    }

    /// Sets the stack limit to at least `bytes` a thread, for all launches that follow, of other code in the process too.
    ///
    /// It can wait for the device's work. The driver allocates that many bytes for each thread that the device holds at
    /// once: with 16 KiB that is 4.4 GB of memory on an H100.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    ///
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// let device = Device::emulated(0)?;
    /// device.set_stack_limit(32 << 10)?;
    /// assert_eq!(device.stack_limit()?, 32 << 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`StackError::Refused`] for more than the device can have, [`StackError::Capturing`] while a stream of the device is
    /// being captured.
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

    /// Sees that threads of a kernel can use `bytes` of stack: raises the limit if it is lower.
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

    /// Fails if the limit is lower than what a kernel needs, for which [`Self::need_stack`] was called.
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
