//! Operations of the Peer backend other than `all_reduce`, on emulated devices.

use std::time::{Duration, Instant};

use half::bf16;
use warpsmith_collective::{Communicator, Failure, ReduceOp};
use warpsmith_runtime::emulated::{Call, EmulatedDriver};
use warpsmith_runtime::graph::CaptureMode;
use warpsmith_runtime::{Capture, DeviceBuffer, DeviceCopy, Stream};

use crate::nccl_work::{self, OPERATORS};
use crate::peer::{Numbers, compare, peer};
use crate::support::{LONG, failure, on_ranks, on_streams, streams, streams_of};

/// Lengths for no elements, less than a vector, several vectors, and several launches.
pub const LENGTHS: [usize; 6] = [0, 1, 3, 257, 1024, 33_001];

/// Random elements of a rank, and the results of its operations.
struct Results<'c> {
    ranks: &'c mut Communicator,
    random: fastrand::Rng,
    bits: Vec<u64>,
}

impl<'c> Results<'c> {
    fn new(ranks: &'c mut Communicator) -> Self {
        let random = fastrand::Rng::with_seed(11 + ranks.rank() as u64);
        Self { ranks, random, bits: Vec::new() }
    }

    fn stream(&self) -> Stream {
        self.ranks.stream().clone()
    }

    fn any<T: Numbers>(&mut self, len: usize) -> DeviceBuffer<T> {
        let values: Vec<T> = (0..len).map(|_| T::any(&mut self.random)).collect();
        DeviceBuffer::from_host(&self.stream(), &values).expect("x")
    }

    fn zeros<T: DeviceCopy>(&self, len: usize) -> DeviceBuffer<T> {
        DeviceBuffer::zeros(&self.stream(), len).expect("y")
    }

    fn take<T: Numbers>(&mut self, y: &DeviceBuffer<T>) {
        self.bits.extend(y.to_host().expect("y").into_iter().map(Numbers::bits));
    }

    /// Runs all operations that move `len` elements of a type, at offset `start` in their buffers, with all roots.
    fn moved<T: Numbers>(&mut self, len: usize, start: usize) {
        let (rank, world) = (self.ranks.rank(), self.ranks.world_size());
        let (x, mut y) = (self.any::<T>(start + len), self.zeros::<T>(start + 1 + len * world));
        drop(self.ranks.all_gather(x.slice(start..), y.slice_mut(start + 1..)).expect("enqueued"));
        self.take(&y);

        let own = start + rank * len;
        self.stream().copy(x.slice(start..), y.slice_mut(own..own + len)).expect("the own block");
        let in_place = y.slice_mut(start..start + world * len);
        drop(self.ranks.all_gather_in_place(in_place).expect("enqueued"));
        self.take(&y);

        let (whole, mut y) = (self.any::<T>(start + world * len), self.zeros::<T>(start + 1 + len * world));
        drop(self.ranks.all_to_all(whole.slice(start..), y.slice_mut(start + 1..)).expect("enqueued"));
        self.take(&y);

        for root in 0..world {
            let mut y = self.any::<T>(start + len);
            drop(self.ranks.broadcast(root, y.slice_mut(start..)).expect("enqueued"));
            self.take(&y);

            let mut y = self.zeros::<T>(start + len * world);
            let target = (rank == root).then(|| y.slice_mut(start..));
            drop(self.ranks.gather(x.slice(start..), root, target).expect("enqueued"));
            self.take(&y);

            let mut y = self.zeros::<T>(start + 1 + len);
            let source = (rank == root).then(|| whole.slice(start..));
            drop(self.ranks.scatter(source, root, y.slice_mut(start + 1..)).expect("enqueued"));
            self.take(&y);
        }
    }

    /// Runs `reduce` and `reduce_scatter` of `len` elements with all operators.
    fn reduced<T: Numbers>(&mut self, len: usize, start: usize) {
        let (rank, world) = (self.ranks.rank(), self.ranks.world_size());
        for (number, op) in OPERATORS.into_iter().enumerate() {
            let root = number % world;
            let (x, mut y) = (self.any::<T>(start + len), self.zeros::<T>(start + 1 + len));
            let target = (rank == root).then(|| y.slice_mut(start + 1..));
            drop(self.ranks.reduce(x.slice(start..), op, root, target).expect("enqueued"));
            self.take(&y);

            let mut x = self.any::<T>(start + world * len);
            let target = y.slice_mut(start + 1..);
            drop(self.ranks.reduce_scatter(x.slice(start..), op, target).expect("enqueued"));
            self.take(&y);
            let in_place = x.slice_mut(start..);
            drop(self.ranks.reduce_scatter_in_place(op, in_place).expect("enqueued"));
            // The contents of the other blocks are unspecified.
            let own = start + rank * len;
            let block = x.to_host().expect("x").into_iter().skip(own).take(len);
            self.bits.extend(block.map(Numbers::bits));
        }
    }
}

