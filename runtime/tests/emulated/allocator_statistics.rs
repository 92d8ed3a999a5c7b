//! Tests of the statistics: counting, peaks and resets, and agreement with a snapshot.

use crate::support::allocator::*;
use warpsmith_runtime::emulated::Call;
use warpsmith_runtime::memory::statistics::Statistic;
use warpsmith_runtime::{MemoryPool, Stream};

#[test]
fn one_request_fills_pytorchs_figures() {
    let (_, device, stream) = stream_with(64 * MIB, "");
    let buffer = allocate(&stream, 1000);
    let during = statistics(&device).to_map();
    for (key, value) in [
        ("active_bytes.all.current", 1024),
        ("active_bytes.small_pool.peak", 1024),
        ("allocated_bytes.all.allocated", 1024),
        ("allocated_bytes.large_pool.allocated", 0),
        ("allocation.all.current", 1),
        ("requested_bytes.all.current", 1000),
        ("reserved_bytes.all.current", 2 << 20),
        ("segment.small_pool.current", 1),
        ("inactive_split.all.current", 1),
        ("inactive_split_bytes.all.current", (2 << 20) - 1024),
        ("num_device_alloc", 1),
        ("num_ooms", 0),
        ("max_split_size", -1),
    ] {
        assert_eq!(during[key], value, "{key}");
    }
    drop(buffer);
    let after = statistics(&device).to_map();
    for (key, value) in [
        ("active_bytes.all.current", 0),
        ("active_bytes.all.freed", 1024),
        ("allocated_bytes.all.peak", 1024),
        ("requested_bytes.all.freed", 1000),
        ("reserved_bytes.all.freed", 0),
        ("inactive_split.all.current", 0),
        ("inactive_split.all.freed", 1),
        ("num_device_free", 0),
    ] {
        assert_eq!(after[key], value, "{key}");
    }
    assert_eq!(during.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
}

#[test]
fn a_peak_lasts_until_it_is_reset() {
    let (_, device) = device_with(64 * MIB, "");
    let (memory, stream) = (device.memory(), device.default_stream());
    let held = allocate(&stream, 3 * MIB);
    drop(allocate(&stream, 5 * MIB));
    drop(allocate(&stream, 4 * MIB));
    assert_eq!((memory.max_allocated(), memory.max_reserved()), (8 * MIB as u64, 20 * MIB as u64));
    memory.reset_peak_statistics();
    assert_eq!(memory.max_allocated(), 3 * MIB as u64);
    drop(allocate(&stream, MIB + 512));
    assert_eq!(memory.max_allocated(), 4 * MIB as u64 + 512);
    drop(held);
    memory.empty_cache().unwrap();
    memory.reset_peak_statistics();
    assert_eq!((memory.max_allocated(), memory.max_reserved()), (0, 0));
}

#[test]
fn resetting_accumulated_figures_leaves_the_others() {
    let (_, device, stream) = stream_with(64 * MIB, "");
    let held = allocate(&stream, 3 * MIB);
    drop(allocate(&stream, 5 * MIB));
    fails(&stream, 100 * MIB);
    device.memory().reset_accumulated_statistics();
    let now = statistics(&device);
    let expected = Statistic { current: 3 * MIB as u64, peak: 8 * MIB as u64, allocated: 0, freed: 0 };
    assert_eq!(now.allocated_bytes.all, expected);
    assert_eq!((now.segment.all.current, now.segment.all.allocated), (1, 0));
    let events = [now.num_ooms, now.num_alloc_retries, now.num_sync_all_streams, now.num_device_alloc];
    assert_eq!(events, [0; 4]);
    drop(held);
    assert_eq!(statistics(&device).allocated_bytes.all.freed, 3 * MIB as u64);
}

#[test]
fn inactive_splits_are_counted() {
    let (_, device, stream) = stream_with(64 * MIB, "");
    let [first, second] = [4, 4].map(|mib| allocate(&stream, mib * MIB));
    assert_eq!(statistics(&device).inactive_split_bytes.all.current, 12 * MIB as u64);
    drop(first);
    let now = statistics(&device);
    assert_eq!((now.inactive_split.all.current, now.inactive_split_bytes.all.current), (2, 16 * MIB as u64));
    drop(second);
    let now = statistics(&device);
    assert_eq!((now.inactive_split.all.current, now.inactive_split_bytes.all.current), (0, 0));
    assert_eq!(now.inactive_split_bytes.all.peak, 16 * MIB as u64);
}

#[test]
fn a_split_limit_recounts_blocks_in_use() {
    let (_, device, stream) = stream_with(256 * MIB, "");
    let held = [30, 12].map(|mib| allocate(&stream, mib * MIB));
    set_options(&device, "max_split_size_mb:20");
    let now = statistics(&device);
    assert_eq!((now.oversize_allocations.current, now.oversize_segments.current), (1, 1));
    drop(held);
    device.memory().empty_cache().unwrap();
    let now = statistics(&device);
    assert_eq!((now.oversize_allocations.current, now.oversize_segments.current), (0, 0));

    let held = allocate(&stream, 30 * MIB);
    set_options(&device, "");
    drop(held);
    device.memory().empty_cache().unwrap();
    let now = statistics(&device);
    assert_eq!((now.oversize_allocations.current, now.oversize_segments.current), (0, 0));
}

#[test]
fn driver_calls_are_counted_as_they_are() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    let held = [12, 20, 3].map(|mib| allocate(&stream, mib * MIB));
    drop(held);
    drop(allocate(&stream, 60 * MIB));
    device.memory().empty_cache().unwrap();
    let now = statistics(&device);
    assert_eq!(now.num_device_alloc, driver.calls(Call::MemoryAllocate));
    assert_eq!(now.num_device_free, driver.calls(Call::MemoryFree));
    assert_eq!(now.num_alloc_retries, 1);
}

