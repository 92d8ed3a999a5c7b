//! Measures the four kernels on square matrices, and tunes them:
//!
//! ```text
//! cargo bench --bench tune --features tune -- bench naive tiled registers tensor_cores
//! cargo bench --bench tune --features tune -- bench registers --all
//! ```

use matmul::KERNELS;
use matmul_kernels::{MMA_TILE, TILE, naive, registers, tensor_cores, tiled};
use warpsmith::bench::data::Values;
use warpsmith::bench::kernel::ArrayKernel;
use warpsmith::bench::value::Configuration;
use warpsmith::bench::verify::Tolerance;
use warpsmith::gpu_std::scalar::Scalar;
use warpsmith::{DeviceBuffer, DeviceSlice2, DeviceSliceMut2, Error, Launch, bf16};

warpsmith::bench_main!(benchmark_naive(), benchmark_tiled(), benchmark_registers(), benchmark_tensor_cores());

/// Product in `f64` of the square matrices that fit.
fn reference<T: Scalar>(arrays: &[Vec<T>]) -> Vec<f64> {
    let side = arrays[0].len().isqrt();
    let [a, b] = [0, 1].map(|i| arrays[i].iter().map(|x| x.cast::<f64>()).collect::<Vec<_>>());
    let mut c = vec![0.0; side * side];
    for (row, c) in c.chunks_mut(side.max(1)).enumerate() {
        for (k, b) in b.chunks_exact(side).take(side).enumerate() {
            let factor = a[row * side + k];
            c.iter_mut().zip(b).for_each(|(c, b)| *c += factor * b);
        }
    }
    c
}

/// Benchmark over matrices of n elements each. They are small whole numbers, so that every sum is exact.
fn benchmark<T: Scalar>(name: &'static str) -> ArrayKernel<T, f32> {
    ArrayKernel::with_reference(name, &KERNELS, reference::<T>)
        .inputs(2, Values::Whole)
        .output_len(|n| n.isqrt().pow(2))
        .tolerance(Tolerance::EXACT)
        .flops(|n| 2 * n.isqrt().pow(3))
        .over_sizes([1 << 20, 1 << 22])
}

/// The matrices `a`, `b` and `c`.
type Matrices<'a, T> = (DeviceSlice2<'a, T>, DeviceSlice2<'a, T>, DeviceSliceMut2<'a, f32>);

/// Views inputs and output as square matrices.
fn square<'a, T: Scalar>(
    x: &'a [DeviceBuffer<T>],
    c: &'a mut DeviceBuffer<f32>,
) -> Result<Matrices<'a, T>, Error> {
    let side = c.len().isqrt();
    let [a, b] = [0, 1].map(|i| x[i].slice(..side * side).as_2d(side, side));
    Ok((a?, b?, c.as_2d_mut(side, side)?))
}

/// One block per tile of this side.
fn tiles(
    configuration: &Configuration,
    n: usize,
    side: usize,
) -> Result<Launch, warpsmith::bench::error::Error> {
    Ok(configuration.cover((n.isqrt(), n.isqrt()))?.tile((side as u32, side as u32)))
}

pub fn benchmark_naive() -> ArrayKernel<f32, f32> {
    benchmark("naive")
        .launch::<naive>(|kernel, stream, x, c| kernel.launch(stream, square(x, c)?))
        .shape(|configuration, n| configuration.cover((n.isqrt(), n.isqrt())))
        .axis("block", ["32x8", "8x32", "16x16", "32x32", "256x1"])
}

pub fn benchmark_tiled() -> ArrayKernel<f32, f32> {
    benchmark("tiled")
        .launch::<tiled>(|kernel, stream, x, c| kernel.launch(stream, square(x, c)?))
        .shape(|configuration, n| configuration.cover((n.isqrt(), n.isqrt())))
}

pub fn benchmark_registers() -> ArrayKernel<f32, f32> {
    benchmark("registers")
        .launch::<registers<8>>(|kernel, stream, x, c| kernel.launch(stream, square(x, c)?))
        .launch::<registers<16>>(|kernel, stream, x, c| kernel.launch(stream, square(x, c)?))
        .shape(|configuration, n| tiles(configuration, n, TILE))
}

pub fn benchmark_tensor_cores() -> ArrayKernel<bf16, f32> {
    benchmark("tensor_cores")
        .launch::<tensor_cores>(|kernel, stream, x, c| kernel.launch(stream, square(x, c)?))
        .shape(|configuration, n| tiles(configuration, n, MMA_TILE))
}
