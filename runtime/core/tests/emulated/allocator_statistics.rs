//! The figures: what is counted when, peaks and resets, and that they agree with a snapshot.

use crate::common::random;
use crate::support::allocator::*;
use warpsmith_runtime::driver::emulated::Call;
use warpsmith_runtime::memory::snapshot::BlockState;
use warpsmith_runtime::memory::statistics::{ByPool, Statistic};
use warpsmith_runtime::{Device, DeviceBuffer, MemoryPool, Stream};

#[test]
fn the_figures_of_one_request_stand_under_pytorchs_names() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
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
fn a_peak_is_the_most_there_was_until_it_is_reset() {
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
fn resetting_what_is_accumulated_leaves_what_is_current_and_the_peaks() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
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
fn both_kinds_of_blocks_add_up_to_all() {
    let (_, device) = device_with(256 * MIB, "");
    let stream = device.default_stream();
    let held = [100, MIB, MIB + 1, 30 * MIB].map(|bytes| allocate(&stream, bytes));
    let now = statistics(&device);
    for ByPool { all, small_pool, large_pool } in
        [now.allocation, now.allocated_bytes, now.requested_bytes, now.segment, now.reserved_bytes]
    {
        assert_eq!(all.current, small_pool.current + large_pool.current);
        assert!(small_pool.current > 0 && large_pool.current > 0);
    }
    assert_eq!((now.allocation.small_pool.current, now.allocation.large_pool.current), (2, 2));
    drop(held);
}

#[test]
fn pieces_of_segments_that_cannot_go_back_are_counted_as_inactive_splits() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
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
fn oversize_blocks_and_segments_are_counted() {
    let (_, device) = device_with(256 * MIB, "max_split_size_mb:20");
    let stream = device.default_stream();
    let held = [20, 21, 12].map(|mib| allocate(&stream, mib * MIB));
    let now = statistics(&device);
    assert_eq!((now.oversize_allocations.current, now.oversize_segments.current), (2, 2));
    assert_eq!(now.max_split_size, Some(20 * MIB as u64));
    drop(held);
    device.memory().empty_cache().unwrap();
    let now = statistics(&device);
    assert_eq!((now.oversize_allocations.current, now.oversize_segments.current), (0, 0));
    assert_eq!((now.oversize_allocations.peak, now.oversize_segments.freed), (2, 2));
}

#[test]
fn a_limit_on_splits_set_while_blocks_are_in_use_counts_them_as_it_says() {
    let (_, device) = device_with(256 * MIB, "");
    let stream = device.default_stream();
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
fn calls_of_the_driver_are_counted_as_the_driver_counts_them() {
    let (driver, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
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
fn a_wait_that_frees_the_memory_is_no_retry_of_the_driver() {
    let (driver, device) = device_with(64 * MIB, "");
    let [stream, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
    let buffer = allocate(&stream, 40 * MIB);
    buffer.record_stream(&other).unwrap();
    let hold = driver.hold();
    drop(buffer);
    let release = std::thread::spawn(move || {
        std::thread::sleep(std::time::Duration::from_millis(30));
        drop(hold);
    });
    drop(allocate(&stream, 40 * MIB));
    release.join().unwrap();
    let now = statistics(&device);
    assert_eq!((now.num_sync_all_streams, now.num_alloc_retries), (1, 0));
}

#[test]
fn what_is_pending_is_active_but_not_allocated() {
    let (driver, device) = device_with(64 * MIB, "");
    let [stream, other] = [(); 2].map(|()| Stream::new(&device).unwrap());
    let buffer = allocate(&stream, 700);
    buffer.record_stream(&other).unwrap();
    let hold = driver.hold();
    drop(buffer);
    let now = statistics(&device);
    assert_eq!((now.allocated_bytes.all.current, now.active_bytes.all.current), (0, 1024));
    assert_eq!(now.requested_bytes.all.current, 700, "as long as it is active");
    drop(hold);
    other.synchronize().unwrap();
    allocate_and_free(&stream, 1);
    let now = statistics(&device);
    assert_eq!((now.active_bytes.all.current, now.requested_bytes.all.current), (0, 0));
}

#[test]
fn each_private_pool_has_keys_of_its_own_while_it_has_memory() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
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

/// Whether statistics and snapshot tell the same, and the snapshot keeps to its rules.
fn check(device: &Device, live: &[DeviceBuffer<u8>]) {
    let (now, snapshot) = (statistics(device), device.memory().snapshot());
    assert_eq!(snapshot.reserved(), now.reserved_bytes.all.current);
    assert_eq!(snapshot.allocated(), now.allocated_bytes.all.current);
    assert_eq!(snapshot.active(), now.active_bytes.all.current);
    assert_eq!(snapshot.requested(), now.requested_bytes.all.current);
    assert_eq!(snapshot.allocated(), device.memory().allocated());
    let (mut in_use, mut last_end, mut splits) = (0, 0, 0);
    for segment in &snapshot.segments {
        assert!(segment.address >= last_end, "sorted, and none overlaps another");
        last_end = segment.address + segment.total_size;
        let mut at = segment.address;
        for (index, block) in segment.blocks.iter().enumerate() {
            assert_eq!(block.address, at, "no gaps");
            assert!(block.requested_size <= block.size && block.size % 512 == 0);
            let next = segment.blocks.get(index + 1);
            let free = block.state == BlockState::Inactive;
            assert!(!(free && next.is_some_and(|next| next.state == BlockState::Inactive)), "merged");
            splits += u64::from(free && segment.blocks.len() > 1 && !segment.is_expandable);
            in_use += usize::from(block.state == BlockState::ActiveAllocated);
            at += block.size;
        }
        assert_eq!(at, last_end);
    }
    assert_eq!((in_use, now.inactive_split.all.current), (live.len(), splits));
    for buffer in live {
        let (_, block) = find(&snapshot, address(buffer));
        assert_eq!((block.requested_size as usize, block.state), (buffer.len(), BlockState::ActiveAllocated));
    }
}

#[test]
fn statistics_and_snapshot_agree_after_any_requests() {
    for options in ["", "expandable_segments:True", "max_split_size_mb:20"] {
        let (driver, device) = device_with(512 * MIB, options);
        let streams = [(); 3].map(|()| Stream::new(&device).unwrap());
        let pool = MemoryPool::new(&device).unwrap();
        let mut random = random();
        let mut live = Vec::new();
        for step in 0..1500 {
            if live.len() > 40 || (random.usize(..5) < 2 && !live.is_empty()) {
                let buffer: DeviceBuffer<u8> = live.swap_remove(random.usize(..live.len()));
                if random.usize(..3) == 0 {
                    buffer.record_stream(&streams[random.usize(..3)]).unwrap();
                }
            } else {
                let most = [1 << 10, MIB, 8 * MIB, 30 * MIB][random.usize(..4)];
                let bytes = 1 + random.usize(..most);
                let guard = (random.usize(..4) == 0).then(|| pool.enter().unwrap());
                live.extend(DeviceBuffer::uninit(&streams[random.usize(..3)], bytes));
                drop(guard);
            }
            if random.usize(..100) == 0 {
                device.memory().empty_cache().unwrap();
            }
            if step % 10 == 0 {
                check(&device, &live);
            }
        }
        live.clear();
        device.synchronize().unwrap();
        drop(pool);
        device.memory().empty_cache().unwrap();
        check(&device, &[]);
        assert_eq!((device.memory().reserved(), driver.live_allocations(0)), (0, 0), "{options}");
    }
}

#[test]
fn a_snapshot_says_what_was_asked_by_whom_and_how_the_options_stand() {
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
    let (_, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
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
