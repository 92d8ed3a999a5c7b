//! [`Memory`]: statistics, limits and cache control of a device's caching allocator.

use std::sync::Arc;

use super::policy::Policy;
use super::{CachingAllocator, Observer, collect, expandable};
use crate::device::Device;
use crate::error::{Error, GraphError, Result};
use crate::memory::OutOfMemory;
use crate::memory::options::AllocatorOptions;
use crate::memory::statistics::{MemoryStatistics, PoolId, Statistic};
use crate::memory::summary::memory_summary;
use crate::snapshot::Snapshot;

/// The caching allocator of a device, from [`Device::memory`]. All sizes are in bytes.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let device = Device::emulated(0)?;
/// let buffer = DeviceBuffer::<f32>::zeros(&device.default_stream(), 1000)?;
/// assert!(device.memory().allocated() >= 4096);
/// drop(buffer);
/// assert!(device.memory().reserved() >= device.memory().allocated());
/// device.memory().empty_cache()?;
/// println!("{}", device.memory().summary(true));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Memory<'a> {
    pub(super) device: &'a Device,
}

impl Device {
    /// Returns the device's caching allocator.
    pub fn memory(&self) -> Memory<'_> {
        Memory { device: self }
    }
}

/// Returns the limit in bytes that corresponds to a fraction of a device's memory; `None` if there is no limit.
pub(super) fn limit(fraction: f64, total: u64) -> Option<u64> {
    (fraction < 1.0).then_some((fraction * total as f64) as u64)
}

