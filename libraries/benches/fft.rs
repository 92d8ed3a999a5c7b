//! FFT throughput, and the host time of a call. `benches/peers/fft.py` measures the same with PyTorch.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device, by default an emulated one, on which only the host time is measured. Each
//! row is the median of 20 samples of 10 calls between two events; GB/s counts the data read and written once. An
//! argument selects the rows that contain it.

use std::time::Instant;

use warpsmith_libraries::fft::{self, Complex, Shape};
use warpsmith_runtime::{Device, DeviceBuffer, Result, Stream};

/// Batches and sizes.
const ROWS: [(usize, usize); 5] = [(16_384, 4096), (64, 1 << 20), (4, 1 << 24), (4096, 1000), (1024, 10_007)];
const SAMPLES: usize = 20;
const CALLS: usize = 10;

fn main() -> Result<()> {
    let picked = std::env::args().skip(1).find(|argument| !argument.starts_with('-')).unwrap_or_default();
    let name = std::env::var("WARPSMITH_BENCH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = Device::open(&name)?;
    let stream = Stream::new(&device)?;
    for (batch, size) in ROWS.into_iter().filter(|_| !device.is_emulated()) {
        transforms(&stream, batch, size, &picked)?;
    }
    host(&stream, &picked)
}

/// Returns the median.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn transforms(stream: &Stream, batch: usize, size: usize, picked: &str) -> Result<()> {
    let len = batch * size;
    let shape = Shape::from(size).batch(batch);
    let x = DeviceBuffer::<Complex<f32>>::zeros(stream, len)?;
    let mut y = DeviceBuffer::<Complex<f32>>::uninit(stream, len)?;
    let real = DeviceBuffer::<f32>::zeros(stream, len)?;
    let mut half = DeviceBuffer::<Complex<f32>>::uninit(stream, batch * (size / 2 + 1))?;
    let bytes = [16 * len, 4 * len + 8 * half.len(), 16 * len];
    let names = ["forward c64", "forward r32", "inverse c64, divided"];
    for (at, (name, bytes)) in names.into_iter().zip(bytes).enumerate() {
        let row = format!("{name} {batch} x {size}");
        if !row.contains(picked) {
            continue;
        }
        let mut call = || match at {
            0 => fft::forward(stream, shape, &x, &mut y),
            1 => fft::forward_real(stream, shape, &real, &mut half),
            _ => fft::inverse(stream, shape, &x, &mut y),
        };
        call()?;
        stream.synchronize()?;
        let mut samples = Vec::new();
        for _ in 0..SAMPLES {
            let start = stream.record_timed_event()?;
            (0..CALLS).try_for_each(|_| call())?;
            let end = stream.record_timed_event()?;
            stream.synchronize()?;
            samples.push(end.elapsed_us(&start)? / CALLS as f64);
        }
        let micros = median(samples);
        println!("{row:40} {micros:10.1} us {:8.0} GB/s", bytes as f64 / micros / 1e3);
    }
    Ok(())
}

/// Measures the host time of a call with a cached plan.
fn host(stream: &Stream, picked: &str) -> Result<()> {
    let device = stream.device();
    let cache = fft::plan_cache(device);
    let mut x = DeviceBuffer::<Complex<f32>>::zeros(stream, 4096)?;
    let sizes = |plans: usize| move |at: usize| 16 + at % plans;
    // cuFFT takes about 20 ms to create a plan.
    let many = if device.is_emulated() { 4096 } else { 100 };
    for plans in [1, many] {
        let row = format!("host, {plans} plans in the cache");
        if !row.contains(picked) {
            continue;
        }
        cache.clear();
        let size = sizes(plans);
        for at in 0..plans {
            fft::forward_in_place(stream, size(at), x.slice_mut(..size(at)))?;
        }
        stream.synchronize()?;
        let rounds = 400;
        let mut calls = Vec::new();
        for round in 0..50 {
            let start = Instant::now();
            for at in 0..rounds {
                let size = size(round * rounds + at);
                fft::forward_in_place(stream, size, x.slice_mut(..size))?;
            }
            calls.push(start.elapsed().as_secs_f64() * 1e9 / rounds as f64);
            stream.synchronize()?;
        }
        println!("{row:40} {:10.0} ns per call", median(calls));
    }
    Ok(())
}
