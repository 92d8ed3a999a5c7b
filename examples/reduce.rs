//! Reductions with `warpsmith::ops`: sum, mean, minimum, maximum and argmax.
//!
//! `cargo run --release --example reduce -- [DEVICE]`, where DEVICE is `cpu`, `cuda:0`, …; the default is the best
//! available device.

use std::error::Error;

use warpsmith::{Device, DeviceBuffer, ops};

fn main() -> Result<(), Box<dyn Error>> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let stream = device.default_stream();

    // The series is chaotic but repeatable, with values in 0..1.
    let mut value = 0.37f64;
    let mut next = || {
        value = 3.99 * value * (1.0 - value);
        value as f32
    };
    let data: Vec<f32> = (0..1_000_003).map(|_| next()).collect();
    let buffer = DeviceBuffer::from_host(&stream, &data)?;

    let sum = ops::sum(&stream, &buffer)?;
    let mean = ops::mean(&stream, &buffer)?;
    let min = ops::min(&stream, &buffer)?;
    let max = ops::max(&stream, &buffer)?;
    let argmax = ops::argmax(&stream, &buffer)? as usize;

    let exact_sum: f64 = data.iter().copied().map(f64::from).sum();
    let exact_max = data.iter().copied().fold(f32::MIN, f32::max);
    let first = data.iter().position(|&v| v == exact_max);
    let close = |value: f32, exact: f64| (f64::from(value) - exact).abs() <= 1e-5 * exact.abs();
    if !close(sum, exact_sum) || !close(mean, exact_sum / data.len() as f64) {
        return Err(format!("sum {sum} and mean {mean} of a series whose sum is {exact_sum}").into());
    }
    if min != data.iter().copied().fold(f32::MAX, f32::min) || max != exact_max || Some(argmax) != first {
        return Err(
            format!("minimum {min}, maximum {max} at {argmax}; it is {exact_max} at {first:?}").into()
        );
    }
    println!("{} elements on {}", data.len(), device.name());
    println!("sum {sum}, mean {mean}, minimum {min}, maximum {max} at {argmax}: correct");
    Ok(())
}
