//! Invariants of an allocator, checked after every operation, even if the operation failed.
//!
//! - Snapshot: the blocks of a segment fill it, segments do not overlap, and addresses are multiples of 512. No two
//!   free blocks are adjacent, and the blocks in use are those that the program has allocated.
//! - Statistics: current values equal the sums of the snapshot, and the numbers of allocations and frees match the
//!   program's operations. Peaks are at least those that the model observes, and exactly those if one stream allocates.
//! - Driver: it has allocated exactly the reserved bytes.

use std::collections::BTreeMap;

use warpsmith_runtime::Device;
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::memory::options::Backend;
use warpsmith_runtime::memory::statistics::{ByPool, MemoryStatistics, Statistic};
use warpsmith_runtime::snapshot::{BlockState, Segment, SegmentType, Snapshot};

/// Sums for small and large pools.
type Sums = [u64; 2];

/// Sums of a snapshot, for each kind of pool.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Recount {
    allocation: Sums,
    allocated_bytes: Sums,
    active: Sums,
    active_bytes: Sums,
    requested_bytes: Sums,
    inactive_split: Sums,
    inactive_split_bytes: Sums,
    segment: Sums,
    reserved_bytes: Sums,
    oversize_allocations: u64,
    oversize_segments: u64,
}

impl Recount {
    fn of(snapshot: &Snapshot, max_split: u64) -> Self {
        let mut sum = Self::default();
        for segment in &snapshot.segments {
            let kind = usize::from(segment.segment_type == SegmentType::Large);
            sum.reserved_bytes[kind] += segment.total_size;
            if !segment.is_expandable {
                sum.segment[kind] += 1;
                sum.oversize_segments += u64::from(segment.total_size >= max_split);
            }
            for block in &segment.blocks {
                match block.state {
                    BlockState::Inactive if segment.blocks.len() > 1 && !segment.is_expandable => {
                        sum.inactive_split[kind] += 1;
                        sum.inactive_split_bytes[kind] += block.size;
                    }
                    BlockState::Inactive => {}
                    state => {
                        sum.active[kind] += 1;
                        sum.active_bytes[kind] += block.size;
                        sum.requested_bytes[kind] += block.requested_size;
                        if state == BlockState::ActiveAllocated {
                            sum.allocation[kind] += 1;
                            sum.allocated_bytes[kind] += block.size;
                            sum.oversize_allocations += u64::from(block.size >= max_split);
                        }
                    }
                }
            }
        }
        sum
    }

    /// Returns the same sums from the statistics.
    fn stated(statistics: &MemoryStatistics) -> Self {
        let of = |by: &ByPool| {
            assert_eq!(by.all.current, by.small_pool.current + by.large_pool.current);
            [by.small_pool.current, by.large_pool.current]
        };
        Self {
            allocation: of(&statistics.allocation),
            allocated_bytes: of(&statistics.allocated_bytes),
            active: of(&statistics.active),
            active_bytes: of(&statistics.active_bytes),
            requested_bytes: of(&statistics.requested_bytes),
            inactive_split: of(&statistics.inactive_split),
            inactive_split_bytes: of(&statistics.inactive_split_bytes),
            segment: of(&statistics.segment),
            reserved_bytes: of(&statistics.reserved_bytes),
            oversize_allocations: statistics.oversize_allocations.current,
            oversize_segments: statistics.oversize_segments.current,
        }
    }

    /// Returns the totals whose peaks occur between operations.
    fn all(&self) -> [u64; 6] {
        let of = [
            self.allocation,
            self.allocated_bytes,
            self.active,
            self.active_bytes,
            self.requested_bytes,
            self.reserved_bytes,
        ];
        of.map(|[small, large]| small + large)
    }
}

