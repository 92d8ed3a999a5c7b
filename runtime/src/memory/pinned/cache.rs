//! Free blocks, in one list per size class. Each list has its own lock.

use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::classes;

/// A block of page-locked memory, owned by a buffer, the pending queues or a free list.
#[derive(Debug)]
pub(crate) struct Block {
    pub(super) ptr: NonNull<u8>,
    pub(super) bytes: usize,
    /// Size, in bytes, of the request that the block currently serves or last served.
    pub(super) asked: usize,
    /// True if the block belongs to the reserve segment, which lives as long as the device.
    pub(super) reserve: bool,
}

// SAFETY: the block is the only owner of its memory, which any thread may use and free.
unsafe impl Send for Block {}
// SAFETY: a shared block exposes only its address and sizes.
unsafe impl Sync for Block {}

/// Returns the size of the largest cached block that may serve a request whose rounded size is `size`.
fn largest_for(size: usize) -> usize {
    size.saturating_add(size / 4).max(classes::round_to_pages(size))
}

#[derive(Debug, Default)]
struct List {
    /// Number of blocks, readable without the lock.
    count: AtomicUsize,
    /// Blocks by size. Sizes rounded to whole pages can lie between two class sizes.
    blocks: Mutex<BTreeMap<usize, Vec<Block>>>,
}

impl List {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Vec<Block>>> {
        self.blocks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// All free blocks of one device.
#[derive(Debug)]
pub(super) struct Cache {
    lists: Vec<List>,
}

impl Cache {
    pub(super) fn new() -> Self {
        Self { lists: (0..classes::COUNT).map(|_| List::default()).collect() }
    }

    pub(super) fn put(&self, block: Block) {
        let list = &self.lists[classes::index(block.bytes)];
        let mut blocks = list.lock();
        blocks.entry(block.bytes).or_default().push(block);
        list.count.fetch_add(1, Ordering::Relaxed);
    }

    /// Removes the smallest block of at least `size` bytes that is not too large for the request. Among blocks of equal
    /// size, takes the newest, whose memory may still be in the CPU caches.
    pub(super) fn take(&self, size: usize) -> Option<Block> {
        let largest = largest_for(size);
        let lists = &self.lists[classes::index(size)..=classes::index(largest)];
        // This may miss a block that another thread is returning; a new block is then allocated unnecessarily.
        let filled = lists.iter().filter(|list| list.count.load(Ordering::Relaxed) > 0);
        filled.into_iter().find_map(|list| {
            let mut blocks = list.lock();
            let (&bytes, equal) = blocks.range_mut(size..=largest).next()?;
            let block = equal.pop();
            if equal.is_empty() {
                blocks.remove(&bytes);
            }
            list.count.fetch_sub(usize::from(block.is_some()), Ordering::Relaxed);
            block
        })
    }

    pub(super) fn take_all(&self) -> Vec<Block> {
        let mut all = Vec::new();
        for list in &self.lists {
            let mut blocks = list.lock();
            list.count.store(0, Ordering::Relaxed);
            all.extend(std::mem::take(&mut *blocks).into_values().flatten());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(bytes: usize) -> Block {
        Block { ptr: NonNull::dangling(), bytes, asked: bytes, reserve: false }
    }

    #[test]
    fn the_smallest_block_that_is_not_too_large_is_taken() {
        let cache = Cache::new();
        for bytes in [8192, 16384, 18432, 20480, 20481, 65536] {
            cache.put(block(bytes));
        }
        let take = |size| cache.take(size).map(|block| block.bytes);
        assert_eq!(take(16385), Some(18432));
        assert_eq!(take(16384), Some(16384));
        assert_eq!(take(16384), Some(20480), "a quarter more");
        assert_eq!(take(16384), None, "more than a quarter more");
        assert_eq!(take(65537), None);
        assert_eq!(take(4097), Some(8192), "its pages are the request's");
        assert_eq!(take(4097), None);
        assert_eq!(cache.take_all().iter().map(|block| block.bytes).collect::<Vec<_>>(), [20481, 65536]);
        assert!(cache.take(65536).is_none());
    }

    #[test]
    fn blocks_between_classes_are_found() {
        let cache = Cache::new();
        cache.put(block(1_000_001));
        assert!(cache.take(1_000_002).is_none());
        assert_eq!(cache.take(999_999).unwrap().bytes, 1_000_001);
    }
}
