//! Cost of shared arrays in safe code. It measures the device time of the same kernels with raw pointers and with
//! `Shared`.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; the default is the best available one.
//!
//! | group | measured work | bytes |
//! | --- | --- | --- |
//! | `heat/raw`, `heat/safe` | a step of the heat equation, 16 x 16 threads with an 18 x 18 tile | each element read and written |
//! | `transpose/raw`, `transpose/safe` | a transpose with padded tiles of 32 x 32, 32 x 8 threads | each element read
//! and written |

use std::time::Duration;

use criterion::{Criterion, Throughput};
use test_kernels::IMAGE;
use test_kernels::tiles::{heat_raw, heat_tiled, transpose_raw, transpose_tiled};
use warpsmith::bench::criterion::EventTime;
use warpsmith::prelude::*;

fn main() {
    let device = match std::env::var("WARPSMITH_BENCH_DEVICE") {
        Ok(name) => {
            Device::open(&name).unwrap_or_else(|error| panic!("WARPSMITH_BENCH_DEVICE={name}: {error}"))
        }
        Err(_) => Device::best().expect("the emulated device at least"),
    };
    let stream = Stream::new(&device).expect("a stream");
    let mut criterion = Criterion::default()
        .with_measurement(EventTime::new(&stream))
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_millis(1000))
        .sample_size(30)
        .without_plots()
        .configure_from_args();
    bench(&mut criterion, &stream).expect("every kernel runs");
    criterion.final_summary();
}

fn bench(criterion: &mut Criterion<EventTime>, stream: &Stream) -> warpsmith::Result<()> {
    let device = stream.device();
    let module = device.load(&IMAGE)?;
    // On a GPU, the image is larger than the cache.
    let (width, height) = if device.is_emulated() { (256, 192) } else { (8192, 8192) };
    let image = DeviceBuffer::from_host(stream, &vec![1.0f32; width * height])?;
    let mut out = DeviceBuffer::<f32>::zeros(stream, width * height)?;
    let sides = (width as u32, height as u32);

    let mut group = criterion.benchmark_group("heat");
    group.throughput(Throughput::Bytes(8 * (width * height) as u64));
    let launch = Launch::cover((width, height));
    let kernel = module.kernel::<heat_raw>()?;
    group.bench_function("raw", |bencher| {
        bencher.iter(|| {
            // SAFETY: both buffers have one element per position.
            unsafe { kernel.launch_unsafe(stream, launch, (sides.0, sides.1, 0.1f32, &image, &mut out)) }
                .expect("a launch");
        });
    });
    let kernel = module.kernel::<heat_tiled>()?;
    group.bench_function("safe", |bencher| {
        bencher.iter(|| {
            let to = out.as_2d_mut(height, width).expect("all elements");
            let from = image.as_2d(height, width).expect("all elements");
            kernel.launch(stream, launch, (0.1f32, from, to)).expect("a launch");
        });
    });
    group.finish();

    let mut group = criterion.benchmark_group("transpose");
    group.throughput(Throughput::Bytes(8 * (width * height) as u64));
    let launch = launch.tile((32, 32));
    let kernel = module.kernel::<transpose_raw>()?;
    group.bench_function("raw", |bencher| {
        bencher.iter(|| {
            // SAFETY: both buffers have one element per position.
            unsafe { kernel.launch_unsafe(stream, launch, (sides.0, sides.1, &image, &mut out)) }
                .expect("a launch");
        });
    });
    let kernel = module.kernel::<transpose_tiled>()?;
    group.bench_function("safe", |bencher| {
        bencher.iter(|| {
            let to = out.as_2d_mut(width, height).expect("all elements");
            let from = image.as_2d(height, width).expect("all elements");
            kernel.launch(stream, launch, (from, to)).expect("a launch");
        });
    });
    group.finish();
    Ok(())
}
