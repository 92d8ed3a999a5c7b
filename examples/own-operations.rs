//! A user-defined function and a user-defined operator, each turned into a kernel with one line. The sales of a shop
//! are discounted and summed, and the customer who spent the most is found.
//!
//! `cargo run --release --example own-operations -- [DEVICE]`, where DEVICE is `cpu`, `cuda:0`, …; the default is the
//! best available device. The kernels are in `test_kernels::sales`.

use std::error::Error;

use test_kernels::IMAGE;
use test_kernels::sales::{Purchase, discounted, largest, revenue};
use warpsmith::{Device, DeviceBuffer, ops};

fn main() -> Result<(), Box<dyn Error>> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let stream = device.default_stream();

    let prices: Vec<f32> = (0..1_000_003u32).map(|i| (i % 997) as f32 * 0.25).collect();
    let counts: Vec<u16> = (0..prices.len()).map(|i| (i * 7919 % 13) as u16).collect();
    let price = DeviceBuffer::from_host(&stream, &prices)?;
    let count = DeviceBuffer::from_host(&stream, &counts)?;

    // This function takes two arrays of different types and one scalar.
    let mut totals = DeviceBuffer::<f32>::uninit(&stream, prices.len())?;
    ops::map::<discounted>(&stream, &IMAGE, (&price, &count, 100.0, &mut totals))?;

    // One operator works on numbers, accumulated in f64, and the other on a struct with a key.
    let sum = ops::reduce::<revenue>(&stream, &IMAGE, &totals)?;
    let found = totals.to_host()?;
    let purchases: Vec<Purchase> =
        (0..).zip(&found).map(|(customer, total)| Purchase { total: *total, customer }).collect();
    let best = ops::reduce::<largest>(&stream, &IMAGE, &DeviceBuffer::from_host(&stream, &purchases)?)?;

    // The functions are plain Rust, so the check on the host uses the same code.
    let expected: Vec<f32> = prices
        .iter()
        .zip(&counts)
        .map(|(price, count)| test_kernels::sales::discounted(*price, *count, 100.0))
        .collect();
    let close = |a: f32, b: f32| (a - b).abs() <= 1e-6 * b.abs();
    if let Some(i) = (0..expected.len()).find(|i| !close(found[*i], expected[*i])) {
        return Err(format!("total {i} is {}, not {}", found[i], expected[i]).into());
    }
    let exact: f64 = found.iter().copied().map(f64::from).sum();
    if (sum - exact).abs() > 1e-9 * exact {
        return Err(format!("the sum is {sum}, not {exact}").into());
    }
    let none = Purchase { total: f32::NEG_INFINITY, customer: u32::MAX };
    if best != purchases.iter().copied().fold(none, test_kernels::sales::largest) {
        return Err(format!("{best:?} is not the largest purchase").into());
    }
    println!("{} purchases on {}: {sum:.2} in all, the largest {best:?}", prices.len(), device.name());
    Ok(())
}