/// Returns the results of all operations on a rank, as bits.
pub fn exchanged(ranks: &mut Communicator, lengths: &[usize]) -> Vec<u64> {
    let mut results = Results::new(ranks);
    for &len in lengths {
        for start in [0, 1] {
            results.moved::<u8>(len, start);
            results.moved::<bf16>(len, start);
            results.moved::<f32>(len, start);
            results.moved::<u64>(len, start);
            results.reduced::<f32>(len, start);
        }
        results.reduced::<i8>(len, 0);
        results.reduced::<bf16>(len, 0);
        results.reduced::<f64>(len, 1);
    }
    results.bits
}

#[test]
fn all_operations_have_the_bits_of_host() {
    for world in [1, 2, 4, 7] {
        compare(&streams(world), &peer(), |ranks| exchanged(ranks, &LENGTHS[..5]));
    }
    compare(&streams(3), &peer(), |ranks| exchanged(ranks, &LENGTHS));
}

#[test]
fn all_but_messages_of_two_ranks_are_kernels() {
    let driver = EmulatedDriver::builder().devices(2).build();
    let launches = |call: &(dyn Fn(&mut Communicator) + Sync)| {
        let before = driver.calls(Call::Launch);
        on_streams(&streams_of(&driver, 2), &peer(), |mut ranks| {
            call(&mut ranks);
            ranks.finish().expect("the end in common");
        });
        driver.calls(Call::Launch) - before
    };
    // Finishing a communicator launches a barrier.
    assert_eq!(launches(&|_| {}), 2);
    let all = launches(&|ranks| {
        let (stream, own) = (ranks.stream().clone(), ranks.rank() == 0);
        let x = DeviceBuffer::<f32>::zeros(&stream, 100).expect("x");
        let mut y = DeviceBuffer::<f32>::zeros(&stream, 100).expect("y");
        drop(ranks.all_gather(x.slice(..50), &mut y).expect("enqueued"));
        drop(ranks.reduce_scatter(&x, ReduceOp::Sum, y.slice_mut(..50)).expect("enqueued"));
        drop(ranks.reduce(&x, ReduceOp::Sum, 0, own.then(|| y.as_mut_slice())).expect("enqueued"));
        drop(ranks.broadcast(0, &mut y).expect("enqueued"));
        drop(ranks.gather(x.slice(..50), 0, own.then(|| y.as_mut_slice())).expect("enqueued"));
        drop(ranks.scatter(own.then(|| x.as_slice()), 0, y.slice_mut(..50)).expect("enqueued"));
        drop(ranks.all_to_all(&x, &mut y).expect("enqueued"));
    });
    assert_eq!(all, 2 * (1 + 7));
    let messages = launches(&|ranks| {
        let (rank, stream) = (ranks.rank(), ranks.stream().clone());
        let x = DeviceBuffer::<u8>::zeros(&stream, 100).expect("x");
        let mut y = DeviceBuffer::<u8>::zeros(&stream, 100).expect("y");
        let crossed = ranks.group(|group| {
            group.send(&x, 1 - rank)?;
            group.recv(1 - rank, &mut y)
        });
        crossed.expect("enqueued").wait(LONG).expect("done");
    });
    assert_eq!(messages, 2);
}

#[test]
fn kernels_and_messages_work_together() {
    on_ranks(3, &peer(), |mut ranks| {
        nccl_work::work(&mut ranks);
        ranks.finish().expect("the end in common");
    });
}

/// Runs `reduce` and `reduce_scatter` on elements of a symmetric buffer, in place and out of place.
pub fn symmetric_parts(ranks: &mut Communicator, len: usize) -> Vec<u32> {
    let (rank, world, stream) = (ranks.rank(), ranks.world_size(), ranks.stream().clone());
    let values: Vec<f32> = (0..len * world).map(|i| 1.0 / (1 + rank + i % 97) as f32).collect();
    let mut x = ranks.symmetric_buffer::<f32>(len * world).expect("memory in common");
    let mut y = DeviceBuffer::<f32>::zeros(&stream, len).expect("y");
    let mut whole = DeviceBuffer::<f32>::zeros(&stream, len * world).expect("y");
    x.copy_from_host(&values).expect("copied");
    drop(ranks.reduce_scatter(&x, ReduceOp::Sum, &mut y).expect("enqueued"));
    drop(ranks.reduce(&x, ReduceOp::Max, world - 1, Some(whole.as_mut_slice())).expect("enqueued"));
    // The next write of a rank must not overwrite memory that another rank still reads.
    drop(ranks.reduce_scatter_in_place(ReduceOp::Avg, &mut x).expect("enqueued"));
    let (y, whole, x) = (y.to_host().expect("y"), whole.to_host().expect("y"), x.to_host().expect("x"));
    let own = x[rank * len..(rank + 1) * len].to_vec();
    [y, whole, own].concat().into_iter().map(f32::to_bits).collect()
}

