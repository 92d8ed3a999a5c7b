//! Measures and tunes the kernel of the gradient:
//!
//! ```text
//! cargo bench --bench tune --features tune -- tune gradient
//! ```

use regression::{FEATURES, KERNELS};
use regression_kernels::gradient;
use warpsmith::bench::data::Values;
use warpsmith::bench::kernel::ArrayKernel;
use warpsmith::bench::verify::Tolerance;

warpsmith::bench_main!(tuned_gradient());

/// Gradient over n numbers, which are the features of n / [`FEATURES`] samples.
pub fn tuned_gradient() -> ArrayKernel<f32, f32> {
    let reference = |arrays: &[Vec<f32>]| {
        let samples = arrays[0].len() / FEATURES;
        let mean = |row: &[f32]| {
            let products = row.iter().zip(&arrays[1]).map(|(x, error)| f64::from(*x) * f64::from(*error));
            products.sum::<f64>() / samples as f64
        };
        let losses: f64 = arrays[2][..samples].iter().map(|loss| f64::from(*loss)).sum();
        arrays[0].chunks(samples).map(mean).chain([losses / samples as f64]).collect()
    };
    ArrayKernel::with_reference("gradient", &KERNELS, reference)
        .launch::<gradient>(|kernel, stream, x, out| {
            let samples = x[0].len() / FEATURES;
            let features = x[0].as_2d(FEATURES, samples)?;
            kernel.launch(stream, (features, x[1].slice(..samples), x[2].slice(..samples), out))
        })
        // Small whole numbers: sums are exact, and the mean is rounded once.
        .inputs(3, Values::Whole)
        .output_len(|_| FEATURES + 1)
        .tolerance(Tolerance { relative: 1.0, absolute: 0.0 })
        .axis("block", [64, 128, 256, 512, 1024])
        .axis("grid", ["waves:1", "waves:2", "auto"])
        .over_sizes([1 << 20, 1 << 24])
}
