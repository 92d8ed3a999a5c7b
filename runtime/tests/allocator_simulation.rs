//! The simulation that the allocator is compared with keeps its own rules, and those that PyTorch's tests state.

#[path = "common/reference.rs"]
mod reference;
#[path = "common/traces.rs"]
mod traces;

use std::collections::BTreeMap;

use reference::{Counters, Options, Reference};
use traces::{Event, Model, Random, Sizes, Trace, rmm_random, training};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn reference(change: impl FnOnce(&mut Options)) -> Reference {
    let mut options = Options::new(GIB);
    change(&mut options);
    Reference::new(options)
}

fn id(block: Option<(u64, u64)>) -> u64 {
    block.expect("there is memory").0
}

fn reserved(reference: &Reference) -> u64 {
    reference.counters().reserved_bytes.all.current
}

/// What the counters must say, from the blocks alone: counts, then bytes.
fn recount(reference: &Reference) -> [u64; 9] {
    let blocks = reference.blocks();
    let neighbours = |at: u64| blocks.keys().filter(|other| *other >> 40 == at >> 40).count();
    let mut sums = [0; 9];
    for (at, block) in blocks {
        let split = !block.active() && !block.expandable && neighbours(*at) > 1;
        let whole = u64::from(*at == (at >> 40) << 40 && !block.expandable);
        let (active, live) = (u64::from(block.active()), u64::from(block.allocated));
        let values = [
            live,
            whole,
            active,
            u64::from(split),
            live * block.size,
            u64::from(block.mapped) * block.size,
            active * block.size,
            u64::from(split) * block.size,
            block.requested,
        ];
        sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
    }
    sums
}

fn current(c: &Counters) -> [u64; 9] {
    [
        c.allocation,
        c.segment,
        c.active,
        c.inactive_split,
        c.allocated_bytes,
        c.reserved_bytes,
        c.active_bytes,
        c.inactive_split_bytes,
        c.requested_bytes,
    ]
    .map(|by| {
        assert_eq!(by.all.current, by.small_pool.current + by.large_pool.current);
        assert_eq!(by.all.current, by.all.allocated - by.all.freed);
        assert!(by.all.peak >= by.all.current);
        by.all.current
    })
}

/// Blocks tile their segments, and free neighbours of one kind are joined.
fn assert_tiled(reference: &Reference) {
    let blocks: Vec<_> = reference.blocks().iter().collect();
    for pair in blocks.windows(2) {
        let ((left, a), (right, b)) = (pair[0], pair[1]);
        if left >> 40 == right >> 40 {
            assert_eq!(left + a.size, *right);
            assert!(a.active() || b.active() || a.mapped != b.mapped, "free neighbours at {left:#x}");
        }
    }
}

#[test]
fn sizes_are_rounded_to_512_bytes_and_by_divisions() {
    let plain = Options::new(GIB);
    for (bytes, size) in [(1, 512), (512, 512), (513, 1024), (MIB + 1, MIB + 512)] {
        assert_eq!(plain.round_size(bytes), size);
    }
    let divided = Options { roundup_power2_divisions: [4; 16], ..Options::new(GIB) };
    for (bytes, size) in [(1200, 1536), (2049, 2560), (1 << 20, 1 << 20), (1_100_000, 1_310_720)] {
        assert_eq!(divided.round_size(bytes), size, "{bytes}");
    }
    let mut one = [0; 16];
    one[3] = 2;
    let one = Options { roundup_power2_divisions: one, ..Options::new(GIB) };
    assert_eq!(one.round_size(8 * MIB + 1), 12 * MIB);
    assert_eq!(one.round_size(16 * MIB + 1), 16 * MIB + 512);
}

#[test]
fn segments_have_the_sizes_of_pytorchs_table() {
    let table =
        [(512, 1, 2), (MIB, 2, 4), (MIB + 512, 1, 20), (10 * MIB - 512, 2, 40), (10 * MIB + 512, 3, 36)];
    // PyTorch's test keeps three blocks of the size alive.
    for (bytes, segments, mib) in table {
        let mut reference = reference(|_| ());
        (0..3).for_each(|_| assert!(reference.alloc(0, bytes).is_some()));
        let c = reference.counters();
        assert_eq!((c.segment.all.current, reserved(&reference) / MIB), (segments, mib), "{bytes}");
    }
}

