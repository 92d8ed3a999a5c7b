//! Statistics, snapshots and histories, gathered from all arenas.

use std::collections::BTreeMap;

use super::arena::{Segment, Source};
use super::block::{Block, State};
use super::counters::{Counted, Counters};
use super::history::{History, Site};
use super::size::Kind;
use super::streams::{Arena, ArenaGuard};
use super::{CachingAllocator, Totals};
use crate::device::Device;
use crate::memory::options::AllocatorOptions;
use crate::memory::statistics::{ByPool, MemoryStatistics, PoolId};
use crate::snapshot::{self, AllocatorSettings, BlockState, Frame, SegmentType, Snapshot, TraceEntry};

impl Totals {
    pub(super) fn reserved(&self) -> u64 {
        self.counters.current(Counted::ReservedBytes)
    }

    pub(super) fn reset_accumulated(&mut self) {
        self.counters.reset_accumulated();
        self.forgotten.reset_accumulated();
        (self.alloc_retries, self.ooms, self.oom_rejections) = (0, 0, 0);
        (self.sync_all_streams, self.device_allocs, self.device_frees) = (0, 0, 0);
    }
}

pub(super) fn statistics(allocator: &CachingAllocator) -> MemoryStatistics {
    let mut sum = MemoryStatistics {
        max_split_size: allocator.registry.lock().options.max_split_size,
        ..MemoryStatistics::default()
    };
    for arena in allocator.arenas() {
        let state = arena.lock();
        add_counters(&state.counters, &mut sum);
        if arena.pool != PoolId::default() {
            let of_pool = sum.reserved_bytes_by_private_pools.entry(arena.pool).or_default();
            state.counters.add_to(Counted::ReservedBytes, of_pool);
        }
    }
    let totals = allocator.totals.lock();
    add_counters(&totals.forgotten, &mut sum);
    totals.counters.add_to(Counted::Segment, &mut sum.segment);
    totals.counters.add_to(Counted::ReservedBytes, &mut sum.reserved_bytes);
    totals.counters.oversize_segments.add_to(&mut sum.oversize_segments);
    let bound = sum.reserved_bytes;
    for bytes in [&mut sum.allocated_bytes, &mut sum.active_bytes, &mut sum.inactive_split_bytes] {
        bound_peaks(bytes, &bound);
    }
    sum.num_alloc_retries = totals.alloc_retries;
    sum.num_ooms = totals.ooms;
    sum.num_oom_rejections = totals.oom_rejections;
    sum.num_sync_all_streams = totals.sync_all_streams;
    sum.num_device_alloc = totals.device_allocs;
    sum.num_device_free = totals.device_frees;
    sum
}

/// Adds the counters of an arena to the sum.
pub(super) fn add_counters(counters: &Counters, sum: &mut MemoryStatistics) {
    for (counted, total) in [
        (Counted::Allocation, &mut sum.allocation),
        (Counted::AllocatedBytes, &mut sum.allocated_bytes),
        (Counted::RequestedBytes, &mut sum.requested_bytes),
        (Counted::InactiveSplit, &mut sum.inactive_split),
        (Counted::InactiveSplitBytes, &mut sum.inactive_split_bytes),
    ] {
        counters.add_to(counted, total);
    }
    counters.add_active_to(&mut sum.active, &mut sum.active_bytes);
    counters.oversize_allocations.add_to(&mut sum.oversize_allocations);
}

/// Limits the peaks of memory in use to the peaks of reserved memory, which it never exceeds.
fn bound_peaks(bytes: &mut ByPool, reserved: &ByPool) {
    for (bytes, reserved) in [
        (&mut bytes.all, &reserved.all),
        (&mut bytes.small_pool, &reserved.small_pool),
        (&mut bytes.large_pool, &reserved.large_pool),
    ] {
        bytes.peak = bytes.peak.min(reserved.peak);
    }
}

pub(super) fn record_history(allocator: &CachingAllocator, events: Option<usize>) {
    let mut registry = allocator.registry.lock();
    registry.history = events.filter(|events| *events > 0);
    for arena in &registry.arenas {
        let mut state = arena.lock();
        let stream = state.home().id;
        state.set_history(registry.history.map(|limit| History::new(limit, stream)));
    }
}

