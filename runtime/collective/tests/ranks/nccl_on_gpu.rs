//! The Nccl backend, on as many GPUs as `WARPSMITH_TEST_GPUS` says: two by default, `cuda:0` and those that follow.

use std::time::{Duration, Instant};

use warpsmith_collective::{Communicator, CommunicatorOptions, Element, Failure, ReduceOp};
use warpsmith_runtime::graph::{Capture, CaptureMode};
use warpsmith_runtime::{Device, DeviceBuffer, Stream};

use crate::alone::this_test;
use crate::processes::{Rank, processes};
use crate::support::{LONG, failure, on_streams, timeout};

/// A GPU.
fn gpu(ordinal: usize) -> Device {
    let device = Device::open(&format!("cuda:{ordinal}"));
    device.unwrap_or_else(|error| panic!("this test needs {} GPUs: {error}", ordinal + 1))
}

fn world() -> usize {
    std::env::var("WARPSMITH_TEST_GPUS").map_or(2, |gpus| gpus.parse().expect("a number of GPUs"))
}

fn streams(world: usize) -> Vec<Stream> {
    (0..world).map(|ordinal| Stream::new(&gpu(ordinal)).expect("a stream")).collect()
}

/// This rank of a test in processes, on its own GPU.
fn init(this: &Rank, options: &CommunicatorOptions) -> Communicator {
    let stream = Stream::new(&gpu(this.rank)).expect("a stream");
    Communicator::init(&stream, &this.launch(), this.store(), options).expect("ranks meet")
}

/// All operators on a type, whose values are small numbers.
fn reduce_all<T: Element + PartialEq + std::fmt::Debug>(
    ranks: &mut Communicator,
    of: impl Fn(f64) -> T,
    value: impl Fn(T) -> f64,
    tolerance: f64,
) {
    let (rank, world, stream) = (ranks.rank(), ranks.world_size(), ranks.stream().clone());
    let contribution = |rank: usize, i: usize| ((rank + i) % 3 + 1) as f64;
    let ops = [
        ReduceOp::Sum,
        ReduceOp::Prod,
        ReduceOp::Min,
        ReduceOp::Max,
        ReduceOp::Avg,
        ReduceOp::PreMulSum(of(2.0)),
    ];
    for len in [1, 31, 1 << 10, (1 << 18) + 1] {
        for op in ops {
            let x: Vec<T> = (0..len).map(|i| of(contribution(rank, i))).collect();
            let x = DeviceBuffer::from_host(&stream, &x).expect("x");
            let mut y = DeviceBuffer::<T>::zeros(&stream, len).expect("y");
            let work = ranks.all_reduce(&x, &mut y, op).expect("enqueued");
            work.wait(LONG).expect("done");
            for (i, found) in y.to_host().expect("y").into_iter().enumerate() {
                let all = (0..world).map(|rank| contribution(rank, i));
                let expected = match op {
                    ReduceOp::Sum => all.sum(),
                    ReduceOp::Prod => all.product(),
                    ReduceOp::Min => all.fold(f64::INFINITY, f64::min),
                    ReduceOp::Max => all.fold(0.0, f64::max),
                    ReduceOp::Avg if tolerance == 0.0 => (all.sum::<f64>() / world as f64).trunc(),
                    ReduceOp::Avg => all.sum::<f64>() / world as f64,
                    ReduceOp::PreMulSum(_) => 2.0 * all.sum::<f64>(),
                };
                let found = value(found);
                let is_near = (found - expected).abs() <= tolerance * expected.abs();
                assert!(is_near, "{op:?}, {len} elements: element {i} is {found}, not {expected}");
            }
        }
    }
}

