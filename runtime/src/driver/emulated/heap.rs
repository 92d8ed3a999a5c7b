//! Device memory of an emulated device: host allocations, counted against a capacity.
//!
//! Every block is aligned to 256 bytes and filled with `0xFF` (NaN in floats), so that a kernel that reads what
//! nobody wrote shows it. A range is checked against the live blocks before it is copied or freed, so a foreign
//! or stale pointer is an error here, not a crash.

use std::alloc::Layout;
use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use super::control::driver_error;
use crate::driver::DevicePtr;
use crate::error::{Result, code};

const ALIGN: usize = 256;

/// The memory of one context.
#[derive(Debug)]
pub(super) struct Heap {
    capacity: u64,
    blocks: Mutex<Blocks>,
}

#[derive(Debug, Default)]
struct Blocks {
    used: u64,
    /// Bytes of every live block, by address.
    live: BTreeMap<u64, usize>,
}

fn layout(bytes: usize) -> Option<Layout> {
    Layout::from_size_align(bytes, ALIGN).ok()
}

impl Heap {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, blocks: Mutex::default() }
    }

    fn blocks(&self) -> std::sync::MutexGuard<'_, Blocks> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Free bytes and capacity.
    pub(super) fn info(&self) -> (u64, u64) {
        (self.capacity - self.blocks().used, self.capacity)
    }

    /// Number of live blocks.
    pub(super) fn live(&self) -> usize {
        self.blocks().live.len()
    }

    pub(super) fn allocate(&self, bytes: usize) -> Result<DevicePtr> {
        let no_memory = || driver_error("memory_allocate", code::OUT_OF_MEMORY, "out of memory");
        if bytes == 0 {
            return Err(driver_error("memory_allocate", code::INVALID_VALUE, "zero bytes"));
        }
        let mut blocks = self.blocks();
        if bytes as u64 > self.capacity - blocks.used {
            return Err(no_memory());
        }
        let layout = layout(bytes).ok_or_else(no_memory)?;
        // SAFETY: the layout's size is not zero.
        let pointer = unsafe { std::alloc::alloc(layout) };
        if pointer.is_null() {
            return Err(no_memory());
        }
        // SAFETY: the block was just allocated with `bytes` bytes.
        unsafe { pointer.write_bytes(0xFF, bytes) };
        blocks.used += bytes as u64;
        blocks.live.insert(pointer.expose_provenance() as u64, bytes);
        Ok(DevicePtr(pointer.expose_provenance() as u64))
    }

    /// Frees a block; `busy` says whether work that uses a range of addresses has not run yet.
    ///
    /// # Safety
    /// Nothing uses the block's memory any more.
    pub(super) unsafe fn free(&self, ptr: DevicePtr, busy: impl FnOnce(u64, u64) -> bool) -> Result<()> {
        let mut blocks = self.blocks();
        let Some(&bytes) = blocks.live.get(&ptr.0) else {
            let text = format!("{:#x} is not a live block: freed twice, or not of this device", ptr.0);
            return Err(driver_error("memory_free", code::INVALID_VALUE, text));
        };
        if busy(ptr.0, ptr.0 + bytes as u64) {
            let text = format!("{:#x} is still used by enqueued work", ptr.0);
            return Err(driver_error("memory_free", code::INVALID_VALUE, text));
        }
        blocks.live.remove(&ptr.0);
        blocks.used -= bytes as u64;
        // SAFETY: the block was allocated with this layout, and the caller vouches that nothing uses it.
        unsafe { release(ptr.0, bytes) };
        Ok(())
    }

    /// Checks that a range lies in one live block.
    pub(super) fn check(&self, call: &'static str, ptr: DevicePtr, bytes: usize) -> Result<()> {
        let blocks = self.blocks();
        let inside = blocks.live.range(..=ptr.0).next_back().is_some_and(|(start, size)| {
            ptr.0.checked_add(bytes as u64).is_some_and(|end| end <= start + *size as u64)
        });
        if inside || bytes == 0 {
            return Ok(());
        }
        let text = format!("{bytes} bytes at {:#x} are not within a live block of this device", ptr.0);
        Err(driver_error(call, code::INVALID_VALUE, text))
    }
}

/// # Safety
/// `address` and `bytes` are of a block from [`Heap::allocate`] that is used no more.
unsafe fn release(address: u64, bytes: usize) {
    if let Some(layout) = layout(bytes) {
        // SAFETY: allocated by `allocate` with the same layout.
        unsafe { std::alloc::dealloc(std::ptr::with_exposed_provenance_mut(address as usize), layout) };
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        for (address, bytes) in std::mem::take(&mut self.blocks().live) {
            // SAFETY: the heap goes with its context, after the context's streams have run out of work.
            unsafe { release(address, bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_live_block_is_refused() {
        let heap = Heap::new(1 << 20);
        let block = heap.allocate(1000).unwrap();
        assert_eq!((heap.live(), heap.info()), (1, ((1 << 20) - 1000, 1 << 20)));
        heap.check("copy", block.offset(999), 1).unwrap();
        for (offset, bytes) in [(999, 2), (1000, 1), (0, 1001), (0, usize::MAX)] {
            heap.check("copy", block.offset(offset), bytes).unwrap_err();
        }
        // SAFETY: nothing uses the block; all but the last are refused.
        unsafe {
            heap.free(block.offset(256), |_, _| false).unwrap_err();
            heap.free(DevicePtr::NULL, |_, _| false).unwrap_err();
            let busy = heap.free(block, |start, end| (start, end) == (block.0, block.0 + 1000)).unwrap_err();
            assert!(busy.to_string().contains("still used"), "{busy}");
            heap.free(block, |_, _| false).unwrap();
            heap.free(block, |_, _| false).unwrap_err();
        }
        assert_eq!((heap.live(), heap.info().0), (0, 1 << 20));
    }

    #[test]
    fn the_capacity_is_the_limit() {
        let heap = Heap::new(1000);
        let first = heap.allocate(600).unwrap();
        assert_eq!(heap.allocate(401).unwrap_err().driver_code(), Some(code::OUT_OF_MEMORY));
        heap.allocate(400).unwrap();
        assert_eq!(heap.allocate(1).unwrap_err().driver_code(), Some(code::OUT_OF_MEMORY));
        // SAFETY: nothing uses the block.
        unsafe { heap.free(first, |_, _| false) }.unwrap();
        assert_eq!(heap.info(), (600, 1000));
        assert_eq!(heap.allocate(0).unwrap_err().driver_code(), Some(code::INVALID_VALUE));
    }
}
