//! Counters of reserved memory and of memory in use, and the limit on reserved memory, under one briefly held lock.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::memory::statistics::HostMemoryStatistics;

#[derive(Debug, Default)]
struct State {
    statistics: HostMemoryStatistics,
    /// Bytes that threads are currently requesting from the driver.
    growing: u64,
    limit: Option<u64>,
}

/// The counters of one device.
#[derive(Debug, Default)]
pub(super) struct Counters {
    state: Mutex<State>,
}

impl Counters {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a share of the limit before an allocation from the driver. Returns false if it would exceed the limit.
    ///
    /// After the allocation, the caller must call [`Self::grown`] or [`Self::growth_failed`].
    pub(super) fn begin_growth(&self, bytes: usize) -> bool {
        let mut state = self.state();
        let after = (state.statistics.allocated_bytes.current + state.growing).saturating_add(bytes as u64);
        let within = state.limit.is_none_or(|limit| after <= limit);
        if within {
            state.growing += bytes as u64;
        }
        within
    }

    pub(super) fn grown(&self, bytes: usize, took: Duration) {
        let mut state = self.state();
        state.growing -= bytes as u64;
        let statistics = &mut state.statistics;
        statistics.allocations.increase(1);
        statistics.allocated_bytes.increase(bytes as u64);
        statistics.num_host_alloc += 1;
        statistics.host_alloc_time.record(took);
    }

    pub(super) fn growth_failed(&self, bytes: usize) {
        self.state().growing -= bytes as u64;
    }

    /// Counts a block that was returned to the driver.
    pub(super) fn shrunk(&self, bytes: usize, took: Duration) {
        let statistics = &mut self.state().statistics;
        statistics.allocations.decrease(1);
        statistics.allocated_bytes.decrease(bytes as u64);
        statistics.num_host_free += 1;
        statistics.host_free_time.record(took);
    }

    pub(super) fn allocated(&self, bytes: usize) {
        let statistics = &mut self.state().statistics;
        statistics.active_requests.increase(1);
        statistics.active_bytes.increase(bytes as u64);
    }

    /// Counts a block that is no longer in use and may be reused.
    pub(super) fn returned(&self, bytes: usize) {
        let statistics = &mut self.state().statistics;
        statistics.active_requests.decrease(1);
        statistics.active_bytes.decrease(bytes as u64);
    }

    pub(super) fn limit(&self) -> Option<u64> {
        self.state().limit
    }

    pub(super) fn set_limit(&self, limit: Option<u64>) {
        self.state().limit = limit;
    }

    pub(super) fn statistics(&self) -> HostMemoryStatistics {
        self.state().statistics
    }

    pub(super) fn reset_peak(&self) {
        self.state().statistics.reset_peak();
    }

    pub(super) fn reset_accumulated(&self) {
        self.state().statistics.reset_accumulated();
    }
}
