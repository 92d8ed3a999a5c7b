//! [`Device::memory_info`], [`Device::synchronize`]: queries of the whole device.

use super::MemoryInfo;
use super::allocator::CachingAllocator;
use crate::device::Device;
use crate::device::observe::{self, Awaited, Operation, site};
use crate::error::{GraphError, Result};

impl Device {
    /// Free and total device memory.
    ///
    /// # Errors
    /// Any [driver error](crate::Error::Driver).
    pub fn memory_info(&self) -> Result<MemoryInfo> {
        let (free, total) = self.call(|driver, context| driver.memory_info(context))?;
        Ok(MemoryInfo { free, total })
    }

    /// Waits for everything enqueued on the device.
    ///
    /// # Errors
    /// A fault of a kernel that was running; the findings of a [check](crate::check).
    #[track_caller]
    pub fn synchronize(&self) -> Result<()> {
        let _site = site();
        self.wait()?;
        self.check_findings()
    }

    /// As [`Self::synchronize`], but findings are left for the next call that reports them.
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
