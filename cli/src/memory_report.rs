//! Summarizes a memory snapshot: totals, segments, call sites and the end of the history.
//!
//! Every snapshot has a report, even one with inconsistent sizes; sums saturate. The text and the JSON document of
//! `warpsmith memory` both come from this report.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::Serialize;
use warpsmith::snapshot::{BlockState, Frame, Segment, SegmentType, Snapshot, TraceAction, TraceEntry};

/// Summary of a snapshot.
#[derive(Debug, Serialize)]
pub struct Report {
    /// Totals over all devices.
    pub total: Totals,
    /// Totals for each device that has segments.
    pub devices: Vec<DeviceTotals>,
    /// Segments, largest first.
    pub segments: Vec<SegmentReport>,
    /// The call sites that have the most live bytes, in descending order.
    pub call_sites: Vec<CallSite>,
    /// Remaining call sites.
    pub other_call_sites: Others,
    /// Number of events in the history.
    pub events: usize,
    /// The last events in the history, up to the requested number, oldest first.
    pub last_events: Vec<Event>,
}

/// Sums over segments, in bytes unless stated otherwise.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize)]
pub struct Totals {
    /// Memory reserved from the device.
    pub reserved: u64,
    /// Allocated memory.
    pub allocated: u64,
    /// Memory that is allocated or waiting to be freed.
    pub active: u64,
    /// Requested bytes, before rounding.
    pub requested: u64,
    /// Free memory inside segments.
    pub free: u64,
    /// Number of free blocks.
    pub free_blocks: usize,
    /// Size of the largest free block.
    pub largest_free: u64,
}

/// Totals for a device.
#[derive(Debug, Serialize)]
pub struct DeviceTotals {
    /// Device ordinal.
    pub device: u32,
    /// Number of segments.
    pub segments: usize,
    /// Totals over the device's segments.
    #[serde(flatten)]
    pub totals: Totals,
}

/// A segment.
#[derive(Debug, Serialize)]
pub struct SegmentReport {
    /// Device ordinal.
    pub device: u32,
    /// Start address.
    pub address: u64,
    /// Stream to which the segment belongs.
    pub stream: u64,
    /// Segment type, which determines the request sizes that the segment serves.
    #[serde(rename = "type")]
    pub kind: SegmentType,
    /// Pool to which the segment belongs.
    pub pool: (u64, u64),
    /// True if the segment can grow.
    pub expandable: bool,
    /// Number of blocks in any state.
    pub blocks: usize,
    /// Totals of the segment.
    #[serde(flatten)]
    pub totals: Totals,
    /// Sizes and states of the segment's blocks, in order.
    #[serde(skip)]
    pub spans: Vec<(u64, BlockState)>,
}

/// A source location, and the live memory allocated there.
#[derive(Debug, Serialize)]
pub struct CallSite {
    /// Location, or `None` if it was not recorded.
    pub site: Option<Frame>,
    /// Number of allocated blocks.
    pub blocks: usize,
    /// Size of the allocated blocks, in bytes.
    pub bytes: u64,
}

/// Summary of call sites that are not shown.
#[derive(Debug, Default, Serialize)]
pub struct Others {
    /// Number of call sites.
    pub sites: usize,
    /// Number of allocated blocks.
    pub blocks: usize,
    /// Size of the allocated blocks, in bytes.
    pub bytes: u64,
}

/// An allocator event.
#[derive(Debug, Serialize)]
pub struct Event {
    /// Time of the event, in microseconds before the last event.
    pub us_before_end: i64,
    /// Time in microseconds since 1970.
    pub time_us: i64,
    /// Device ordinal.
    pub device: usize,
    /// Action that the allocator performed.
    pub action: TraceAction,
    /// Address, or `None` for an out-of-memory error.
    pub address: Option<u64>,
    /// Free device memory when an out-of-memory error occurred.
    pub device_free: Option<u64>,
    /// Size in bytes.
    pub size: u64,
    /// Stream on which the event occurred.
    pub stream: u64,
    /// Pool in which the event occurred.
    pub pool: (u64, u64),
    /// Call site, or `None` if it was not recorded.
    pub site: Option<Frame>,
}