/// Operations of the program, and the values that follow from them.
#[derive(Debug)]
pub struct Model {
    one_stream: bool,
    /// True if failed frees may have left their blocks permanently unusable.
    kept: bool,
    pub ooms: u64,
    /// Block size in bytes of each live address, recorded when the block is first seen.
    sizes: BTreeMap<u64, u64>,
    fresh: Option<u64>,
    peaks: [u64; 6],
    /// Counts and bytes of blocks allocated and freed since the last reset.
    allocated: (u64, u64),
    freed: (u64, u64),
}

impl Model {
    pub fn new(one_stream: bool) -> Self {
        Self {
            one_stream,
            kept: false,
            ooms: 0,
            sizes: BTreeMap::new(),
            fresh: None,
            peaks: [0; 6],
            allocated: (0, 0),
            freed: (0, 0),
        }
    }

    pub fn allocated(&mut self, address: u64, bytes: u64) {
        assert!(!self.sizes.contains_key(&address), "{address:#x} ({bytes} bytes) is allocated already");
        self.fresh = Some(address);
    }

    pub fn freed(&mut self, address: u64) {
        let size = self.sizes.remove(&address).unwrap_or(0);
        self.freed = (self.freed.0 + 1, self.freed.1 + size);
    }

    pub fn may_keep_blocks(&mut self) {
        self.kept = true;
    }

    pub fn several_streams(&mut self) {
        self.one_stream = false;
    }

    pub fn reset_peaks(&mut self) {
        self.peaks = [0; 6];
    }

    pub fn reset_accumulated(&mut self) {
        (self.allocated, self.freed, self.ooms) = ((0, 0), (0, 0), 0);
    }

    /// Checks all invariants; see the [module's documentation](self). `live` contains the program's addresses and
    /// bytes.
    pub fn check(&mut self, device: &Device, live: &BTreeMap<u64, u64>, fired: &[Call]) {
        let (memory, snapshot) = (device.memory(), device.memory().snapshot());
        let (statistics, options) = (memory.statistics(), memory.options());
        check_snapshot(&snapshot, live);

        let recount = Recount::of(&snapshot, options.max_split_size.unwrap_or(u64::MAX));
        assert_eq!(recount, Recount::stated(&statistics), "recounted, and as stated");
        if let Some(address) = self.fresh.take() {
            let mut blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
            let size = blocks.find(|block| block.address == address).map_or(0, |block| block.size);
            self.sizes.insert(address, size);
            self.allocated = (self.allocated.0 + 1, self.allocated.1 + size);
        }
        let did = |of: &ByPool| (of.all.allocated, of.all.freed);
        assert_eq!(did(&statistics.allocation), (self.allocated.0, self.freed.0), "blocks up and down");
        assert_eq!(did(&statistics.allocated_bytes), (self.allocated.1, self.freed.1), "bytes up and down");
        assert_eq!(statistics.num_ooms, self.ooms);
        self.check_peaks(&statistics, recount.all());

        let by_pool = |pool: (u64, u64)| {
            let of_pool = |segment: &&Segment| segment.segment_pool_id == pool;
            snapshot.segments.iter().filter(of_pool).map(|segment| segment.total_size).sum::<u64>()
        };
        for (pool, reserved) in &statistics.reserved_bytes_by_private_pools {
            assert_eq!(reserved.all.current, by_pool((pool.0, pool.1)), "bytes of pool {pool}");
        }

        let used = device.memory_info().map(|info| info.total - info.free).unwrap();
        let reserved = statistics.reserved_bytes.all.current;
        // Memory that the driver failed to free is lost until the context is released.
        let lost = [Call::MemoryFree, Call::PhysicalRelease, Call::StreamFree];
        // Memory freed in stream order belongs to the driver when the stream reaches the free.
        let later = options.backend == Backend::StreamOrdered;
        if later || fired.iter().any(|call| lost.contains(call)) {
            assert!(used >= reserved, "{reserved} bytes reserved of {used} that the driver gave");
        } else {
            assert_eq!(
                used, reserved,
                "bytes that the driver gave, and that are reserved; failed: {fired:?}"
            );
        }
    }

