//! A device's memory statistics as a human-readable table.
//!
//! The table has PyTorch's rows, columns and units. Every line is 77 characters wide, including the outer bars.

use super::statistics::{ByPool, MemoryStatistics, Statistic};
use crate::device::DeviceId;

/// Number of characters between the outer bars.
const WIDTH: usize = 75;

/// Unit of a row's cells.
#[derive(Clone, Copy)]
enum Unit {
    Bytes,
    Count,
}

/// Formats the statistics of a device as a table. `abbreviated` omits the per-pool rows.
pub fn memory_summary(device: DeviceId, stats: &MemoryStatistics, abbreviated: bool) -> String {
    let by_pool = [
        ("Allocated memory", &stats.allocated_bytes, Unit::Bytes),
        ("Active memory", &stats.active_bytes, Unit::Bytes),
        ("Requested memory", &stats.requested_bytes, Unit::Bytes),
        ("GPU reserved memory", &stats.reserved_bytes, Unit::Bytes),
        ("Non-releasable memory", &stats.inactive_split_bytes, Unit::Bytes),
        ("Allocations", &stats.allocation, Unit::Count),
        ("Active allocs", &stats.active, Unit::Count),
        ("GPU reserved segments", &stats.segment, Unit::Count),
        ("Non-releasable allocs", &stats.inactive_split, Unit::Count),
    ];
    let oversize = [
        ("Oversize allocations", &stats.oversize_allocations),
        ("Oversize GPU segments", &stats.oversize_segments),
    ];
    let (double, single) = ("=".repeat(WIDTH), "-".repeat(WIDTH));
    let (ooms, retries) = (shortened(stats.num_ooms, 12), shortened(stats.num_alloc_retries, 8));

    let mut table = Table::default();
    table.line(&double);
    table.line(&format!(" {:16} Warpsmith memory summary, device {:<23} ", "", device.to_string()));
    table.line(&single);
    table.line(&format!("  {:9} CUDA OOMs: {ooms:<12} | {:6} cudaMalloc retries: {retries:<8}  ", "", ""));
    table.line(&double);
    table.line("        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  ");
    for (name, ByPool { all, small_pool, large_pool }, unit) in by_pool {
        table.line(&single);
        table.row(name, all, all, unit);
        if !abbreviated {
            table.row("      from large pool", large_pool, all, unit);
            table.row("      from small pool", small_pool, all, unit);
        }
    }
    for (name, statistic) in oversize {
        table.line(&single);
        table.row(name, statistic, statistic, Unit::Count);
    }
    table.line(&double);
    table.0
}

#[derive(Default)]
struct Table(String);

impl Table {
    fn line(&mut self, inner: &str) {
        self.0.push('|');
        self.0.push_str(inner);
        self.0.push_str("|\n");
    }

    /// Writes one row in the unit that fits the value `scale`, so that all rows of a group use comparable units.
    fn row(&mut self, name: &str, statistic: &Statistic, scale: &Statistic, unit: Unit) {
        let [current, peak, allocated, freed] = [
            cell(statistic.current, scale.current, unit),
            cell(statistic.peak, scale.peak, unit),
            cell(statistic.allocated, scale.allocated, unit),
            cell(statistic.freed, scale.freed, unit),
        ];
        self.line(&format!(" {name:<21} | {current} | {peak} | {allocated} | {freed} "));
    }
}

/// Formats a cell of ten characters: the value, rounded down, in the unit that fits the value `scale`.
fn cell(mut value: u64, mut scale: u64, unit: Unit) -> String {
    // PyTorch's largest unit for counts is M. Larger units keep the column width for counts that are too long in M.
    let (names, step, limit): (&[&str], u64, u64) = match unit {
        Unit::Bytes => (&["B  ", "KiB", "MiB", "GiB", "TiB", "PiB"], 1024, 768 * 1024),
        Unit::Count => (&[" ", "K", "M", "G", "T", "P"], 1000, 750 * 1000),
    };
    let mut name = 0;
    while scale >= limit && name + 1 < names.len() {
        (value, scale, name) = (value / step, scale / step, name + 1);
    }
    match unit {
        Unit::Bytes => format!("{value:6} {}", names[name]),
        Unit::Count => format!("{value:7} {} ", names[name]),
    }
}

