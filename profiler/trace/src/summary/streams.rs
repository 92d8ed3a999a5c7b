//! Devices and streams: busy, and idle by cause.
//!
//! A stream is idle between two of its kernels or copies. Until the launch of the next one had reached the device, the host
//! was late: that is the begin of the call, and the latency of a launch, for which the least in the trace stands. After that,
//! if the stream had to wait for another, the time in which that one ran a copy or a kernel is its cause; what is left is
//! latency beyond that.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::rows::ratio;
use super::work::{Union, Work};
use crate::definitions::StreamId;
use crate::record::SyncKind;
use crate::trace::Trace;

/// A device.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DeviceRow {
    /// Its ordinal.
    pub device: u32,
    /// Its name; may be empty.
    pub name: String,
    /// From its first kernel or copy to the end of the last.
    pub span: u64,
    /// The time in which anything ran.
    pub busy: u64,
    /// The time in which nothing ran.
    pub idle: u64,
    /// The part of it in which the launch of what ran next had not reached the device.
    pub host_late: u64,
    /// The time in which kernels ran.
    pub compute: u64,
    /// The time in which copies or memsets ran.
    pub transfer: u64,
    /// The time in which both did.
    pub overlap: u64,
}

/// A stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StreamRow {
    /// The ordinal of the device.
    pub device: u32,
    /// Its id.
    pub stream: i64,
    /// Its name; may be empty.
    pub name: String,
    /// From its first kernel or copy to the end of the last.
    pub span: u64,
    /// The time in which something ran.
    pub busy: u64,
    /// Idle, because the launch of the next kernel or copy had not reached the device yet.
    pub host_late: u64,
    /// Idle, because another stream's kernel had to end.
    pub waiting: u64,
    /// Idle, because another stream's copy had to end.
    pub copying: u64,
    /// Idle for other reasons: longer latencies, or unknown.
    pub other: u64,
    /// The most kernels and copies that were launched and had not begun.
    pub max_queue: u64,
    /// How many there were on average over the span.
    pub average_queue: f64,
}

/// How long the device was idle before each piece of work, because the host had not enqueued it yet.
pub(super) fn late(work: &[Work]) -> Vec<u64> {
    let mut free: HashMap<u32, u64> = HashMap::new();
    let late = |work: &Work| {
        let free = free.entry(work.device).or_insert(work.end);
        let from = std::mem::replace(free, work.end.max(*free));
        // Nothing is late for the first one, which set the time.
        work.arrived.map_or(0, |arrived| arrived.min(work.start).saturating_sub(from))
    };
    work.iter().map(late).collect()
}

pub(super) fn devices(trace: &Trace, work: &[Work], late: &[u64]) -> Vec<DeviceRow> {
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
            host_late: work
                .iter()
                .zip(late)
                .filter(|(work, _)| work.device == device)
                .map(|(_, late)| late)
                .sum(),
            compute: compute.total(),
            transfer: transfer.total(),
            overlap: compute.overlap(&transfer),
        }
    };
    ordinals.into_iter().map(row).collect()
}

/// The work of a stream.
#[derive(Default)]
struct Lane<'a> {
    work: Vec<&'a Work>,
    kernels: Union,
    copies: Union,
    /// When it was to wait, and for which stream, if that is known; by time.
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
        host_late: 0,
        waiting: 0,
        copying: 0,
        other: 0,
        max_queue: 0,
        average_queue: 0.0,
    };
    let mut free = None;
    // When the work before was launched: later waits are for what comes after it.
    let mut launched = 0;
    for work in &lane.work {
        let since = launched;
        launched = work.launch.map_or(work.start, |call| call.start);
        let from = match free.replace(work.end.max(free.unwrap_or(0))) {
            Some(free) if free < work.start => free,
            _ => continue,
        };
        let late_until = work.arrived.map_or(from, |arrived| arrived.clamp(from, work.start));
        row.host_late += late_until - from;
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

/// The longest queue, and the average one over the span from `first` on.
fn queue(work: &[&Work], first: u64, span: u64) -> (u64, f64) {
    let queued = work.iter().filter_map(|work| Some((work.launch?.start, work.start)));
    let queued: Vec<(u64, u64)> = queued.filter(|(from, to)| from < to).collect();
    // A sum of no floats is -0.
    let total = queued.iter().fold(0.0, |total, (from, to)| total + (to - from.max(&first)) as f64);
    // What begins at a time has left the queue before what is launched then.
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