pub(super) fn snapshot(allocator: &CachingAllocator, device: &Device) -> Snapshot {
    let ordinal = device.id().ordinal();
    let (options, history) = {
        let registry = allocator.registry.lock();
        (registry.options.clone(), registry.history)
    };
    let mut segments = Vec::new();
    let mut trace = Vec::new();
    for arena in allocator.arenas() {
        let state = arena.lock();
        for segment in state.segments.iter().flatten() {
            add_segments(&mut segments, ordinal, &arena, &state, segment);
        }
        if let Some(history) = &state.history {
            trace.extend(history.entries().map(|entry| TraceEntry {
                action: entry.action,
                addr: entry.address,
                size: entry.size,
                stream: entry.stream,
                time_us: entry.time_us,
                frames: frames(Some(entry.site)),
                pool_id: (arena.pool.0, arena.pool.1),
            }));
        }
    }
    segments.sort_by_key(|segment| segment.address);
    // The sort is stable, so events of one stream with equal timestamps stay in order.
    trace.sort_by_key(|entry: &TraceEntry| entry.time_us);
    if let Some(limit) = history {
        trace.drain(..trace.len().saturating_sub(limit));
    }
    let mut device_traces = vec![Vec::new(); ordinal as usize];
    device_traces.push(trace);
    Snapshot { segments, device_traces, allocator_settings: settings(&options) }
}

/// Adds a segment to the snapshot. An expandable segment becomes one entry per mapped range.
fn add_segments(
    segments: &mut Vec<snapshot::Segment>,
    device: u32,
    arena: &Arena,
    state: &ArenaGuard<'_>,
    segment: &Segment,
) {
    let is_expandable = matches!(segment.source, Source::Expandable(_));
    let mut open: Option<snapshot::Segment> = None;
    for (_, block) in state.blocks.list(segment.first) {
        if block.state == State::Unmapped {
            segments.extend(open.take());
            continue;
        }
        let range = open.get_or_insert_with(|| snapshot::Segment {
            device,
            address: block.address,
            total_size: 0,
            allocated_size: 0,
            active_size: 0,
            requested_size: 0,
            stream: state.home().id,
            segment_type: match segment.kind {
                Kind::Small => SegmentType::Small,
                Kind::Large => SegmentType::Large,
            },
            segment_pool_id: (arena.pool.0, arena.pool.1),
            is_expandable,
            frames: frames(Some(segment.site)),
            blocks: Vec::new(),
        });
        range.total_size += block.size;
        if block.state != State::Free {
            range.active_size += block.size;
            range.requested_size += block.requested;
        }
        if block.state == State::Allocated {
            range.allocated_size += block.size;
        }
        range.blocks.push(block_of(block));
    }
    segments.extend(open);
}

fn block_of(block: &Block) -> snapshot::Block {
    let (state, in_use) = match block.state {
        State::Allocated => (BlockState::ActiveAllocated, true),
        State::Pending => (BlockState::ActivePendingFree, true),
        State::Free | State::Unmapped | State::Vacant => (BlockState::Inactive, false),
    };
    snapshot::Block {
        address: block.address,
        size: block.size,
        requested_size: if in_use { block.requested } else { 0 },
        state,
        frames: frames(block.site.filter(|_| in_use)),
    }
}

fn frames(site: Option<Site>) -> Vec<Frame> {
    let frame =
        |site: Site| Frame { filename: site.file().to_owned(), line: site.line(), name: String::new() };
    site.map(frame).into_iter().collect()
}

fn settings(options: &AllocatorOptions) -> AllocatorSettings {
    let signed = |bytes: Option<u64>| bytes.map_or(-1, |bytes| bytes as i64);
    let divisions: BTreeMap<_, _> = options
        .roundup_power2_divisions
        .iter()
        .enumerate()
        .map(|(index, divisions)| ((1u64 << index).to_string(), i64::from(*divisions)))
        .collect();
    AllocatorSettings {
        alloc_conf: options.to_string(),
        max_split_size: signed(options.max_split_size),
        garbage_collection_threshold: options.garbage_collection_threshold,
        expandable_segments: options.expandable_segments,
        roundup_power2_divisions: divisions,
        max_round_threshold: signed(options.pinned.max_round_threshold),
        max_cached_size: signed(options.pinned.max_cached_size),
    }
}
