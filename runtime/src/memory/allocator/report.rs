//! Counting and reporting of requests that cannot be served.

use std::cell::Cell;
use std::sync::Arc;

use super::counters::Counted;
use super::size;
use super::streams::Arena;
use super::{CachingAllocator, Request};
use crate::error::{Error, OutOfMemory};
use crate::memory::statistics::PoolId;
use crate::snapshot::TraceAction;
use crate::stream::Stream;

impl CachingAllocator {
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
        if let Some(_guard) = Observing::enter() {
            observers.iter().for_each(|observer| observer(&report));
        }
        Error::OutOfMemory(Box::new(report))
    }
}

thread_local! {
    static IN_OBSERVER: Cell<bool> = const { Cell::new(false) };
}

/// Marks this thread as calling observers, for any device, until dropped.
struct Observing(());

impl Observing {
    /// Marks the thread; `None` if it is already inside an observer. Calling observers for an observer's own allocations
    /// could recurse without end.
    fn enter() -> Option<Self> {
        (!IN_OBSERVER.replace(true)).then(|| Self(()))
    }
}

impl Drop for Observing {
    fn drop(&mut self) {
        IN_OBSERVER.set(false);
    }
}
