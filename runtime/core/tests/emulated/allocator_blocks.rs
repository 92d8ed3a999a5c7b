//! How requests become blocks: rounding, the two kinds of blocks, which block is taken, splitting and merging.

use crate::support::allocator::*;
use warpsmith_runtime::driver::emulated::Call;

#[test]
fn a_request_has_a_block_of_the_next_multiple_of_512_bytes() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
    let mut held = Vec::new();
    let (mut requested, mut allocated) = (0, 0);
    for (asked, block) in [(1, 512), (511, 512), (512, 512), (513, 1024), (1000, 1024), (MIB - 1, MIB)] {
        let buffer = allocate(&stream, asked);
        assert_eq!(block_size(&buffer), block, "of {asked} bytes");
        assert_eq!(address(&buffer) % 512, 0);
        held.push(buffer);
        (requested, allocated) = (requested + asked as u64, allocated + block as u64);
        let now = statistics(&device);
        assert_eq!(
            (now.requested_bytes.all.current, now.allocated_bytes.all.current),
            (requested, allocated)
        );
    }
}

#[test]
fn requests_of_up_to_1_mib_share_segments_of_2_mib() {
    let (driver, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
    let held = [MIB, MIB].map(|bytes| allocate(&stream, bytes));
    assert_eq!((driver.calls(Call::MemoryAllocate), device.memory().reserved()), (1, 2 * MIB as u64));
    let third = allocate(&stream, 1);
    assert_eq!((driver.calls(Call::MemoryAllocate), device.memory().reserved()), (2, 4 * MIB as u64));
    drop((held, third));
}

#[test]
fn exactly_1_mib_is_small_and_a_byte_more_is_large() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
    let small = allocate(&stream, MIB);
    let now = statistics(&device);
    assert_eq!((now.segment.small_pool.current, now.segment.large_pool.current), (1, 0));
    let large = allocate(&stream, MIB + 1);
    let now = statistics(&device);
    assert_eq!((now.segment.small_pool.current, now.segment.large_pool.current), (1, 1));
    assert_eq!(now.allocated_bytes.large_pool.current, (MIB + 512) as u64);
    drop((small, large));
}

#[test]
fn requests_between_1_and_10_mib_share_segments_of_20_mib() {
    let (_, device) = device_with(128 * MIB, "");
    let stream = device.default_stream();
    let held = [10 * MIB - 512, 9 * MIB].map(|bytes| allocate(&stream, bytes));
    assert_eq!((segments(&device), device.memory().reserved()), (1, 20 * MIB as u64));
    drop(held);
}

#[test]
fn from_10_mib_on_a_segment_is_made_for_the_request_in_steps_of_2_mib() {
    for (asked, segment) in [(10, 10), (11, 12), (12, 12), (33, 34)] {
        let (_, device) = device_with(128 * MIB, "");
        let buffer = allocate(&device.default_stream(), asked * MIB);
        assert_eq!(device.memory().reserved(), (segment * MIB) as u64, "for {asked} MiB");
        drop(buffer);
    }
    let (_, device) = device_with(128 * MIB, "");
    let buffer = allocate(&device.default_stream(), 10 * MIB + 1);
    assert_eq!(device.memory().reserved(), 12 * MIB as u64);
    drop(buffer);
}

#[test]
fn the_size_of_shared_large_segments_is_an_option() {
    let (_, device) = device_with(128 * MIB, "large_segment_size_mb:32");
    let stream = device.default_stream();
    let held = [5, 9, 9, 9].map(|mib| allocate(&stream, mib * MIB));
    assert_eq!((segments(&device), device.memory().reserved()), (1, 32 * MIB as u64));
    drop(held);
}

#[test]
fn the_rest_of_a_small_block_is_split_off_from_512_bytes_on() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
    let first = allocate(&stream, MIB);
    let second = allocate(&stream, MIB - 512);
    let third = allocate(&stream, 100);
    assert_eq!(segments(&device), 1, "the three fill a segment to the last byte");
    assert_eq!(address(&third), address(&first) + (2 * MIB - 512) as u64);
    drop((first, second, third));
}

#[test]
fn the_rest_of_a_large_block_is_split_off_only_when_it_is_over_1_mib() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
    allocate_and_free(&stream, 12 * MIB);
    assert_eq!(block_size(&allocate(&stream, 11 * MIB)), 12 * MIB, "a rest of 1 MiB stays in the block");
    assert_eq!(block_size(&allocate(&stream, 11 * MIB - 512)), 11 * MIB - 512);
    assert_eq!(segments(&device), 1);
}

