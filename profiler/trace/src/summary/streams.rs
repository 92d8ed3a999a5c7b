//! Devices and streams, with busy times, and with idle times by cause.
//!
//! A stream is idle in the time between two of its kernels or copies. The part of this time before the launch of the
//! next kernel or copy reaches the device is launch-bound (`launch_bound`). The launch is assumed to reach the device
//! at the start of the call plus the launch latency, which is estimated as the minimum latency in the trace. If the
//! stream waited for another stream after that, the time in which the other stream ran a copy or a kernel is attributed
//! to this wait. The rest of the time is additional latency.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::rows::ratio;
use super::work::{Union, Work};
use crate::definitions::StreamId;
use crate::record::SyncKind;
use crate::trace::Trace;

/// Busy and idle times of a device, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceRow {
    /// Ordinal of the device.
    pub device: u32,
    /// Name of the device; may be empty.
    pub name: String,
    /// Time from the start of the device's first kernel or copy to the end of its last one.
    pub span: u64,
    /// Time in which at least one kernel or copy ran.
    pub busy: u64,
    /// Time in which no kernel or copy ran.
    pub idle: u64,
    /// Launch-bound part of the idle time, in which the next launch had not yet reached the device.
    pub launch_bound: u64,
    /// Time in which kernels ran.
    pub compute: u64,
    /// Time in which copies or memsets ran.
    pub transfer: u64,
    /// Time in which kernels and copies or memsets ran concurrently.
    pub overlap: u64,
}

/// Busy and idle times of a stream, in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamRow {
    /// Ordinal of the device.
    pub device: u32,
    /// ID of the stream.
    pub stream: i64,
    /// Name of the stream; may be empty.
    pub name: String,
    /// Time from the start of the stream's first kernel or copy to the end of its last one.
    pub span: u64,
    /// Time in which at least one kernel or copy ran.
    pub busy: u64,
    /// Launch-bound idle time, in which the launch of the next kernel or copy had not yet reached the device.
    pub launch_bound: u64,
    /// Idle time in which the stream waited for a kernel on another stream.
    pub waiting: u64,
    /// Idle time in which the stream waited for a copy on another stream.
    pub copying: u64,
    /// Idle time for other or unknown reasons, such as a longer launch latency.
    pub other: u64,
    /// Maximum queue depth: the number of kernels and copies that were launched but had not yet started.
    pub max_queue: u64,
    /// Average queue depth over the span.
    pub average_queue: f64,
}

/// Returns the launch-bound idle time of the device before each kernel or copy.
pub(super) fn launch_bound(work: &[Work]) -> Vec<u64> {
    let mut free: HashMap<u32, u64> = HashMap::new();
    let launch_bound = |work: &Work| {
        let free = free.entry(work.device).or_insert(work.end);
        let from = std::mem::replace(free, work.end.max(*free));
        // The first kernel or copy sets the reference time, so it never arrives late.
        work.arrived.map_or(0, |arrived| arrived.min(work.start).saturating_sub(from))
    };
    work.iter().map(launch_bound).collect()
}

pub(super) fn devices(trace: &Trace, work: &[Work], launch_bound: &[u64]) -> Vec<DeviceRow> {
    let ordinals: BTreeSet<u32> = work.iter().map(|work| work.device).collect();
    let row = |device: u32| {
        let all = work.iter().filter(|work| work.device == device);
        let part = |is_kernel: Option<bool>| {
            let part = all.clone().filter(|work| is_kernel.is_none_or(|kernel| work.is_kernel == kernel));
            Union::of(part.map(|work| (work.start, work.end)))
        };
        let (all, compute, transfer) = (part(None), part(Some(true)), part(Some(false)));
        DeviceRow {
            device,
            name: trace
                .definitions
                .devices
                .get(&device)
                .map_or_else(String::new, |device| device.name.clone()),
            span: all.span(),
            busy: all.total(),
            idle: all.span() - all.total(),
            launch_bound: work
                .iter()
                .zip(launch_bound)
                .filter(|(work, _)| work.device == device)
                .map(|(_, launch_bound)| launch_bound)
                .sum(),
            compute: compute.total(),
            transfer: transfer.total(),
            overlap: compute.overlap(&transfer),
        }
    };
    ordinals.into_iter().map(row).collect()
}

/// Work of a stream.
#[derive(Default)]
struct Lane<'a> {
    work: Vec<&'a Work>,
    kernels: Union,
    copies: Union,
    /// Waits of the stream in chronological order, each with the stream for which it waited, if known.
    waits: Vec<(u64, Option<StreamId>)>,
}

