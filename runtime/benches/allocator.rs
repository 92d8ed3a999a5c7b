//! Benchmarks of the caching allocator: pairs of allocate and free, random live sets, many threads, and traces.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device. The default is an emulated one without memory behind its addresses, on
//! which only the allocator itself takes time. `docs/benchmarks/allocator.md` contains the results, next to those of
//! PyTorch for the same loops.

#[path = "../tests/common/traces.rs"]
mod traces;

use std::collections::HashMap;
use std::hint::black_box;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput};
use traces::{Event, Trace};
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::{AllocatorOptions, Device, DeviceBuffer, Result, Stream};

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    bench(&mut criterion).expect("every allocation succeeds");
    criterion.final_summary();
}

/// Opens a separate device with these options.
fn device(options: &str) -> Result<Device> {
    let device = match std::env::var("WARPSMITH_BENCH_DEVICE") {
        Ok(name) => Device::open(&name)?,
        Err(_) => Device::with_driver(EmulatedDriver::builder().memory(80 << 30).unbacked().build(), 0)?,
    };
    device.memory().set_options(AllocatorOptions::default().with(options)?)?;
    Ok(device)
}

fn bench(criterion: &mut Criterion) -> Result<()> {
    for (name, options) in [("native", ""), ("expandable", "expandable_segments:True")] {
        let device = device(options)?;
        pairs(criterion, name, &device)?;
        live_sets(criterion, name, &device)?;
        threads(criterion, name, &device)?;
        device.memory().empty_cache()?;
    }
    for (name, trace) in [
        ("training", traces::recorded(include_str!("../tests/data/training.trace")).expect("a trace")),
        ("random 64 MiB", traces::rmm_random(1, 10_000, 64 << 20, 16 << 30)),
        ("random 1 GiB", traces::rmm_random(1, 10_000, 1 << 30, 16 << 30)),
    ] {
        replays(criterion, name, &trace)?;
    }
    Ok(())
}

/// Replays a whole trace and measures the time per event with a warm cache. Also replays it with a cold cache and
/// prints the maximum reserved memory and the number of driver calls.
fn replays(criterion: &mut Criterion, name: &str, trace: &Trace) -> Result<()> {
    let mut group = criterion.benchmark_group(format!("trace/{name}"));
    group.throughput(Throughput::Elements(trace.events.len() as u64));
    for (kind, options) in [("native", ""), ("expandable", "expandable_segments:True")] {
        let device = device(options)?;
        let stream = Stream::new(&device)?;
        device.memory().empty_cache()?;
        device.memory().reset_peak_statistics();
        device.memory().reset_accumulated_statistics();
        let start = Instant::now();
        replay(trace, &stream)?;
        let first = start.elapsed();
        let statistics = device.memory().statistics();
        println!(
            "trace/{name}/{kind}: peak reserved / peak live {:.3}, first replay {:.1} ms, {} requests to the driver",
            statistics.reserved_bytes.all.peak as f64 / trace.peak_live() as f64,
            first.as_secs_f64() * 1e3,
            statistics.num_device_alloc,
        );
        group.bench_function(kind, |bencher| bencher.iter(|| replay(trace, &stream).expect("memory enough")));
        device.memory().empty_cache()?;
    }
    group.finish();
    Ok(())
}

fn replay(trace: &Trace, stream: &Stream) -> Result<()> {
    let mut live = HashMap::with_capacity(1024);
    for event in &trace.events {
        match *event {
            Event::Alloc { id, bytes, .. } => {
                live.insert(id, DeviceBuffer::<u8>::uninit(stream, bytes as usize)?);
            }
            Event::Free { id } => drop(live.remove(&id)),
        }
    }
    Ok(())
}

/// Allocates and frees one block at a time, of several sizes.
fn pairs(criterion: &mut Criterion, name: &str, device: &Device) -> Result<()> {
    let stream = Stream::new(device)?;
    let mut group = criterion.benchmark_group(format!("{name}/pair"));
    for bytes in [512, 4 << 10, 64 << 10, 4 << 20, 64 << 20] {
        group.bench_function(BenchmarkId::new("buffer", bytes), |bencher| {
            bencher.iter(|| DeviceBuffer::<u8>::uninit(&stream, black_box(bytes)).expect("a cached block"));
        });
        group.bench_function(BenchmarkId::new("raw", bytes), |bencher| {
            bencher.iter(|| {
                let ptr = device.memory().allocate_raw(&stream, black_box(bytes)).expect("a cached block");
                // SAFETY: the memory is never used.
                unsafe { device.memory().free_raw(ptr) }.expect("it was allocated");
            });
        });
    }
    group.finish();
    Ok(())
}

/// Measures a step that frees one of the live blocks and allocates another. Sizes are powers of two from 512 bytes to 1
/// MiB.
fn live_sets(criterion: &mut Criterion, name: &str, device: &Device) -> Result<()> {
    let stream = Stream::new(device)?;
    let mut group = criterion.benchmark_group(format!("{name}/live_set"));
    for live in [100, 1000, 10_000] {
        let mut random = fastrand::Rng::with_seed(1);
        let mut buffers = (0..live).map(|_| buffer(&mut random, &stream)).collect::<Result<Vec<_>>>()?;
        group.bench_function(BenchmarkId::from_parameter(live), |bencher| {
            bencher.iter(|| {
                let index = random.usize(..live);
                // The old buffer is dropped before the new one is created.
                buffers[index] = None;
                buffers[index] = buffer(&mut random, &stream).expect("memory enough");
            });
        });
    }
    group.finish();
    Ok(())
}

/// Measures threads that each allocate and free 4 KiB on their own stream. The reported time is the time per pair on
/// the slowest thread.
fn threads(criterion: &mut Criterion, name: &str, device: &Device) -> Result<()> {
    let mut group = criterion.benchmark_group(format!("{name}/threads"));
    let most = std::thread::available_parallelism().map_or(1, usize::from).min(16);
    for count in [1, 2, 4, 8, 16].into_iter().filter(|count| *count <= most) {
        let streams = (0..count).map(|_| Stream::new(device)).collect::<Result<Vec<_>>>()?;
        group.bench_function(BenchmarkId::from_parameter(count), |bencher| {
            bencher.iter_custom(|pairs| slowest(&streams, pairs));
        });
    }
    group.finish();
    Ok(())
}

fn slowest(streams: &[Stream], pairs: u64) -> Duration {
    let ready = Barrier::new(streams.len());
    std::thread::scope(|scope| {
        let threads: Vec<_> = streams
            .iter()
            .map(|stream| {
                scope.spawn(|| {
                    let pair = || drop(DeviceBuffer::<u8>::uninit(stream, black_box(4096)).expect("a block"));
                    (0..100).for_each(|_| pair());
                    ready.wait();
                    let start = Instant::now();
                    (0..pairs).for_each(|_| pair());
                    start.elapsed()
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("no panic")).max().unwrap_or_default()
    })
}

fn buffer(random: &mut fastrand::Rng, stream: &Stream) -> Result<Option<DeviceBuffer<u8>>> {
    DeviceBuffer::uninit(stream, 512 << random.u32(..12)).map(Some)
}
