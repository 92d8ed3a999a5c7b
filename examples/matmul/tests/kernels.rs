//! Compares the kernels with a reference in `f64`, on the device that `WARPSMITH_TEST_DEVICE` names (by default an
//! emulated device per test).

use matmul::{matmul, naive, tensor_cores, tiled};
use warpsmith::bench::benchmark::{Benchmark, Setup};
use warpsmith::bf16;
use warpsmith::emulated::EmulatedDriver;
use warpsmith::prelude::*;

#[allow(dead_code, reason = "the test runs the benchmarks itself, not by their `main`")]
#[path = "../benches/tune.rs"]
mod tune;

/// Values of m, n and k around the sides of tiles.
const SIDES: [[usize; 3]; 6] =
    [[1, 1, 1], [3, 70, 5], [33, 31, 32], [64, 64, 64], [129, 40, 31], [127, 130, 33]];

fn stream() -> Result<Stream, Error> {
    let device = match std::env::var("WARPSMITH_TEST_DEVICE") {
        Ok(name) => Device::open(&name)?,
        // With its own driver, a test does not fail because of a fault in another test.
        Err(_) => Device::with_driver(EmulatedDriver::from_environment(), 0)?,
    };
    Ok(device.default_stream())
}

/// Multiples of 1/8 from -1 to 1: exact in `bf16`, and their products and sums are exact in `f32`.
fn numbers(len: usize) -> Vec<f32> {
    (0..len).map(|_| fastrand::i32(-8..=8) as f32 / 8.0).collect()
}

#[test]
fn every_kernel_multiplies_matrices_of_any_sides() -> Result<(), Error> {
    let stream = stream()?;
    for [m, n, k] in SIDES {
        let (a, b) = (numbers(m * k), numbers(k * n));
        let element = |row: usize, column: usize| -> f32 {
            let products = (0..k).map(|i| f64::from(a[row * k + i]) * f64::from(b[i * n + column]));
            products.sum::<f64>() as f32
        };
        let expected: Vec<f32> = (0..m * n).map(|i| element(i / n, i % n)).collect();

        let [half_a, half_b] = [&a, &b].map(|x| x.iter().map(|x| bf16::from_f32(*x)).collect::<Vec<_>>());
        let (half_a, half_b) =
            (DeviceBuffer::from_host(&stream, &half_a)?, DeviceBuffer::from_host(&stream, &half_b)?);
        let (a, b) = (DeviceBuffer::from_host(&stream, &a)?, DeviceBuffer::from_host(&stream, &b)?);
        for kernel in ["naive", "tiled", "registers", "tensor_cores"] {
            let mut c = DeviceBuffer::from_host(&stream, &vec![f32::NAN; m * n])?;
            let (a, b, to) = (a.as_2d(m, k)?, b.as_2d(k, n)?, c.as_2d_mut(m, n)?);
            match kernel {
                "naive" => naive(&stream, a, b, to)?,
                "tiled" => tiled(&stream, a, b, to)?,
                "registers" => matmul(&stream, a, b, to)?,
                _ => tensor_cores(&stream, half_a.as_2d(m, k)?, half_b.as_2d(k, n)?, to)?,
            }
            assert!(c.to_host()? == expected, "{kernel}: the {m} x {n} product over {k} is incorrect");
        }
    }
    Ok(())
}

#[test]
fn every_configuration_of_the_benchmarks_is_correct() -> Result<(), Box<dyn std::error::Error>> {
    let stream = stream()?;
    let benchmarks: [&dyn Benchmark; 4] = [
        &tune::benchmark_naive(),
        &tune::benchmark_tiled(),
        &tune::benchmark_registers(),
        &tune::benchmark_tensor_cores(),
    ];
    for benchmark in benchmarks {
        let dtype = benchmark.dtypes()[0];
        // Sides of 37, and elements left over.
        let mut case = benchmark.prepare(&Setup { stream: &stream, dtype, n: 1400, copies: 1, seed: 1 })?;
        for configuration in benchmark.space(dtype, stream.device()).configurations(benchmark.name())? {
            case.select(&configuration)?;
            let check = case.check()?;
            assert!(check.correct(), "{} {configuration}: {:?}", benchmark.name(), check.problem());
        }
    }
    Ok(())
}
