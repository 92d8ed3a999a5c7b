//! `y[i] += a * x[i]`, with a copy to the device, a launch, a copy back, and a check.
//!
//! `cargo run --release --example saxpy -- [DEVICE]`, where DEVICE is `cpu`, `cuda:0`, …; the default is the best
//! available device. The kernel is `warpsmith::kernels::elementwise::axpy`; `examples/own-kernels` shows how to write
//! one.

use std::error::Error;

use warpsmith::kernels::elementwise::axpy;
use warpsmith::{Device, DeviceBuffer, IMAGE, Launch};

fn main() -> Result<(), Box<dyn Error>> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let stream = device.default_stream();

    let a = 2.0f32;
    let x: Vec<f32> = (0..1_000_003).map(|i| (i as f32).sin()).collect();
    let y: Vec<f32> = (0..x.len()).map(|i| (i as f32).cos()).collect();

    let x_device = DeviceBuffer::from_host(&stream, &x)?;
    let mut y_device = DeviceBuffer::from_host(&stream, &y)?;

    // A type selects the instance of the kernel: f32, 4 vectors per thread, 16-byte vectors.
    let kernel = device.load(&IMAGE)?.kernel::<axpy<f32, 4, 16>>()?;
    kernel.launch(&stream, Launch::auto(x.len()), (a, &x_device, &mut y_device))?;
    let result = y_device.to_host()?;

    for i in 0..x.len() {
        let exact = f64::from(a) * f64::from(x[i]) + f64::from(y[i]);
        let error = (f64::from(result[i]) - exact).abs();
        if error > 2e-7 * (1.0 + exact.abs()) {
            return Err(format!("element {i} is {}, not {exact}", result[i]).into());
        }
    }
    println!("saxpy over {} elements on {}: correct", x.len(), device.name());
    Ok(())
}
