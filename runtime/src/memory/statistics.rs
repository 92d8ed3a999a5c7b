//! Statistics of the allocators.
//!
//! The names and meanings match PyTorch's `memory_stats` and `host_memory_stats`, so PyTorch dashboards can read
//! [`MemoryStatistics::to_map`] and [`HostMemoryStatistics::to_map`]. Values saturate instead of overflowing.

use std::collections::BTreeMap;
use std::time::Duration;

pub use crate::error::PoolId;

/// A quantity that increases and decreases, in bytes or as a count.
///
/// See the example of [`MemoryStatistics`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Statistic {
    /// Current amount.
    pub current: u64,
    /// Maximum amount since the peaks were reset.
    pub peak: u64,
    /// Sum of all increases since the totals were reset.
    pub allocated: u64,
    /// Sum of all decreases since the totals were reset.
    pub freed: u64,
}

impl Statistic {
    /// Counts an increase.
    pub fn increase(&mut self, amount: u64) {
        self.current = self.current.saturating_add(amount);
        self.peak = self.peak.max(self.current);
        self.allocated = self.allocated.saturating_add(amount);
    }

    /// Counts a decrease.
    pub fn decrease(&mut self, amount: u64) {
        self.current = self.current.saturating_sub(amount);
        self.freed = self.freed.saturating_add(amount);
    }

    /// Sets the sums of increases and decreases to zero.
    pub fn reset_accumulated(&mut self) {
        self.allocated = 0;
        self.freed = 0;
    }

    /// Sets the peak to the current amount.
    pub fn reset_peak(&mut self) {
        self.peak = self.current;
    }

    fn write(&self, map: &mut BTreeMap<String, i64>, name: &str) {
        let Statistic { current, peak, allocated, freed } = *self;
        for (key, value) in [("current", current), ("peak", peak), ("allocated", allocated), ("freed", freed)]
        {
            map.insert(format!("{name}.{key}"), signed(value));
        }
    }
}

/// A statistic for small requests (up to 1 MiB), larger requests, and both.
///
/// See the example of [`MemoryStatistics`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ByPool {
    /// Both pools combined.
    pub all: Statistic,
    /// The pool for requests up to 1 MiB.
    pub small_pool: Statistic,
    /// The pool for larger requests.
    pub large_pool: Statistic,
}

impl ByPool {
    fn each(&self) -> [(&'static str, &Statistic); 3] {
        [("all", &self.all), ("small_pool", &self.small_pool), ("large_pool", &self.large_pool)]
    }

    fn write(&self, map: &mut BTreeMap<String, i64>, name: &str) {
        for (pool, statistic) in self.each() {
            statistic.write(map, &format!("{name}.{pool}"));
        }
    }
}

/// Statistics of one device's allocator.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// let device = Device::emulated(0)?;
/// let buffer = DeviceBuffer::<f32>::zeros(&device.default_stream(), 256)?;
/// drop(buffer);
/// let bytes = device.memory().statistics().allocated_bytes.all;
/// assert_eq!((bytes.current, bytes.peak), (0, 1024));
/// assert_eq!(device.memory().statistics().to_map()["allocated_bytes.all.peak"], 1024);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct MemoryStatistics {
    /// Number of blocks in use by the program.
    pub allocation: ByPool,
    /// Number of segments allocated from the driver.
    pub segment: ByPool,
    /// Number of active blocks, which are in use by the program or freed but pending on a stream.
    pub active: ByPool,
    /// Number of inactive split blocks: free blocks in segments that are partly in use.
    pub inactive_split: ByPool,
    /// Bytes in blocks that are in use by the program.
    pub allocated_bytes: ByPool,
    /// Bytes in segments that are allocated from the driver.
    pub reserved_bytes: ByPool,
    /// Bytes in active blocks.
    pub active_bytes: ByPool,
    /// Bytes in inactive split blocks.
    pub inactive_split_bytes: ByPool,
    /// Bytes that the program requested, before rounding.
    pub requested_bytes: ByPool,
    /// Number of blocks in use that exceed the maximum split size.
    pub oversize_allocations: Statistic,
    /// Number of segments that exceed the maximum split size.
    pub oversize_segments: Statistic,
    /// Number of driver requests that failed and were retried after releasing memory.
    pub num_alloc_retries: u64,
    /// Number of requests that failed because no memory was available.
    pub num_ooms: u64,
    /// Number of times that the allocator synchronized all streams to release memory.
    pub num_sync_all_streams: u64,
    /// Number of allocation calls to the driver.
    pub num_device_alloc: u64,
    /// Number of times that memory was released to the driver.
    pub num_device_free: u64,
    /// Number of requests that were rejected without calling the driver.
    pub num_oom_rejections: u64,
    /// Size in bytes from which blocks are not split; `None` for no limit (-1 in the map).
    pub max_split_size: Option<u64>,
    /// Bytes in the segments of each private pool.
    pub reserved_bytes_by_private_pools: BTreeMap<PoolId, ByPool>,
}

