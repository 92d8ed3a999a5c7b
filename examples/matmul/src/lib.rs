//! Products of matrices: one function per kernel. `a` is m×k, `b` is k×n, `c` is m×n.

use matmul_kernels::{MMA_TILE, TILE, registers};
use warpsmith::prelude::*;
use warpsmith::{DeviceSlice2, DeviceSliceMut2, bf16};

/// The GPU image that build.rs built from `kernels/`.
pub static KERNELS: GpuImage = warpsmith::include_image!("matmul_kernels");

type In<'a, T> = DeviceSlice2<'a, T>;
type Out<'a> = DeviceSliceMut2<'a, f32>;

/// Enqueues `c = a * b`, one thread per element.
pub fn naive(stream: &Stream, a: In<f32>, b: In<f32>, c: Out) -> Result<(), Error> {
    let kernel = stream.device().load(&KERNELS)?.kernel::<matmul_kernels::naive>()?;
    kernel.launch(stream, Launch::cover((c.columns(), c.rows())).block((32, 8)), (a, b, c))
}

/// Enqueues `c = a * b`, with tiles in shared memory.
pub fn tiled(stream: &Stream, a: In<f32>, b: In<f32>, c: Out) -> Result<(), Error> {
    let kernel = stream.device().load(&KERNELS)?.kernel::<matmul_kernels::tiled>()?;
    kernel.launch(stream, Launch::cover((c.columns(), c.rows())), (a, b, c))
}

/// Enqueues `c = a * b`, with tiles in registers.
pub fn matmul(stream: &Stream, a: In<f32>, b: In<f32>, c: Out) -> Result<(), Error> {
    let kernel = stream.device().load(&KERNELS)?.kernel::<registers<8>>()?;
    kernel.launch(stream, tiles(&c, TILE), (a, b, c))
}

/// Enqueues `c = a * b` on tensor cores.
pub fn tensor_cores(stream: &Stream, a: In<bf16>, b: In<bf16>, c: Out) -> Result<(), Error> {
    let kernel = stream.device().load(&KERNELS)?.kernel::<matmul_kernels::tensor_cores>()?;
    kernel.launch(stream, tiles(&c, MMA_TILE), (a, b, c))
}

/// One block per tile of `c`.
fn tiles(c: &Out, side: usize) -> Launch {
    Launch::cover((c.columns(), c.rows())).tile((side as u32, side as u32))
}