#[test]
fn each_private_pool_has_keys_of_its_own() {
    let (_, device, stream) = stream_with(64 * MIB, "");
    let pool = MemoryPool::new(&device).unwrap();
    let guard = pool.enter().unwrap();
    let held = [512, 2 * MIB].map(|bytes| allocate(&stream, bytes));
    drop(guard);
    let key = |part: &str| format!("reserved_bytes_by_private_pools.{}.{part}.current", pool.id());
    let map = statistics(&device).to_map();
    assert_eq!(
        (map[&key("all")], map[&key("small_pool")], map[&key("large_pool")]),
        (22 << 20, 2 << 20, 20 << 20)
    );
    let name = key("all");
    drop((held, pool));
    assert!(!statistics(&device).to_map().contains_key(&name));
}

#[test]
fn a_snapshot_shows_requests_owners_and_options() {
    let (_, device) = device_with(64 * MIB, "max_split_size_mb:30,roundup_power2_divisions:2");
    let stream = Stream::new(&device).unwrap();
    let buffer = allocate(&stream, 1000);
    let line = line!() - 1;
    let snapshot = device.memory().snapshot();
    let (segment, block) = find(&snapshot, address(&buffer));
    let place =
        block.frames.first().map(|frame| (frame.filename.ends_with("allocator_statistics.rs"), frame.line));
    assert_eq!(place, Some((true, line)));
    assert_eq!((segment.stream, segment.device), (stream.id(), 0));
    let settings = &snapshot.allocator_settings;
    assert_eq!(settings.max_split_size, 30 << 20);
    assert_eq!((settings.roundup_power2_divisions["1"], settings.roundup_power2_divisions["32768"]), (2, 2));
    assert_eq!(settings.alloc_conf, "max_split_size_mb:30,roundup_power2_divisions:2");
}

#[test]
fn the_summary_has_every_row_with_its_figures() {
    let (_, device, stream) = stream_with(64 * MIB, "");
    let held = [300 * KIB, 3 * MIB].map(|bytes| allocate(&stream, bytes));
    fails(&stream, 100 * MIB);
    let summary = device.memory().summary(false);
    let row = |name: &str| -> Vec<String> {
        let line = summary.lines().find(|line| line.trim_matches(['|', ' ']).starts_with(name));
        let cells = line.unwrap_or_else(|| panic!("no {name}: {summary}")).trim_matches('|').split('|');
        cells.map(|cell| cell.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(row("Allocated memory"), ["Allocated memory", "3372 KiB", "3372 KiB", "3372 KiB", "0 B"]);
    assert_eq!(row("GPU reserved memory")[1], "22528 KiB");
    assert_eq!(row("Allocations"), ["Allocations", "2", "2", "2", "0"]);
    assert_eq!(row("GPU reserved segments")[1..3], ["2", "2"]);
    assert!(summary.contains("CUDA OOMs: 1 ") && summary.contains("cudaMalloc retries: 1 "), "{summary}");
    assert_eq!(summary.matches("from large pool").count(), 9);
    assert!(summary.lines().all(|line| line.len() == 77));
    let short = device.memory().summary(true);
    assert!(!short.contains("from large pool") && short.contains("Oversize GPU segments"));
    drop(held);
}
