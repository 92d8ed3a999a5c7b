//! A kernel on page-locked host memory, compared with a copy and the kernel on device memory, by size. Times include
//! everything until the result is on the host. `docs/benchmarks/copies.md` contains the figures.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; the default is the best available one. The kernel is `y = a * x + y`.
//!
//! | group | measured work |
//! | --- | --- |
//! | `read/copied/BYTES` | `x` is copied to the device, and the kernel reads the copy |
//! | `read/mapped/BYTES` | the kernel reads `x` in host memory |
//! | `write/copied/BYTES` | the kernel updates `y` on the device, and `y` is copied to the host |
//! | `write/mapped/BYTES` | the kernel reads and writes `y` in host memory |

use std::time::Duration;

use criterion::measurement::WallTime;
use criterion::{BenchmarkGroup, BenchmarkId, Criterion, Throughput};
use warpsmith::kernels::elementwise::axpy;
use warpsmith::prelude::*;
use warpsmith::{IMAGE, PinnedBuffer, Result};

type Kernel = TypedKernel<axpy<f32, 4, 16>>;

fn main() {
    let device = match std::env::var("WARPSMITH_BENCH_DEVICE") {
        Ok(name) => {
            Device::open(&name).unwrap_or_else(|error| panic!("WARPSMITH_BENCH_DEVICE={name}: {error}"))
        }
        Err(_) => Device::best().expect("the emulated device at least"),
    };
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    bench(&mut criterion, &device).expect("every call succeeds");
    criterion.final_summary();
}

fn bench(criterion: &mut Criterion, device: &Device) -> Result<()> {
    let stream = Stream::new(device)?;
    let kernel = device.load(&IMAGE)?.kernel::<axpy<f32, 4, 16>>()?;
    let sizes: &[usize] = if device.is_emulated() {
        &[4 << 10, 1 << 20]
    } else {
        &[256, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20]
    };
    let mut group = criterion.benchmark_group("read");
    sizes.iter().try_for_each(|bytes| read(&mut group, &stream, &kernel, *bytes))?;
    group.finish();
    let mut group = criterion.benchmark_group("write");
    sizes.iter().try_for_each(|bytes| write(&mut group, &stream, &kernel, *bytes))?;
    group.finish();
    Ok(())
}

fn read(
    group: &mut BenchmarkGroup<'_, WallTime>,
    stream: &Stream,
    kernel: &Kernel,
    bytes: usize,
) -> Result<()> {
    let n = bytes / size_of::<f32>();
    let launch = Launch::auto(n);
    let (mut x, mut y) = (DeviceBuffer::<f32>::zeros(stream, n)?, DeviceBuffer::<f32>::zeros(stream, n)?);
    group.throughput(Throughput::Bytes(bytes as u64));
    let mut source = Some(PinnedBuffer::<f32>::zeroed(stream.device(), n)?);
    group.bench_function(BenchmarkId::new("copied", bytes), |bencher| {
        bencher.iter(|| {
            let pending =
                stream.copy_from_host_async(source.take().expect("it came back"), &mut x).expect("enqueued");
            kernel.launch(stream, launch, (1.0f32, &x, &mut y)).expect("launched");
            stream.synchronize().expect("done");
            source = Some(pending.wait().expect("copied"));
        });
    });
    let mapped = PinnedBuffer::<f32>::zeroed(stream.device(), n)?.into_mapped(stream)?;
    group.bench_function(BenchmarkId::new("mapped", bytes), |bencher| {
        bencher.iter(|| {
            kernel.launch(stream, launch, (1.0f32, &*mapped, &mut y)).expect("launched");
            stream.synchronize().expect("done");
        });
    });
    Ok(())
}

fn write(
    group: &mut BenchmarkGroup<'_, WallTime>,
    stream: &Stream,
    kernel: &Kernel,
    bytes: usize,
) -> Result<()> {
    let n = bytes / size_of::<f32>();
    let launch = Launch::auto(n);
    let (x, mut y) = (DeviceBuffer::<f32>::zeros(stream, n)?, DeviceBuffer::<f32>::zeros(stream, n)?);
    group.throughput(Throughput::Bytes(bytes as u64));
    let mut target = Some(PinnedBuffer::<f32>::zeroed(stream.device(), n)?);
    group.bench_function(BenchmarkId::new("copied", bytes), |bencher| {
        bencher.iter(|| {
            kernel.launch(stream, launch, (1.0f32, &x, &mut y)).expect("launched");
            let pending =
                stream.copy_to_host_async(&y, target.take().expect("it came back")).expect("enqueued");
            target = Some(pending.wait().expect("copied"));
        });
    });
    let mut mapped = PinnedBuffer::<f32>::zeroed(stream.device(), n)?.into_mapped(stream)?;
    group.bench_function(BenchmarkId::new("mapped", bytes), |bencher| {
        bencher.iter(|| {
            kernel.launch(stream, launch, (1.0f32, &x, mapped.as_mut_slice())).expect("launched");
            std::hint::black_box(&mut *mapped.lock().expect("done"));
        });
    });
    Ok(())
}