#[test]
fn a_request_has_the_front_of_its_block() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
    let whole = allocate_and_free(&stream, 20 * MIB);
    let parts = [3, 5, 7].map(|mib| allocate(&stream, mib * MIB));
    let offsets = parts.each_ref().map(|part| (address(part) - whole) as usize / MIB);
    assert_eq!(offsets, [0, 3, 8]);
    drop(parts);
}

#[test]
fn free_neighbours_become_one_block_in_whatever_order_they_are_freed() {
    for order in 0..24 {
        let (driver, device) = device_with(64 * MIB, "");
        let stream = device.default_stream();
        let mut parts = Vec::from([(); 4].map(|()| allocate(&stream, 512 * KIB)));
        let first = address(&parts[0]);
        for (choices, step) in [(4, 6), (3, 2), (2, 1), (1, 1)] {
            parts.remove(order / step % choices);
        }
        let snapshot = device.memory().snapshot();
        let (segment, block) = find(&snapshot, first);
        assert_eq!((segment.blocks.len(), block.size as usize), (1, 2 * MIB), "order {order}");
        assert_eq!(statistics(&device).inactive_split.all.current, 0);
        assert_eq!(driver.calls(Call::MemoryAllocate), 1);
    }
}

#[test]
fn blocks_of_different_segments_never_merge() {
    let (driver, device) = device_with(256 * MIB, "");
    let stream = device.default_stream();
    drop([(); 2].map(|()| allocate(&stream, 20 * MIB)));
    let larger = allocate(&stream, 40 * MIB);
    assert_eq!(driver.calls(Call::MemoryAllocate), 3);
    drop(larger);
}

#[test]
fn a_request_never_has_a_block_of_the_other_kind() {
    let (_, device) = device_with(128 * MIB, "");
    let stream = device.default_stream();
    let large = allocate_and_free(&stream, 20 * MIB);
    let small = allocate(&stream, 512);
    assert_ne!(address(&small), large);
    assert_eq!(statistics(&device).segment.small_pool.current, 1);
    drop(small);
    allocate_and_free(&stream, 20 * MIB);
    let held = allocate(&stream, 20 * MIB);
    let medium = allocate(&stream, MIB + 512);
    assert_eq!(segments(&device), 3, "the free small segment of 2 MiB is not for it");
    drop((held, medium));
}

/// Frees segments of these sizes in MiB, made in this order, so at rising addresses. Returns the addresses.
fn free_segments<const N: usize>(stream: &warpsmith_runtime::Stream, mib: [usize; N]) -> [u64; N] {
    let held = mib.map(|mib| allocate(stream, mib * MIB));
    let addresses = held.each_ref().map(address);
    assert!(addresses.is_sorted());
    addresses
}

#[test]
fn the_smallest_block_that_fits_is_taken_and_among_equals_the_lowest() {
    let (_, device) = device_with(256 * MIB, "");
    let stream = device.default_stream();
    let [_, _, low, high, _] = free_segments(&stream, [30, 12, 16, 16, 20]);
    let first = allocate(&stream, 15 * MIB);
    let second = allocate(&stream, 15 * MIB);
    assert_eq!((address(&first), address(&second)), (low, high));
}

#[test]
fn sizes_are_rounded_to_divisions_of_their_doubling() {
    let (_, device) = device_with(1 << 30, "roundup_power2_divisions:4");
    let stream = device.default_stream();
    for (asked, block) in [
        (21 * MIB, 24 * MIB),
        (16 * MIB, 16 * MIB),
        (16 * MIB + 1, 20 * MIB),
        (31 * MIB, 32 * MIB),
        (1200 * KIB, 1280 * KIB),
        (5 * KIB, 5 * KIB),
        (5 * KIB + 1, 6 * KIB),
        (2 * KIB, 2 * KIB),
        (513, 1024),
    ] {
        assert_eq!(block_size(&allocate(&stream, asked)), block, "of {asked} bytes");
        device.memory().empty_cache().unwrap();
    }
}

