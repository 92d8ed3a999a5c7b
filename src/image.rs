//! The GPU image of this crate's own kernels.

use warpsmith_runtime::GpuImage;

/// The kernels of [`crate::kernels`], compiled for the GPU when this crate was built.
///
/// ```
/// use warpsmith::kernels::elementwise::axpy;
/// use warpsmith::prelude::*;
///
/// let device = Device::open("cpu")?;
/// let stream = Stream::new(&device)?;
/// let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0])?;
/// let mut y = DeviceBuffer::from_host(&stream, &[10.0f32, 20.0, 30.0])?;
/// let kernel = device.load(&warpsmith::IMAGE)?.kernel::<axpy<f32, 4, 16>>()?;
/// kernel.launch(&stream, Launch::auto(3), (2.0f32, &x, &mut y))?;
/// assert_eq!(y.to_host()?, [12.0, 24.0, 36.0]);
/// # Ok::<(), warpsmith::Error>(())
/// ```
pub static IMAGE: GpuImage = crate::include_image!("gpu_kernels");
