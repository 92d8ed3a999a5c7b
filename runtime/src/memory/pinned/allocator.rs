//! [`PinnedAllocator`]: allocates and reclaims the memory of pinned buffers.
//!
//! A request is served from the cache, the reserve segment or the driver, in this order. If the driver has no more
//! memory or the limit is reached, the allocator waits for pending blocks and empties the cache before the request
//! fails.

use std::sync::{Arc, Mutex, PoisonError};

use super::background::Background;
use super::cache::Block;
use super::classes;
use super::store::Store;
use crate::device::{Device, EventPool, Part};
use crate::driver::{Context, Driver};
use crate::error::{Error, Result};
use crate::memory::options::PinnedOptions;
use crate::stream::Stream;

/// Allocator of page-locked memory for one device.
#[derive(Debug)]
pub(crate) struct PinnedAllocator {
    pub(super) store: Arc<Store>,
    background: Background,
    /// Uses on this device's streams that ended during a capture on the device.
    deferred: Mutex<Vec<Deferred>>,
}

/// A use that ended during a capture. Keeps its devices open until the capture ends.
#[derive(Debug)]
struct Deferred {
    /// Device to which the block belongs.
    device: Device,
    block: Arc<Block>,
    stream: Stream,
}

fn rounded(options: &PinnedOptions, bytes: usize) -> usize {
    let over = |limit: Option<u64>| limit.is_some_and(|limit| bytes as u64 > limit);
    if over(options.max_round_threshold) || over(options.max_cached_size) {
        classes::round_to_pages(bytes)
    } else {
        classes::round_up(bytes)
    }
}

impl Part for PinnedAllocator {
    const PLACE: usize = 1;

    fn close(&mut self, _: &dyn Driver, _: Context, _: &EventPool) {
        self.shut_down();
    }
}

impl PinnedAllocator {
    pub(crate) fn new(driver: Arc<dyn Driver>, context: Context, options: PinnedOptions) -> Self {
        let store = Arc::new(Store::new(driver, context, options));
        Self { store, background: Background::default(), deferred: Mutex::default() }
    }

    /// Allocates `bytes` bytes of uninitialized memory; `bytes` must be between 1 and [`isize::MAX`]. Also returns true
    /// if the block came from the cache. `device` must be the allocator's device.
    pub(super) fn allocate(&self, device: &Device, bytes: usize) -> Result<(Block, bool)> {
        let store = &self.store;
        let options = store.options();
        let watched = options.use_background_threads && self.background.is_running();
        device.call(|_, _| if watched { Ok(()) } else { store.poll() })?;
        let size = rounded(&options, bytes);
        let (mut block, cached) = match store.cache.take(size) {
            Some(block) => (block, true),
            None => (self.find(device, &options, size)?, false),
        };
        block.asked = bytes;
        store.counters.allocated(block.bytes);
        Ok((block, cached))
    }

    /// Returns a block that does not come from the cache.
    fn find(&self, device: &Device, options: &PinnedOptions, size: usize) -> Result<Block> {
        let store = &self.store;
        let reserve = options.reserve_segment_size.min(isize::MAX as u64) as usize;
        let reserve = classes::round_to_pages(reserve);
        if let Some(block) = store.reserve.take(size, reserve, || self.make(device, reserve))? {
            return Ok(block);
        }
        if let Some(block) = device.call(|_, _| store.grow(size))? {
            return Ok(block);
        }
        match device.call(|_, _| store.wait_for(size))? {
            Some(block) => Ok(block),
            None => {
                device.call(|_, _| store.empty_cache())?;
                self.make(device, size)
            }
        }
    }

    /// Allocates a new block from the driver, emptying the cache if necessary.
    fn make(&self, device: &Device, size: usize) -> Result<Block> {
        loop {
            if let Some(block) = device.call(|_, _| self.store.grow(size))? {
                return Ok(block);
            }
            // Other threads may refill the cache, so it is emptied until nothing more is released.
            if device.call(|_, _| self.store.empty_cache())? == 0 {
                let statistics = self.store.counters.statistics();
                let (held, used) = (statistics.allocated_bytes.current, statistics.active_bytes.current);
                return Err(Error::PinnedOutOfMemory {
                    device: device.id(),
                    asked: size as u64,
                    held,
                    cached: held.saturating_sub(used),
                    limit: self
                        .store
                        .counters
                        .limit()
                        .filter(|limit| held.saturating_add(size as u64) > *limit),
                });
            }
        }
    }

    /// Reclaims the block of a dropped buffer of this device once all `streams` have finished their uses of it. Does
    /// not wait for the streams, unless no event can be created.
    pub(super) fn release(&self, device: &Device, block: Block, streams: Vec<Stream>) {
        if streams.is_empty() {
            return self.retire(device, block);
        }
        let block = Arc::new(block);
        for stream in streams {
            self.end_use(device, Arc::clone(&block), stream);
        }
        self.drop_user(device, block);
    }

    /// Keeps the block until the stream has finished all work enqueued so far.
    fn end_use(&self, device: &Device, block: Arc<Block>, stream: Stream) {
        let user = stream.device();
        let theirs = &user.part::<PinnedAllocator>();
        let captures = theirs.store.captures.read().unwrap_or_else(PoisonError::into_inner);
        if *captures > 0 {
            let deferred = Deferred { device: device.clone(), block, stream: stream.clone() };
            return theirs.deferred.lock().unwrap_or_else(PoisonError::into_inner).push(deferred);
        }
        let marked = user.call(|_, _| theirs.store.events.mark(stream.handle()));
        drop(captures);
        match marked {
            Ok(ticket) => {
                self.store.pending.push(stream.id(), ticket, block);
                if self.store.options().use_background_threads {
                    self.background.wake(&self.store);
                }
            }
            Err(_) => {
                // No event could be created, so the host waits. Even if the wait fails, no work of the stream is
                // running afterwards.
                let waited = stream.wait();
                if !user.is_lost() {
                    user.0.health.record_drop(waited);
                }
                self.drop_user(device, block);
            }
        }
    }