/// Formats the value in at most `width` characters, in thousands, millions and so on if necessary.
fn shortened(value: u64, width: usize) -> String {
    let mut text = value.to_string();
    let mut rest = value;
    for unit in ["K", "M", "G", "T", "P"] {
        if text.len() <= width {
            break;
        }
        rest /= 1000;
        text = format!("{rest}{unit}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn example() -> MemoryStatistics {
        let statistic = |current, peak, allocated, freed| Statistic { current, peak, allocated, freed };
        let mut stats = MemoryStatistics { num_ooms: 2, num_alloc_retries: 31, ..Default::default() };
        stats.allocated_bytes = ByPool {
            all: statistic(786_431, 786_432, 5 << 30, (5 << 30) - 786_431),
            small_pool: statistic(511_999, 512_000, 1 << 20, (1 << 20) - 511_999),
            large_pool: statistic(274_432, 274_432, (5 << 30) - (1 << 20), 4 << 30),
        };
        stats.reserved_bytes.all = statistic(22 << 20, 3 << 40, 1 << 60, 0);
        stats.allocation.all = statistic(749_999, 750_000, 1_234_567, 750_000_000);
        stats.allocation.small_pool = statistic(700_000, 740_000, 999, 1);
        stats.oversize_segments = statistic(1, 2, 3, 4);
        stats
    }

    const FULL: &str = "\
|===========================================================================|
|                  Warpsmith memory summary, device cuda:3                  |
|---------------------------------------------------------------------------|
|            CUDA OOMs: 2            |        cudaMalloc retries: 31        |
|===========================================================================|
|        Metric         | Cur Usage  | Peak Usage | Tot Alloc  | Tot Freed  |
|---------------------------------------------------------------------------|
| Allocated memory      | 786431 B   |    768 KiB |   5120 MiB |   5119 MiB |
|       from large pool | 274432 B   |    268 KiB |   5119 MiB |   4096 MiB |
|       from small pool | 511999 B   |    500 KiB |      1 MiB |      0 MiB |
|---------------------------------------------------------------------------|
| Active memory         |      0 B   |      0 B   |      0 B   |      0 B   |
|       from large pool |      0 B   |      0 B   |      0 B   |      0 B   |
|       from small pool |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| Requested memory      |      0 B   |      0 B   |      0 B   |      0 B   |
|       from large pool |      0 B   |      0 B   |      0 B   |      0 B   |
|       from small pool |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| GPU reserved memory   |  22528 KiB |   3072 GiB |   1024 PiB |      0 B   |
|       from large pool |      0 KiB |      0 GiB |      0 PiB |      0 B   |
|       from small pool |      0 KiB |      0 GiB |      0 PiB |      0 B   |
|---------------------------------------------------------------------------|
| Non-releasable memory |      0 B   |      0 B   |      0 B   |      0 B   |
|       from large pool |      0 B   |      0 B   |      0 B   |      0 B   |
|       from small pool |      0 B   |      0 B   |      0 B   |      0 B   |
|---------------------------------------------------------------------------|
| Allocations           |  749999    |     750 K  |    1234 K  |     750 M  |
|       from large pool |       0    |       0 K  |       0 K  |       0 M  |
|       from small pool |  700000    |     740 K  |       0 K  |       0 M  |
|---------------------------------------------------------------------------|
| Active allocs         |       0    |       0    |       0    |       0    |
|       from large pool |       0    |       0    |       0    |       0    |
|       from small pool |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| GPU reserved segments |       0    |       0    |       0    |       0    |
|       from large pool |       0    |       0    |       0    |       0    |
|       from small pool |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| Non-releasable allocs |       0    |       0    |       0    |       0    |
|       from large pool |       0    |       0    |       0    |       0    |
|       from small pool |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| Oversize allocations  |       0    |       0    |       0    |       0    |
|---------------------------------------------------------------------------|
| Oversize GPU segments |       1    |       2    |       3    |       4    |
|===========================================================================|
";

    #[test]
    fn the_table_of_an_example_is_as_expected() {
        assert_eq!(memory_summary(DeviceId::Cuda(3), &example(), false), FULL);
    }

    #[test]
    fn the_short_table_omits_pool_rows_only() {
        let long = memory_summary(DeviceId::Emulated(0), &example(), false);
        let short = memory_summary(DeviceId::Emulated(0), &example(), true);
        let kept: String = long.split_inclusive('\n').filter(|line| !line.contains("from ")).collect();
        assert_eq!(short, kept);
        assert_eq!(long.lines().count(), short.lines().count() + 18);
        assert!(short.contains("device cpu:0 "));
    }

    #[test]
    fn the_largest_figures_keep_the_width() {
        let most = Statistic { current: u64::MAX, peak: u64::MAX, allocated: u64::MAX, freed: u64::MAX };
        let by_pool = ByPool { all: most, small_pool: most, large_pool: most };
        let stats = MemoryStatistics {
            allocation: by_pool,
            allocated_bytes: by_pool,
            oversize_segments: most,
            num_ooms: u64::MAX,
            num_alloc_retries: u64::MAX,
            ..Default::default()
        };
        for line in memory_summary(DeviceId::Emulated(u32::MAX), &stats, false).lines() {
            assert_eq!(line.len(), WIDTH + 2, "{line}");
        }
    }

    #[test]
    fn counts_too_long_for_the_heading_are_shortened() {
        assert_eq!(shortened(99_999_999, 8), "99999999");
        assert_eq!(shortened(100_000_000, 8), "100000K");
        assert_eq!(shortened(u64::MAX, 8), "18446P");
    }
}
