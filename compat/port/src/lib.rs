//! Host code written for Rust-CUDA.

use cust::DeviceCopy;
use cust::prelude::{CudaResult, DeviceBuffer, Module, SliceExt, Stream, launch};
use glam::{Mat3, Vec3};

/// PTX of the kernels in `kernels/`.
pub static PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

/// Motion of a point, with the same layout as in the kernels.
#[derive(Clone, Copy, DeviceCopy)]
#[repr(C)]
pub enum Motion {
    /// The point stays.
    Rest,
    /// The point is rotated.
    Turn(Mat3),
    /// The point moves by a step.
    Step {
        /// The step.
        by: Vec3,
    },
}

/// Motions of points, with the same layout as in the kernels.
#[derive(Clone, Copy, DeviceCopy)]
#[repr(C)]
pub struct Scene {
    /// Motions of the points; point `i` uses the motion with index `i` modulo 3.
    pub motions: [Motion; 3],
    /// Common scale factor.
    pub scale: f32,
}

/// Returns weighted means of `x`, computed on the device within blocks of 256 elements.
///
/// # Errors
/// Returns errors of `cust`.
pub fn smooth(module: &Module, stream: &Stream, x: &[f32]) -> CudaResult<Vec<f32>> {
    let x_gpu = x.as_dbuf()?;
    // SAFETY: the kernel writes every element.
    let y_gpu = unsafe { DeviceBuffer::<f32>::uninitialized(x.len())? };
    let kernel = module.get_function("smooth")?;
    let grid = (x.len() as u32).div_ceil(256);
    // SAFETY: the kernel expects a slice, a pointer to the same number of elements, and blocks of 256 threads.
    unsafe {
        launch!(kernel<<<grid, 256, 0, stream>>>(x_gpu.as_device_ptr(), x_gpu.len(), y_gpu.as_device_ptr()))?;
    }
    stream.synchronize()?;
    y_gpu.as_host_vec()
}
