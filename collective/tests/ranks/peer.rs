//! The Peer backend on emulated devices.

use std::fmt::Debug;
use std::time::{Duration, Instant};

use half::{bf16, f16};
use warpsmith_collective::{
    BackendChoice, Communicator, CommunicatorOptions, Failure, ReduceOp, Reducible, Work,
};
use warpsmith_runtime::graph::{Capture, CaptureMode};
use warpsmith_runtime::{DeviceBuffer, Result, Stream};

use crate::nccl_work;
use crate::support::{LONG, failure, on_ranks, on_streams, streams, timeout};

/// Returns options for the Peer backend.
pub fn peer() -> CommunicatorOptions {
    timeout(60_000).backend(BackendChoice::Peer)
}

/// Element types with random elements, and access to their bits.
pub trait Numbers: Reducible + Debug {
    fn any(random: &mut fastrand::Rng) -> Self;
    fn bits(self) -> u64;
}

macro_rules! numbers {
    ($($type:ident, |$random:ident| $any:expr, |$x:ident| $bits:expr;)*) => { $(
        impl Numbers for $type {
            fn any($random: &mut fastrand::Rng) -> Self {
                $any
            }

            fn bits(self) -> u64 {
                let $x = self;
                $bits
            }
        }
    )* };
}

numbers! {
    i8, |random| random.i8(..), |x| x as u64;
    u8, |random| random.u8(..), |x| x.into();
    i32, |random| random.i32(..), |x| x as u64;
    u32, |random| random.u32(..), |x| x.into();
    i64, |random| random.i64(..), |x| x as u64;
    u64, |random| random.u64(..), |x| x;
    f16, |random| f16::from_f32(random.f32() * 4.0 - 2.0), |x| x.to_bits().into();
    f32, |random| random.f32() * 4.0 - 2.0, |x| x.to_bits().into();
    f64, |random| random.f64() * 4.0 - 2.0, |x| x.to_bits();
    bf16, |random| bf16::from_f32(random.f32() * 4.0 - 2.0), |x| x.to_bits().into();
}

/// Lengths for no elements, less than a vector, several vectors, one-shot, two-shot, and several launches.
pub const LENGTHS: [usize; 7] = [0, 1, 3, 257, 1024, 5003, 300_001];

/// Returns the bits of the results of `all_reduce`, for all operators and lengths, with aligned and unaligned
/// addresses, in place and out of place.
pub fn reduced<T: Numbers>(ranks: &mut Communicator, lengths: &[usize]) -> Vec<u64> {
    let mut random = fastrand::Rng::with_seed(7 + ranks.rank() as u64);
    let stream = ranks.stream().clone();
    let mut bits = Vec::new();
    for &len in lengths {
        for (number, op) in nccl_work::OPERATORS.into_iter().enumerate() {
            let start = number % 3;
            let values: Vec<T> = (0..start + len).map(|_| T::any(&mut random)).collect();
            let mut x = DeviceBuffer::from_host(&stream, &values).expect("x");
            if number % 2 == 0 {
                let mut y = DeviceBuffer::<T>::zeros(&stream, len + 1).expect("y");
                let work = ranks.all_reduce(x.slice(start..), op, y.slice_mut(1..)).expect("enqueued");
                work.wait(LONG).expect("done");
                bits.extend(y.to_host().expect("y").into_iter().skip(1).map(Numbers::bits));
            } else {
                let work = ranks.all_reduce_in_place(op, x.slice_mut(start..)).expect("enqueued");
                work.wait(LONG).expect("done");
                bits.extend(x.to_host().expect("x").into_iter().skip(start).map(Numbers::bits));
            }
        }
    }
    bits
}

/// Compares the results of the Peer backend on these streams with those of the Host backend, on each rank.
pub fn compare<T: PartialEq + Send>(
    streams: &[Stream],
    options: &CommunicatorOptions,
    results: impl Fn(&mut Communicator) -> Vec<T> + Sync,
) {
    let world = streams.len();
    let by_host = on_ranks(world, &timeout(60_000), |mut ranks| results(&mut ranks));
    let by_peer = on_streams(streams, options, |mut ranks| results(&mut ranks));
    for (rank, (found, expected)) in by_peer.iter().zip(&by_host).enumerate() {
        let first = found.iter().zip(expected).position(|(found, expected)| found != expected);
        assert!(found.len() == expected.len() && first.is_none(), "{first:?} on rank {rank} of {world}");
    }
}

