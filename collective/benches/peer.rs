//! Benchmark of captured operations on bf16 with the Peer backend. Each GPU of the machine is a rank, on its own
//! thread. On a single-GPU machine, two ranks share the GPU, which shows that the backend works, but not how fast it
//! is.
//!
//! Each line is one size. It shows the time of an `all_reduce` and its NCCL bus bandwidth, in ordinary memory and in a
//! symmetric buffer. The time is the median over replays of a graph with many operations. Bus bandwidth is bytes times
//! 2 (n - 1) / n, divided by the time. The times of other operations follow; their byte counts are totals over all
//! blocks.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use half::bf16;
use warpsmith_collective::{BackendChoice, Communicator, CommunicatorOptions, ReduceOp, Work};
use warpsmith_runtime::graph::{Capture, CaptureMode};
use warpsmith_runtime::{Device, DeviceBuffer, DeviceSliceMut, Stream};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Number of operations per graph, and number of replays.
const CALLS: usize = 50;
const REPLAYS: usize = 21;
const SIZES: [usize; 9] =
    [1 << 10, 8 << 10, 32 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20, 8 << 20];

/// Function that enqueues an operation on these elements.
type Operation = fn(&mut Communicator, DeviceSliceMut<'_, bf16>) -> warpsmith_runtime::Result<Work>;

const ALL_REDUCE: Operation = |ranks, x| ranks.all_reduce_in_place(ReduceOp::Sum, x);
const OTHERS: [Operation; 3] = [
    |ranks, x| ranks.all_gather_in_place(x),
    |ranks, x| ranks.reduce_scatter_in_place(ReduceOp::Sum, x),
    |ranks, x| ranks.broadcast(0, x),
];

/// Returns the time per operation, in microseconds.
fn captured_us(
    ranks: &mut Communicator,
    together: &Barrier,
    mut x: DeviceSliceMut<'_, bf16>,
    operation: Operation,
) -> Result<f64> {
    let stream = ranks.stream().clone();
    let capture = Capture::begin(&stream, CaptureMode::ThreadLocal)?;
    for _ in 0..CALLS {
        drop(operation(ranks, x.slice_mut(..))?);
    }
    let graph = capture.end()?.instantiate()?;
    let mut times = Vec::new();
    for _ in 0..REPLAYS {
        stream.synchronize()?;
        together.wait();
        let begun = Instant::now();
        graph.launch(&stream)?;
        stream.synchronize()?;
        times.push(begun.elapsed().as_secs_f64() * 1e6 / CALLS as f64);
    }
    times.sort_by(f64::total_cmp);
    Ok(times[times.len() / 2])
}

fn measure(ranks: &mut Communicator, together: &Barrier) -> Result<()> {
    let (rank, world, stream) = (ranks.rank(), ranks.world_size(), ranks.stream().clone());
    if rank == 0 {
        let others =
            ["all_gather us", "reduce_scatter us", "broadcast us"].map(|of| format!("{of:>17}")).concat();
        println!("{:>10} {:>9} {:>9} {:>13} {:>9} {others}", "bytes", "us", "GB/s", "symmetric us", "GB/s");
    }
    for bytes in SIZES {
        let ones = vec![bf16::ONE; bytes / 2];
        let mut x = DeviceBuffer::from_host(&stream, &ones)?;
        ranks.all_reduce_in_place(ReduceOp::Sum, &mut x)?.wait(Duration::from_secs(60))?;
        let expected = bf16::from_f32(world as f32);
        assert!(x.to_host()?.into_iter().all(|found| found == expected), "incorrect sums of {bytes} bytes");
        x.copy_from_host(&vec![bf16::ZERO; bytes / 2])?;
        let mut symmetric = ranks.symmetric_buffer::<bf16>(bytes / 2)?;
        let us = captured_us(ranks, together, x.as_mut_slice(), ALL_REDUCE)?;
        let symmetric_us = captured_us(ranks, together, symmetric.as_mut_slice(), ALL_REDUCE)?;
        let mut others = String::new();
        for operation in OTHERS {
            // The length is rounded down to a multiple of the number of ranks.
            let whole = x.slice_mut(..bytes / 2 / world * world);
            others += &format!("{:>17.2}", captured_us(ranks, together, whole, operation)?);
        }
        let bus = |us: f64| bytes as f64 / us / 1e3 * 2.0 * (world - 1) as f64 / world as f64;
        if rank == 0 {
            let (gb, symmetric_gb) = (bus(us), bus(symmetric_us));
            println!("{bytes:>10} {us:>9.2} {gb:>9.1} {symmetric_us:>13.2} {symmetric_gb:>9.1} {others}");
        }
    }
    Ok(())
}

fn main() -> Result<()> {
    let gpus = Device::cuda_count()?;
    let ordinals: Vec<u32> = match gpus {
        0 => return Err("there is no GPU to measure".into()),
        1 => vec![0, 0],
        gpus => (0..gpus.min(8)).collect(),
    };
    let stream = |ordinal: &u32| Stream::new(&Device::open(&format!("cuda:{ordinal}"))?);
    let streams: Vec<Stream> = ordinals.iter().map(stream).collect::<std::result::Result<_, _>>()?;
    println!("{} ranks on {gpus} GPUs, {}", streams.len(), streams[0].device().name());
    let options = CommunicatorOptions::new()
        .backend(BackendChoice::Peer)
        .shared_gpu(gpus == 1)
        .timeout(Duration::from_secs(60));
    let ranks = Communicator::init_all(&streams, &options)?;
    let together = Barrier::new(ranks.len());
    std::thread::scope(|scope| {
        for mut ranks in ranks {
            let together = &together;
            scope.spawn(move || {
                let measured = measure(&mut ranks, together).and_then(|()| Ok(ranks.finish()?));
                if let Err(error) = measured {
                    eprintln!("{error}");
                    // The other ranks wait at the barrier, so the process must exit.
                    std::process::exit(1);
                }
            });
        }
    });
    Ok(())
}
