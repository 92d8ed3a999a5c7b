//! Device time of copy, axpy and sum over sizes, of a user function compared with the equivalent operation, and of
//! operations that move rows.
//!
//! `WARPSMITH_BENCH_DEVICE` names the device; the default is the best available one. Times are between two events on
//! the stream, so they exclude the host's part of a launch. This benchmark shows changes between commits, while
//! `warpsmith bench` measures configurations and checks results.

use criterion::{BenchmarkId, Criterion, Throughput};
use std::time::Duration;
use test_kernels::IMAGE;
use test_kernels::own::{own_relu, own_sum};
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

/// Returns the element counts for a device.
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
        measure("axpy", 3, &mut || ops::axpy(stream, &x, 1e-6, &mut y));
        measure("reduce_sum", 1, &mut || ops::sum_into(stream, &x, &mut total));
        measure("copy_unaligned", 2, &mut || ops::copy(stream, x.slice(1..), y.slice_mut(..n - 1)));
        measure("own_relu", 2, &mut || ops::map::<own_relu>(stream, &IMAGE, (&x, &mut y)));
        measure("relu", 2, &mut || ops::relu(stream, &x, &mut y));
        measure("own_sum", 1, &mut || ops::reduce_into::<own_sum>(stream, &IMAGE, &x, &mut total));
        measure("sqrt", 2, &mut || ops::sqrt(stream, &x, &mut y));
        let row = x.slice(..n.min(1 << 10));
        measure("add_row", 2, &mut || ops::add(stream, &x, ops::row(row), &mut y));
        let column = x.slice(..n >> 10);
        measure("add_column", 2, &mut || ops::add(stream, &x, ops::column(column), &mut y));
        measure("scale", 2, &mut || ops::mul(stream, 1.5, &x, &mut y));
    }
    layouts(criterion, stream)
}

/// Measures square matrices with a power-of-two side, and with a side that is not a multiple of any vector access.
fn layouts(criterion: &mut Criterion<EventTime>, stream: &Stream) -> warpsmith::Result<()> {
    let sides: &[usize] = if stream.device().is_emulated() { &[64, 65] } else { &[4096, 4097, 16384, 16383] };
    for &side in sides {
        matrices::<u8>(criterion, stream, side)?;
        matrices::<u16>(criterion, stream, side)?;
        matrices::<u32>(criterion, stream, side)?;
        matrices::<u64>(criterion, stream, side)?;
        matrices::<u128>(criterion, stream, side)?;
    }
    Ok(())
}

fn matrices<T: DeviceCopy>(
    criterion: &mut Criterion<EventTime>,
    stream: &Stream,
    side: usize,
) -> warpsmith::Result<()> {
    let n = side * side;
    let x = DeviceBuffer::<T>::zeros(stream, n)?;
    let mut y = DeviceBuffer::<T>::zeros(stream, n)?;
    // The rows are in irregular order, because the multiplier is coprime to the side.
    let order: Vec<u32> = (0..side).map(|i| (i * 2_654_435_761 % side) as u32).collect();
    let order = DeviceBuffer::from_host(stream, &order)?;
    let gathered = ops::Indices::new(stream, &order, side)?;
    let scattered = ops::Indices::unique(stream, &order, side)?;
    let mut measure = |name: &str, launch: &mut dyn FnMut() -> warpsmith::Result<()>| {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(2 * (n * size_of::<T>()) as u64));
        let parameter = format!("{} bytes {side} x {side}", size_of::<T>());
        group.bench_function(BenchmarkId::from_parameter(parameter), |bencher| {
            bencher.iter(|| launch().expect("a launch"));
        });
        group.finish();
    };
    let rows = || x.as_2d(side, side);
    measure("transpose", &mut || ops::transpose(stream, rows()?, y.as_2d_mut(side, side)?));
    measure("gather_rows", &mut || ops::gather_rows(stream, rows()?, &gathered, y.as_2d_mut(side, side)?));
    measure("scatter_rows", &mut || ops::scatter_rows(stream, rows()?, &scattered, y.as_2d_mut(side, side)?));
    // This copies all columns except the first to a destination that is shifted by one element.
    measure("concat_rows_shifted", &mut || {
        let (from, mut to) = (rows()?.part(.., 1..), y.as_2d_mut(side, side)?);
        ops::concat_rows(stream, &[from], to.reborrow().into_part(.., ..side - 1))
    });
    Ok(())
}