/// Compares the bits of the results of `all_reduce`.
pub fn compare_on<T: Numbers>(streams: &[Stream], options: &CommunicatorOptions, lengths: &[usize]) {
    println!("{} on {} ranks", std::any::type_name::<T>(), streams.len());
    compare(streams, options, |ranks| reduced::<T>(ranks, lengths));
}

/// Compares all types.
pub fn compare_all_types(streams: &[Stream], options: &CommunicatorOptions, lengths: &[usize]) {
    compare_on::<i8>(streams, options, lengths);
    compare_on::<u8>(streams, options, lengths);
    compare_on::<i32>(streams, options, lengths);
    compare_on::<u32>(streams, options, lengths);
    compare_on::<i64>(streams, options, lengths);
    compare_on::<u64>(streams, options, lengths);
    compare_on::<f16>(streams, options, lengths);
    compare_on::<f32>(streams, options, lengths);
    compare_on::<f64>(streams, options, lengths);
    compare_on::<bf16>(streams, options, lengths);
}

#[test]
fn sums_have_the_bits_of_host() {
    for world in 1..=4 {
        compare_on::<f32>(&streams(world), &peer(), &LENGTHS);
    }
}

#[test]
fn all_types_have_the_bits_of_host() {
    for world in [2, 5] {
        compare_all_types(&streams(world), &peer(), &[1, 257, 5003]);
    }
}

/// Sums elements of a symmetric buffer: in place, in an aligned and in an unaligned part, and into other memory.
pub fn symmetric_sums(ranks: &mut Communicator, len: usize) -> Vec<u32> {
    let (rank, stream) = (ranks.rank(), ranks.stream().clone());
    let values: Vec<f32> = (0..len).map(|i| 1.0 / (1 + rank + i % 97) as f32).collect();
    let mut x = ranks.symmetric_buffer::<f32>(len).expect("memory in common");
    let mut y = DeviceBuffer::<f32>::zeros(&stream, len).expect("y");
    x.copy_from_host(&values).expect("copied");
    let mut sums = Vec::new();
    drop(ranks.all_reduce(&x, ReduceOp::Sum, &mut y).expect("enqueued"));
    // The next write of a rank must not overwrite memory that another rank still reads.
    drop(ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued"));
    sums.extend(y.to_host().expect("y"));
    sums.extend(x.to_host().expect("x"));
    for part in [4..len, 1..len - 2, len / 2..len] {
        x.copy_from_host(&values).expect("copied");
        let part = x.slice_mut(part);
        ranks.all_reduce_in_place(ReduceOp::Avg, part).expect("enqueued").wait(LONG).expect("done");
        sums.extend(x.to_host().expect("x"));
    }
    sums.into_iter().map(f32::to_bits).collect()
}

#[test]
fn symmetric_buffers_are_reduced_where_they_are() {
    // The larger length needs more than one launch.
    for (world, len) in [(2, 9001), (3, 400_003)] {
        compare(&streams(world), &peer(), |ranks| symmetric_sums(ranks, len));
    }
}

/// Replays a graph with low-latency, one-shot and two-shot sums many times, with calls in between.
pub fn replays(mut ranks: Communicator, launches: u32) {
    let (rank, world, stream) = (ranks.rank() as u32, ranks.world_size() as u32, ranks.stream().clone());
    let mut small = DeviceBuffer::from_host(&stream, &[rank + 1; 100]).expect("x");
    let mut middle = DeviceBuffer::from_host(&stream, &[rank + 1; 1500]).expect("x");
    let mut large = DeviceBuffer::from_host(&stream, &[rank + 1; 5000]).expect("x");
    let mut symmetric = ranks.symmetric_buffer::<u32>(5000).expect("memory in common");
    symmetric.copy_from_host(&[rank + 1; 5000]).expect("copied");
    let own = DeviceBuffer::from_host(&stream, &[rank + 1; 5000]).expect("x");
    let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).expect("a capture");
    // At each launch, one rank adds the sum of the previous launch, so each launch computes different values.
    let adder = |index: u32| index % world;
    for (index, x) in (0..).zip([&mut small, &mut large, &mut middle]) {
        if rank != adder(index) {
            stream.copy(own.slice(..x.len()), x).expect("captured");
        }
    }
    drop(ranks.all_reduce_in_place(ReduceOp::Sum, &mut small).expect("captured"));
    drop(ranks.all_reduce_in_place(ReduceOp::Sum, &mut large).expect("captured"));
    drop(ranks.all_reduce_in_place(ReduceOp::Sum, &mut middle).expect("captured"));
    drop(ranks.all_reduce_in_place(ReduceOp::Avg, &mut symmetric).expect("captured"));
    let graph = capture.end().expect("a graph").instantiate().expect("an executable");
    for launch in 0..launches {
        graph.launch(&stream).expect("launched");
        if launch % 16 == 7 {
            // Ranks are not in lockstep, and calls between launches must be ordered with the launches.
            std::thread::sleep(Duration::from_micros(300 * u64::from(rank)));
            drop(ranks.barrier().expect("enqueued"));
        }
        if launch % 64 == 63 {
            // A thread that waits in the driver for queue space prevents launches by other threads that share the GPU.
            stream.synchronize().expect("done");
        }
    }
    let sum = (1..=world).sum::<u32>();
    let expected = |index: u32| {
        let first = adder(index) + 1;
        first + launches * (sum - first)
    };
    assert_eq!(small.to_host().expect("x"), [expected(0); 100]);
    assert_eq!(large.to_host().expect("x"), [expected(1); 5000]);
    assert_eq!(middle.to_host().expect("x"), [expected(2); 1500]);
    let average = sum / world;
    assert_eq!(symmetric.to_host().expect("x"), [average; 5000]);
    drop(symmetric);
    ranks.barrier().expect("enqueued").wait(LONG).expect("done");
    drop(graph);
    ranks.finish().expect("the end in common");
}

