//! [`Policy`]: what of the options an arena needs while it allocates blocks.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::size;
use crate::memory::options::{AllocatorOptions, Backend, Reserve};

/// A copy of it lies in every arena, so that no shared state is read on the way of an allocation.
#[derive(Debug, Clone)]
pub(crate) struct Policy {
    /// Blocks of at least this size are oversize: they are not split, and kept for oversize requests.
    pub max_split: u64,
    pub max_non_split_rounding: u64,
    pub large_segment: u64,
    pub divisions: [u32; 16],
    pub no_split: bool,
    /// Whether segments that are free as a whole may go to other streams of the pool.
    pub lends: bool,
    pub expandable: bool,
    /// Whether freed blocks are kept.
    pub caching: bool,
    /// Whether it is of a pool for graphs, which keeps freed blocks unless the driver's own pool is used.
    pub graph: bool,
    pub backend: Backend,
    /// How many addresses an expandable segment reserves.
    pub expandable_reserve: Option<Reserve>,
    /// How often large blocks were looked for, on the whole device; `None` without garbage collection.
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
            lends: options.cross_stream_reuse,
            expandable: options.expandable_segments,
            caching: options.caching && options.backend == Backend::Native,
            graph: false,
            backend: options.backend,
            expandable_reserve: options.expandable_segments_reserve,
            clock: (options.garbage_collection_threshold > 0.0).then(|| Arc::clone(clock)),
        }
    }

    /// The policy of a private pool under new options: it keeps its own.
    pub fn updated(&self, new: Policy) -> Self {
        let Policy { no_split, lends, expandable, graph, .. } = *self;
        let updated = Policy { no_split, lends, expandable, ..new };
        if graph { updated.for_graph() } else { updated }
    }

    /// Of a pool for graphs: what a graph uses must not return to the driver when its buffer is dropped.
    pub fn for_graph(self) -> Self {
        Policy { graph: true, caching: self.backend == Backend::Native, ..self }
    }

    /// Whether leaving a block as it is until the next request shows nowhere.
    pub fn may_defer_frees(&self) -> bool {
        self.caching && !self.lends && self.clock.is_none()
    }

    /// Rounds a request to the size of its block.
    #[inline]
    pub fn round(&self, bytes: u64) -> u64 {
        size::round(bytes, &self.divisions)
    }

    /// Whether a block is too good for a request: an oversize block is not spent on a small request, nor on one that
    /// would waste much of it.
    #[inline]
    pub fn wastes(&self, available: u64, size: u64) -> bool {
        if size < self.max_split {
            available >= self.max_split
        } else {
            available >= size.saturating_add(self.max_non_split_rounding)
        }
    }

    /// The time on the clock of garbage collection.
    #[inline]
    pub fn clock(&self) -> u64 {
        self.clock.as_ref().map_or(0, |clock| clock.load(Ordering::Relaxed))
    }

    /// Moves the clock on.
    #[inline]
    pub fn tick(&self) {
        if let Some(clock) = &self.clock {
            clock.fetch_add(1, Ordering::Relaxed);
        }
    }
}
