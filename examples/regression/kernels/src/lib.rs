//! Kernels for the gradient of logistic regression. `docs/projects/data-parallel.md` explains them.
#![no_std]

use gpu_std::prelude::*;

/// Error of the prediction and loss of each sample, one thread per sample. Row f of `x` has feature f of all samples.
#[kernel(same_len(labels, errors, losses))]
pub fn predict(
    x: Slice2<f32>,
    labels: &[f32],
    weights: &[f32],
    mut errors: DisjointMut<f32>,
    mut losses: DisjointMut<f32>,
) {
    for sample in thread::grid_stride(labels.len()) {
        let products =
            weights.iter().enumerate().map(|(feature, weight)| weight * x[[feature, sample.get()]]);
        let (logit, label) = (products.sum::<f32>(), labels[sample.get()]);
        if let (Some(error), Some(loss)) = (errors.get_mut(sample), losses.get_mut(sample)) {
            *error = 1.0 / (1.0 + (-logit).exp()) - label;
            // Cross entropy, without overflow for a large logit.
            *loss = logit.max(0.0) - logit * label + (-logit.abs()).exp().ln_1p();
        }
    }
}

/// Mean of feature times error over the samples, one block per feature; the last element is the mean loss.
#[kernel(same_len(errors, losses))]
pub fn gradient(x: Slice2<f32>, errors: &[f32], losses: &[f32], mut out: DisjointMut<f32, PerBlock>) {
    let (own, threads) = (thread::linear_in_block() as usize, block::threads() as usize);
    for index in block::stride(out.len()) {
        let feature = x.row(index.get());
        let mut sum = 0.0;
        for i in (own..errors.len()).step_by(threads) {
            sum += feature.map_or(losses[i], |feature| feature[i] * errors[i]);
        }
        let sum = block::reduce(sum, |a, b| a + b);
        // `Some` in the first thread of the block.
        if let Some(out) = out.get_mut(index) {
            *out = sum / errors.len() as f32;
        }
    }
}
