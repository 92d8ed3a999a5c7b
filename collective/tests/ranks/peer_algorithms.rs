//! Algorithms that the Peer backend selects by size: low-latency (LL), one-shot, two-shot, and direct.

use std::time::{Duration, Instant};

use half::bf16;
use warpsmith_collective::{Communicator, ReduceOp};
use warpsmith_runtime::DeviceBuffer;

use crate::peer::{compare_on, peer};
use crate::support::{LONG, failure, on_ranks, streams};

/// Maximum sizes in bytes of low-latency and one-shot reductions on emulated devices.
const LOW_LATENCY: usize = 2 << 10;
const ONE_SHOT: usize = 8 << 10;

/// Returns lengths around both thresholds, for elements of `element` bytes.
fn around(element: usize) -> [usize; 6] {
    let [pushed, one_shot] = [LOW_LATENCY / element, ONE_SHOT / element];
    [pushed - 1, pushed, pushed + 1, one_shot - 1, one_shot, one_shot + 1]
}

#[test]
fn lengths_around_the_limits_have_the_bits_of_host() {
    for world in [1, 2, 3, 8] {
        compare_on::<f32>(&streams(world), &peer(), &around(4));
    }
    for world in [2, 4] {
        compare_on::<u8>(&streams(world), &peer(), &around(1));
        compare_on::<bf16>(&streams(world), &peer(), &around(2));
        compare_on::<f64>(&streams(world), &peer(), &around(8));
    }
}

/// Tests lengths below a word and a vector, and lengths between multiples of them.
#[test]
fn few_elements_have_the_bits_of_host() {
    let lengths: Vec<usize> = (0..35).collect();
    compare_on::<u8>(&streams(2), &peer(), &lengths);
    compare_on::<bf16>(&streams(3), &peer(), &lengths);
    compare_on::<i64>(&streams(2), &peer(), &lengths[..6]);
}

/// Sums arrays of different lengths. Words of earlier operations are still in the segments and must not be used.
#[test]
fn operations_of_other_lengths_leave_nothing() {
    on_ranks(3, &peer(), |mut ranks| {
        let (rank, stream) = (ranks.rank() as u32, ranks.stream().clone());
        let mut random = fastrand::Rng::with_seed(5);
        let mut x = DeviceBuffer::<u32>::zeros(&stream, 3000).expect("x");
        for round in 0..400u32 {
            let most = [64, 512, 3000][random.usize(..3)];
            let len = random.usize(0..most);
            let value = |rank: u32| round * 8 + rank;
            x.slice_mut(..len).copy_from_host(&vec![value(rank); len]).expect("copied");
            // Ranks that receive no result do not wait for elements.
            let (root, sum) = (random.usize(..3), (0..3).map(value).sum());
            if random.bool() {
                drop(ranks.all_reduce_in_place(ReduceOp::Sum, x.slice_mut(..len)).expect("enqueued"));
                assert_eq!(x.slice(..len).to_host().expect("x"), vec![sum; len], "round {round}");
                continue;
            }
            let mut y = DeviceBuffer::<u32>::zeros(&stream, len).expect("y");
            let is_root = ranks.rank() == root;
            let target = is_root.then(|| y.as_mut_slice());
            drop(ranks.reduce(x.slice(..len), ReduceOp::Sum, root, target).expect("enqueued"));
            let expected = vec![if is_root { sum } else { 0 }; len];
            assert_eq!(y.to_host().expect("y"), expected, "round {round}");
        }
        ranks.finish().expect("the end in common");
    });
}

