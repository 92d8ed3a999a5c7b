//! [`PrivateMemory`]: memory that a graph owns.

use crate::device::health::Quiet;
use crate::memory::allocator;
use crate::stream::Stream;

/// Memory owned by a graph.
#[derive(Debug)]
pub(crate) struct PrivateMemory {
    stream: Stream,
    allocation: Option<allocator::Allocation>,
}

impl PrivateMemory {
    pub(super) fn new(stream: Stream, allocation: allocator::Allocation) -> Self {
        Self { stream, allocation: Some(allocation) }
    }
}

impl Drop for PrivateMemory {
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        if self.stream.device().is_forked() {
            return;
        }
        if let Some(allocation) = self.allocation.take() {
            // SAFETY: the graph that used the memory has been dropped, and its launches have finished.
            let freed = unsafe { allocator::free(&self.stream, allocation, &[]) };
            self.stream.device().0.health.record_drop(freed);
        }
    }
}
