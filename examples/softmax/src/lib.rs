//! Softmax of the rows of a matrix: launches the kernel that suits the rows.

use softmax_kernels::{WARP_COLUMNS, online, warps};
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice2, DeviceSliceMut2};

/// The GPU image that build.rs built from `kernels/`.
pub static KERNELS: GpuImage = warpsmith::include_image!("softmax_kernels");

/// Enqueues the softmax of each row of `columns` elements.
pub fn softmax(
    stream: &Stream,
    columns: usize,
    x: &DeviceBuffer<f32>,
    out: &mut DeviceBuffer<f32>,
) -> Result<(), Error> {
    let module = stream.device().load(&KERNELS)?;
    let launch = Launch::for_bandwidth(x.len(), size_of::<f32>() as u32);
    let arguments = matrices(columns, x, out)?;
    let is_in_vectors = columns.is_multiple_of(4);
    match columns.div_ceil(WARP_COLUMNS) {
        1 if is_in_vectors => module.kernel::<warps<1>>()?.launch(stream, launch, arguments),
        2 if is_in_vectors => module.kernel::<warps<2>>()?.launch(stream, launch, arguments),
        3..=4 if is_in_vectors => module.kernel::<warps<4>>()?.launch(stream, launch, arguments),
        5..=8 if is_in_vectors => module.kernel::<warps<8>>()?.launch(stream, launch, arguments),
        _ => module.kernel::<online>()?.launch(stream, launch, arguments),
    }
}

/// Views both buffers as rows of `columns` elements.
pub fn matrices<'a>(
    columns: usize,
    x: &'a DeviceBuffer<f32>,
    out: &'a mut DeviceBuffer<f32>,
) -> Result<(DeviceSlice2<'a, f32>, DeviceSliceMut2<'a, f32>), Error> {
    let rows = x.len().checked_div(columns).unwrap_or(0);
    Ok((x.as_2d(rows, columns)?, out.as_2d_mut(rows, columns)?))
}