#[test]
fn captured_operations_run_at_each_launch() {
    for world in [2, 3] {
        on_ranks(world, &peer(), |ranks| replays(ranks, 100));
    }
}

/// One rank does not call the operation. The kernel of another rank must end, and its stream must continue.
pub fn a_rank_is_missing(mut ranks: Communicator, timeout: Duration) {
    let stream = ranks.stream().clone();
    let mut x = DeviceBuffer::<f32>::zeros(&stream, 2000).expect("x");
    ranks.barrier().expect("enqueued").wait(LONG).expect("done");
    let begun = Instant::now();
    let missing = ranks.world_size() - 1;
    if ranks.rank() == missing {
        while ranks.dump().failure.is_none() {
            assert!(begun.elapsed() < LONG, "the others do not fail");
            std::thread::sleep(Duration::from_millis(5));
        }
        return;
    }
    let work = ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued");
    let text = failure(work.wait(LONG)).to_string();
    assert!(begun.elapsed() < timeout + Duration::from_secs(4), "{:?}", begun.elapsed());
    assert!(text.contains(&format!("rank {missing} (")) && text.contains("has not called"), "{text}");
    let refused = failure(ranks.barrier()).to_string();
    assert_eq!(refused, text);
    stream.synchronize().expect("no fault");
    assert_eq!(x.to_host().expect("the device works").len(), 2000);
}

#[test]
fn a_missing_rank_is_named_and_the_stream_goes_on() {
    on_ranks(3, &peer().timeout(Duration::from_millis(400)), |ranks| {
        a_rank_is_missing(ranks, Duration::from_millis(400));
    });
}

/// Returns the failure of an operation that was enqueued or rejected.
fn text(enqueued: Result<Work>) -> String {
    failure(enqueued.and_then(|work| work.wait(LONG))).to_string()
}

