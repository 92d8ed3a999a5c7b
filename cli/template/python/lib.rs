//! The operators of this package. Each operator launches a kernel with the tensors of a call.

use {{kernels_crate}} as kernels;
use kernels::WIDTH;
use warpsmith::ops;
use warpsmith::prelude::*;
use warpsmith::{bf16, f16};
use warpsmith_python::{Call, Error, Result, Tensor, TensorMut, dispatch, operators};

/// The GPU image that `build.rs` compiled from `kernels/`.
static KERNELS: GpuImage = warpsmith::include_image!("{{kernels_crate}}");

operators! {
    "{{crate}}":
    /// Returns `a * x + y` for two contiguous tensors of the same shape.
    axpy(x, y, a = 1.0);
    /// Returns two tensors: the RMS normalization of `x + residual` over the last dimension, scaled by `weight`, and
    /// `x + residual`.
    rms_norm(x, residual, weight, epsilon = 1e-6);
}

fn axpy(call: &Call, x: Tensor, y: Tensor, a: f64) -> Result<TensorMut> {
    same_shape(&x, &y)?;
    let mut out = call.empty_like(&x)?;
    dispatch!(x.data_type(), T in [f32, f16, bf16] => {
        let arguments = (a as f32, x.as_slice()?, y.as_slice()?, out.as_mut_slice()?);
        ops::map::<kernels::axpy<T>>(call.stream(), &KERNELS, arguments)
    })?;
    Ok(out)
}

fn rms_norm(
    call: &Call,
    x: Tensor,
    residual: Tensor,
    weight: Tensor,
    epsilon: f64,
) -> Result<(TensorMut, TensorMut)> {
    same_shape(&x, &residual)?;
    let columns = weight.elements();
    if weight.shape().len() != 1 || x.shape().last() != Some(&columns) {
        return Err(Error::value("`weight` must be one-dimensional and as long as the last dimension of `x`"));
    }
    let (mut out, mut sum) = (call.empty_like(&x)?, call.empty_like(&x)?);
    if x.elements() == 0 {
        return Ok((out, sum));
    }
    let rows = x.elements() / columns;
    let module = call.device().load(&KERNELS)?;
    dispatch!(x.data_type(), T in [f32, f16, bf16] => {
        use kernels::{rms_norm, rms_norm_any};
        let (x, residual, weight) = (x.as_slice::<T>()?, residual.as_slice::<T>()?, weight.as_slice::<T>()?);
        let (mut sum, mut out) = (sum.as_mut_slice::<T>()?, out.as_mut_slice::<T>()?);
        let bytes = WIDTH * size_of::<T>();
        let addresses = [x, residual, weight].map(|slice| slice.as_device_ptr().0);
        let is_aligned = columns % WIDTH == 0 && addresses.iter().all(|address| address % bytes as u64 == 0);
        // On H100, the kernel is fastest with many loads per thread and few threads per row, so a thread loads up to 8
        // vectors.
        let vectors = columns / WIDTH;
        let per_thread = vectors.div_ceil(32).next_power_of_two().min(8);
        let threads = vectors.div_ceil(per_thread).next_multiple_of(32);
        if !is_aligned || threads > 512 {
            let (x, residual) = (x.as_2d(rows, columns)?, residual.as_2d(rows, columns)?);
            let (sum, out) = (sum.into_2d(rows, columns)?, out.into_2d(rows, columns)?);
            let arguments = (epsilon as f32, x, residual, weight, sum, out);
            let launch = Launch::grid_block(rows as u32, 256);
            return Ok(module.kernel::<rms_norm_any<T>>()?.launch(call.stream(), launch, arguments)?);
        }
        let launch = Launch::grid_block(rows as u32, threads as u32);
        let arguments = (epsilon as f32, x, residual, weight, &mut sum, &mut out);
        match per_thread {
            1 => module.kernel::<rms_norm<T, 1>>()?.launch(call.stream(), launch, arguments),
            2 => module.kernel::<rms_norm<T, 2>>()?.launch(call.stream(), launch, arguments),
            4 => module.kernel::<rms_norm<T, 4>>()?.launch(call.stream(), launch, arguments),
            _ => module.kernel::<rms_norm<T, 8>>()?.launch(call.stream(), launch, arguments),
        }
    })?;
    Ok((out, sum))
}

fn same_shape(x: &Tensor, other: &Tensor) -> Result<()> {
    if x.shape() == other.shape() {
        return Ok(());
    }
    Err(Error::value(format!("the shapes {:?} and {:?} differ; pass tensors of the same shape", x.shape(), other.shape())))
}