/// The operations that move elements.
fn move_all(ranks: &mut Communicator) {
    let (rank, world, stream) = (ranks.rank(), ranks.world_size(), ranks.stream().clone());
    for len in [0, 1, 33, 100_000] {
        let block = |from: usize, to: usize| -> Vec<u16> {
            (0..len).map(|i| (from * 1000 + to * 100 + i % 100) as u16).collect()
        };
        let blocks = |of: &dyn Fn(usize) -> Vec<u16>| (0..world).flat_map(of).collect::<Vec<_>>();
        let on_device = |values: &[u16]| DeviceBuffer::from_host(&stream, values).expect("x");
        let zeros = |len: usize| DeviceBuffer::<u16>::zeros(&stream, len).expect("y");

        let (x, mut y) = (on_device(&block(rank, 0)), zeros(len * world));
        drop(ranks.all_gather(&x, &mut y).expect("enqueued"));
        assert_eq!(y.to_host().expect("y"), blocks(&|from| block(from, 0)));

        let (x, mut y) = (on_device(&blocks(&|to| block(rank, to))), zeros(len * world));
        drop(ranks.all_to_all(&x, &mut y).expect("enqueued"));
        assert_eq!(y.to_host().expect("y"), blocks(&|from| block(from, rank)));

        let root = world - 1;
        let mut y = on_device(&block(rank, 5));
        drop(ranks.broadcast(&mut y, root).expect("enqueued"));
        assert_eq!(y.to_host().expect("y"), block(root, 5));

        let (x, mut y) = (on_device(&block(rank, 7)), zeros(len * world));
        drop(ranks.gather(&x, Some(y.as_mut_slice()), root).expect("enqueued"));
        let expected = if rank == root { blocks(&|from| block(from, 7)) } else { vec![0; len * world] };
        assert_eq!(y.to_host().expect("y"), expected);

        let (x, mut y) = (on_device(&blocks(&|to| block(rank, to))), zeros(len));
        drop(ranks.scatter(Some(x.as_slice()), &mut y, root).expect("enqueued"));
        assert_eq!(y.to_host().expect("y"), block(root, rank));

        let (x, mut y) = (on_device(&block(rank, 3)), zeros(len));
        let ring = ranks.group(|group| {
            group.send(&x, (rank + 1) % world)?;
            group.recv(&mut y, (rank + world - 1) % world)
        });
        drop(ring.expect("enqueued"));
        assert_eq!(y.to_host().expect("y"), block((rank + world - 1) % world, 3));
    }
    let values: Vec<f32> = (0..world * 1000).map(|i| (i % 7) as f32).collect();
    let (x, mut y) = (
        DeviceBuffer::from_host(&stream, &values).expect("x"),
        DeviceBuffer::zeros(&stream, 1000).expect("y"),
    );
    drop(ranks.reduce_scatter(&x, &mut y, ReduceOp::Sum).expect("enqueued"));
    let own = values[rank * 1000..(rank + 1) * 1000].iter().map(|x| x * world as f32);
    assert_eq!(y.to_host().expect("y"), own.collect::<Vec<_>>());
}

/// Everything that has a result.
fn work(ranks: &mut Communicator) {
    use half::{bf16, f16};
    reduce_all(ranks, |x| x as i8, f64::from, 0.0);
    reduce_all(ranks, |x| x as u8, f64::from, 0.0);
    reduce_all(ranks, |x| x as i32, f64::from, 0.0);
    reduce_all(ranks, |x| x as u32, f64::from, 0.0);
    reduce_all(ranks, |x| x as i64, |x| x as f64, 0.0);
    reduce_all(ranks, |x| x as u64, |x| x as f64, 0.0);
    reduce_all(ranks, f16::from_f64, f64::from, 2e-3);
    reduce_all(ranks, bf16::from_f64, f64::from, 1.6e-2);
    reduce_all(ranks, |x| x as f32, f64::from, 1e-6);
    reduce_all(ranks, |x| x, |x| x, 1e-14);
    move_all(ranks);
}