#[test]
fn the_small_pool_splits_any_rest_and_the_large_pool_only_more_than_a_mebibyte() {
    let mut reference = reference(|_| ());
    let (_, first) = reference.alloc(0, MIB).unwrap();
    let (_, second) = reference.alloc(0, 512).unwrap();
    assert_eq!((first, second), (1 << 40, first + MIB));
    let (_, large) = reference.alloc(0, 8 * MIB).unwrap();
    let (_, rest) = reference.alloc(0, 9 * MIB).unwrap();
    assert_eq!((large, rest), (2 << 40, large + 8 * MIB));
    assert_eq!(reference.counters().inactive_split.large_pool.current, 1, "3 MiB are left");
    id(reference.alloc(0, 2 * MIB));
    let c = reference.counters();
    assert_eq!(c.inactive_split.large_pool.current, 0, "a rest of 1 MiB is not split off");
    assert_eq!(c.allocated_bytes.large_pool.current, 20 * MIB);
    assert_eq!(c.requested_bytes.large_pool.current, 19 * MIB);
}

#[test]
fn a_stream_never_gets_a_block_of_another() {
    let mut reference = reference(|_| ());
    let (first, address) = reference.alloc(1, MIB).unwrap();
    reference.free(first);
    assert_ne!(reference.alloc(2, MIB).unwrap().1, address);
    assert_eq!(reference.alloc(1, MIB).unwrap().1, address);
}

#[test]
fn a_recorded_block_waits_for_the_stream_and_counts_as_active() {
    let mut reference = reference(|_| ());
    let (block, address) = reference.alloc(1, 4 * MIB).unwrap();
    reference.record_stream(block, 1);
    reference.record_stream(block, 2);
    reference.free(block);
    let c = reference.counters();
    assert_eq!((c.allocation.all.current, c.active.all.current), (0, 1));
    assert_ne!(reference.alloc(1, 4 * MIB).unwrap().1, address);
    reference.complete(2);
    assert_eq!(reference.alloc(1, 4 * MIB).unwrap().1, address);
}

#[test]
fn cached_memory_and_waiting_blocks_are_reclaimed_before_out_of_memory() {
    let mut reference = reference(|_| ());
    let cached = id(reference.alloc(0, 600 * MIB));
    reference.free(cached);
    let waiting = id(reference.alloc(1, 700 * MIB));
    assert_eq!(reference.counters().num_alloc_retries, 1);
    reference.record_stream(waiting, 2);
    reference.free(waiting);
    let found = id(reference.alloc(1, 650 * MIB));
    assert_eq!(reference.counters().num_alloc_retries, 1, "found in the pool after the wait");
    assert_eq!(reference.alloc(1, 700 * MIB), None);
    assert_eq!(reference.counters().num_ooms, 1);
    reference.free(found);
    reference.empty_cache();
    assert_eq!(reserved(&reference), 0);
}

#[test]
fn a_request_that_fits_after_the_wait_needs_the_second_search() {
    for search_after_sync in [true, false] {
        let mut reference = reference(|options| options.search_after_sync = search_after_sync);
        let (pinned, waiting) = (id(reference.alloc(1, 2 * MIB)), id(reference.alloc(1, 16 * MIB)));
        let _full = id(reference.alloc(1, 1004 * MIB));
        reference.record_stream(waiting, 2);
        reference.free(waiting);
        assert_eq!(reference.alloc(1, 16 * MIB).is_some(), search_after_sync);
        reference.free(pinned);
    }
}

#[test]
fn a_limit_is_kept_without_asking_the_device() {
    let mut reference = reference(|options| options.limit = Some(GIB / 2));
    assert!(reference.alloc(0, GIB / 2 + 1).is_none());
    assert!(reference.alloc(0, GIB / 2 - MIB).is_some());
    assert_eq!(reference.counters().num_device_alloc, 1);
}

