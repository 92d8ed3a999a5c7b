//! Compares the kernels with a reference in `f64`, on the device that `WARPSMITH_TEST_DEVICE` names (by default an
//! emulated device per test).

use softmax::{KERNELS, matrices, softmax};
use softmax_kernels::{BLOCK_COLUMNS, blocks, naive};
use warpsmith::bench::benchmark::{Benchmark, Setup};
use warpsmith::emulated::EmulatedDriver;
use warpsmith::prelude::*;

#[allow(dead_code, reason = "the test runs the benchmarks itself, not by their `main`")]
#[path = "../benches/tune.rs"]
mod tune;

/// Lengths of rows around those that the kernels treat specially.
const COLUMNS: [usize; 12] = [1, 3, 4, 31, 32, 33, 128, 132, 1000, 1024, 1028, 4099];
const ROWS: usize = 5;

fn stream() -> Result<Stream, Error> {
    let device = match std::env::var("WARPSMITH_TEST_DEVICE") {
        Ok(name) => Device::open(&name)?,
        // With its own driver, a test does not fail because of a fault in another test.
        Err(_) => Device::with_driver(EmulatedDriver::from_environment(), 0)?,
    };
    Ok(device.default_stream())
}

fn reference(row: &[f32]) -> Vec<f64> {
    let max = f64::from(row.iter().copied().fold(f32::NEG_INFINITY, f32::max));
    let powers: Vec<f64> = row.iter().map(|x| (f64::from(*x) - max).exp()).collect();
    let sum: f64 = powers.iter().sum();
    powers.iter().map(|power| power / sum).collect()
}

/// Runs `launch` on rows of random numbers, and compares every element.
fn check(
    columns: usize,
    launch: impl Fn(&Stream, &DeviceBuffer<f32>, &mut DeviceBuffer<f32>) -> Result<(), Error>,
) -> Result<(), Error> {
    let stream = stream()?;
    let mut numbers: Vec<f32> = (0..ROWS * columns).map(|_| 20.0 * fastrand::f32() - 10.0).collect();
    // A masked element, as in attention, and a number whose exponential is beyond `f32`.
    numbers[0] = if columns > 1 { f32::NEG_INFINITY } else { 0.0 };
    numbers[columns] = 1000.0;
    let x = DeviceBuffer::from_host(&stream, &numbers)?;
    let mut out = DeviceBuffer::from_host(&stream, &vec![f32::NAN; x.len()])?;
    launch(&stream, &x, &mut out)?;
    let expected = numbers.chunks(columns).flat_map(reference);
    for (i, (found, expected)) in out.to_host()?.into_iter().zip(expected).enumerate() {
        let is_close = (f64::from(found) - expected).abs() <= 1e-5 * expected + 1e-37;
        assert!(is_close, "{columns} columns: element {i} is {found}, not {expected}");
    }
    Ok(())
}

#[test]
fn rows_of_any_length_are_correct() -> Result<(), Error> {
    COLUMNS.iter().try_for_each(|columns| check(*columns, |stream, x, out| softmax(stream, *columns, x, out)))
}

#[test]
fn the_first_two_kernels_are_correct() -> Result<(), Error> {
    for columns in COLUMNS {
        check(columns, |stream, x, out| {
            let kernel = stream.device().load(&KERNELS)?.kernel::<naive>()?;
            kernel.launch(stream, Launch::auto(ROWS), matrices(columns, x, out)?)
        })?;
    }
    for columns in COLUMNS.into_iter().filter(|columns| *columns <= BLOCK_COLUMNS) {
        check(columns, |stream, x, out| {
            let kernel = stream.device().load(&KERNELS)?.kernel::<blocks>()?;
            kernel.launch(stream, Launch::grid_block(ROWS as u32, 128), matrices(columns, x, out)?)
        })?;
    }
    Ok(())
}

#[test]
fn every_configuration_of_the_benchmarks_is_correct() -> Result<(), Box<dyn std::error::Error>> {
    let stream = stream()?;
    for benchmark in [tune::naive_rows(), tune::block_rows(), tune::warp_rows(), tune::online_rows()] {
        let setup = Setup { stream: &stream, dtype: "f32", n: 4 * tune::COLUMNS, copies: 1, seed: 1 };
        let mut case = benchmark.prepare(&setup)?;
        for configuration in benchmark.space("f32", stream.device()).configurations(benchmark.name())? {
            case.select(&configuration)?;
            let check = case.check()?;
            assert!(check.correct(), "{} {configuration}: {:?}", benchmark.name(), check.problem());
        }
    }
    Ok(())
}