impl<'a> Memory<'a> {
    fn allocator(&self) -> &'a CachingAllocator {
        self.device.part::<CachingAllocator>()
    }

    /// Returns all statistics, named as in PyTorch's `torch.cuda.memory_stats`.
    ///
    /// The current, allocated and freed amounts are exact, as are the peaks of reserved memory and, if only one stream
    /// allocates, all other peaks. With several streams, a peak is the sum of the streams' peaks, which may have
    /// occurred at different times, limited to the peak of reserved memory.
    pub fn statistics(&self) -> MemoryStatistics {
        collect::statistics(self.allocator())
    }

    /// Sets every peak to the current amount.
    pub fn reset_peak_statistics(&self) {
        let allocator = self.allocator();
        {
            let mut totals = allocator.totals.lock();
            totals.counters.reset_peaks();
            totals.forgotten.reset_peaks();
        }
        allocator.arenas().iter().for_each(|arena| arena.lock().counters.reset_peaks());
    }

    /// Resets the accumulated amounts of allocated and freed memory and all event counts to zero.
    pub fn reset_accumulated_statistics(&self) {
        let allocator = self.allocator();
        allocator.totals.lock().reset_accumulated();
        allocator.arenas().iter().for_each(|arena| arena.lock().counters.reset_accumulated());
    }

    /// Returns the total size of blocks in use, in bytes.
    pub fn allocated(&self) -> u64 {
        let Statistic { current, .. } = self.statistics().allocated_bytes.all;
        current
    }

    /// Returns the peak of [`Self::allocated`]; [`Self::statistics`] describes its accuracy.
    pub fn max_allocated(&self) -> u64 {
        self.statistics().allocated_bytes.all.peak
    }

    /// Returns the number of bytes that the allocator has reserved from the driver.
    pub fn reserved(&self) -> u64 {
        self.statistics().reserved_bytes.all.current
    }

    /// Returns the peak of [`Self::reserved`].
    pub fn max_reserved(&self) -> u64 {
        self.statistics().reserved_bytes.all.peak
    }

    /// Returns the number of bytes that can still be allocated, possibly in several pieces: the device's free memory
    /// plus cached memory, limited by the memory fraction.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    pub fn available(&self) -> Result<u64> {
        let free = self.device.memory_info()?.free;
        let statistics = self.statistics();
        let cached =
            statistics.reserved_bytes.all.current.saturating_sub(statistics.active_bytes.all.current);
        Ok(free.saturating_add(cached))
    }

    /// Formats the statistics as a human-readable table. `abbreviated` omits the per-pool rows.
    pub fn summary(&self, abbreviated: bool) -> String {
        memory_summary(self.device.id(), &self.statistics(), abbreviated)
    }

    /// Returns all segments and blocks, and the history if recorded. The data is consistent per stream.
    pub fn snapshot(&self) -> Snapshot {
        collect::snapshot(self.allocator(), self.device)
    }

    /// Starts a new history, which keeps the last `events` events per stream for [`Self::snapshot`]; `None` disables
    /// it.
    pub fn record_history(&self, events: Option<usize>) {
        collect::record_history(self.allocator(), events);
    }

    /// Releases cached memory (all entirely free segments) to the driver, after waiting for the streams of these
    /// segments and for blocks that other streams still use. Private pools keep their memory unless they have been
    /// released. Returns the number of bytes released.
    ///
    /// # Errors
    /// Returns [`GraphError::CaptureUnderway`] or any [driver error](crate::Error::Driver).
    pub fn empty_cache(&self) -> Result<u64> {
        self.device.check_process()?;
        let allocator = self.allocator();
        if allocator.capturing() {
            return Err(GraphError::CaptureUnderway.into());
        }
        allocator.finish_pending(self.device)?;
        allocator.release_cached(self.device, None)
    }

    /// Limits the program to this fraction of the device's memory; 1 means no limit. Already reserved memory is kept.
    ///
    /// # Errors
    /// Returns [`Error::AllocatorOption`] unless `fraction` is between 0 and 1.
    pub fn set_fraction(&self, fraction: f64) -> Result<()> {
        self.device.check_process()?;
        let allocator = self.allocator();
        let mut registry = allocator.registry.lock();
        let options = AllocatorOptions { per_process_memory_fraction: fraction, ..registry.options.clone() };
        options.check()?;
        registry.options = options;
        allocator.totals.lock().limit = limit(fraction, self.device.properties().total_memory);
        Ok(())
    }

    /// Returns the fraction of the device's memory that the program may reserve.
    pub fn fraction(&self) -> f64 {
        self.options().per_process_memory_fraction
    }

    /// Returns the current options.
    pub fn options(&self) -> AllocatorOptions {
        self.allocator().registry.lock().options.clone()
    }

    /// Sets the options for later requests. As in PyTorch, a `per_process_memory_fraction` of 1 (the default) keeps the
    /// limit set with [`Self::set_fraction`].
    ///
    /// # Errors
    /// Returns [`Error::AllocatorOption`], without changing any option, for an invalid value, or if the backend or
    /// caching is changed after the first allocation.
    pub fn set_options(&self, mut options: AllocatorOptions) -> Result<()> {
        self.device.check_process()?;
        options.check()?;
        let allocator = self.allocator();
        let mut registry = allocator.registry.lock();
        let fixed = |option: &str, value: &str| Error::AllocatorOption {
            option: option.to_owned(),
            value: value.to_owned(),
            reason: "the option cannot change after the first allocation; set it at the start of the program"
                .to_owned(),
        };
        if registry.started && options.backend != registry.options.backend {
            return Err(fixed("backend", options.backend.name()));
        }
        if registry.started && options.caching != registry.options.caching {
            return Err(fixed("caching", if options.caching { "True" } else { "False" }));
        }
        if options.per_process_memory_fraction == 1.0 {
            options.per_process_memory_fraction = registry.options.per_process_memory_fraction;
        }
        let total = self.device.properties().total_memory;
        allocator.totals.lock().limit = limit(options.per_process_memory_fraction, total);
        self.device.pinned_memory().configure(options.pinned.clone());
        registry.options = options;
        for arena in &registry.arenas {
            let mut state = arena.lock();
            let new = Policy::new(&registry.options, &allocator.clock);
            let policy = if arena.pool == PoolId::default() { new } else { state.policy.updated(new) };
            let [before, now] = state.set_policy(policy);
            allocator.totals.lock().counters.oversize_segments.correct(before, now);
        }
        Ok(())
    }

    /// Registers an observer that is called before a request fails with an out-of-memory error. No lock is held, so the
    /// observer may use the device. Its own memory requests call no observers.
    pub fn on_out_of_memory(&self, observer: impl Fn(&OutOfMemory) + Send + Sync + 'static) {
        let observer: Observer = Arc::new(observer);
        self.allocator().registry.lock().observers.push(observer);
    }

    /// Grants another device access to this device's memory.
    ///
    /// # Errors
    /// Returns [`Error::NoPeerAccess`] if the devices have no peer access, or any [driver error](crate::Error::Driver).
    pub fn allow_peer(&self, peer: &Device) -> Result<()> {
        self.device.check_process()?;
        let (driver, context) = self.device.raw();
        let (own, other) = (self.device.id(), peer.id());
        let same_driver = Arc::ptr_eq(driver, peer.raw().0);
        if own == other && same_driver {
            return Ok(());
        }
        if !same_driver || !driver.peer_can_access(other.ordinal(), own.ordinal())? {
            return Err(Error::NoPeerAccess { device: own, peer: other });
        }
        peer.call(|driver, peer_context| driver.peer_enable(peer_context, context))?;
        let allocator = self.allocator();
        let arenas = {
            let mut registry = allocator.registry.lock();
            if !registry.peers.contains(&other.ordinal()) {
                registry.peers.push(other.ordinal());
            }
            registry.arenas.clone()
        };
        arenas.iter().try_for_each(|arena| expandable::allow(self.device, &mut arena.lock(), other.ordinal()))
    }

    /// Returns the number of times that locks shared by all streams were acquired. Requests served from the cache do
    /// not increase it.
    pub fn shared_lock_acquisitions(&self) -> u64 {
        let allocator = self.allocator();
        allocator.registry.times_taken() + allocator.totals.times_taken()
    }
}
