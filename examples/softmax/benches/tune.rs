//! Measures the four kernels on rows of 1024 columns, and tunes them:
//!
//! ```text
//! cargo bench --bench tune --features tune -- bench naive blocks warps online
//! cargo bench --bench tune --features tune -- tune warps online
//! ```

use softmax::{KERNELS, matrices};
use softmax_kernels::{blocks, naive, online, warps};
use warpsmith::Launch;
use warpsmith::bench::kernel::ArrayKernel;
use warpsmith::bench::verify::Tolerance;

warpsmith::bench_main!(naive_rows(), block_rows(), warp_rows(), online_rows());

pub const COLUMNS: usize = 1024;

/// Softmax of each row in `f64`. The inputs are from -4 to 4: nothing overflows.
fn reference(arrays: &[Vec<f32>]) -> Vec<f64> {
    let softmax = |row: &[f32]| {
        let powers: Vec<f64> = row.iter().map(|x| f64::from(*x).exp()).collect();
        let sum: f64 = powers.iter().sum();
        powers.into_iter().map(move |power| power / sum)
    };
    arrays[0].chunks(COLUMNS).flat_map(softmax).collect()
}

fn benchmark(name: &'static str) -> ArrayKernel<f32, f32> {
    ArrayKernel::with_reference(name, &KERNELS, reference)
        .tolerance(Tolerance { relative: 64.0, absolute: 0.0 })
        .over_sizes([1 << 20, 1 << 24])
        .axis("block", [64, 128, 256, 512])
}

pub fn naive_rows() -> ArrayKernel<f32, f32> {
    benchmark("naive")
        .launch::<naive>(|kernel, stream, x, out| kernel.launch(stream, matrices(COLUMNS, &x[0], out)?))
        .shape(|configuration, n| configuration.launch(n / COLUMNS))
}

pub fn block_rows() -> ArrayKernel<f32, f32> {
    benchmark("blocks")
        .launch::<blocks>(|kernel, stream, x, out| kernel.launch(stream, matrices(COLUMNS, &x[0], out)?))
        .shape(|configuration, n| {
            Ok(Launch::grid_block((n / COLUMNS) as u32, configuration.number("block")?))
        })
}

pub fn warp_rows() -> ArrayKernel<f32, f32> {
    benchmark("warps")
        .launch::<warps<8>>(|kernel, stream, x, out| kernel.launch(stream, matrices(COLUMNS, &x[0], out)?))
        .axis("grid", ["waves:1", "waves:2", "waves:4", "auto"])
}

pub fn online_rows() -> ArrayKernel<f32, f32> {
    benchmark("online")
        .launch::<online>(|kernel, stream, x, out| kernel.launch(stream, matrices(COLUMNS, &x[0], out)?))
        .axis("grid", ["waves:1", "waves:2", "waves:4", "auto"])
}
