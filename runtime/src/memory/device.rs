//! [`Device::memory_info`], [`Device::synchronize`]: operations on an entire device.

use super::MemoryInfo;
use super::allocator::CachingAllocator;
use crate::device::Device;
use crate::device::observe::{self, Awaited, Operation, site};
use crate::error::{GraphError, Result};

impl Device {
    /// Returns the free and the total device memory.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let (free, total) = self.call(|driver, context| driver.memory_info(context))?;
        Ok(MemoryInfo { free, total })
    }

    /// Waits for all work enqueued on the device.
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted, or the findings of a [check](crate::check).
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let _site = site();
        self.wait()?;
        self.check_findings()
    }

    /// Like [`Self::synchronize`], but leaves findings for the next call that reports them.
    pub(crate) fn wait(&self) -> Result<()> {
        self.check()?;
        if self.part::<CachingAllocator>().capturing() {
            return Err(GraphError::CaptureUnderway.into());
        }
        let watch = observe::begin(self, || (None, Operation::Synchronize(Awaited::Device)));
        watch.done(self.call(|driver, context| driver.context_synchronize(context)))?;
        self.0.health.all_finished();
        Ok(())
    }
}
