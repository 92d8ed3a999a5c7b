//! Softmax on the host. Sums are accumulated in `f64`, and each element is rounded once.

use super::super::call::Place;
use super::super::softmax::Softmax;
use super::super::tensor::Shape;
use crate::element::FloatType;

/// # Safety
/// `places` must contain x and y with this shape, and nothing else may access y during the call.
pub unsafe fn forward<T: FloatType>(function: Softmax, shape: &Shape, [x, y]: [Place; 2]) {
    // SAFETY: guaranteed by the caller.
    let (x, y) = unsafe { (x.read::<T>(), y.write::<T>()) };
    each_row(shape, |row| {
        let values = || row.clone().map(|at| x[at].to_f64());
        let most = values().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = values().map(|value| (value - most).exp()).sum();
        for at in row.clone() {
            let shifted = x[at].to_f64() - most;
            y[at] = T::from_f64(match function {
                Softmax::Plain => shifted.exp() / sum,
                Softmax::Log => shifted - sum.ln(),
            });
        }
    });
}

/// # Safety
/// `places` must contain y, dy and dx with this shape, and nothing else may access dx during the call.
pub unsafe fn backward<T: FloatType>(function: Softmax, shape: &Shape, [y, dy, dx]: [Place; 3]) {
    // SAFETY: guaranteed by the caller.
    let (y, dy, dx) = unsafe { (y.read::<T>(), dy.read::<T>(), dx.write::<T>()) };
    each_row(shape, |row| {
        let sum: f64 = row
            .clone()
            .map(|at| match function {
                Softmax::Plain => dy[at].to_f64() * y[at].to_f64(),
                Softmax::Log => dy[at].to_f64(),
            })
            .sum();
        for at in row.clone() {
            let (value, gradient) = (y[at].to_f64(), dy[at].to_f64());
            dx[at] = T::from_f64(match function {
                Softmax::Plain => value * (gradient - sum),
                Softmax::Log => gradient - value.exp() * sum,
            });
        }
    });
}

/// Calls a function with the indices of the channels at each position.
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