impl MemoryStatistics {
    /// Returns every value under its PyTorch name, for example `allocated_bytes.large_pool.peak`.
    pub fn to_map(&self) -> BTreeMap<String, i64> {
        let mut map = BTreeMap::new();
        for (name, by_pool) in self.by_pool() {
            by_pool.write(&mut map, name);
        }
        self.oversize_allocations.write(&mut map, "oversize_allocations");
        self.oversize_segments.write(&mut map, "oversize_segments");
        for (name, count) in [
            ("num_alloc_retries", self.num_alloc_retries),
            ("num_ooms", self.num_ooms),
            ("num_sync_all_streams", self.num_sync_all_streams),
            ("num_device_alloc", self.num_device_alloc),
            ("num_device_free", self.num_device_free),
            ("num_oom_rejections", self.num_oom_rejections),
        ] {
            map.insert(name.to_owned(), signed(count));
        }
        map.insert("max_split_size".to_owned(), self.max_split_size.map_or(-1, signed));
        for (pool, by_pool) in &self.reserved_bytes_by_private_pools {
            by_pool.write(&mut map, &format!("reserved_bytes_by_private_pools.{pool}"));
        }
        map
    }

    fn by_pool(&self) -> [(&'static str, &ByPool); 9] {
        [
            ("allocation", &self.allocation),
            ("segment", &self.segment),
            ("active", &self.active),
            ("inactive_split", &self.inactive_split),
            ("allocated_bytes", &self.allocated_bytes),
            ("reserved_bytes", &self.reserved_bytes),
            ("active_bytes", &self.active_bytes),
            ("inactive_split_bytes", &self.inactive_split_bytes),
            ("requested_bytes", &self.requested_bytes),
        ]
    }
}

/// Durations of one kind of call, in microseconds.
///
/// ```
/// use std::time::Duration;
/// use warpsmith_runtime::memory::statistics::Times;
///
/// let mut times = Times::default();
/// times.record(Duration::from_micros(2));
/// times.record(Duration::from_micros(6));
/// assert_eq!((times.min_us, times.avg_us(), times.max_us), (2, 4, 6));
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Times {
    /// Total duration.
    pub total_us: u64,
    /// Longest duration.
    pub max_us: u64,
    /// Shortest duration; 0 before the first call.
    pub min_us: u64,
    /// Number of calls.
    pub count: u64,
}

impl Times {
    /// Counts one call.
    pub fn record(&mut self, time: Duration) {
        let us = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.total_us = self.total_us.saturating_add(us);
        self.max_us = self.max_us.max(us);
        self.min_us = if self.count == 0 { us } else { self.min_us.min(us) };
        self.count = self.count.saturating_add(1);
    }

    /// Returns the mean duration in whole microseconds; 0 before the first call.
    pub fn avg_us(&self) -> u64 {
        self.total_us.checked_div(self.count).unwrap_or(0)
    }

    fn write(&self, map: &mut BTreeMap<String, i64>, name: &str) {
        for (key, value) in [
            ("total", self.total_us),
            ("max", self.max_us),
            ("min", self.min_us),
            ("count", self.count),
            ("avg", self.avg_us()),
        ] {
            map.insert(format!("{name}.{key}"), signed(value));
        }
    }
}

/// Statistics of the allocator for page-locked host memory.
///
/// See the example of [`PinnedMemory`](crate::PinnedMemory).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HostMemoryStatistics {
    /// Number of blocks that the allocator owns, in use or cached.
    pub allocations: Statistic,
    /// Number of blocks that are in use or cannot be reused yet.
    pub active_requests: Statistic,
    /// Bytes in blocks that the allocator owns.
    pub allocated_bytes: Statistic,
    /// Bytes in blocks that are in use or cannot be reused yet.
    pub active_bytes: Statistic,
    /// Number of allocation calls to the driver.
    pub num_host_alloc: u64,
    /// Number of times that memory was released to the driver.
    pub num_host_free: u64,
    /// Durations of the driver's allocation calls.
    pub host_alloc_time: Times,
    /// Durations of the driver's free calls.
    pub host_free_time: Times,
}

