//! Trains on several devices, as threads or as processes:
//!
//! ```text
//! cargo run --release -- cpu 4
//! warpsmith launch -n 4 target/release/regression cpu
//! ```
//!
//! Instead of `cpu`, `cuda` uses GPUs.

use std::time::{Duration, Instant};

use regression::{SAMPLES, train};
use warpsmith::collective::{Communicator, CommunicatorOptions, Launch};
use warpsmith::emulated::EmulatedDriver;
use warpsmith::prelude::{Device, Error, Stream};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let is_gpu = arguments.next().is_some_and(|kind| kind == "cuda");
    let launch = Launch::from_env()?;
    let losses = if launch.world_size > 1 {
        process(is_gpu, &launch)?
    } else {
        threads(is_gpu, arguments.next().map_or(Ok(2), |ranks| ranks.parse())?)?
    };
    if launch.rank == 0 {
        println!("{SAMPLES} samples, losses {losses:.5?}");
    }
    Ok(())
}

/// Runs all ranks as threads of this process, each with its own device.
fn threads(is_gpu: bool, ranks: u32) -> Result<Vec<f32>> {
    let driver = EmulatedDriver::builder().devices(ranks).build();
    let device = |i| if is_gpu { Device::cuda(i) } else { Device::with_driver(driver.clone(), i) };
    let streams: Vec<Stream> =
        (0..ranks).map(|i| Stream::new(&device(i)?)).collect::<std::result::Result<_, Error>>()?;
    let ranks = Communicator::init_all(&streams, &CommunicatorOptions::new())?;
    let losses: Vec<Vec<f32>> = std::thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|rank| scope.spawn(|| train(rank))).collect();
        let ended = threads.into_iter().map(|thread| Ok(thread.join().map_err(|_| "a rank panicked")??));
        ended.collect::<Result<_>>()
    })?;
    Ok(losses.into_iter().next().unwrap_or_default())
}

/// Runs this process as one rank of several, started by a launcher.
fn process(is_gpu: bool, launch: &Launch) -> Result<Vec<f32>> {
    let deadline = Instant::now() + Duration::from_secs(60);
    let store = launch.store(deadline)?;
    let local = u32::try_from(launch.local_rank)?;
    let device = if is_gpu { Device::cuda(local)? } else { Device::open("cpu")? };
    let ranks =
        Communicator::init(&Stream::new(&device)?, launch, store.shared(), &CommunicatorOptions::new())?;
    let losses = train(ranks)?;
    store.finish(Instant::now() + Duration::from_secs(60))?;
    Ok(losses)
}
