//! Measures and tunes the kernels of this package, with the commands of `warpsmith`:
//!
//! ```text
//! cargo bench --bench tune --features tune                          # a quick look at both
//! cargo bench --bench tune --features tune -- bench saxpy --sizes 2^20 --all
//! cargo bench --bench tune --features tune -- tune saxpy smooth
//! ```

use own_kernels_kernels::{BLOCK, saxpy, smooth};
use warpsmith::bench::kernel::ArrayKernel;

warpsmith::bench_main!(tuned_saxpy(), tuned_smooth());

/// `y += 2 x`, with the block and grid sizes to try.
fn tuned_saxpy() -> ArrayKernel<f32, f32> {
    ArrayKernel::new("saxpy", &own_kernels::KERNELS, |[x, y, _]| 2.0 * x + y)
        .about("y += 2 x")
        .launch::<saxpy>(|kernel, stream, x, y| kernel.launch(stream, (2.0, &x[0], y)))
        .updates()
        .axis("block", [256, 64, 128, 512])
        .axis("grid", ["auto", "waves:1", "waves:4"])
        .restrict("blocks of 128 or more where there is one wave", |c| {
            c.get("grid") != Some(&"waves:1".into()) || c.number("block").is_ok_and(|block| block >= 128)
        })
}

/// Mean of each element and its neighbors. The tile in shared memory limits the block size.
fn tuned_smooth() -> ArrayKernel<f32, f32> {
    let reference = |arrays: &[Vec<f32>]| {
        let at = |i: usize| f64::from(arrays[0][i.min(arrays[0].len() - 1)]);
        (0..arrays[0].len()).map(|i| (at(i.saturating_sub(1)) + at(i) + at(i + 1)) / 3.0).collect()
    };
    ArrayKernel::with_reference("smooth", &own_kernels::KERNELS, reference)
        .about("the mean of each element and its neighbors")
        .launch::<smooth>(|kernel, stream, data, out| kernel.launch(stream, (&data[0], out)))
        .axis("block", [256, 64, 128, 512])
        .restrict("the tile holds a block", |c| c.number("block").is_ok_and(|block| block as usize <= BLOCK))
}
