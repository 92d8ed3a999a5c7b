//! Computes one softmax and prints the launch configuration: `cargo run -- [DEVICE]`. The device is `cpu`, `cuda:0`, …;
//! the default is the best available device, or the emulated device if the program was built without GPU code.

use softmax::{KERNELS, softmax};
use softmax_kernels::warps;
use warpsmith::prelude::*;

const ROWS: usize = 16384;
const COLUMNS: usize = 1024;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None if KERNELS.missing().is_some() => Device::emulated(0)?,
        None => Device::best()?,
    };
    // The emulated device is slow.
    let rows = if device.is_emulated() { ROWS / 64 } else { ROWS };
    let stream = device.default_stream();
    let numbers: Vec<f32> = (0..rows * COLUMNS).map(|i| (i % 17) as f32 / 4.0).collect();
    let x = DeviceBuffer::from_host(&stream, &numbers)?;
    let mut out = DeviceBuffer::uninit(&stream, x.len())?;
    softmax(&stream, COLUMNS, &x, &mut out)?;

    let is_one = |row: &[f32]| (row.iter().sum::<f32>() - 1.0).abs() < 1e-4;
    if !out.to_host()?.chunks(COLUMNS).all(is_one) {
        return Err("the sum of a row is not 1".into());
    }
    let kernel = device.load(&KERNELS)?.kernel::<warps<8>>()?;
    println!("{}", Launch::for_bandwidth(x.len(), size_of::<f32>() as u32).explain(kernel.function())?);
    Ok(())
}
