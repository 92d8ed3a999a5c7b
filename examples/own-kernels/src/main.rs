//! Launches the kernels of this package: `cargo run -- [DEVICE]`, the device being `cpu`, `cuda:0`, …, by default
//! the best there is.

use std::error::Error;

use kernels::{BLOCK, saxpy, smooth};
use warpsmith::{Device, DeviceBuffer, GpuImage, Launch};

/// The GPU image that build.rs made of `kernels/`.
static KERNELS: GpuImage = warpsmith::include_image!("kernels");

fn main() -> Result<(), Box<dyn Error>> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let x: Vec<f32> = (0..100_000).map(|i| i as f32).collect();
    let y = vec![1.0; x.len()];

    let sums = run_saxpy(&device, 2.0, &x, &y)?;
    if (0..x.len()).any(|i| sums[i] != 2.0 * x[i] + y[i]) {
        return Err("saxpy: wrong result".into());
    }
    let smoothed = run_smooth(&device, &x)?;
    if smoothed[1..x.len() - 1].iter().zip(&x[1..]).any(|(mean, x)| (mean - x).abs() > 1e-6 * x) {
        return Err("smooth: wrong result".into());
    }
    println!("saxpy and smooth over {} elements on {}: correct", x.len(), device.name());
    Ok(())
}

/// `a * x + y`, computed on `device`.
fn run_saxpy(device: &Device, a: f32, x: &[f32], y: &[f32]) -> Result<Vec<f32>, warpsmith::Error> {
    let stream = device.default_stream();
    let x = DeviceBuffer::from_host(&stream, x)?;
    let mut y = DeviceBuffer::from_host(&stream, y)?;
    let kernel = device.load(&KERNELS)?.kernel::<saxpy>()?;
    kernel.launch(&stream, Launch::auto(x.len()), (a, &x, &mut y))?;
    y.to_host()
}

/// The mean of each element and its neighbours, computed on `device`.
fn run_smooth(device: &Device, data: &[f32]) -> Result<Vec<f32>, warpsmith::Error> {
    let stream = device.default_stream();
    let data = DeviceBuffer::from_host(&stream, data)?;
    let mut out = DeviceBuffer::uninit(&stream, data.len())?;
    let kernel = device.load(&KERNELS)?.kernel::<smooth>()?;
    kernel.launch(&stream, Launch::linear(data.len(), BLOCK as u32), (&data, &mut out))?;
    out.to_host()
}

#[cfg(test)]
mod tests {
    use std::hash::{BuildHasher, Hasher, RandomState};

    use super::*;

    const LENGTHS: [usize; 8] = [0, 1, 2, 255, 256, 257, 1000, 4097];

    /// Fresh random numbers from -0.5 to 0.5.
    fn numbers(len: usize) -> Vec<f32> {
        let mut state = RandomState::new().build_hasher().finish();
        let mut next = || {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 40) as f32 / (1 << 24) as f32 - 0.5
        };
        (0..len).map(|_| next()).collect()
    }

    #[test]
    fn saxpy_equals_the_cpu() -> Result<(), warpsmith::Error> {
        let device = Device::emulated(0)?;
        for len in LENGTHS {
            let (x, y) = (numbers(len), numbers(len));
            let expected: Vec<f32> = x.iter().zip(&y).map(|(x, y)| y + 3.0 * x).collect();
            assert_eq!(run_saxpy(&device, 3.0, &x, &y)?, expected, "{len} elements");
        }
        Ok(())
    }

    #[test]
    fn smooth_equals_the_cpu() -> Result<(), warpsmith::Error> {
        let device = Device::emulated(0)?;
        for len in LENGTHS {
            let data = numbers(len);
            let at = |i: usize| data[i.min(len - 1)];
            let expected: Vec<f32> =
                (0..len).map(|i| (at(i.saturating_sub(1)) + at(i) + at(i + 1)) / 3.0).collect();
            assert_eq!(run_smooth(&device, &data)?, expected, "{len} elements");
        }
        Ok(())
    }
}
