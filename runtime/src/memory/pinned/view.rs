//! [`PinnedMemory`]: the interface of a device's page-locked memory.

use super::allocator::PinnedAllocator;
use crate::device::Device;
use crate::error::Result;
use crate::memory::options::PinnedOptions;
use crate::memory::statistics::HostMemoryStatistics;

/// A device's page-locked host memory: statistics, caching options, release of cached memory.
///
/// ```
/// use warpsmith_runtime::{Device, PinnedBuffer};
///
/// let device = Device::emulated(0)?;
/// let pinned = device.pinned_memory();
/// pinned.set_limit(Some(64 << 20));
/// drop(PinnedBuffer::<u8>::zeroed(&device, 1 << 20)?);
/// assert_eq!(pinned.statistics().active_bytes.current, 0);
/// // The block is cached until now.
/// assert_eq!(pinned.empty_cache()?, 1 << 20);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct PinnedMemory<'a> {
    device: &'a Device,
}

impl Device {
    /// Returns the page-locked host memory of this device's [`PinnedBuffer`](super::PinnedBuffer)s.
    pub fn pinned_memory(&self) -> PinnedMemory<'_> {
        PinnedMemory { device: self }
    }
}

impl<'a> PinnedMemory<'a> {
    fn allocator(&self) -> &'a PinnedAllocator {
        self.device.part::<PinnedAllocator>()
    }

    /// Returns statistics of reserved memory and memory in use.
    ///
    /// `allocations` and `allocated_bytes` count blocks that were allocated from the driver and have not been returned
    /// to it; the reserve segment counts as one block. `active_requests` and `active_bytes` count blocks, with their
    /// rounded-up size, that belong to buffers or still wait for their streams.
    pub fn statistics(&self) -> HostMemoryStatistics {
        self.allocator().store.counters.statistics()
    }

    /// Sets every peak to the current value.
    pub fn reset_peak_statistics(&self) {
        self.allocator().store.counters.reset_peak();
    }

    /// Resets the accumulated values to zero: the allocated and freed amounts, and the number and durations of driver
    /// calls.
    pub fn reset_accumulated_statistics(&self) {
        self.allocator().store.counters.reset_accumulated();
    }

    /// Releases to the system all memory that no buffer owns and no stream uses, except for the reserve segment.
    /// Returns the number of bytes released.
    ///
    /// # Errors
    /// Returns the fault if a kernel faulted, or any [driver error](crate::Error::Driver), in which case memory that
    /// was not released stays cached.
    pub fn empty_cache(&self) -> Result<u64> {
        self.allocator().empty_cache(self.device)
    }

    /// Returns the caching options.
    pub fn options(&self) -> PinnedOptions {
        self.allocator().store.options()
    }

    /// Sets the caching options, which apply to all later requests and drops. An existing reserve segment is kept.
    pub fn configure(&self, options: PinnedOptions) {
        self.allocator().store.set_options(options);
    }

    /// Returns the maximum number of allocated bytes; `None` for no limit.
    pub fn limit(&self) -> Option<u64> {
        self.allocator().store.counters.limit()
    }

    /// Sets the maximum number of allocated bytes, including cached blocks and the reserve segment.
    pub fn set_limit(&self, bytes: Option<u64>) {
        self.allocator().store.counters.set_limit(bytes);
    }
}
