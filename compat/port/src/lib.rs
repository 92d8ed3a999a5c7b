//! The host side, as it is written for Rust-CUDA.

use cust::DeviceCopy;
use cust::prelude::{CudaResult, DeviceBuffer, Module, SliceExt, Stream, launch};
use glam::{Mat3, Vec3};

/// The kernels of `kernels/`.
pub static PTX: &str = include_str!(concat!(env!("OUT_DIR"), "/kernels.ptx"));

/// What a point does: as the kernels have it.
#[derive(Clone, Copy, DeviceCopy)]
#[repr(C)]
pub enum Motion {
    /// It stays.
    Rest,
    /// It turns.
    Turn(Mat3),
    /// It moves by a step.
    Step {
        /// The step.
        by: Vec3,
    },
}

/// Points with what they do: as the kernels have it.
#[derive(Clone, Copy, DeviceCopy)]
#[repr(C)]
pub struct Scene {
    /// What point `i` does, `i` modulo 3.
    pub motions: [Motion; 3],
    /// By how much all are scaled.
    pub scale: f32,
}

/// The weighted means of `x`, computed on the device in blocks of 256.
///
/// # Errors
///
/// Whatever `cust` reports.
pub fn smooth(module: &Module, stream: &Stream, x: &[f32]) -> CudaResult<Vec<f32>> {
    let x_gpu = x.as_dbuf()?;
    // SAFETY: the kernel writes every element.
    let y_gpu = unsafe { DeviceBuffer::<f32>::uninitialized(x.len())? };
    let kernel = module.get_function("smooth")?;
    let grid = (x.len() as u32).div_ceil(256);
    // SAFETY: the kernel takes a slice and a pointer to as many elements, in blocks of 256 threads.
    unsafe {
        launch!(kernel<<<grid, 256, 0, stream>>>(x_gpu.as_device_ptr(), x_gpu.len(), y_gpu.as_device_ptr()))?;
    }
    stream.synchronize()?;
    y_gpu.as_host_vec()
}