/// Sequence numbers wrap after twenty operations on emulated devices. None of them may equal the initial value of the
/// memory.
#[test]
fn the_first_low_latency_operation_may_have_the_first_epoch() {
    for barriers in 18..=22 {
        on_ranks(2, &peer(), |mut ranks| {
            let mut x = DeviceBuffer::from_host(ranks.stream(), &[3u32; 500]).expect("x");
            (0..barriers).for_each(|_| drop(ranks.barrier().expect("enqueued")));
            // The other rank must wait for this one.
            std::thread::sleep(Duration::from_millis(20 * ranks.rank() as u64));
            drop(ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued"));
            assert_eq!(x.to_host().expect("x"), [6; 500], "after {barriers} barriers");
            ranks.finish().expect("the end in common");
        });
    }
}

/// Runs mismatched calls on two ranks. Both errors must name the calls, and no result may be written.
fn mismatched(named: [&str; 2], call: impl Fn(&mut Communicator, &mut DeviceBuffer<u32>) + Sync) {
    let begun = Instant::now();
    on_ranks(2, &peer(), |mut ranks| {
        let len = 5000;
        let mut x = DeviceBuffer::from_host(ranks.stream(), &vec![7u32; len]).expect("x");
        // Words that the mismatched call leaves in the segments must not be used later.
        let before = ranks.all_reduce_in_place(ReduceOp::Max, x.slice_mut(..100)).expect("enqueued");
        before.wait(LONG).expect("done");
        call(&mut ranks, &mut x);
        let text = failure(ranks.barrier().and_then(|work| work.wait(LONG))).to_string();
        assert!(named.iter().all(|named| text.contains(named)), "{text}");
        assert!(x.to_host().expect("x") == vec![7; len]);
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

/// Calls `all_reduce` on the first elements, with this rank's length and operator.
fn sums(ranks: &mut Communicator, x: &mut DeviceBuffer<u32>, lengths: [usize; 2], ops: [ReduceOp; 2]) {
    let part = x.slice_mut(..lengths[ranks.rank()]);
    let work = ranks.all_reduce_in_place(ops[ranks.rank()], part).expect("enqueued");
    work.wait(LONG).expect_err("a mismatch");
}

#[test]
fn other_lengths_by_the_ll_protocol_are_named() {
    // With these lengths, the grids have one block or two.
    for lengths in [[100, 101], [0, 100], [100, 500]] {
        let named = lengths.map(|len| format!("(sum, u32, {len} elements)"));
        mismatched(named.each_ref().map(String::as_str), |ranks, x| {
            sums(ranks, x, lengths, [ReduceOp::Sum; 2]);
        });
    }
}

#[test]
fn other_algorithms_are_named() {
    for lengths in [[500, 1000], [1000, 500], [100, 5000]] {
        let named = lengths.map(|len| format!("(sum, u32, {len} elements)"));
        mismatched(named.each_ref().map(String::as_str), |ranks, x| {
            sums(ranks, x, lengths, [ReduceOp::Sum; 2]);
        });
    }
}

#[test]
fn other_operators_of_all_algorithms_are_named() {
    for len in [100, 1000, 5000] {
        mismatched(["(sum, u32", "(min, u32"], |ranks, x| {
            sums(ranks, x, [len; 2], [ReduceOp::Sum, ReduceOp::Min]);
        });
    }
}

#[test]
fn another_operation_than_one_by_the_ll_protocol_is_named() {
    mismatched(
        ["all_reduce #1 (sum, u32, 100 elements)", "all_gather #1 (u32, 100 elements)"],
        |ranks, x| {
            let work = match ranks.rank() {
                0 => ranks.all_reduce_in_place(ReduceOp::Sum, x.slice_mut(..100)),
                _ => ranks.all_gather_in_place(x.slice_mut(..200)),
            };
            work.expect("enqueued").wait(LONG).expect_err("a mismatch");
        },
    );
}

#[test]
fn in_place_on_one_rank_alone_is_refused_where_the_elements_are() {
    on_ranks(2, &peer(), |mut ranks| {
        let mut x = ranks.symmetric_buffer::<f32>(5000).expect("memory in common");
        let mut y = DeviceBuffer::<f32>::zeros(ranks.stream(), 5000).expect("y");
        let work = match ranks.rank() {
            0 => ranks.all_reduce_in_place(ReduceOp::Sum, &mut x),
            _ => ranks.all_reduce(&x, ReduceOp::Sum, &mut y),
        };
        let text = failure(work.and_then(|work| work.wait(LONG))).to_string();
        assert!(text.contains("or a different output"), "{text}");
    });
}
