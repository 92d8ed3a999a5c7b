//! [`PinnedMemory`]: a device's page-locked memory as a whole.

use super::allocator::PinnedAllocator;
use crate::device::Device;
use crate::error::Result;
use crate::memory::options::PinnedOptions;
use crate::memory::statistics::HostMemoryStatistics;

/// A device's page-locked host memory: how much there is, how it is cached, and releasing it.
#[derive(Debug, Clone, Copy)]
pub struct PinnedMemory<'a> {
    device: &'a Device,
}

impl Device {
    /// The page-locked host memory that [`PinnedBuffer`](super::PinnedBuffer)s of this device have.
    pub fn pinned_memory(&self) -> PinnedMemory<'_> {
        PinnedMemory { device: self }
    }
}

impl<'a> PinnedMemory<'a> {
    fn allocator(&self) -> &'a PinnedAllocator {
        self.device.part::<PinnedAllocator>()
    }

    /// The memory that is reserved, and the part in use.
    ///
    /// `allocations` and `allocated_bytes` are blocks that the driver made and has not got back; the reserve
    /// segment is one. `active_requests` and `active_bytes` are blocks that buffers have or that wait for
    /// their streams after the drop, with the bytes that their size was rounded up to.
    pub fn statistics(&self) -> HostMemoryStatistics {
        self.allocator().store.counters.statistics()
    }

    /// Sets every peak to the current value.
    pub fn reset_peak_statistics(&self) {
        self.allocator().store.counters.reset_peak();
    }

    /// Sets to zero what only grows: what was allocated and freed in all, the driver's calls and their times.
    pub fn reset_accumulated_statistics(&self) {
        self.allocator().store.counters.reset_accumulated();
    }

    /// Gives memory that no buffer has and no stream uses back to the system, except the reserve segment.
    /// Returns how many bytes.
    ///
    /// # Errors
    /// Whatever the driver reports; what was not released stays cached. A kernel's fault.
    pub fn empty_cache(&self) -> Result<u64> {
        self.allocator().empty_cache(self.device)
    }

    /// How memory is cached.
    pub fn options(&self) -> PinnedOptions {
        self.allocator().store.options()
    }

    /// Changes how memory is cached, from the next request or drop on. A reserve segment that was made stays.
    pub fn configure(&self, options: PinnedOptions) {
        self.allocator().store.set_options(options);
    }

    /// The most bytes that may be held; `None` for any number.
    pub fn limit(&self) -> Option<u64> {
        self.allocator().store.counters.limit()
    }

    /// Sets the most bytes that may be held, cached ones and the reserve segment included.
    pub fn set_limit(&self, bytes: Option<u64>) {
        self.allocator().store.counters.set_limit(bytes);
    }
}
