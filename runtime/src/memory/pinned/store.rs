//! Page-locked memory of one device, without a reference to the device: free blocks, pending blocks, counters.
//!
//! If the driver fails to free a block, the block stays in the cache, unless the context has become unusable; it is
//! then freed with the context.

use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Instant;

use super::cache::{Block, Cache};
use super::counters::Counters;
use super::events::EventPool;
use super::pending::Pending;
use super::reserve::Reserve;
use crate::driver::{Context, Driver};
use crate::error::{Result, code};
use crate::memory::options::PinnedOptions;

/// Page-locked memory of one device; see the [module's documentation](self).
#[derive(Debug)]
pub(super) struct Store {
    driver: Arc<dyn Driver>,
    context: Context,
    options: RwLock<PinnedOptions>,
    /// Number of active captures of the device's streams. Locked while events are recorded or queried, so that no
    /// capture starts meanwhile.
    pub(super) captures: RwLock<u32>,
    pub(super) events: Arc<EventPool>,
    pub(super) pending: Pending,
    pub(super) cache: Cache,
    pub(super) reserve: Reserve,
    pub(super) counters: Counters,
    /// Held while the cache is emptied. A thread that had to wait for this lock finds the memory already freed.
    emptying: Mutex<()>,
}

impl Store {
    pub(super) fn new(driver: Arc<dyn Driver>, context: Context, options: PinnedOptions) -> Self {
        Self {
            events: EventPool::new(Arc::clone(&driver), context),
            driver,
            context,
            options: RwLock::new(options),
            captures: RwLock::new(0),
            pending: Pending::default(),
            cache: Cache::new(),
            reserve: Reserve::default(),
            counters: Counters::default(),
            emptying: Mutex::new(()),
        }
    }

    pub(super) fn options(&self) -> PinnedOptions {
        self.options.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn set_options(&self, options: PinnedOptions) {
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = options;
    }

    /// Frees the pending blocks whose streams have reached their tickets. Does nothing during a capture.
    pub(super) fn poll(&self) -> Result<()> {
        let captures = self.captures.read().unwrap_or_else(PoisonError::into_inner);
        if *captures > 0 { Ok(()) } else { self.free_done() }
    }

    /// Waits for the currently pending blocks until a free block can serve a request of `size` bytes. Does not wait
    /// during a capture.
    pub(super) fn wait_for(&self, size: usize) -> Result<Option<Block>> {
        let captures = self.captures.read().unwrap_or_else(PoisonError::into_inner);
        if *captures > 0 {
            return Ok(None);
        }
        let end = self.pending.next();
        loop {
            self.free_done()?;
            if let Some(block) = self.cache.take(size) {
                return Ok(Some(block));
            }
            let Some(ticket) = self.pending.first_before(end) else { return Ok(None) };
            let waited = ticket.wait();
            if ticket.is_of(&self.events) {
                waited?;
            }
        }
    }

    /// Frees the pending blocks that are no longer in use. The caller must hold `captures`, and no capture may be
    /// active.
    fn free_done(&self) -> Result<()> {
        let (done, result) = self.pending.take_done(&self.events);
        done.into_iter().fold(result, |result, block| {
            let retired = self.retire(block);
            result.and(retired)
        })
    }

    /// Puts a block that no work uses back into the cache, or releases it to the driver if it is too large to be
    /// cached.
    pub(super) fn retire(&self, block: Block) -> Result<()> {
        self.counters.returned(block.bytes);
        let largest = self.options.read().unwrap_or_else(PoisonError::into_inner).max_cached_size;
        if !block.reserve && largest.is_some_and(|largest| block.asked as u64 > largest) {
            self.release_block(block).map(drop)
        } else {
            self.cache.put(block);
            Ok(())
        }
    }

    /// Allocates a new block from the driver; `None` if the driver has no more memory or the limit is reached.
    pub(super) fn grow(&self, bytes: usize) -> Result<Option<Block>> {
        if !self.counters.begin_growth(bytes) {
            return Ok(None);
        }
        let start = Instant::now();
        let made = self.driver.pinned_allocate(self.context, bytes);
        if let Ok(Some(ptr)) = made.as_ref().map(|ptr| NonNull::new(ptr.cast())) {
            self.counters.grown(bytes, start.elapsed());
            return Ok(Some(Block { ptr, bytes, asked: bytes, reserve: false }));
        }
        self.counters.growth_failed(bytes);
        match made {
            Err(error) if error.code() != Some(code::OUT_OF_MEMORY) => Err(error.into()),
            _ => Ok(None),
        }
    }

    /// Releases every cached block to the driver, except blocks of the reserve segment. Returns the number of bytes
    /// released.
    pub(super) fn empty_cache(&self) -> Result<u64> {
        let _emptying = self.emptying.lock().unwrap_or_else(PoisonError::into_inner);
        let (reserve, mut blocks): (Vec<_>, Vec<_>) =
            self.cache.take_all().into_iter().partition(|block| block.reserve);
        reserve.into_iter().for_each(|block| self.cache.put(block));
        let mut freed = 0;
        while let Some(block) = blocks.pop() {
            match self.release_block(block) {
                Ok(bytes) => freed += bytes as u64,
                Err(error) => {
                    blocks.into_iter().for_each(|block| self.cache.put(block));
                    return Err(error);
                }
            }
        }
        Ok(freed)
    }

    /// Releases a block that is not in use to the driver. Returns the block's size in bytes.
    fn release_block(&self, block: Block) -> Result<usize> {
        let start = Instant::now();
        // SAFETY: the driver allocated the block, which is consumed here and used again only if the driver fails to
        // free it. No work uses the block: it was never used on a stream, or its streams have finished their uses.
        let freed = unsafe { self.driver.pinned_free(self.context, block.ptr.as_ptr().cast()) };
        match freed {
            Err(error) if !error.stops_context() => {
                self.cache.put(block);
                Err(error.into())
            }
            result => {
                self.counters.shrunk(block.bytes, start.elapsed());
                result?;
                Ok(block.bytes)
            }
        }
    }

    /// Frees all memory. The device's work has finished, and no buffer is left.
    pub(super) fn close(&self) {
        let mut blocks = self.pending.take_all(&self.events);
        blocks.extend(self.cache.take_all());
        blocks.retain(|block| !block.reserve);
        blocks.extend(self.reserve.take_segment());
        for block in blocks {
            // SAFETY: the driver allocated the block, which is not in use. An error cannot be reported here. Memory
            // that the driver fails to free is freed with the context.
            let _ = unsafe { self.driver.pinned_free(self.context, block.ptr.as_ptr().cast()) };
        }
        self.events.close();
    }
}
