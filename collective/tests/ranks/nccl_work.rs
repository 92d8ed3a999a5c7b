//! Operations of ranks on GPUs, for tests of the Nccl backend.

use warpsmith_collective::{Communicator, F8E4M3, F8E5M2, Failure, ReduceOp, Reducible};
use warpsmith_runtime::graph::{Capture, CaptureMode};
use warpsmith_runtime::{Device, DeviceBuffer, Stream};

use crate::processes::Rank;
use crate::support::{LONG, failure};

/// Opens a GPU.
pub fn gpu(ordinal: usize) -> Device {
    let device = Device::open(&format!("cuda:{ordinal}"));
    device.unwrap_or_else(|error| panic!("this test needs {} GPUs: {error}", ordinal + 1))
}

/// Returns streams of the first GPUs.
pub fn streams(world: usize) -> Vec<Stream> {
    (0..world).map(|ordinal| Stream::new(&gpu(ordinal)).expect("a stream")).collect()
}

/// All operators.
pub const OPERATORS: [ReduceOp; 5] =
    [ReduceOp::Sum, ReduceOp::Prod, ReduceOp::Min, ReduceOp::Max, ReduceOp::Avg];

/// Kills the last rank during sums. The other ranks must name it and continue without it.
pub fn a_rank_is_killed(this: &Rank, mut ranks: Communicator, len: usize) {
    let (stream, killed) = (ranks.stream().clone(), ranks.world_size() - 1);
    let mut x = DeviceBuffer::from_host(&stream, &vec![1.0f32; len]).expect("x");
    for round in 0.. {
        if this.rank == killed && round == 20 {
            this.die();
        }
        let work = ranks.all_reduce_in_place(ReduceOp::Avg, &mut x);
        let Err(error) = work.and_then(|work| work.wait(LONG)) else { continue };
        this.assert_in_time();
        let failure = failure::<()>(Err(error));
        assert!(matches!(failure, Failure::Lost { rank, .. } if rank == killed), "{failure}");
        break;
    }
    stream.synchronize().expect("no fault");
    let mut fewer = ranks.shrink(&[killed]).expect("a communicator of the others");
    let mut x = DeviceBuffer::from_host(&stream, &[1.0f32; 1000]).expect("x");
    fewer.all_reduce_in_place(ReduceOp::Sum, &mut x).expect("enqueued").wait(LONG).expect("done");
    assert_eq!(x.to_host().expect("x"), vec![killed as f32; 1000]);
    fewer.finish().expect("the end in common");
}

/// Reduces elements of a type with all operators; the values are small numbers.
fn reduce_all<T: Reducible + PartialEq + std::fmt::Debug>(
    ranks: &mut Communicator,
    of: impl Fn(f64) -> T,
    value: impl Fn(T) -> f64,
    tolerance: f64,
) {
    let (rank, world, stream) = (ranks.rank(), ranks.world_size(), ranks.stream().clone());
    let contribution = |rank: usize, i: usize| ((rank + i) % 3 + 1) as f64;
    for len in [1, 31, 1 << 10, (1 << 18) + 1] {
        for op in OPERATORS {
            let x: Vec<T> = (0..len).map(|i| of(contribution(rank, i))).collect();
            let x = DeviceBuffer::from_host(&stream, &x).expect("x");
            let mut y = DeviceBuffer::<T>::zeros(&stream, len).expect("y");
            let work = ranks.all_reduce(&x, op, &mut y).expect("enqueued");
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
                };
                let found = value(found);
                let is_near = (found - expected).abs() <= tolerance * expected.abs();
                assert!(is_near, "{op:?}, {len} elements: element {i} is {found}, not {expected}");
            }
        }
    }
}

