//! Benchmarks of streams, events, ordering and copies, each compared with the driver's own call.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; the default is an emulated one. The cost of a launch's buffers is
//! measured on an emulated device that accepts launches but runs none. `docs/benchmarks/copies.md` contains the
//! results.

#[path = "../tests/common/kernels.rs"]
#[allow(dead_code, reason = "one of them is launched")]
mod kernels;

use std::hint::black_box;
use std::sync::Arc;
use std::time::Duration;

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput};
use kernels::CopyRaw;
use warpsmith_runtime::emulated::EmulatedDriver;
use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch, PinnedBuffer, Result, Stream};

fn main() {
    let mut criterion = Criterion::default()
        .warm_up_time(Duration::from_millis(200))
        .measurement_time(Duration::from_secs(1))
        .sample_size(20)
        .without_plots()
        .configure_from_args();
    bench(&mut criterion).expect("every call succeeds");
    criterion.final_summary();
}

fn bench(criterion: &mut Criterion) -> Result<()> {
    let name = std::env::var("WARPSMITH_BENCH_DEVICE").unwrap_or_else(|_| "cpu".to_owned());
    let device = Device::open(&name)?;
    streams(criterion, &device)?;
    events(criterion, &device)?;
    launches(criterion)?;
    let sizes: &[usize] = if device.is_emulated() {
        &[1 << 20]
    } else {
        &[1 << 10, 1 << 16, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 256 << 20, 1 << 30, 4 << 30]
    };
    sizes.iter().try_for_each(|bytes| copies(criterion, &device, *bytes))
}

fn streams(criterion: &mut Criterion, device: &Device) -> Result<()> {
    let held = (0..32).map(|_| Stream::from_pool(device)).collect::<Result<Vec<_>>>()?;
    let mut group = criterion.benchmark_group("stream");
    group.bench_function("from_pool", |bencher| {
        bencher.iter_with_large_drop(|| Stream::from_pool(device).expect("a stream"));
    });
    group.bench_function("from_pool and drop", |bencher| {
        bencher.iter(|| Stream::from_pool(device).expect("a stream"));
    });
    drop(held);
    group.bench_function("from_pool and drop, no other handle", |bencher| {
        bencher.iter(|| Stream::from_pool(device).expect("a stream"));
    });
    group.bench_function("default", |bencher| bencher.iter(|| device.default_stream()));
    group.bench_function("current", |bencher| bencher.iter(|| Stream::current(device)));
    group.finish();
    Ok(())
}

fn events(criterion: &mut Criterion, device: &Device) -> Result<()> {
    let [stream, other] = [Stream::from_pool(device)?, Stream::from_pool(device)?];
    // SAFETY: all objects passed to its methods belong to this device and are alive.
    let (driver, context) = unsafe { device.driver() };
    let handle = driver.event_create(context, false)?;
    let mut group = criterion.benchmark_group("event");
    group.bench_function("record, driver's call", |bencher| {
        bencher.iter(|| driver.event_record(context, handle, stream.handle()).expect("recorded"));
    });
    group.bench_function("from the pool and record", |bencher| {
        bencher.iter(|| stream.record_event().expect("recorded"));
    });
    group.bench_function("record and wait, driver's calls", |bencher| {
        bencher.iter(|| {
            driver.event_record(context, handle, stream.handle()).expect("recorded");
            driver.stream_wait_event(context, other.handle(), handle).expect("waits");
        });
    });
    group.bench_function("wait_stream", |bencher| {
        bencher.iter(|| other.wait_stream(&stream).expect("waits"));
    });
    group.finish();
    device.synchronize()?;
    // SAFETY: the event is not in use.
    unsafe { driver.event_destroy(context, handle) };
    Ok(())
}