#[test]
fn different_parts_of_symmetric_buffers_are_refused() {
    for text in on_ranks(2, &peer(), |mut ranks| {
        let mut x = ranks.symmetric_buffer::<f32>(5000).expect("memory in common");
        let start = 4 * ranks.rank();
        let part = x.slice_mut(start..start + 4000);
        text(ranks.all_reduce_in_place(ReduceOp::Sum, part))
    }) {
        assert!(text.contains("a different part of a SymmetricBuffer"), "{text}");
    }
}

/// Safe code must not read memory that other ranks may still write after a failure.
#[test]
fn symmetric_buffers_of_failed_operations_are_withdrawn() {
    on_ranks(2, &peer().timeout(Duration::from_millis(1000)), |mut ranks| {
        let stream = ranks.stream().clone();
        let mut new = || ranks.symmetric_buffer::<u32>(5000).expect("memory in common");
        let [mut summed, mut done, unused, mut captured] = [new(), new(), new(), new()];
        for buffer in [&mut summed, &mut done, &mut captured] {
            buffer.copy_from_host(&[1; 5000]).expect("copied");
        }
        ranks.all_reduce_in_place(ReduceOp::Sum, &mut done).expect("enqueued").wait(LONG).expect("done");
        let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).expect("a capture");
        drop(ranks.all_reduce_in_place(ReduceOp::Sum, &mut captured).expect("captured"));
        let graph = capture.end().expect("a graph").instantiate().expect("an executable");
        assert_eq!(captured.to_host().expect("nothing has failed"), [1; 5000]);
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        if ranks.rank() == 1 {
            let begun = Instant::now();
            while ranks.dump().failure.is_none() {
                assert!(begun.elapsed() < LONG, "the other does not fail");
                std::thread::sleep(Duration::from_millis(1));
            }
            return;
        }
        let work = ranks.all_reduce_in_place(ReduceOp::Sum, &mut summed).expect("enqueued");
        // The copy is ordered after the operation, which fails in the meantime.
        let text = summed.to_host().expect_err("another rank may write it").to_string();
        assert!(text.contains("SymmetricBuffer of 20000 bytes") && text.contains("drop it"), "{text}");
        failure(work.wait(LONG));
        let mut copy = DeviceBuffer::<u32>::zeros(&stream, 5000).expect("memory");
        for buffer in [&mut summed, &mut captured] {
            let uses = [
                buffer.to_host().map(drop),
                buffer.clone_on(&stream).map(drop),
                buffer.copy_from_host(&[1; 5000]),
                buffer.slice(..10).to_host().map(drop),
                buffer.slice_mut(1..).copy_from_host(&[7; 4999]),
                stream.copy(&**buffer, &mut copy),
            ];
            for (index, used) in uses.into_iter().enumerate() {
                assert_eq!(used.expect_err("it is withdrawn").to_string(), text, "use {index}");
            }
        }
        // Buffers of an earlier successful operation, and unused buffers, must remain usable.
        assert_eq!(done.to_host().expect("the sum"), [2; 5000]);
        assert_eq!(unused.to_host().expect("zeros"), [0; 5000]);
        assert_eq!(copy.to_host().expect("zeros"), [0; 5000]);
        drop((summed, captured, graph));
        stream.synchronize().expect("no fault");
    });
}

#[test]
fn an_abort_ends_kernels_that_wait() {
    let begun = Instant::now();
    on_ranks(2, &peer(), |mut ranks| {
        let mut x = DeviceBuffer::<f32>::zeros(ranks.stream(), 100).expect("x");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        if ranks.rank() == 0 {
            let work = ranks.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued");
            std::thread::sleep(Duration::from_millis(50));
            ranks.abort();
            assert!(matches!(failure(work.wait(LONG)), Failure::Aborted { rank: 0, .. }));
            ranks.stream().synchronize().expect("no fault");
        } else {
            while ranks.dump().failure.is_none() {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    });
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
}

#[test]
fn nine_ranks_are_too_many() {
    let error = Communicator::init_all(&streams(9), &peer()).expect_err("too many").to_string();
    assert!(error.contains("supports at most 8 ranks, but the communicator has 9"), "{error}");
}