    /// Drops one reference to a block; dropping the last reference frees the block.
    fn drop_user(&self, device: &Device, block: Arc<Block>) {
        if let Some(block) = Arc::into_inner(block) {
            self.retire(device, block);
        }
    }

    fn retire(&self, device: &Device, block: Block) {
        let retired = device.call_lost(|_, _| self.store.retire(block));
        if !device.is_lost() {
            device.0.health.record_drop(retired);
        }
    }

    /// Releases cached blocks to the driver. Returns the number of bytes released.
    pub(super) fn empty_cache(&self, device: &Device) -> Result<u64> {
        device.call(|_, _| self.store.poll())?;
        device.call(|_, _| self.store.empty_cache())
    }

    /// Called when a stream of the device is about to be captured. From then until [`Self::capture_ends`], the
    /// allocator neither records nor queries events on the device's streams.
    pub(crate) fn capture_begins(&self) {
        *self.store.captures.write().unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// Called when a capture has ended. After the last active capture, starts waiting for the streams of blocks dropped
    /// during captures.
    pub(crate) fn capture_ends(&self) {
        let deferred = {
            let mut captures = self.store.captures.write().unwrap_or_else(PoisonError::into_inner);
            *captures = captures.saturating_sub(1);
            if *captures > 0 {
                return;
            }
            std::mem::take(&mut *self.deferred.lock().unwrap_or_else(PoisonError::into_inner))
        };
        for Deferred { device, block, stream } in deferred {
            device.part::<PinnedAllocator>().end_use(&device, block, stream);
        }
    }

    /// Frees all memory when the device is dropped. The device's work has finished, and no buffer is left.
    fn shut_down(&self) {
        self.background.stop();
        self.store.close();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::PinnedBuffer;
    use warpsmith_emulated::{Call, EmulatedDriver};

    #[test]
    fn captures_touch_no_event_and_keep_dropped_blocks() {
        let driver = EmulatedDriver::builder().build();
        let device = Device::with_driver(driver.clone(), 0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let buffer = |n| PinnedBuffer::<u8>::zeroed(&device, n).unwrap();
        let waiting = buffer(1000);
        waiting.record_use(&stream).unwrap();
        drop(waiting);
        stream.synchronize().unwrap();

        device.part::<PinnedAllocator>().capture_begins();
        device.part::<PinnedAllocator>().capture_begins();
        driver.reset_calls();
        let used = buffer(5000);
        used.record_use(&stream).unwrap();
        drop(used);
        let _others = [buffer(1000), buffer(5000)];
        drop(buffer(70_000));
        assert_eq!(device.pinned_memory().empty_cache().unwrap(), 73_728, "what no stream used is free");
        device.part::<PinnedAllocator>().capture_ends();
        for call in [Call::EventCreate, Call::EventRecord, Call::EventQuery, Call::EventSynchronize] {
            assert_eq!(driver.calls(call), 0, "{}", call.name());
        }
        assert_eq!(driver.calls(Call::PinnedAllocate), 4, "nothing was reused");
        assert_eq!(device.pinned_memory().statistics().active_requests.current, 4);

        device.part::<PinnedAllocator>().capture_ends();
        stream.synchronize().unwrap();
        driver.reset_calls();
        let _reused = [buffer(1000), buffer(5000)];
        assert_eq!(driver.calls(Call::PinnedAllocate), 0, "both were freed when the capture ended");
    }

    #[test]
    fn memory_that_runs_out_during_a_capture_waits_for_nothing() {
        let driver = EmulatedDriver::builder().build();
        let device = Device::with_driver(driver.clone(), 0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let used = PinnedBuffer::<u8>::zeroed(&device, 4096).unwrap();
        used.record_use(&stream).unwrap();
        device.part::<PinnedAllocator>().capture_begins();
        drop(used);
        device.pinned_memory().set_limit(Some(4096));
        let error = PinnedBuffer::<u8>::zeroed(&device, 4096).unwrap_err();
        assert!(matches!(error, Error::PinnedOutOfMemory { held: 4096, cached: 0, .. }), "{error}");
        device.part::<PinnedAllocator>().capture_ends();
        PinnedBuffer::<u8>::zeroed(&device, 4096).unwrap();
    }

    #[test]
    fn uses_on_a_captured_device_are_deferred() {
        let driver = EmulatedDriver::builder().devices(2).build();
        let devices = [0, 1].map(|ordinal| Device::with_driver(driver.clone(), ordinal).unwrap());
        let streams = devices.each_ref().map(|device| Stream::new(device).unwrap());
        let used = PinnedBuffer::<u8>::zeroed(&devices[0], 4096).unwrap();
        streams.iter().for_each(|stream| used.record_use(stream).unwrap());
        devices[1].part::<PinnedAllocator>().capture_begins();
        drop(used);
        assert_eq!(driver.calls(Call::EventRecord), 1, "on the device without a capture");
        streams[0].synchronize().unwrap();
        let active = || {
            devices[0].pinned_memory().empty_cache().unwrap();
            devices[0].pinned_memory().statistics().active_requests.current
        };
        assert_eq!(active(), 1);
        devices[1].part::<PinnedAllocator>().capture_ends();
        streams[1].synchronize().unwrap();
        assert_eq!(active(), 0);
        drop((streams, devices));
        assert_eq!(driver.calls(Call::ContextRelease), 2, "nothing holds the devices");
    }
}