    fn check_peaks(&mut self, statistics: &MemoryStatistics, now: [u64; 6]) {
        let stated = [
            &statistics.allocation,
            &statistics.allocated_bytes,
            &statistics.active,
            &statistics.active_bytes,
            &statistics.requested_bytes,
            &statistics.reserved_bytes,
        ];
        // A pool allocates its own blocks, like a stream.
        self.one_stream &= statistics.reserved_bytes_by_private_pools.is_empty();
        for (index, (stated, now)) in stated.into_iter().zip(now).enumerate() {
            self.peaks[index] = self.peaks[index].max(now);
            let (peak, seen) = (stated.all.peak, self.peaks[index]);
            assert!(peak >= seen, "figure {index}: the peak is {peak}, and was at least {seen}");
            // Within an operation, more may briefly be reserved than afterwards.
            if self.one_stream && index < 5 {
                assert_eq!(peak, seen, "figure {index}: the peak of one stream");
            }
        }
        let every = [&statistics.inactive_split, &statistics.inactive_split_bytes, &statistics.segment];
        for by_pool in stated.into_iter().chain(every) {
            for Statistic { current, peak, .. } in [by_pool.all, by_pool.small_pool, by_pool.large_pool] {
                assert!(peak >= current);
            }
        }
        for bytes in [&statistics.allocated_bytes, &statistics.active_bytes, &statistics.inactive_split_bytes]
        {
            assert!(bytes.all.peak <= statistics.reserved_bytes.all.peak);
        }
    }

    /// Checks that no memory is left after everything was freed and the cache was emptied.
    pub fn check_nothing_left(&self, device: &Device, driver: &EmulatedDriver) {
        let reserved = device.memory().reserved();
        if self.kept {
            return;
        }
        assert_eq!(reserved, 0, "bytes reserved with nothing in use: {:#?}", device.memory().snapshot());
        let lost = [Call::MemoryFree, Call::PhysicalRelease, Call::StreamFree, Call::VirtualRelease];
        if !driver.failed_calls().iter().any(|call| lost.contains(call)) {
            assert_eq!(
                (driver.live_allocations(0), driver.live_reservations(0)),
                (0, 0),
                "blocks and reservations of the driver"
            );
        }
    }
}

fn check_snapshot(snapshot: &Snapshot, live: &BTreeMap<u64, u64>) {
    let mut in_use = BTreeMap::new();
    let mut end = 0;
    for segment in &snapshot.segments {
        assert!(segment.address >= end, "segments overlap at {:#x}", segment.address);
        end = segment.address + segment.total_size;
        let mut next = segment.address;
        let (mut allocated, mut active, mut requested) = (0, 0, 0);
        let mut free_before = false;
        for block in &segment.blocks {
            assert_eq!(block.address, next, "blocks fill their segment");
            assert_eq!((block.address % 512, block.size % 512), (0, 0));
            assert!(block.size > 0 && block.requested_size <= block.size);
            next += block.size;
            let free = block.state == BlockState::Inactive;
            assert!(!(free && free_before), "two free neighbors at {:#x}", block.address);
            free_before = free;
            if !free {
                (active, requested) = (active + block.size, requested + block.requested_size);
            }
            if block.state == BlockState::ActiveAllocated {
                allocated += block.size;
                in_use.insert(block.address, block.requested_size);
            }
        }
        assert_eq!(next, end, "blocks fill their segment");
        let stated = (segment.allocated_size, segment.active_size, segment.requested_size);
        assert_eq!(stated, (allocated, active, requested));
    }
    let other = |a: &BTreeMap<u64, u64>, b: &BTreeMap<u64, u64>| -> Vec<(u64, u64)> {
        a.iter().filter(|(at, bytes)| b.get(at) != Some(bytes)).map(|(at, bytes)| (*at, *bytes)).collect()
    };
    let (unknown, missing) = (other(&in_use, live), other(live, &in_use));
    assert!(
        unknown.is_empty() && missing.is_empty(),
        "in use without an owner: {unknown:x?}; held, not in use: {missing:x?}"
    );
}
