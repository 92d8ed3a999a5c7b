//! What the simulation of PyTorch's allocator is told, and what it counts.

const MIB: u64 = 1 << 20;
pub(super) const QUANTUM: u64 = 512;
pub(super) const SMALL_SIZE: u64 = MIB;
pub(super) const SMALL_SEGMENT: u64 = 2 * MIB;
const EXACT_FROM: u64 = 10 * MIB;
const ROUND_LARGE: u64 = 2 * MIB;

/// What the allocator is told, and how much memory the device has.
#[derive(Debug, Clone, PartialEq)]
pub struct Options {
    /// Bytes that the device can give.
    pub capacity: u64,
    /// The most bytes to reserve; `None` when no memory fraction was set.
    pub limit: Option<u64>,
    pub large_segment_size: u64,
    /// Blocks of this size on are not split; `None`: all are.
    pub max_split_size: Option<u64>,
    pub max_non_split_rounding: u64,
    /// Steps between powers of two, for sizes from 1 MiB (index 0) to 32 GiB (index 15) on; 0 and 1: none.
    pub roundup_power2_divisions: [u32; 16],
    /// The part of `limit` from which garbage is collected; 0: never.
    pub garbage_collection_threshold: f64,
    pub expandable_segments: bool,
    /// Search the pool once more after waiting for all events, before all cached memory is given back.
    pub search_after_sync: bool,
}

impl Options {
    /// PyTorch's defaults, on a device of `capacity` bytes.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            limit: None,
            large_segment_size: 20 * MIB,
            max_split_size: None,
            max_non_split_rounding: 20 * MIB,
            roundup_power2_divisions: [0; 16],
            garbage_collection_threshold: 0.0,
            expandable_segments: false,
            search_after_sync: true,
        }
    }

    /// The size of the block for a request of `bytes`.
    pub fn round_size(&self, bytes: u64) -> u64 {
        if bytes < QUANTUM {
            return QUANTUM;
        }
        let index = (i64::from(bytes.ilog2()) - 20).clamp(0, 15) as usize;
        let divisions = u64::from(self.roundup_power2_divisions[index]);
        if divisions <= 1 || bytes <= QUANTUM * divisions {
            return bytes.next_multiple_of(QUANTUM);
        }
        let floor = 1 << bytes.ilog2();
        match floor >> divisions.ilog2() {
            _ if bytes == floor => bytes,
            0 => floor << 1,
            step => bytes.next_multiple_of(step),
        }
    }

    /// The size of a new segment for a block of `size` bytes.
    pub fn segment_size(&self, size: u64) -> u64 {
        if size <= SMALL_SIZE {
            SMALL_SEGMENT
        } else if size < EXACT_FROM {
            self.large_segment_size
        } else {
            size.next_multiple_of(ROUND_LARGE)
        }
    }

    pub(super) fn oversize(&self, size: u64) -> bool {
        self.max_split_size.is_some_and(|max| size >= max)
    }
}

/// One number over time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Count {
    pub current: u64,
    pub peak: u64,
    pub allocated: u64,
    pub freed: u64,
}

impl Count {
    pub(super) fn change(&mut self, by: i64) {
        if by >= 0 {
            self.current += by as u64;
            self.allocated += by as u64;
            self.peak = self.peak.max(self.current);
        } else {
            self.current -= by.unsigned_abs();
            self.freed += by.unsigned_abs();
        }
    }
}

/// One number for all memory, the small pool and the large pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByPool {
    pub all: Count,
    pub small_pool: Count,
    pub large_pool: Count,
}

impl ByPool {
    pub(super) fn change(&mut self, small: bool, by: i64) {
        self.all.change(by);
        if small { self.small_pool.change(by) } else { self.large_pool.change(by) }
    }
}

/// PyTorch's statistics, by their names there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Counters {
    pub allocation: ByPool,
    pub segment: ByPool,
    pub active: ByPool,
    pub inactive_split: ByPool,
    pub allocated_bytes: ByPool,
    pub reserved_bytes: ByPool,
    pub active_bytes: ByPool,
    pub inactive_split_bytes: ByPool,
    pub requested_bytes: ByPool,
    pub oversize_allocations: Count,
    pub oversize_segments: Count,
    pub num_alloc_retries: u64,
    pub num_ooms: u64,
    pub num_sync_all_streams: u64,
    pub num_device_alloc: u64,
    pub num_device_free: u64,
}