/// Replays of a captured sum and what follows from it.
fn replay(ranks: &mut Communicator, launches: usize) {
    let (world, stream) = (ranks.world_size(), ranks.stream().clone());
    let mut x = DeviceBuffer::from_host(&stream, &[1.0f32; 4096]).expect("x");
    // The first exchange connects the ranks, outside of the capture.
    ranks.barrier().expect("enqueued").wait(LONG).expect("done");
    let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).expect("a capture");
    drop(ranks.all_reduce_in_place(&mut x, ReduceOp::Avg).expect("captured"));
    drop(ranks.all_reduce_in_place(&mut x, ReduceOp::PreMulSum(1.0 / world as f32)).expect("captured"));
    let graph = capture.end().expect("a graph").instantiate().expect("an executable");
    for _ in 0..launches {
        graph.launch(&stream).expect("launched");
    }
    assert_eq!(x.to_host().expect("x"), [1.0; 4096]);
    drop(graph);
}

#[test]
#[ignore = "needs a GPU"]
fn a_world_of_one_works() {
    let streams = streams(1);
    let mut ranks = Communicator::init_all(&streams, &timeout(60_000)).expect("NCCL").remove(0);
    work(&mut ranks);
    replay(&mut ranks, 100);
    let graphs = "graphs have operations";
    let mut x = DeviceBuffer::<f32>::zeros(&streams[0], 4).expect("x");
    let capture = Capture::begin(&streams[0], CaptureMode::ThreadLocal).expect("a capture");
    drop(ranks.all_reduce_in_place(&mut x, ReduceOp::Sum).expect("captured"));
    let graph = capture.end().expect("a graph");
    let refused = ranks.finish().expect_err("a graph is alive").to_string();
    assert!(refused.contains(graphs), "{refused}");
    drop(graph);
}