impl Report {
    /// Creates the report with the `top` largest call sites and the last `events` events.
    pub fn of(snapshot: &Snapshot, top: usize, events: usize) -> Self {
        let mut segments: Vec<_> = snapshot.segments.iter().map(SegmentReport::of).collect();
        segments.sort_by_key(|s| (Reverse(s.totals.reserved), s.device, s.address));
        let mut total = Totals::default();
        let mut devices: BTreeMap<u32, DeviceTotals> = BTreeMap::new();
        for segment in &segments {
            total.add(&segment.totals);
            let none = DeviceTotals { device: segment.device, segments: 0, totals: Totals::default() };
            let device = devices.entry(segment.device).or_insert(none);
            device.segments += 1;
            device.totals.add(&segment.totals);
        }
        let devices = devices.into_values().collect();
        let (call_sites, other_call_sites) = call_sites(snapshot, top);
        Report {
            total,
            devices,
            segments,
            call_sites,
            other_call_sites,
            events: snapshot.device_traces.iter().map(Vec::len).sum(),
            last_events: last_events(snapshot, events),
        }
    }
}

impl Totals {
    fn add(&mut self, other: &Totals) {
        self.reserved = self.reserved.saturating_add(other.reserved);
        self.allocated = self.allocated.saturating_add(other.allocated);
        self.active = self.active.saturating_add(other.active);
        self.requested = self.requested.saturating_add(other.requested);
        self.free = self.free.saturating_add(other.free);
        self.free_blocks += other.free_blocks;
        self.largest_free = self.largest_free.max(other.largest_free);
    }
}

impl SegmentReport {
    fn of(segment: &Segment) -> Self {
        let mut totals = Totals { reserved: segment.total_size, ..Totals::default() };
        for block in &segment.blocks {
            if block.state == BlockState::Inactive {
                totals.free = totals.free.saturating_add(block.size);
                totals.free_blocks += 1;
                totals.largest_free = totals.largest_free.max(block.size);
                continue;
            }
            totals.active = totals.active.saturating_add(block.size);
            totals.requested = totals.requested.saturating_add(block.requested_size);
            if block.state == BlockState::ActiveAllocated {
                totals.allocated = totals.allocated.saturating_add(block.size);
            }
        }
        SegmentReport {
            device: segment.device,
            address: segment.address,
            stream: segment.stream,
            kind: segment.segment_type,
            pool: segment.segment_pool_id,
            expandable: segment.is_expandable,
            blocks: segment.blocks.len(),
            totals,
            spans: segment.blocks.iter().map(|block| (block.size, block.state)).collect(),
        }
    }
}

/// Returns the innermost frame whose file and line are known: C++ frames without debug information are skipped because
/// they are not useful.
fn site(frames: &[Frame]) -> Option<&Frame> {
    frames.iter().find(|f| f.line > 0 && !matches!(f.filename.as_str(), "" | "??")).or(frames.first())
}

fn call_sites(snapshot: &Snapshot, top: usize) -> (Vec<CallSite>, Others) {
    let mut live: BTreeMap<Option<&Frame>, (usize, u64)> = BTreeMap::new();
    let blocks = snapshot.segments.iter().flat_map(|segment| &segment.blocks);
    for block in blocks.filter(|block| block.state == BlockState::ActiveAllocated) {
        let (blocks, bytes) = live.entry(site(&block.frames)).or_default();
        *blocks += 1;
        *bytes = bytes.saturating_add(block.size);
    }
    let mut sites: Vec<_> = live
        .into_iter()
        .map(|(site, (blocks, bytes))| CallSite { site: site.cloned(), blocks, bytes })
        .collect();
    sites.sort_by_key(|site| Reverse(site.bytes));
    let rest = sites.split_off(top.min(sites.len()));
    let others = rest.iter().fold(Others::default(), |sum, site| Others {
        sites: sum.sites + 1,
        blocks: sum.blocks + site.blocks,
        bytes: sum.bytes.saturating_add(site.bytes),
    });
    (sites, others)
}

