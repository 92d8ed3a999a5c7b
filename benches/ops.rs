//! Copy, axpy and sum over sizes, in time on the device.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device, by default the best there is. Times are between two events on the
//! stream, so that the host's part of a launch is not in them. `warpsmith bench` measures configurations and
//! checks results; this is for seeing changes from one commit to the next.

use criterion::{BenchmarkId, Criterion, Throughput};
use std::time::Duration;
use warpsmith::bench::criterion::EventTime;
use warpsmith::ops;
use warpsmith::prelude::*;

fn main() {
    let device = match std::env::var("WARPSMITH_BENCH_DEVICE") {
        Ok(name) => {
            Device::open(&name).unwrap_or_else(|error| panic!("WARPSMITH_BENCH_DEVICE={name}: {error}"))
        }
        Err(_) => Device::best().expect("the emulated device at least"),
    };
    let stream = Stream::new(&device).expect("a stream");
    let (seconds, samples) = if device.is_emulated() { (0.5, 10) } else { (1.0, 30) };
    let mut criterion = Criterion::default()
        .with_measurement(EventTime::new(&stream))
        .warm_up_time(Duration::from_secs_f64(seconds / 5.0))
        .measurement_time(Duration::from_secs_f64(seconds))
        .sample_size(samples)
        .without_plots()
        .configure_from_args();
    bench(&mut criterion, &stream).expect("every operation runs");
    criterion.final_summary();
}

/// Elements, by device.
fn sizes(stream: &Stream) -> &'static [usize] {
    if stream.device().is_emulated() { &[1 << 10, 1 << 16] } else { &[1 << 16, 1 << 20, 1 << 24, 1 << 28] }
}

fn bench(criterion: &mut Criterion<EventTime>, stream: &Stream) -> warpsmith::Result<()> {
    for &n in sizes(stream) {
        let x = DeviceBuffer::from_host(stream, &vec![1.0f32; n])?;
        let mut y = DeviceBuffer::from_host(stream, &vec![2.0f32; n])?;
        let mut total = DeviceBuffer::from_host(stream, &[0.0f32])?;
        let bytes = (n * size_of::<f32>()) as u64;
        let mut measure = |name: &str, arrays: u64, launch: &mut dyn FnMut() -> warpsmith::Result<()>| {
            let mut group = criterion.benchmark_group(name);
            group.throughput(Throughput::Bytes(arrays * bytes));
            group.bench_function(BenchmarkId::from_parameter(format!("f32 {n}")), |bencher| {
                bencher.iter(|| launch().expect("a launch"));
            });
            group.finish();
        };
        measure("copy", 2, &mut || ops::copy(stream, &x, &mut y));
        measure("axpy", 3, &mut || ops::axpy(stream, 1e-6, &x, &mut y));
        measure("reduce_sum", 1, &mut || ops::sum_into(stream, &x, &mut total));
    }
    Ok(())
}