#[test]
fn oversize_blocks_are_neither_split_nor_given_to_small_requests() {
    let mut reference = reference(|options| options.max_split_size = Some(100 * MIB));
    let big = id(reference.alloc(0, 200 * MIB));
    reference.free(big);
    id(reference.alloc(0, 50 * MIB));
    assert_eq!(reserved(&reference), 250 * MIB);
    id(reference.alloc(0, 178 * MIB));
    assert_eq!(reserved(&reference), 428 * MIB, "more than 20 MiB would be wasted");
    id(reference.alloc(0, 182 * MIB));
    assert_eq!(reserved(&reference), 428 * MIB);
    assert_eq!(reference.counters().oversize_allocations.current, 2);
}

#[test]
fn an_oversize_block_is_given_back_when_memory_is_short() {
    let mut reference = reference(|options| options.max_split_size = Some(100 * MIB));
    let [a, b, c] = [300, 310, 20].map(|mib| id(reference.alloc(0, mib * MIB)));
    [a, b, c].into_iter().for_each(|block| reference.free(block));
    id(reference.alloc(0, 500 * MIB));
    let c = reference.counters();
    assert_eq!((c.num_device_free, c.num_alloc_retries), (2, 0), "both oversize blocks, largest first");
    assert_eq!(reserved(&reference), 520 * MIB);
}

#[test]
fn garbage_collection_frees_old_whole_segments_above_the_threshold() {
    let mut reference = reference(|options| {
        options.limit = Some(GIB);
        options.garbage_collection_threshold = 0.6;
    });
    let old = id(reference.alloc(0, 300 * MIB));
    reference.free(old);
    for mib in [304, 308] {
        let block = id(reference.alloc(0, mib * MIB));
        reference.free(block);
    }
    assert_eq!(reserved(&reference), 912 * MIB);
    id(reference.alloc(0, 400 * MIB));
    let c = reference.counters();
    assert_eq!((c.num_device_free, reserved(&reference)), (2, 708 * MIB), "all of at least average age");
}

#[test]
fn an_expandable_segment_grows_by_pages_and_shrinks_around_what_is_live() {
    let mut reference = reference(|options| options.expandable_segments = true);
    let (first, start) = reference.alloc(0, 15 * MIB).unwrap();
    let (second, next) = reference.alloc(0, 30 * MIB).unwrap();
    assert_eq!(next, start + 15 * MIB, "the free end of the page is used");
    assert_eq!(reserved(&reference), 60 * MIB);
    assert_eq!(reference.counters().segment.all.current, 0);
    reference.free(second);
    reference.empty_cache();
    assert_eq!(reserved(&reference), 20 * MIB);
    let (third, again) = reference.alloc(0, 5 * MIB).unwrap();
    assert_eq!(again, next);
    assert_eq!(reserved(&reference), 20 * MIB);
    [first, third].into_iter().for_each(|block| reference.free(block));
    reference.empty_cache();
    assert_eq!(reserved(&reference), 0);
    assert!(reference.blocks().is_empty(), "the reservation went too");
}

#[test]
fn expandable_blocks_are_not_used_when_the_mode_is_off() {
    let mut reference = reference(|options| options.expandable_segments = true);
    let (block, address) = reference.alloc(0, 30 * MIB).unwrap();
    reference.free(block);
    reference.set_expandable(false);
    let (native, other) = reference.alloc(0, 30 * MIB).unwrap();
    assert_ne!(address >> 40, other >> 40);
    reference.free(native);
    reference.set_expandable(true);
    assert_eq!(reserved(&reference), 70 * MIB);
}

#[test]
fn what_could_not_be_mapped_whole_stays_mapped_and_free() {
    let mut reference = reference(|options| options.expandable_segments = true);
    let kept = id(reference.alloc(0, 900 * MIB));
    assert!(reference.alloc(0, 200 * MIB).is_none());
    assert_eq!(recount(&reference), current(reference.counters()));
    reference.free(kept);
    assert!(reference.alloc(0, 1000 * MIB).is_some());
}