impl HostMemoryStatistics {
    /// Returns every value under its PyTorch name, for example `host_alloc_time.max`. Times are in microseconds.
    pub fn to_map(&self) -> BTreeMap<String, i64> {
        let mut map = BTreeMap::new();
        self.allocations.write(&mut map, "allocations");
        self.active_requests.write(&mut map, "active_requests");
        self.allocated_bytes.write(&mut map, "allocated_bytes");
        self.active_bytes.write(&mut map, "active_bytes");
        map.insert("num_host_alloc".to_owned(), signed(self.num_host_alloc));
        map.insert("num_host_free".to_owned(), signed(self.num_host_free));
        self.host_alloc_time.write(&mut map, "host_alloc_time");
        self.host_free_time.write(&mut map, "host_free_time");
        map
    }

    /// Sets the peaks to the current amounts.
    pub fn reset_peak(&mut self) {
        self.statistics_mut().into_iter().for_each(Statistic::reset_peak);
    }

    /// Resets the sums of increases and decreases, the event counts and the times to zero.
    pub fn reset_accumulated(&mut self) {
        self.statistics_mut().into_iter().for_each(Statistic::reset_accumulated);
        self.num_host_alloc = 0;
        self.num_host_free = 0;
        self.host_alloc_time = Times::default();
        self.host_free_time = Times::default();
    }

