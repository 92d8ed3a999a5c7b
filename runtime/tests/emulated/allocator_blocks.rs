//! Tests of the mapping from requests to blocks: rounding, the two kinds of blocks, block selection, splitting and
//! merging.

use crate::support::allocator::*;
use warpsmith_runtime::emulated::Call;

/// Options, concurrently live requests, the sizes of their blocks, the number of segments, and the reserved MiB.
type Requests = (&'static str, &'static [usize], &'static [usize], u64, usize);

#[test]
fn requests_share_segments_by_their_size() {
    const REQUESTS: [Requests; 14] = [
        ("", &[1, 511, 512, 513, 1000], &[512, 512, 512, 1024, 1024], 1, 2),
        ("", &[MIB, MIB], &[MIB, MIB], 1, 2),
        ("", &[MIB, MIB, 1], &[MIB, MIB, 512], 2, 4),
        // The remainder of a small block is split off if it is at least 512 bytes.
        ("", &[MIB, MIB - 512, 100], &[MIB, MIB - 512, 512], 1, 2),
        // Requests up to 1 MiB are small.
        ("", &[MIB, MIB + 1], &[MIB, MIB + 512], 2, 22),
        ("", &[10 * MIB - 512, 9 * MIB], &[10 * MIB - 512, 9 * MIB], 1, 20),
        // A request of 10 MiB or more gets its own segment, in steps of 2 MiB.
        ("", &[10 * MIB], &[10 * MIB], 1, 10),
        ("", &[10 * MIB + 1], &[10 * MIB + 512], 1, 12),
        ("", &[33 * MIB], &[34 * MIB], 1, 34),
        ("large_segment_size_mb:32", &[5 * MIB, 9 * MIB, 9 * MIB], &[5 * MIB, 9 * MIB, 9 * MIB], 1, 32),
        // Divisions of each doubling.
        ("roundup_power2_divisions:4", &[513, 2 * KIB, 5 * KIB + 1], &[1024, 2 * KIB, 6 * KIB], 1, 2),
        ("roundup_power2_divisions:4", &[16 * MIB, 16 * MIB + 1], &[16 * MIB, 20 * MIB], 2, 36),
        (
            "roundup_power2_divisions:[16:2,32:8,64:0,>:0]",
            &[17 * MIB, 25 * MIB],
            &[24 * MIB, 32 * MIB],
            2,
            56,
        ),
        (
            "roundup_power2_divisions:[16:2,32:8,64:0,>:0]",
            &[33 * MIB, 65 * MIB + 1],
            &[36 * MIB, 66 * MIB],
            2,
            102,
        ),
    ];
    for (options, requests, blocks, in_segments, reserved) in REQUESTS {
        let (_, device) = device_with(256 * MIB, options);
        let held: Vec<_> = requests.iter().map(|bytes| allocate(&device.default_stream(), *bytes)).collect();
        assert_eq!(held.iter().map(block_size).collect::<Vec<_>>(), blocks, "{options} {requests:?}");
        let now = statistics(&device);
        assert_eq!(
            (now.segment.all.current, now.reserved_bytes.all.current as usize / MIB),
            (in_segments, reserved)
        );
        assert_eq!(now.allocated_bytes.all.current as usize, blocks.iter().sum::<usize>());
        assert_eq!(now.requested_bytes.all.current as usize, requests.iter().sum::<usize>());
        assert!(held.iter().all(|buffer| address(buffer).is_multiple_of(512)));
        drop(held);
        assert_eq!(device.memory().allocated(), 0);
    }
}

/// Options, sizes of free segments in bytes, a request, and the index and size of the block that serves it; `None` for
/// a new segment.
type Free = (&'static str, &'static [usize], usize, Option<(usize, usize)>);

#[test]
fn the_smallest_free_block_that_fits_serves() {
    const OVERSIZE: &str = "max_split_size_mb:20";
    const REQUESTS: [Free; 14] = [
        // Among equal sizes, the one at the lowest address is chosen.
        ("", &[30 * MIB, 12 * MIB, 16 * MIB, 16 * MIB, 20 * MIB], 15 * MIB, Some((2, 16 * MIB))),
        // The remainder of a large block is split off if it exceeds 1 MiB.
        ("", &[12 * MIB], 11 * MIB, Some((0, 12 * MIB))),
        ("", &[12 * MIB], 11 * MIB - 512, Some((0, 11 * MIB - 512))),
        // Segments never merge, and the two kinds of blocks do not mix.
        ("", &[20 * MIB, 20 * MIB], 40 * MIB, None),
        ("", &[20 * MIB], 512, None),
        ("", &[512], MIB + 512, None),
        // Oversize blocks are never split, and never used for requests below the limit or for much smaller ones.
        (OVERSIZE, &[36 * MIB], 20 * MIB, Some((0, 36 * MIB))),
        (OVERSIZE, &[20 * MIB], 20 * MIB - 512, None),
        (OVERSIZE, &[20 * MIB], 20 * MIB, Some((0, 20 * MIB))),
        (OVERSIZE, &[40 * MIB], 20 * MIB, None),
        (OVERSIZE, &[40 * MIB], 20 * MIB + 512, Some((0, 40 * MIB))),
        ("max_split_size_mb:40", &[38 * MIB], 20 * MIB, Some((0, 20 * MIB))),
        ("max_split_size_mb:20,max_non_split_rounding_mb:24", &[44 * MIB], 21 * MIB, Some((0, 44 * MIB))),
        ("max_split_size_mb:20,max_non_split_rounding_mb:24", &[44 * MIB], 20 * MIB, None),
    ];
    for (options, free, request, expected) in REQUESTS {
        let (_, _, stream) = stream_with(256 * MIB, options);
        let held: Vec<_> = free.iter().map(|bytes| allocate(&stream, *bytes)).collect();
        let places: Vec<_> = held.iter().map(address).collect();
        drop(held);
        let buffer = allocate(&stream, request);
        let place = places.iter().position(|place| *place == address(&buffer));
        assert_eq!(place.map(|place| (place, block_size(&buffer))), expected, "{options} {free:?} {request}");
    }
}

#[test]
fn a_request_has_the_front_of_its_block() {
    let (_, _, stream) = stream_with(64 * MIB, "");
    let whole = allocate_and_free(&stream, 20 * MIB);
    let parts = [3, 5, 7].map(|mib| allocate(&stream, mib * MIB));
    let offsets = parts.each_ref().map(|part| (address(part) - whole) as usize / MIB);
    assert_eq!(offsets, [0, 3, 8]);
    drop(parts);
}

#[test]
fn free_neighbors_merge_in_any_order() {
    for order in 0..24 {
        let (driver, device, stream) = stream_with(64 * MIB, "");
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
fn bare_addresses_are_rounded_as_buffers_are() {
    let (_, device) = device_with(1 << 30, "roundup_power2_divisions:4");
    let (memory, stream) = (device.memory(), device.default_stream());
    let ptr = memory.allocate_raw(&stream, 21 * MIB).unwrap();
    let now = statistics(&device);
    assert_eq!(now.allocated_bytes.all.current as usize, 24 * MIB);
    assert_eq!(now.requested_bytes.all.current as usize, 21 * MIB);
    // SAFETY: the memory is not in use.
    unsafe { memory.free_raw(ptr) }.unwrap();
    assert_eq!(memory.allocated(), 0);
}

#[test]
fn a_cached_block_needs_no_call_or_lock() {
    let (driver, device, stream) = stream_with(64 * MIB, "");
    let before = allocate_and_free(&stream, 3 * MIB);
    driver.reset_calls();
    let locks = device.memory().shared_lock_acquisitions();
    let after = allocate_and_free(&stream, 3 * MIB);
    assert_eq!(device.memory().shared_lock_acquisitions(), locks);
    assert_eq!(before, after);
    assert!(Call::ALL.iter().all(|call| driver.calls(*call) == 0));
}