/// Compares launches of one kernel with raw addresses to launches with buffers, which are ordered and kept alive.
fn launches(criterion: &mut Criterion) -> Result<()> {
    static IMAGE: GpuImage = GpuImage::without_code("test-kernels", "0.0.0", "hand-written");
    let driver: Arc<EmulatedDriver> = EmulatedDriver::builder().memory(1 << 28).idle().build();
    let device = Device::with_driver(driver, 0)?;
    let stream = Stream::new(&device)?;
    let kernel = device.load(&IMAGE)?.kernel::<CopyRaw>()?;
    let from = DeviceBuffer::<u32>::uninit(&stream, 1000)?;
    let mut to = DeviceBuffer::<u32>::uninit(&stream, 1000)?;
    let launch = Launch::linear(1000, 256);
    let mut group = criterion.benchmark_group("launch on an idle device");
    group.bench_function("bare addresses", |bencher| {
        let (from, to) = (from.as_device_ptr(), to.as_device_ptr());
        // SAFETY: both addresses point to 1000 elements, and the kernel does not run.
        bencher.iter(|| unsafe { kernel.launch_unsafe(&stream, launch, (from, to, 1000u64)) });
    });
    group.bench_function("two buffers", |bencher| {
        // SAFETY: both buffers contain 1000 elements.
        bencher.iter(|| unsafe { kernel.launch_unsafe(&stream, launch, (&from, &mut to, 1000u64)) });
    });
    group.finish();
    Ok(())
}

fn copies(criterion: &mut Criterion, device: &Device, bytes: usize) -> Result<()> {
    let stream = Stream::from_pool(device)?;
    // SAFETY: all objects passed to its methods belong to this device and are alive.
    let (driver, context) = unsafe { device.driver() };
    let mut target = DeviceBuffer::<u8>::zeros(&stream, bytes)?;
    let address = target.as_device_ptr();
    let mut pinned = Some(PinnedBuffer::<u8>::zeroed(device, bytes)?);
    let mut pageable = Some(vec![1u8; bytes]);
    let raw = |to_device: bool, host: *mut u8| {
        // SAFETY: both ranges contain that many bytes and live until the stream has been waited for.
        unsafe {
            if to_device {
                driver.copy_to_device(context, address, host.cast(), bytes, stream.handle())
            } else {
                driver.copy_to_host(context, host.cast(), address, bytes, stream.handle())
            }
        }
        .and_then(|()| driver.stream_synchronize(context, stream.handle()))
        .expect("copied");
    };

    let mut group = criterion.benchmark_group("copy");
    group.throughput(Throughput::Bytes(bytes as u64));
    let id = |name: &str| BenchmarkId::new(name, bytes);
    for (direction, to_device) in [("in", true), ("out", false)] {
        let host = pinned.as_mut().map_or(std::ptr::null_mut(), PinnedBuffer::as_mut_ptr);
        group.bench_function(id(&format!("{direction}, pinned, driver's call")), |bencher| {
            bencher.iter(|| raw(to_device, black_box(host)));
        });
        let host = pageable.as_mut().map_or(std::ptr::null_mut(), Vec::as_mut_ptr);
        group.bench_function(id(&format!("{direction}, pageable, driver's call")), |bencher| {
            bencher.iter(|| raw(to_device, black_box(host)));
        });
    }
    group.bench_function(id("in, pinned, copy_from_host_async"), |bencher| {
        bencher.iter(|| {
            let pending =
                stream.copy_from_host_async(pinned.take().expect("returned"), &mut target).expect("enqueued");
            pinned = Some(pending.wait().expect("copied"));
        });
    });
    group.bench_function(id("out, pinned, copy_to_host_async"), |bencher| {
        bencher.iter(|| {
            let pending =
                stream.copy_to_host_async(&target, pinned.take().expect("returned")).expect("enqueued");
            pinned = Some(pending.wait().expect("copied"));
        });
    });
    group.bench_function(id("in, pageable, copy_from_host_async"), |bencher| {
        bencher.iter(|| {
            let pending = stream
                .copy_from_host_async(pageable.take().expect("returned"), &mut target)
                .expect("enqueued");
            pageable = Some(pending.wait().expect("copied"));
        });
    });
    group.bench_function(id("out, pageable, copy_to_host_async"), |bencher| {
        bencher.iter(|| {
            let pending =
                stream.copy_to_host_async(&target, pageable.take().expect("returned")).expect("enqueued");
            pageable = Some(pending.wait().expect("copied"));
        });
    });
    let mut host = pageable.take().unwrap_or_default();
    group.bench_function(id("in, slice, copy_from_host"), |bencher| {
        bencher.iter(|| target.copy_from_host(black_box(&host)).expect("copied"));
    });
    group.bench_function(id("out, slice, copy_to_host"), |bencher| {
        bencher.iter(|| target.copy_to_host(black_box(&mut host)).expect("copied"));
    });
    group.bench_function(id("out, new memory, to_host"), |bencher| {
        bencher.iter_batched(|| (), |()| target.to_host().expect("copied"), BatchSize::PerIteration);
    });
    group.finish();
    Ok(())
}