#[test]
fn random_use_keeps_counters_and_blocks_right() {
    for seed in 0..24 {
        let mut random = Random::new(seed);
        let mut reference = reference(|options| {
            options.expandable_segments = seed % 3 == 1;
            options.max_split_size = (seed % 4 == 2).then_some(40 * MIB);
            options.limit = (seed % 5 == 3).then_some(900 * MIB);
            options.garbage_collection_threshold = if seed % 2 == 0 { 0.6 } else { 0.0 };
            options.roundup_power2_divisions = [if seed % 7 == 0 { 8 } else { 0 }; 16];
        });
        let mut live = BTreeMap::new();
        for step in 0..600 {
            match random.below(20) {
                0 => reference.complete(random.below(3)),
                1 if seed % 8 == 1 => reference.set_expandable(random.below(2) == 0),
                2 if step % 50 == 0 => reference.empty_cache(),
                3..=11 => {
                    let bytes = ((100 * MIB) as f64).powf(random.unit()) as u64;
                    if let Some((id, address)) = reference.alloc(random.below(3), bytes) {
                        assert!(reference.blocks()[&address].size >= bytes);
                        assert!(live.insert(address, id).is_none(), "handed out twice");
                    }
                }
                _ if live.is_empty() => {}
                choice => {
                    let index = random.below(live.len() as u64) as usize;
                    let (&address, &id) = live.iter().nth(index).unwrap();
                    if choice < 14 {
                        reference.record_stream(id, random.below(3));
                    } else {
                        live.remove(&address);
                        reference.free(id);
                    }
                }
            }
            assert_eq!(recount(&reference), current(reference.counters()), "seed {seed} step {step}");
            assert_tiled(&reference);
        }
        live.into_values().for_each(|id| reference.free(id));
        reference.empty_cache();
        assert_eq!(current(reference.counters()), [0; 9]);
        assert!(reference.blocks().is_empty());
    }
}

#[test]
fn traces_are_well_formed_repeatable_and_survive_the_text() {
    let random = |seed| rmm_random(seed, 2000, 64 * MIB, 2000 * MIB, Sizes::LogUniform);
    for (a, b, other) in [
        (random(1), random(1), random(2)),
        (training(1, Model::default()), training(1, Model::default()), random(1)),
    ] {
        assert_eq!(a, b);
        assert_ne!(a, other);
        assert_eq!(Trace::read(&a.write()).as_ref(), Ok(&a));
    }
    let streams = Trace { events: vec![Event::Alloc { id: 3, bytes: 9, stream: 7 }, Event::Free { id: 3 }] };
    assert_eq!(streams.write(), "a 3 9 7\nf 3\n");
    assert_eq!(Trace::read("# text\n\na 3 9 7\nf 3\n"), Ok(streams));
}

#[test]
fn bad_lines_are_named() {
    for (text, line) in [("a 1", 1), ("a 1 2\na 1 2", 2), ("a 1 2\nf 2", 2), ("a 1 2\n\nx", 3), ("f -1", 1)] {
        let error = Trace::read(text).unwrap_err();
        assert!(error.starts_with(&format!("line {line}: ")), "{error}");
    }
}

#[test]
fn random_traces_stay_below_their_limit_and_spread_as_told() {
    let limit = 500 * MIB;
    let tight = rmm_random(7, 5000, 64 * MIB, limit, Sizes::Uniform);
    assert!(tight.peak_live() < limit && tight.peak_live() > limit * 9 / 10);
    let [uniform, log] =
        [Sizes::Uniform, Sizes::LogUniform].map(|sizes| rmm_random(7, 5000, 64 * MIB, 1024 * GIB, sizes));
    let small = |trace: &Trace| {
        let sizes = trace.events.iter().filter_map(|event| match event {
            Event::Alloc { bytes, .. } => Some(*bytes),
            Event::Free { .. } => None,
        });
        let (low, all): (Vec<u64>, Vec<u64>) = sizes.partition(|bytes| *bytes < 8192);
        assert!(low.iter().chain(&all).all(|bytes| (1..=64 * MIB).contains(bytes)));
        low.len() as f64 / (low.len() + all.len()) as f64
    };
    assert!(small(&uniform) < 0.01);
    assert!((small(&log) - 0.5).abs() < 0.05, "half of all powers of two are below 8 KiB");
}

#[test]
fn a_training_trace_is_about_20_000_events_in_less_than_200_kilobytes() {
    let trace = training(1, Model::default());
    assert!((15_000..25_000).contains(&trace.events.len()), "{}", trace.events.len());
    assert!(trace.write().len() < 200_000);
    assert!((8 * GIB..16 * GIB).contains(&trace.peak_live()));
}