#[test]
fn symmetric_buffers_are_reduced_where_they_are() {
    // Blocks start at multiples of 16 bytes, and at other addresses. The last blocks are larger than half of a segment.
    for (world, len) in [(2, 4000), (3, 3001), (2, 80_000)] {
        compare(&streams(world), &peer(), |ranks| symmetric_parts(ranks, len));
    }
}

/// Replays a graph many times. Its operations depend on each other.
pub fn replays(mut ranks: Communicator, launches: u32) {
    const LEN: usize = 5000;
    let (rank, world, stream) = (ranks.rank(), ranks.world_size(), ranks.stream().clone());
    let value = |rank: usize, i: usize| (rank * world * LEN + i) as u32;
    let values: Vec<u32> = (0..world * LEN).map(|i| value(rank, i)).collect();
    let mut x = DeviceBuffer::from_host(&stream, &values).expect("x");
    let own = DeviceBuffer::from_host(&stream, &values).expect("x");
    let mut crossed = DeviceBuffer::<u32>::zeros(&stream, world * LEN).expect("y");
    let mut root = DeviceBuffer::<u32>::zeros(&stream, world * LEN).expect("y");
    let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).expect("a capture");
    // At each launch, rank 0 adds the sums of the previous launch, so each launch computes different values.
    if rank != 0 {
        stream.copy(&own, &mut x).expect("captured");
    }
    drop(ranks.reduce_scatter_in_place(ReduceOp::Sum, &mut x).expect("captured"));
    drop(ranks.all_gather_in_place(&mut x).expect("captured"));
    drop(ranks.all_to_all(&x, &mut crossed).expect("captured"));
    drop(ranks.reduce(&x, ReduceOp::Max, world - 1, Some(root.as_mut_slice())).expect("captured"));
    drop(ranks.broadcast(world - 1, &mut root).expect("captured"));
    let graph = capture.end().expect("a graph").instantiate().expect("an executable");
    for launch in 0..launches {
        graph.launch(&stream).expect("launched");
        if launch % 16 == 7 {
            // Ranks are not in lockstep, and calls between launches must be ordered with the launches.
            std::thread::sleep(Duration::from_micros(300 * rank as u64));
            drop(ranks.barrier().expect("enqueued"));
        }
        if launch % 64 == 63 {
            stream.synchronize().expect("done");
        }
    }
    let added = |i: usize| (1..world).map(|rank| value(rank, i)).sum::<u32>();
    let expected: Vec<u32> =
        (0..world * LEN).map(|i| value(0, i).wrapping_add(launches.wrapping_mul(added(i)))).collect();
    assert!(x.to_host().expect("x") == expected, "sums");
    assert!(root.to_host().expect("y") == expected, "the root's");
    let own = &expected[rank * LEN..(rank + 1) * LEN];
    assert!(crossed.to_host().expect("y").chunks(LEN).all(|block| block == own), "crossed");
    ranks.barrier().expect("enqueued").wait(LONG).expect("done");
    drop(graph);
    ranks.finish().expect("the end in common");
}

#[test]
fn captured_operations_run_at_each_launch() {
    for world in [2, 3] {
        on_ranks(world, &peer(), |ranks| replays(ranks, 60));
    }
}

#[test]
fn a_root_that_is_missing_is_named() {
    let time = Duration::from_millis(400);
    on_ranks(3, &peer().timeout(time), |mut ranks| {
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::<u8>::zeros(&stream, 1000).expect("x");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        let begun = Instant::now();
        if ranks.rank() == 1 {
            while ranks.dump().failure.is_none() {
                assert!(begun.elapsed() < LONG, "the others do not fail");
                std::thread::sleep(Duration::from_millis(5));
            }
            return;
        }
        let failure = failure(ranks.broadcast(1, &mut x).expect("enqueued").wait(LONG));
        assert!(begun.elapsed() < time + Duration::from_secs(4), "{:?}", begun.elapsed());
        let text = failure.to_string();
        assert!(matches!(failure, Failure::Timeout { .. }), "{text}");
        assert!(text.contains("rank 1 (") && text.contains("has not called"), "{text}");
        stream.synchronize().expect("no fault");
    });
}
