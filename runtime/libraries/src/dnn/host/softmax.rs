//! Softmax: sums in `f64`, each element rounded once.

use super::super::call::{Place, elements, elements_mut};
use super::super::element::Float;
use super::super::softmax::Softmax;
use super::super::tensor::Shape;

/// # Safety
/// At the places are x and y of this shape; y is used by nobody else meanwhile.
pub unsafe fn forward<T: Float>(function: Softmax, shape: &Shape, [x, y]: [Place; 2]) {
    // SAFETY: the caller's promise.
    let (x, y) = unsafe { (elements::<T>(x.address, x.len), elements_mut::<T>(y.address, y.len)) };
    each_row(shape, |row| {
        let values = || row.clone().map(|at| x[at].wide());
        let most = values().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = values().map(|value| (value - most).exp()).sum();
        for at in row.clone() {
            let shifted = x[at].wide() - most;
            y[at] = T::narrow(match function {
                Softmax::Plain => shifted.exp() / sum,
                Softmax::Log => shifted - sum.ln(),
            });
        }
    });
}

/// # Safety
/// At the places are y, dy and dx of this shape; dx is used by nobody else meanwhile.
pub unsafe fn backward<T: Float>(function: Softmax, shape: &Shape, [y, dy, dx]: [Place; 3]) {
    // SAFETY: the caller's promise.
    let (y, dy, dx) = unsafe {
        let (y, dy) = (elements::<T>(y.address, y.len), elements::<T>(dy.address, dy.len));
        (y, dy, elements_mut::<T>(dx.address, dx.len))
    };
    each_row(shape, |row| {
        let sum: f64 = row
            .clone()
            .map(|at| match function {
                Softmax::Plain => dy[at].wide() * y[at].wide(),
                Softmax::Log => dy[at].wide(),
            })
            .sum();
        for at in row.clone() {
            let (value, gradient) = (y[at].wide(), dy[at].wide());
            dx[at] = T::narrow(match function {
                Softmax::Plain => value * (gradient - sum),
                Softmax::Log => gradient - value.exp() * sum,
            });
        }
    });
}

/// Calls a function with the indices of each position's channels.
fn each_row(shape: &Shape, mut call: impl FnMut(std::iter::StepBy<std::ops::Range<usize>>)) {
    let (strides, [batch, channels, depth, height, width]) = (shape.strides(), shape.dims);
    for index in 0..batch * depth * height * width {
        let (rest, w) = (index / width, index % width);
        let (rest, h) = (rest / height, rest % height);
        let (n, d) = (rest / depth, rest % depth);
        let first = n * strides[0] + d * strides[2] + h * strides[3] + w * strides[4];
        call((first..first + channels * strides[1]).step_by(strides[1]));
    }
}
