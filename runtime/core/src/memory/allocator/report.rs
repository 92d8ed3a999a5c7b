//! [`OutOfMemory`]: what the error of a failed request says.

use std::fmt;
use std::sync::Arc;

use super::counters::Counted;
use super::miss::Callbacks;
use super::size;
use super::streams::Arena;
use super::{CachingAllocator, Request};
use crate::device::DeviceId;
use crate::error::{Bytes, Error};
use crate::memory::snapshot::TraceAction;
use crate::memory::statistics::PoolId;
use crate::stream::Stream;

/// A request that could not be served, and where the memory is. All sizes are in bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutOfMemory {
    /// The device.
    pub device: DeviceId,
    /// What was asked for.
    pub asked: u64,
    /// What the driver was asked for, to serve it.
    pub segment: u64,
    /// What the device has.
    pub total: u64,
    /// What of it no process has.
    pub free: u64,
    /// The most that may be reserved, if a memory fraction is set.
    pub limit: Option<u64>,
    /// What the program has from the driver.
    pub reserved: u64,
    /// Blocks in use.
    pub allocated: u64,
    /// Blocks that were given back but that work on other streams may still use.
    pub pending: u64,
    /// Free blocks of the request's own stream and pool.
    pub cached: u64,
    /// The largest of them.
    pub largest_cached: u64,
    /// Free blocks of other streams, in the default pool.
    pub cached_by_other_streams: u64,
    /// Free blocks of private pools, other than the request's.
    pub cached_in_private_pools: u64,
    /// Other processes on the device and what they have, where the system tells.
    pub other_processes: Vec<(u32, u64)>,
    /// Whether a graph is being captured, so that nothing could be waited for.
    pub capturing: bool,
    /// Whether segments of the request's pool can grow in place.
    pub expandable: bool,
}

impl OutOfMemory {
    /// What to try, most promising first.
    fn advice(&self) -> &'static str {
        let over_limit = self.limit.is_some_and(|limit| self.reserved.saturating_add(self.segment) > limit);
        let others: u64 = self.other_processes.iter().map(|(_, bytes)| bytes).sum();
        if self.capturing {
            "run the work once before capturing it, so that its memory is in the pool"
        } else if over_limit && self.limit.is_some_and(|limit| self.segment > limit) {
            "ask for less, or allow more by a larger memory fraction"
        } else if self.segment > self.total {
            "ask for less than the device has"
        } else if self.pending >= self.segment {
            "wait for the streams that use the freed blocks"
        } else if self.cached_in_private_pools >= self.segment {
            "empty or release the private pools, or let them lend with `use_on_oom`"
        } else if self.cached + self.cached_by_other_streams >= self.segment && !self.expandable {
            "the free memory is in pieces: `expandable_segments:True` avoids that (WARPSMITH_ALLOC_CONF)"
        } else if self.cached_by_other_streams >= self.segment {
            "use fewer streams, or let them share with `cross_stream_reuse:True` (WARPSMITH_ALLOC_CONF)"
        } else if over_limit {
            "free buffers first, or allow more by a larger memory fraction"
        } else if others >= self.segment {
            "end other processes on the device, or use another device"
        } else {
            "free buffers first, or work in smaller parts"
        }
    }
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { device, asked, segment, free, total, reserved, allocated, .. } = self;
        write!(f, "out of memory on {device}: asked for {}", Bytes(*asked))?;
        if segment > asked {
            write!(f, " (a segment of {})", Bytes(*segment))?;
        }
        write!(f, ", {} of {} are free", Bytes(*free), Bytes(*total))?;
        if let Some(limit) = self.limit {
            write!(f, ", {} are allowed by the memory fraction", Bytes(limit))?;
        }
        write!(f, "; this program has {} reserved: {} in use", Bytes(*reserved), Bytes(*allocated))?;
        if self.cached > 0 {
            write!(f, ", {} free", Bytes(self.cached))?;
            if self.largest_cached < self.cached {
                write!(f, " (the largest block {})", Bytes(self.largest_cached))?;
            }
        }
        for (bytes, what) in [
            (self.cached_by_other_streams, "free for other streams"),
            (self.pending, "waiting for events of other streams"),
            (self.cached_in_private_pools, "free in private pools"),
        ] {
            if bytes > 0 {
                write!(f, ", {} {what}", Bytes(bytes))?;
            }
        }
        for (pid, bytes) in &self.other_processes {
            write!(f, "; process {pid} has {}", Bytes(*bytes))?;
        }
        if self.capturing {
            write!(f, "; a capture is underway")?;
        }
        write!(f, "; {}", self.advice())
    }
}

impl CachingAllocator {
    /// Counts and reports a request that cannot be served.
    pub(super) fn out_of_memory(&self, stream: &Stream, arena: &Arc<Arena>, request: Request) -> Error {
        let device = stream.device();
        let (segment, expandable) = {
            let state = arena.lock();
            let segment = if state.policy.caching {
                size::segment_size(request.size, state.policy.large_segment)
            } else {
                request.size
            };
            (segment, state.policy.expandable)
        };
        let (free, total) = device
            .call(|driver, context| driver.memory_info(context))
            .unwrap_or((0, device.properties().total_memory));
        let (limit, reserved) = {
            let mut totals = self.totals.lock();
            totals.ooms += 1;
            (totals.limit, totals.reserved())
        };
        let mut report = OutOfMemory {
            device: device.id(),
            asked: request.bytes,
            segment,
            total,
            free,
            limit,
            reserved,
            allocated: 0,
            pending: 0,
            cached: 0,
            largest_cached: 0,
            cached_by_other_streams: 0,
            cached_in_private_pools: 0,
            other_processes: Vec::new(),
            capturing: self.capturing(),
            expandable,
        };
        for other in self.arenas() {
            let state = other.lock();
            report.allocated += state.counters.current(Counted::AllocatedBytes);
            report.pending += state.counters.waiting_bytes();
            if Arc::ptr_eq(&other, arena) {
                (report.cached, report.largest_cached) = (state.cached(), state.largest_free());
            } else if other.pool == PoolId::default() {
                report.cached_by_other_streams += state.cached();
            } else {
                report.cached_in_private_pools += state.cached();
            }
        }
        let (driver, _) = device.raw();
        let own = std::process::id();
        report.other_processes =
            driver.process_memory(device.id().ordinal()).into_iter().filter(|(pid, _)| *pid != own).collect();
        let over_limit = limit.is_some_and(|limit| reserved.saturating_add(segment) > limit);
        let observers = {
            let registry = self.registry.lock();
            if over_limit && registry.options.throw_on_cudamalloc_oom {
                self.totals.lock().oom_rejections += 1;
            }
            registry.observers.clone()
        };
        arena.lock().note(TraceAction::Oom, free, request.bytes, request.site);
        if let Some(_guard) = Callbacks::enter() {
            observers.iter().for_each(|observer| observer(&report));
        }
        Error::OutOfMemory(Box::new(report))
    }
}
