//! Training of a small network: the loss and its gradient, the gradient of an activation, and an optimizer.
//!
//! The kernels process one or more elements per thread, for any grid. If several arrays have different lengths, the
//! shortest counts. All state that changes from step to step is in device memory, so that a captured step can be
//! launched repeatedly.

use gpu_std::math;
use gpu_std::prelude::*;

/// Gradient of the mean softmax cross entropy with respect to the logits, and the cross entropy of each row.
///
/// `logits` and `gradient` have rows of `classes`; `labels` has the correct class of each row. For the rows that all
/// arrays have, `gradient[r, c]` becomes (softmax(logits\[r])\[c] - \[c = labels\[r]]) / rows. `losses[r]` becomes the
/// cross entropy -ln softmax(logits\[r])\[labels\[r]]. A label that is not a class has an infinite loss and a gradient
/// of 0 for its row.
///
/// Each thread reads a whole row for its element: suitable for up to a few dozen classes.
#[kernel(
    launch_bounds(256),
    bytes = logits.bytes() + labels.bytes() + losses.bytes() + gradient.bytes()
)]
pub fn softmax_cross_entropy(
    classes: u32,
    logits: &[f32],
    labels: &[u32],
    mut losses: DisjointMut<f32>,
    mut gradient: DisjointMut<f32>,
) {
    let classes = classes as usize;
    if classes == 0 {
        return;
    }
    let rows = labels.len().min(losses.len()).min(logits.len() / classes).min(gradient.len() / classes);
    let log_sum = |row: &[f32]| {
        let most = row.iter().fold(f32::NEG_INFINITY, |most, x| if *x > most { *x } else { most });
        most + math::ln(row.iter().fold(0.0, |sum, x| sum + math::exp(*x - most)))
    };
    for i in thread::grid_stride(rows * classes) {
        let (row, class) = (i.get() / classes, i.get() % classes);
        let logits = &logits[row * classes..(row + 1) * classes];
        let label = labels[row] as usize;
        let probability = math::exp(logits[class] - log_sum(logits));
        let excess = probability - if label == class { 1.0 } else { 0.0 };
        if let Some(gradient) = gradient.get_mut(i) {
            *gradient = if label < classes { excess / rows as f32 } else { 0.0 };
        }
    }
    for row in thread::grid_stride(rows) {
        let logits = &logits[row.get() * classes..(row.get() + 1) * classes];
        let label = labels[row.get()] as usize;
        if let Some(loss) = losses.get_mut(row) {
            *loss = if label < classes { log_sum(logits) - logits[label] } else { f32::INFINITY };
        }
    }
}

/// Sets `gradient[i]` to 0 if `activated[i]`, the output of the ReLU, is not positive.
#[kernel(launch_bounds(256), bytes = activated.bytes() + 2 * gradient.bytes())]
pub fn relu_backward(activated: &[f32], mut gradient: DisjointMut<f32>) {
    for i in thread::grid_stride(activated.len().min(gradient.len())) {
        let is_on = activated[i.get()] > 0.0;
        if let Some(gradient) = gradient.get_mut(i) {
            *gradient = if is_on { *gradient } else { 0.0 };
        }
    }
}

/// Adds one to each counter: the number of steps of [`adam()`].
#[kernel(launch_bounds(256), bytes = 2 * counters.bytes())]
pub fn count_up(mut counters: DisjointMut<u32>) {
    for i in thread::grid_stride(counters.len()) {
        if let Some(counter) = counters.get_mut(i) {
            *counter += 1;
        }
    }
}

/// A step of Adam (Kingma and Ba 2015, algorithm 1): moves `weights` against `gradient`.
///
/// `step[0]` is the one-based index of the step. `mean` and `variance` are the running moments, zero before the first
/// step. `rate` is the step size, `decay1` and `decay2` are the decay rates of the moments, and `epsilon` keeps the
/// division finite.
#[kernel(
    launch_bounds(256),
    bytes = gradient.bytes() + 2 * (weights.bytes() + mean.bytes() + variance.bytes())
)]
pub fn adam(
    rate: f32,
    decay1: f32,
    decay2: f32,
    epsilon: f32,
    step: &[u32],
    gradient: &[f32],
    mut weights: DisjointMut<f32>,
    mut mean: DisjointMut<f32>,
    mut variance: DisjointMut<f32>,
) {
    let len = gradient.len().min(weights.len()).min(mean.len()).min(variance.len());
    // Without a step there is nothing to do.
    let Some(&step) = step.first() else { return };
    let step = step as f32;
    let (bias1, bias2) = (1.0 - math::pow(decay1, step), 1.0 - math::pow(decay2, step));
    for i in thread::grid_stride(len) {
        let g = gradient[i.get()];
        if let (Some(weight), Some(mean), Some(variance)) =
            (weights.get_mut(i), mean.get_mut(i), variance.get_mut(i))
        {
            *mean = decay1 * *mean + (1.0 - decay1) * g;
            *variance = decay2 * *variance + (1.0 - decay2) * g * g;
            *weight -= rate * (*mean / bias1) / (math::sqrt(*variance / bias2) + epsilon);
        }
    }
}
