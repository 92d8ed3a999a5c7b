//! Data-parallel training of `mlp` on several devices. Each device trains on its part of the points. While the
//! gradients of the earlier layers are computed, the gradient of a layer is reduced over all ranks.
//!
//! It runs as threads of one process, or as processes that any launcher has started:
//!
//! ```text
//! cargo run --release --example data-parallel -- [cpu|cuda [RANKS]]
//! warpsmith launch -n 4 target/release/examples/data-parallel
//! torchrun --no-python --nproc-per-node 4 target/release/examples/data-parallel
//! mpirun -n 4 target/release/examples/data-parallel
//! srun -n 4 target/release/examples/data-parallel
//! ```
//!
//! The losses are compared with the losses on a single device.

#[allow(dead_code, reason = "`mlp` uses the rest")]
mod training;

use std::time::{Duration, Instant};

use warpsmith::collective::{Communicator, CommunicatorOptions, Launch, ReduceOp};
use warpsmith::emulated::EmulatedDriver;
use warpsmith::ops;
use warpsmith::prelude::*;

use crate::training::{POINTS, Result, Training};

const STEPS: usize = 60;
/// Number of steps between two recorded losses.
const EVERY: usize = 10;
/// Tolerance of the losses. The sums of the parts are rounded differently than the total sum, and each step amplifies
/// the difference.
const TOLERANCE: f32 = 5e-4;
const RENDEZVOUS: Duration = Duration::from_secs(60);

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let is_gpu = match arguments.next().as_deref() {
        None => Device::is_available(),
        Some("cuda") => true,
        Some("cpu") => false,
        Some(other) => return Err(format!("`{other}` is not a kind of device: use `cpu` or `cuda`").into()),
    };
    let launch = Launch::from_env()?;
    match (arguments.next(), launch.world_size) {
        (ranks, 1) => {
            let ranks = ranks.map(|ranks| ranks.parse()).transpose()?;
            threads(is_gpu, ranks)
        }
        (None, _) => process(is_gpu, &launch),
        (Some(_), _) => Err(format!("{} has set the number of ranks", launch.launcher).into()),
    }
}

/// Runs all ranks as threads, each with its own device.
fn threads(is_gpu: bool, ranks: Option<u32>) -> Result<()> {
    let devices: Vec<Device> = if is_gpu {
        let ranks = ranks.unwrap_or(Device::cuda_count()?);
        (0..ranks).map(Device::cuda).collect::<warpsmith::Result<_>>()?
    } else {
        let ranks = ranks.unwrap_or(2);
        let driver = EmulatedDriver::builder().devices(ranks).build();
        (0..ranks).map(|rank| Device::with_driver(driver.clone(), rank)).collect::<warpsmith::Result<_>>()?
    };
    let streams = devices.iter().map(Stream::new).collect::<warpsmith::Result<Vec<_>>>()?;
    let ranks = Communicator::init_all(&streams, &CommunicatorOptions::new().timeout(RENDEZVOUS))?;
    let losses = std::thread::scope(|scope| {
        let train = |rank| train(rank).map_err(|error| error.to_string());
        let ranks: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(move || train(rank))).collect();
        let losses = ranks.into_iter().map(|rank| rank.join().unwrap_or(Err("a rank panicked".to_owned())));
        losses.collect::<std::result::Result<Vec<_>, _>>()
    })?;
    if losses.iter().any(|of_rank| of_rank != &losses[0]) {
        return Err("the ranks have different losses".into());
    }
    compare(&devices[0], devices.len(), &losses[0])
}

/// Runs this process as one rank.
fn process(is_gpu: bool, launch: &Launch) -> Result<()> {
    let store = launch.store(Instant::now() + RENDEZVOUS)?;
    let local = u32::try_from(launch.local_rank)?;
    let device = if is_gpu { Device::cuda(local)? } else { Device::open("cpu")? };
    let options = CommunicatorOptions::new().init_timeout(RENDEZVOUS).timeout(RENDEZVOUS);
    let ranks = Communicator::init(&Stream::new(&device)?, launch, store.shared(), &options)?;
    let losses = train(ranks)?;
    if launch.rank == 0 {
        compare(&device, launch.world_size, &losses)?;
    }
    Ok(store.finish(Instant::now() + RENDEZVOUS)?)
}

/// Trains on this rank's part of the points. The losses cover all parts.
fn train(mut ranks: Communicator) -> Result<Vec<f32>> {
    let part = POINTS / ranks.world_size();
    if part * ranks.world_size() != POINTS {
        return Err(format!("{POINTS} points are not divisible by {} ranks", ranks.world_size()).into());
    }
    let first = part * ranks.rank();
    // The communicator has a stream of its own, so its operations overlap with the computation of gradients.
    let compute = Stream::new(ranks.device())?;
    let mut training = Training::with_part(&compute, first..first + part)?;
    let _work = ranks.broadcast(0, &mut training.network.parameters)?;
    let mut losses = Vec::new();
    for step in 1..=STEPS {
        training.step_reduced(&compute, |gradient| {
            ranks.all_reduce_in_place(ReduceOp::Avg, gradient).map(drop)
        })?;
        if step % EVERY == 0 {
            let loss = ops::mean(&compute, &training.batch.losses)?;
            let mut mean = DeviceBuffer::from_host(&compute, &[loss])?;
            let work = ranks.all_reduce_in_place(ReduceOp::Avg, &mut mean)?;
            work.wait(RENDEZVOUS)?;
            losses.extend(mean.to_host()?);
        }
    }
    ranks.finish()?;
    Ok(losses)
}

/// Fails unless training on a single device results in the same losses.
fn compare(device: &Device, ranks: usize, losses: &[f32]) -> Result<()> {
    let stream = Stream::new(device)?;
    let mut alone = Training::new(&stream)?;
    for (number, loss) in (1..).zip(losses) {
        for _ in 0..EVERY {
            alone.step(&stream)?;
        }
        let expected = ops::mean(&stream, &alone.batch.losses)?;
        println!("step {:2}: loss {loss:.5} on {ranks} devices, {expected:.5} on one", number * EVERY);
        if (loss - expected).abs() > TOLERANCE {
            return Err("the losses differ".into());
        }
    }
    Ok(())
}