#[test]
fn bare_addresses_are_rounded_as_buffers_are() {
    let (_, device) = device_with(1 << 30, "roundup_power2_divisions:4");
    let (memory, stream) = (device.memory(), device.default_stream());
    let ptr = memory.allocate_raw(&stream, 21 * MIB).unwrap();
    let now = statistics(&device);
    assert_eq!(now.allocated_bytes.all.current as usize, 24 * MIB);
    assert_eq!(now.requested_bytes.all.current as usize, 21 * MIB);
    // SAFETY: nothing uses the memory.
    unsafe { memory.free_raw(ptr) }.unwrap();
    assert_eq!(memory.allocated(), 0);
}

#[test]
fn divisions_may_differ_from_size_to_size() {
    let (_, device) = device_with(1 << 30, "roundup_power2_divisions:[16:2,32:8,64:0,>:0]");
    let stream = device.default_stream();
    let blocks = [17, 24, 25, 33, 41].map(|mib| {
        let size = block_size(&allocate(&stream, mib * MIB));
        device.memory().empty_cache().unwrap();
        size / MIB
    });
    assert_eq!(blocks, [24, 24, 32, 36, 44]);
    assert_eq!(block_size(&allocate(&stream, 65 * MIB + 1)), 66 * MIB, "the rest of the segment is no split");
}

#[test]
fn oversize_blocks_are_never_split() {
    let (_, device) = device_with(256 * MIB, "max_split_size_mb:20");
    let stream = device.default_stream();
    allocate_and_free(&stream, 36 * MIB);
    assert_eq!(block_size(&allocate(&stream, 20 * MIB)), 36 * MIB);
    assert_eq!(segments(&device), 1);
}

#[test]
fn an_oversize_block_is_not_spent_on_a_request_below_the_limit() {
    let (_, device) = device_with(256 * MIB, "max_split_size_mb:20");
    let stream = device.default_stream();
    let oversize = allocate_and_free(&stream, 20 * MIB);
    let below = allocate(&stream, 20 * MIB - 512);
    assert_ne!(address(&below), oversize);
    let at_limit = allocate(&stream, 20 * MIB);
    assert_eq!(address(&at_limit), oversize);
    drop((below, at_limit));
}

#[test]
fn blocks_below_the_limit_are_split_as_without_one() {
    let (_, device) = device_with(256 * MIB, "max_split_size_mb:40");
    let stream = device.default_stream();
    allocate_and_free(&stream, 38 * MIB);
    assert_eq!(block_size(&allocate(&stream, 20 * MIB)), 20 * MIB);
}

#[test]
fn an_oversize_request_leaves_a_block_that_is_20_mib_larger() {
    let (_, device) = device_with(256 * MIB, "max_split_size_mb:20");
    let stream = device.default_stream();
    let block = allocate_and_free(&stream, 40 * MIB);
    assert_ne!(allocate_and_free(&stream, 20 * MIB), block);
    let (_, device) = device_with(256 * MIB, "max_split_size_mb:20");
    let stream = device.default_stream();
    let block = allocate_and_free(&stream, 40 * MIB);
    assert_eq!(allocate_and_free(&stream, 20 * MIB + 512), block);
}

#[test]
fn how_much_larger_an_oversize_block_may_be_is_an_option() {
    let (_, device) = device_with(256 * MIB, "max_split_size_mb:20,max_non_split_rounding_mb:24");
    let stream = device.default_stream();
    let block = allocate_and_free(&stream, 44 * MIB);
    assert_eq!(allocate_and_free(&stream, 21 * MIB), block);
    assert_ne!(allocate_and_free(&stream, 20 * MIB), block);
}

#[test]
fn a_freed_block_is_handed_out_again_without_a_call_of_the_driver_or_a_shared_lock() {
    let (driver, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
    let before = allocate_and_free(&stream, 3 * MIB);
    driver.reset_calls();
    let locks = device.memory().shared_lock_acquisitions();
    let after = allocate_and_free(&stream, 3 * MIB);
    assert_eq!(device.memory().shared_lock_acquisitions(), locks);
    assert_eq!(before, after);
    assert!(Call::ALL.iter().all(|call| driver.calls(*call) == 0));
}

#[test]
fn allocating_and_freeing_returns_the_figures_to_where_they_were() {
    let (_, device) = device_with(64 * MIB, "");
    let stream = device.default_stream();
    let held = allocate(&stream, 700);
    let before = device.memory().allocated();
    let more: Vec<_> = (1..50).map(|n| allocate(&stream, n * 9999)).collect();
    assert!(device.memory().allocated() > before);
    drop(more);
    assert_eq!(device.memory().allocated(), before);
    drop(held);
    assert_eq!(device.memory().allocated(), 0);
}