#[test]
#[ignore = "needs a GPU"]
fn one_gpu_twice_is_refused() {
    let device = gpu(0);
    let streams = [Stream::new(&device).expect("a stream"), Stream::new(&device).expect("a stream")];
    let begun = Instant::now();
    let error = Communicator::init_all(&streams, &timeout(60_000)).expect_err("one GPU").to_string();
    assert!(error.contains("have the same GPU"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
}

#[test]
#[ignore = "needs two GPUs"]
fn threads_get_right_results() {
    on_streams(&streams(world()), &timeout(60_000).checked(true), |mut ranks| {
        work(&mut ranks);
        ranks.finish().expect("the end in common");
    });
}

#[test]
#[ignore = "needs two GPUs"]
fn processes_get_right_results() {
    if let Some(this) = Rank::this() {
        let mut ranks = init(&this, &timeout(60_000));
        work(&mut ranks);
        return ranks.finish().expect("the end in common");
    }
    processes(this_test!(), world(), None);
}

#[test]
#[ignore = "needs two GPUs"]
fn captured_operations_run_at_each_launch() {
    if let Some(this) = Rank::this() {
        let mut ranks = init(&this, &timeout(60_000));
        replay(&mut ranks, 10_000);
        return ranks.finish().expect("the end in common");
    }
    processes(this_test!(), world(), None);
}

#[test]
#[ignore = "needs two GPUs"]
fn captures_of_threads_are_refused() {
    on_streams(&streams(world()), &timeout(60_000), |mut ranks| {
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::<f32>::zeros(&stream, 4).expect("x");
        let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).expect("a capture");
        let refused = ranks.all_reduce_in_place(&mut x, ReduceOp::Sum).expect_err("refused").to_string();
        assert!(refused.contains("a process for each device"), "{refused}");
        drop(capture);
        ranks.finish().expect("the end in common");
    });
}

#[test]
#[ignore = "needs two GPUs"]
fn a_killed_rank_is_named_and_the_others_go_on() {
    let world = world();
    if let Some(this) = Rank::this() {
        let mut ranks = init(&this, &timeout(60_000));
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::from_host(&stream, &vec![1.0f32; 1 << 24]).expect("x");
        let killed = world - 1;
        for round in 0.. {
            if this.rank == killed && round == 20 {
                this.die();
            }
            let work = ranks.all_reduce_in_place(&mut x, ReduceOp::Avg);
            let Err(error) = work.and_then(|work| work.wait(LONG)) else { continue };
            this.assert_in_time();
            let failure = failure::<()>(Err(error));
            assert!(matches!(failure, Failure::Lost { rank, .. } if rank == killed), "{failure}");
            break;
        }
        let mut fewer = ranks.shrink(&[killed]).expect("a communicator of the others");
        let mut x = DeviceBuffer::from_host(&stream, &[1.0f32; 1000]).expect("x");
        fewer.all_reduce_in_place(&mut x, ReduceOp::Sum).expect("enqueued").wait(LONG).expect("done");
        assert_eq!(x.to_host().expect("x"), vec![(world - 1) as f32; 1000]);
        return fewer.finish().expect("the end in common");
    }
    processes(this_test!(), world, Some(world - 1));
}

#[test]
#[ignore = "needs two GPUs"]
fn a_timeout_names_who_is_missing() {
    let missing = world() - 1;
    on_streams(&streams(world()), &timeout(2_000), |mut ranks| {
        let stream = ranks.stream().clone();
        let mut x = DeviceBuffer::<f32>::zeros(&stream, 1 << 20).expect("x");
        ranks.barrier().expect("enqueued").wait(LONG).expect("done");
        let begun = Instant::now();
        if ranks.rank() == missing {
            while ranks.dump().failure.is_none() {
                assert!(begun.elapsed() < LONG, "the others do not fail");
                std::thread::sleep(Duration::from_millis(5));
            }
            return;
        }
        let work = ranks.all_reduce_in_place(&mut x, ReduceOp::Sum).expect("enqueued");
        let failure = failure(work.wait(LONG));
        assert!(begun.elapsed() < Duration::from_secs(7), "{:?}", begun.elapsed());
        let text = failure.to_string();
        assert!(text.contains(&format!("rank {missing} (")) && text.contains("has not called"), "{text}");
        // The kernel has been stopped, so the stream works on.
        stream.synchronize().expect("no fault");
        let mut fewer = ranks.shrink(&[missing]).expect("a communicator of the others");
        fewer.all_reduce_in_place(&mut x, ReduceOp::Sum).expect("enqueued").wait(LONG).expect("done");
        fewer.finish().expect("the end in common");
    });
}

#[test]
#[ignore = "needs two GPUs"]
fn different_lengths_are_named_in_checked_mode() {
    on_streams(&streams(world()), &timeout(20_000).checked(true), |mut ranks| {
        let len = if ranks.rank() == 0 { 1 << 20 } else { 1 << 10 };
        let mut x = DeviceBuffer::<f32>::zeros(ranks.stream(), len).expect("x");
        let text = failure(ranks.all_reduce_in_place(&mut x, ReduceOp::Sum)).to_string();
        assert!(text.contains("1048576 elements") && text.contains("1024 elements"), "{text}");
    });
}

#[test]
#[ignore = "needs two GPUs"]
fn a_hundred_communicators_leave_nothing() {
    let streams = streams(world());
    let free = || streams.iter().map(|stream| free_memory(stream.device())).collect::<Vec<_>>();
    let round = || {
        on_streams(&streams, &timeout(60_000), |mut ranks| {
            ranks.barrier().expect("enqueued").wait(LONG).expect("done");
            ranks.finish().expect("the end in common");
        });
    };
    (0..3).for_each(|_| round());
    let before = free();
    (0..97).for_each(|_| round());
    for (before, after) in before.into_iter().zip(free()) {
        assert!(before.saturating_sub(after) < 64 << 20, "{before} bytes were free, now {after}");
    }
}

fn free_memory(device: &Device) -> u64 {
    device.memory_info().expect("the memory").free
}
