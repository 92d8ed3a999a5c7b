//! Host functions that upload data, launch this package's kernels, and download the results.

use {{kernels_crate}}::BLOCK;
use warpsmith::{Device, DeviceBuffer, Error, GpuImage, Launch};

/// The GPU image that build.rs built from `kernels/`.
pub static KERNELS: GpuImage = warpsmith::include_image!("{{kernels_crate}}");

/// Computes `a * x + y` on `device`.
pub fn saxpy(device: &Device, a: f32, x: &[f32], y: &[f32]) -> Result<Vec<f32>, Error> {
    let stream = device.default_stream();
    let x = DeviceBuffer::from_host(&stream, x)?;
    let mut y = DeviceBuffer::from_host(&stream, y)?;
    let kernel = device.load(&KERNELS)?.kernel::<{{kernels_crate}}::saxpy>()?;
    // A loop that moves 12 bytes per element: two reads and a write of 4 bytes.
    kernel.launch(&stream, Launch::for_bandwidth(x.len(), 12), (a, &x, &mut y))?;
    y.to_host()
}

/// Computes the mean of each element and its neighbors on `device`.
pub fn smooth(device: &Device, data: &[f32]) -> Result<Vec<f32>, Error> {
    let stream = device.default_stream();
    let data = DeviceBuffer::from_host(&stream, data)?;
    let mut out = DeviceBuffer::uninit(&stream, data.len())?;
    let kernel = device.load(&KERNELS)?.kernel::<{{kernels_crate}}::smooth>()?;
    kernel.launch(&stream, Launch::linear(data.len(), BLOCK as u32), (&data, &mut out))?;
    out.to_host()
}