/// Runs all operations that move elements.
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

        let mut y = zeros(len * world);
        stream.copy(&x, y.slice_mut(rank * len..(rank + 1) * len)).expect("the own block");
        drop(ranks.all_gather_in_place(&mut y).expect("enqueued"));
        assert_eq!(y.to_host().expect("y"), blocks(&|from| block(from, 0)));

        let (x, mut y) = (on_device(&blocks(&|to| block(rank, to))), zeros(len * world));
        drop(ranks.all_to_all(&x, &mut y).expect("enqueued"));
        assert_eq!(y.to_host().expect("y"), blocks(&|from| block(from, rank)));

        let root = world - 1;
        let mut y = on_device(&block(rank, 5));
        drop(ranks.broadcast(root, &mut y).expect("enqueued"));
        assert_eq!(y.to_host().expect("y"), block(root, 5));

        let (x, mut y) = (on_device(&block(rank, 7)), zeros(len * world));
        drop(ranks.gather(&x, root, Some(y.as_mut_slice())).expect("enqueued"));
        let expected = if rank == root { blocks(&|from| block(from, 7)) } else { vec![0; len * world] };
        assert_eq!(y.to_host().expect("y"), expected);

        let (x, mut y) = (on_device(&blocks(&|to| block(rank, to))), zeros(len));
        drop(ranks.scatter(Some(x.as_slice()), root, &mut y).expect("enqueued"));
        assert_eq!(y.to_host().expect("y"), block(root, rank));

        let (x, mut y) = (on_device(&block(rank, 3)), zeros(len));
        let ring = ranks.group(|group| {
            group.send(&x, (rank + 1) % world)?;
            group.recv((rank + world - 1) % world, &mut y)
        });
        drop(ring.expect("enqueued"));
        assert_eq!(y.to_host().expect("y"), block((rank + world - 1) % world, 3));
    }
    let values: Vec<f32> = (0..world * 1000).map(|i| (i % 7) as f32).collect();
    let (mut x, mut y) = (
        DeviceBuffer::from_host(&stream, &values).expect("x"),
        DeviceBuffer::zeros(&stream, 1000).expect("y"),
    );
    drop(ranks.reduce_scatter(&x, ReduceOp::Sum, &mut y).expect("enqueued"));
    let own = values[rank * 1000..(rank + 1) * 1000].iter().map(|x| x * world as f32);
    let own: Vec<f32> = own.collect();
    assert_eq!(y.to_host().expect("y"), own);
    drop(ranks.reduce_scatter_in_place(ReduceOp::Sum, &mut x).expect("enqueued"));
    assert_eq!(x.to_host().expect("x")[rank * 1000..(rank + 1) * 1000], own);
}

/// Runs all operations that produce a result.
pub fn work(ranks: &mut Communicator) {
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
    if ranks.device().capability() >= (9, 0) && ranks.world_size() > 1 {
        reduce_all(ranks, F8E4M3::from_f64, |x| x.to_f64(), 0.13);
        reduce_all(ranks, F8E5M2::from_f64, |x| x.to_f64(), 0.26);
    }
    move_all(ranks);
}

/// Replays a captured average that is followed by a maximum.
pub fn replay(ranks: &mut Communicator, launches: usize) {
    let stream = ranks.stream().clone();
    let mut x = DeviceBuffer::from_host(&stream, &[1.0f32; 4096]).expect("x");
    // The first exchange connects the ranks, so it must precede the capture.
    ranks.barrier().expect("enqueued").wait(LONG).expect("done");
    let capture = Capture::begin(&stream, CaptureMode::ThreadLocal).expect("a capture");
    drop(ranks.all_reduce_in_place(ReduceOp::Avg, &mut x).expect("captured"));
    drop(ranks.all_reduce_in_place(ReduceOp::Max, &mut x).expect("captured"));
    let graph = capture.end().expect("a graph").instantiate().expect("an executable");
    for _ in 0..launches {
        graph.launch(&stream).expect("launched");
    }
    assert_eq!(x.to_host().expect("x"), [1.0; 4096]);
    drop(graph);
}