fn last_events(snapshot: &Snapshot, count: usize) -> Vec<Event> {
    let mut last: Vec<_> = snapshot
        .device_traces
        .iter()
        .enumerate()
        .flat_map(|(device, trace)| {
            trace[trace.len().saturating_sub(count)..].iter().map(move |entry| (device, entry))
        })
        .collect();
    // The sort must be stable, so that events of the same device keep their order.
    last.sort_by_key(|(_, entry)| entry.time_us);
    let end = last.last().map_or(0, |(_, entry)| entry.time_us);
    last.drain(..last.len().saturating_sub(count));
    let event = |(device, entry): (usize, &TraceEntry)| {
        let oom = entry.action == TraceAction::Oom;
        Event {
            us_before_end: end.saturating_sub(entry.time_us),
            time_us: entry.time_us,
            device,
            action: entry.action,
            address: (!oom).then_some(entry.addr),
            device_free: oom.then_some(entry.addr),
            size: entry.size,
            stream: entry.stream,
            pool: entry.pool_id,
            site: site(&entry.frames).cloned(),
        }
    };
    last.into_iter().map(event).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use warpsmith::snapshot::Block;

    fn frame(filename: &str, line: u32) -> Frame {
        Frame { filename: filename.into(), line, name: "f".into() }
    }

    fn block(size: u64, state: BlockState, frames: &[&Frame]) -> Block {
        Block {
            address: 0,
            size,
            requested_size: size / 2,
            state,
            frames: frames.iter().map(|&frame| frame.clone()).collect(),
        }
    }

    #[test]
    fn totals_add_up() {
        let blocks = vec![
            block(100, BlockState::ActiveAllocated, &[]),
            block(40, BlockState::Inactive, &[]),
            block(30, BlockState::ActivePendingFree, &[]),
            block(60, BlockState::Inactive, &[]),
        ];
        let of =
            |device, total_size| Segment { device, total_size, blocks: blocks.clone(), ..Segment::default() };
        let snapshot = Snapshot { segments: vec![of(1, 230), of(0, 231), of(1, 232)], ..Snapshot::default() };
        let report = Report::of(&snapshot, 10, 10);
        assert_eq!(
            report.total,
            Totals {
                reserved: 693,
                allocated: 300,
                active: 390,
                requested: 195,
                free: 300,
                free_blocks: 6,
                largest_free: 60
            }
        );
        let devices: Vec<_> =
            report.devices.iter().map(|d| (d.device, d.segments, d.totals.reserved)).collect();
        assert_eq!(devices, [(0, 1, 231), (1, 2, 462)]);
        let sizes: Vec<_> = report.segments.iter().map(|segment| segment.totals.reserved).collect();
        assert_eq!(sizes, [232, 231, 230]);
    }

    #[test]
    fn live_blocks_are_counted_where_they_were_asked_for() {
        let (unknown, a, b) = (frame("??", 0), frame("a.rs", 1), frame("b.rs", 2));
        let live = BlockState::ActiveAllocated;
        let blocks = vec![
            block(10, live, &[&unknown, &a, &b]),
            block(10, live, &[&a]),
            block(15, live, &[&b, &a]),
            block(90, BlockState::ActivePendingFree, &[&b]),
            block(3, live, &[&unknown]),
            block(2, live, &[]),
        ];
        let segments = vec![Segment { blocks, ..Segment::default() }];
        let report = Report::of(&Snapshot { segments, ..Snapshot::default() }, 2, 0);
        let sites: Vec<_> = report.call_sites.iter().map(|s| (s.site.clone(), s.blocks, s.bytes)).collect();
        assert_eq!(sites, [(Some(a), 2, 20), (Some(b), 1, 15)]);
        let others = report.other_call_sites;
        assert_eq!((others.sites, others.blocks, others.bytes), (2, 2, 5));
    }

    #[test]
    fn the_last_events_are_those_of_all_devices_by_time() {
        let event = |time_us, size| TraceEntry {
            action: TraceAction::Alloc,
            addr: 1,
            size,
            stream: 0,
            time_us,
            frames: Vec::new(),
            pool_id: (0, 0),
        };
        let device_traces =
            vec![vec![event(5, 0), event(9, 1), event(9, 2)], vec![], vec![event(1, 3), event(8, 4)]];
        let report = Report::of(&Snapshot { device_traces, ..Snapshot::default() }, 0, 3);
        let events: Vec<_> = report.last_events.iter().map(|e| (e.device, e.size, e.us_before_end)).collect();
        assert_eq!(events, [(2, 4, 1), (0, 1, 0), (0, 2, 0)]);
        assert_eq!(report.events, 5);
    }

    #[test]
    fn senseless_sizes_stop_at_the_largest_number() {
        let blocks = vec![block(u64::MAX, BlockState::ActiveAllocated, &[]); 3];
        let segments = vec![Segment { total_size: u64::MAX, blocks, ..Segment::default() }; 2];
        let report = Report::of(&Snapshot { segments, ..Snapshot::default() }, 10, 0);
        assert_eq!((report.total.reserved, report.total.allocated), (u64::MAX, u64::MAX));
        assert_eq!(report.call_sites[0].bytes, u64::MAX);
    }
}
