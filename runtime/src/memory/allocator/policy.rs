//! [`Policy`]: the allocator options that an arena needs to allocate blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::size;
use crate::memory::options::{AllocatorOptions, Backend};

/// Allocation policy. Every arena stores a copy, so that an allocation does not read shared state.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// Blocks of at least this size are oversize: they are never split and serve only oversize requests.
    pub max_split: u64,
    pub max_non_split_rounding: u64,
    pub large_segment: u64,
    pub divisions: [u32; 16],
    pub no_split: bool,
    pub expandable: bool,
    /// True if freed blocks are cached.
    pub caching: bool,
    /// True for a graph's pool, which caches freed blocks even if caching is disabled, unless the driver's
    /// own pool is used.
    pub graph: bool,
    pub backend: Backend,
    /// Counter of searches for large blocks on the entire device; `None` if garbage collection is disabled.
    clock: Option<Arc<AtomicU64>>,
}

impl Policy {
    pub fn new(options: &AllocatorOptions, clock: &Arc<AtomicU64>) -> Self {
        Self {
            max_split: options.max_split_size.unwrap_or(u64::MAX),
            max_non_split_rounding: options.max_non_split_rounding,
            large_segment: options.large_segment_size,
            divisions: options.roundup_power2_divisions,
            no_split: false,
            expandable: options.expandable_segments,
            caching: options.caching && options.backend == Backend::Native,
            graph: false,
            backend: options.backend,
            clock: (options.garbage_collection_threshold > 0.0).then(|| Arc::clone(clock)),
        }
    }

    /// Returns the policy of a private pool after the device's options have changed. The pool's own settings are kept.
    pub fn updated(&self, new: Policy) -> Self {
        let Policy { no_split, expandable, graph, .. } = *self;
        let updated = Policy { no_split, expandable, ..new };
        if graph { updated.for_graph() } else { updated }
    }

    /// Returns the policy of a graph's pool, whose memory must not return to the driver when a buffer of the graph is
    /// dropped.
    pub fn for_graph(self) -> Self {
        Policy { graph: true, caching: self.backend == Backend::Native, ..self }
    }

    /// Returns true if leaving a freed block unmerged until the next request has no visible effect.
    pub fn may_defer_frees(&self) -> bool {
        self.caching && self.clock.is_none()
    }

    /// Rounds a request to the size of its block.
    #[inline]
    pub fn round(&self, bytes: u64) -> u64 {
        size::round(bytes, &self.divisions)
    }

    /// Returns true if a block is too large for a request. Oversize blocks serve neither small requests nor requests
    /// that would waste a large part of the block.
    #[inline]
    pub fn wastes(&self, available: u64, size: u64) -> bool {
        if size < self.max_split {
            available >= self.max_split
        } else {
            available >= size.saturating_add(self.max_non_split_rounding)
        }
    }

    /// Returns the current time on the clock of garbage collection.
    #[inline]
    pub fn clock(&self) -> u64 {
        self.clock.as_ref().map_or(0, |clock| clock.load(Ordering::Relaxed))
    }

    /// Advances the clock.
    #[inline]
    pub fn tick(&self) {
        if let Some(clock) = &self.clock {
            clock.fetch_add(1, Ordering::Relaxed);
        }
    }
}