pub(super) fn streams(trace: &Trace, work: &[Work]) -> Vec<StreamRow> {
    let mut lanes: BTreeMap<StreamId, Lane<'_>> = BTreeMap::new();
    for work in work {
        lanes.entry(work.stream).or_default().work.push(work);
    }
    for lane in lanes.values_mut() {
        let part = |is_kernel: bool| lane.work.iter().filter(move |work| work.is_kernel == is_kernel);
        lane.kernels = Union::of(part(true).map(|work| (work.start, work.end)));
        lane.copies = Union::of(part(false).map(|work| (work.start, work.end)));
    }
    let inserted = trace.waits.iter().map(|wait| (wait.stream, wait.at, Some(wait.on)));
    let events = trace.syncs.iter().filter(|sync| sync.kind == SyncKind::StreamWait);
    for (stream, at, on) in inserted.chain(events.map(|sync| (sync.stream, sync.start, None))) {
        if let Some(lane) = lanes.get_mut(&stream) {
            lane.waits.push((at, on));
        }
    }
    for lane in lanes.values_mut() {
        lane.waits.sort_by_key(|wait| wait.0);
    }
    lanes.iter().map(|(id, lane)| row(trace, *id, lane, &lanes)).collect()
}

fn row(trace: &Trace, id: StreamId, lane: &Lane<'_>, lanes: &BTreeMap<StreamId, Lane<'_>>) -> StreamRow {
    let all = Union::of(lane.work.iter().map(|work| (work.start, work.end)));
    let stream = trace.definitions.streams().get(id.index()).cloned().unwrap_or_default();
    let mut row = StreamRow {
        device: stream.device,
        stream: stream.id,
        name: stream.name,
        span: all.span(),
        busy: all.total(),
        launch_bound: 0,
        waiting: 0,
        copying: 0,
        other: 0,
        max_queue: 0,
        average_queue: 0.0,
    };
    let mut free = None;
    // Launch time of the preceding work. Waits that come later belong to the work that follows them.
    let mut launched = 0;
    for work in &lane.work {
        let since = launched;
        launched = work.launch.map_or(work.start, |call| call.start);
        let from = match free.replace(work.end.max(free.unwrap_or(0))) {
            Some(free) if free < work.start => free,
            _ => continue,
        };
        let late_until = work.arrived.map_or(from, |arrived| arrived.clamp(from, work.start));
        row.launch_bound += late_until - from;
        let first = lane.waits.partition_point(|wait| wait.0 < since);
        let wait = lane.waits[first..].iter().take_while(|wait| wait.0 <= work.start).last();
        let mut rest = work.start - late_until;
        if let Some((_, on)) = wait {
            let others = lanes.iter().filter(|(other, _)| on.map_or(**other != id, |on| **other == on));
            let (mut copying, mut waiting) = (0, 0);
            for (_, other) in others {
                copying = u64::max(copying, other.copies.covers(late_until, work.start));
                waiting = u64::max(waiting, other.kernels.covers(late_until, work.start));
            }
            let copying = copying.min(rest);
            let waiting = waiting.min(rest - copying);
            row.copying += copying;
            row.waiting += waiting;
            rest -= copying + waiting;
        }
        row.other += rest;
    }
    let first = lane.work.first().map_or(0, |work| work.start);
    (row.max_queue, row.average_queue) = queue(&lane.work, first, row.span);
    row
}

/// Returns the maximum and the average queue depth over the span that starts at `first`.
fn queue(work: &[&Work], first: u64, span: u64) -> (u64, f64) {
    let queued = work.iter().filter_map(|work| Some((work.launch?.start, work.start)));
    let queued: Vec<(u64, u64)> = queued.filter(|(from, to)| from < to).collect();
    // The sum starts at 0, because the empty sum of floats is -0.
    let total = queued.iter().fold(0.0, |total, (from, to)| total + (to - from.max(&first)) as f64);
    // At equal times, work that starts leaves the queue before work that is launched enters it.
    let changes = queued.iter().flat_map(|(from, to)| [(*from, 1_i64), (*to, -1)]);
    let mut changes: Vec<(u64, i64)> = changes.collect();
    changes.sort_unstable();
    let (mut now, mut most) = (0_i64, 0);
    for (_, change) in changes {
        now += change;
        most = most.max(now);
    }
    (most as u64, ratio(total, span as f64))
}
