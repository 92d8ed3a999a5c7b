//! Multiplies two matrices by each kernel and compares the products: `cargo run -- [DEVICE]`. The device is `cpu`,
//! `cuda:0`, …; the default is the best available device, or the emulated device if the program was built without GPU
//! code.

use matmul::{KERNELS, matmul, naive, tensor_cores, tiled};
use warpsmith::bf16;
use warpsmith::prelude::*;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None if KERNELS.missing().is_some() => Device::emulated(0)?,
        None => Device::best()?,
    };
    // The emulated device is slow.
    let side = if device.is_emulated() { 160 } else { 2048 };
    let stream = device.default_stream();
    // Whole numbers, so that sums are exact in any order.
    let numbers: Vec<f32> = (0..side * side).map(|i| (i * 7 % 5) as f32 - 2.0).collect();
    let x = DeviceBuffer::from_host(&stream, &numbers)?;
    let halves: Vec<bf16> = numbers.iter().map(|x| bf16::from_f32(*x)).collect();
    let halves = DeviceBuffer::from_host(&stream, &halves)?;

    let (a, half) = (x.as_2d(side, side)?, halves.as_2d(side, side)?);
    let product = |launch: &dyn Fn(&mut DeviceBuffer<f32>) -> Result<(), Error>| {
        let mut c = DeviceBuffer::uninit(&stream, side * side)?;
        launch(&mut c)?;
        c.to_host()
    };
    let expected = product(&|c| naive(&stream, a, a, c.as_2d_mut(side, side)?))?;
    for (name, found) in [
        ("tiled", product(&|c| tiled(&stream, a, a, c.as_2d_mut(side, side)?))?),
        ("registers", product(&|c| matmul(&stream, a, a, c.as_2d_mut(side, side)?))?),
        ("tensor_cores", product(&|c| tensor_cores(&stream, half, half, c.as_2d_mut(side, side)?))?),
    ] {
        if found != expected {
            return Err(format!("the product of `{name}` differs").into());
        }
    }
    println!("{side} x {side} x {side} on {}: all four kernels agree", device.name());
    Ok(())
}