    fn statistics_mut(&mut self) -> [&mut Statistic; 4] {
        [&mut self.allocations, &mut self.active_requests, &mut self.allocated_bytes, &mut self.active_bytes]
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOUR: [&str; 4] = ["allocated", "current", "freed", "peak"];

    fn expected_keys(private: &[&str]) -> Vec<String> {
        let mut keys: Vec<String> = "max_split_size num_alloc_retries num_device_alloc num_device_free \
            num_oom_rejections num_ooms num_sync_all_streams"
            .split_whitespace()
            .map(str::to_owned)
            .collect();
        let groups = "allocation segment active inactive_split allocated_bytes reserved_bytes active_bytes \
            inactive_split_bytes requested_bytes";
        let private = private.iter().map(|pool| format!("reserved_bytes_by_private_pools.{pool}"));
        for group in groups.split_whitespace().map(str::to_owned).chain(private) {
            for pool in ["all", "small_pool", "large_pool"] {
                keys.extend(FOUR.map(|key| format!("{group}.{pool}.{key}")));
            }
        }
        for group in ["oversize_allocations", "oversize_segments"] {
            keys.extend(FOUR.map(|key| format!("{group}.{key}")));
        }
        keys.sort();
        keys
    }

    #[test]
    fn the_map_has_exactly_pytorchs_keys() {
        let keys: Vec<String> = MemoryStatistics::default().to_map().into_keys().collect();
        assert_eq!(keys, expected_keys(&[]));
        assert_eq!(keys.len(), 9 * 12 + 8 + 7);
    }

    #[test]
    fn each_private_pool_adds_its_keys() {
        let mut stats = MemoryStatistics::default();
        stats.reserved_bytes_by_private_pools.entry(PoolId(0, 1)).or_default().all.increase(7);
        stats.reserved_bytes_by_private_pools.entry(PoolId(12, 0)).or_default();
        let map = stats.to_map();
        assert_eq!(map["reserved_bytes_by_private_pools.0_1.all.current"], 7);
        assert_eq!(map.into_keys().collect::<Vec<_>>(), expected_keys(&["0_1", "12_0"]));
    }

    /// Returns statistics filled with the values of `next`.
    fn filled(mut next: impl FnMut() -> Statistic) -> MemoryStatistics {
        let mut by_pool = || ByPool { all: next(), small_pool: next(), large_pool: next() };
        let mut stats = MemoryStatistics {
            allocation: by_pool(),
            segment: by_pool(),
            active: by_pool(),
            inactive_split: by_pool(),
            allocated_bytes: by_pool(),
            reserved_bytes: by_pool(),
            active_bytes: by_pool(),
            inactive_split_bytes: by_pool(),
            requested_bytes: by_pool(),
            num_alloc_retries: 1001,
            num_ooms: 1002,
            num_sync_all_streams: 1003,
            num_device_alloc: 1004,
            num_device_free: 1005,
            num_oom_rejections: 1006,
            max_split_size: Some(1007),
            ..Default::default()
        };
        (stats.oversize_allocations, stats.oversize_segments) = (next(), next());
        stats
    }

    #[test]
    fn each_figure_stands_under_its_own_key() {
        let mut last = 0;
        let stats = filled(|| {
            last += 4;
            Statistic { current: last, peak: last + 1, allocated: last + 2, freed: last + 3 }
        });
        let map = stats.to_map();
        let mut values: Vec<i64> = map.values().copied().collect();
        values.sort_unstable();
        values.dedup();
        assert_eq!(values.len(), map.len(), "every figure once");
        let read = |key: &str| map[key];
        assert_eq!(read("allocation.all.current"), 4);
        assert_eq!(read("segment.small_pool.peak"), 4 * 5 + 1);
        assert_eq!(read("active.all.freed"), 4 * 7 + 3);
        assert_eq!(read("inactive_split.large_pool.allocated"), 4 * 12 + 2);
        assert_eq!(read("allocated_bytes.all.current"), 4 * 13);
        assert_eq!(read("reserved_bytes.all.current"), 4 * 16);
        assert_eq!(read("active_bytes.all.current"), 4 * 19);
        assert_eq!(read("inactive_split_bytes.all.current"), 4 * 22);
        assert_eq!(read("requested_bytes.large_pool.freed"), 4 * 27 + 3);
        assert_eq!(read("oversize_allocations.current"), 4 * 28);
        assert_eq!(read("oversize_segments.current"), 4 * 29);
        let scalars = "num_alloc_retries num_ooms num_sync_all_streams num_device_alloc num_device_free \
            num_oom_rejections max_split_size";
        assert!(scalars.split_whitespace().map(read).eq(1001..=1007));
    }

    #[test]
    fn no_split_limit_is_minus_one_figures_saturate() {
        let mut stats = MemoryStatistics { num_ooms: u64::MAX, ..Default::default() };
        assert_eq!(stats.to_map()["max_split_size"], -1);
        assert_eq!(stats.to_map()["num_ooms"], i64::MAX);
        stats.segment.all.decrease(1);
        assert_eq!(stats.segment.all, Statistic { freed: 1, ..Default::default() });
    }

    #[test]
    fn a_statistic_follows_its_increases_and_decreases() {
        let mut statistic = Statistic::default();
        statistic.increase(10);
        statistic.decrease(4);
        statistic.increase(3);
        assert_eq!(statistic, Statistic { current: 9, peak: 10, allocated: 13, freed: 4 });
        statistic.reset_peak();
        assert_eq!(statistic, Statistic { current: 9, peak: 9, allocated: 13, freed: 4 });
        statistic.reset_accumulated();
        assert_eq!(statistic, Statistic { current: 9, peak: 9, allocated: 0, freed: 0 });
    }

    #[test]
    fn the_host_map_has_exactly_pytorchs_keys() {
        let mut expected = vec!["num_host_alloc".to_owned(), "num_host_free".to_owned()];
        for group in ["allocations", "active_requests", "allocated_bytes", "active_bytes"] {
            expected.extend(FOUR.map(|key| format!("{group}.{key}")));
        }
        for group in ["host_alloc_time", "host_free_time"] {
            expected.extend(["total", "max", "min", "count", "avg"].map(|key| format!("{group}.{key}")));
        }
        expected.sort();
        let keys: Vec<String> = HostMemoryStatistics::default().to_map().into_keys().collect();
        assert_eq!(keys, expected);
    }

    #[test]
    fn host_times_are_summed_up_and_reset() {
        let mut stats = HostMemoryStatistics::default();
        assert_eq!(stats.host_alloc_time.avg_us(), 0);
        for us in [30, 10, 60] {
            stats.host_alloc_time.record(Duration::from_micros(us));
        }
        stats.active_bytes.increase(64);
        stats.active_bytes.decrease(60);
        let map = stats.to_map();
        let times = ["total", "max", "min", "count", "avg"].map(|key| map[&format!("host_alloc_time.{key}")]);
        assert_eq!(times, [100, 60, 10, 3, 33]);
        assert_eq!(map["host_free_time.total"], 0);
        stats.reset_peak();
        stats.reset_accumulated();
        let left = Statistic { current: 4, peak: 4, ..Default::default() };
        assert_eq!(stats, HostMemoryStatistics { active_bytes: left, ..Default::default() });
    }
}
