//! Launches the kernels of this package: `cargo run -- [DEVICE]`. The device is `cpu`, `cuda:0`, …; the default is the
//! best available device, or the emulated device if this program was built without GPU code.

use std::error::Error;

use {{crate}}::{KERNELS, saxpy, smooth};
use warpsmith::Device;

fn main() -> Result<(), Box<dyn Error>> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None if KERNELS.missing().is_some() => Device::emulated(0)?,
        None => Device::best()?,
    };
    let x: Vec<f32> = (0..100_000).map(|i| i as f32).collect();
    let y = vec![1.0; x.len()];

    let sums = saxpy(&device, 2.0, &x, &y)?;
    if (0..x.len()).any(|i| sums[i] != 2.0 * x[i] + y[i]) {
        return Err("saxpy: incorrect result".into());
    }
    let smoothed = smooth(&device, &x)?;
    if smoothed[1..x.len() - 1].iter().zip(&x[1..]).any(|(mean, x)| (mean - x).abs() > 1e-6 * x) {
        return Err("smooth: incorrect result".into());
    }
    println!("saxpy and smooth over {} elements on {}: correct", x.len(), device.name());
    Ok(())
}
