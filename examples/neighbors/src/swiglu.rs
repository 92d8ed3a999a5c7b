//! Implements SwiGLU and its gradients as a custom operation for candle, and SwiGLU on memory of cudarc.

use std::ptr::NonNull;

use candle_core::{CpuStorage, CustomOp2, CustomOp3, Layout, Result, Shape, Tensor, bail};
use cudarc::driver::{CudaSlice, CudaStream, CudaView};
use neighbors_kernels as kernels;
use warpsmith::{DeviceBuffer, DeviceSlice, DeviceSliceMut, Error, GpuImage, Stream, ops};

use crate::memory::with_slices;

/// The GPU image that `build.rs` compiled from `kernels/`.
static KERNELS: GpuImage = warpsmith::include_image!("neighbors_kernels");

/// Returns `silu(gate) * up` for two contiguous `f32` tensors of the same shape in host memory. Both inputs are
/// differentiable. `stream` must belong to an emulated device.
///
/// # Errors
/// Returns an error for unsupported tensors, or an error of the device.
pub fn swiglu(stream: &Stream, gate: &Tensor, up: &Tensor) -> Result<Tensor> {
    gate.apply_op2(up, Swiglu(stream.clone()))
}

/// Writes `silu(gate) * up` to `out`. The kernel runs after earlier work and before later work on `theirs`, which is a
/// stream of candle or cudarc.
///
/// # Errors
/// Returns [`OpError::LengthMismatch`](warpsmith::OpError::LengthMismatch), or an error of the driver.
pub fn swiglu_on_cudarc(
    stream: &Stream,
    theirs: &CudaStream,
    gate: CudaView<'_, f32>,
    up: CudaView<'_, f32>,
    out: &mut CudaSlice<f32>,
) -> std::result::Result<(), Error> {
    with_slices(stream, theirs, [gate, up], out, |stream, [gate, up], out| {
        ops::map::<kernels::swiglu>(stream, &KERNELS, (gate, up, out))
    })
}

struct Swiglu(Stream);

impl CustomOp2 for Swiglu {
    fn name(&self) -> &'static str {
        "swiglu"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gate_layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        in_place(&self.0, [(gate, gate_layout), (up, up_layout)], |stream, [gate, up], out| {
            ops::map::<kernels::swiglu>(stream, &KERNELS, (gate, up, out))
        })
    }

    fn bwd(
        &self,
        gate: &Tensor,
        up: &Tensor,
        _out: &Tensor,
        gradient: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        let gradient = gradient.contiguous()?;
        let of_gate = gate.apply_op3_no_bwd(up, &gradient, &GateGradient(self.0.clone()))?;
        // The gradient of `up` is `silu(gate) * gradient`.
        let of_up = gate.apply_op2_no_bwd(&gradient, self)?;
        Ok((Some(of_gate), Some(of_up)))
    }
}

struct GateGradient(Stream);

impl CustomOp3 for GateGradient {
    fn name(&self) -> &'static str {
        "swiglu_gate_gradient"
    }

    fn cpu_fwd(
        &self,
        gate: &CpuStorage,
        gate_layout: &Layout,
        up: &CpuStorage,
        up_layout: &Layout,
        gradient: &CpuStorage,
        gradient_layout: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        let inputs = [(gate, gate_layout), (up, up_layout), (gradient, gradient_layout)];
        in_place(&self.0, inputs, |stream, [gate, up, gradient], out| {
            ops::map::<kernels::swiglu_gate_gradient>(stream, &KERNELS, (gate, up, gradient, out))
        })
    }
}

/// Calls `work` with slices on the emulated device that refer to candle's host memory, without a copy. Waits for the
/// work, and returns the output, which has the shape of the inputs.
fn in_place<const N: usize>(
    stream: &Stream,
    inputs: [(&CpuStorage, &Layout); N],
    work: impl FnOnce(
        &Stream,
        [DeviceSlice<'_, f32>; N],
        DeviceSliceMut<'_, f32>,
    ) -> std::result::Result<(), Error>,
) -> Result<(CpuStorage, Shape)> {
    let shape = inputs[0].1.shape();
    let mut slices = Vec::with_capacity(N);
    for (storage, layout) in inputs {
        if layout.shape() != shape {
            bail!("the shapes {shape:?} and {:?} differ; pass tensors of one shape", layout.shape())
        }
        let Some((first, end)) = layout.contiguous_offsets() else {
            bail!("a tensor is not contiguous; call `contiguous` on it")
        };
        slices.push(&storage.as_slice::<f32>()?[first..end]);
    }
    let mut out = vec![0.0; shape.elem_count()];
    let enqueue = |out: &mut [f32]| {
        // SAFETY: this function waits for the work, so the memory outlives it. The work does not write the inputs.
        let buffer = |first, len| unsafe { DeviceBuffer::<f32>::from_host_raw(stream, first, len, ()) };
        let from = slices.iter().map(|slice| buffer(NonNull::from(*slice).cast(), slice.len()));
        let from = from.collect::<std::result::Result<Vec<_>, _>>()?;
        let mut to = buffer(NonNull::from(&mut *out).cast(), out.len())?;
        let done = work(stream, std::array::from_fn(|at| from[at].as_slice()), to.as_mut_slice());
        stream.synchronize().and(done)
    };
    enqueue(&mut out).map_err(candle_core::Error::wrap)?;
    Ok((CpuStorage::F32(out), shape.clone()))
}
