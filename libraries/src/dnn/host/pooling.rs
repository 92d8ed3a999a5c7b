//! Pooling. Windows are traversed in element order, and among equal elements the first one is the maximum.

use super::super::call::Place;
use super::super::pooling::{PoolingMode, Windows};
use crate::element::FloatType;

/// # Safety
/// `places` must contain x and y with the windows' shapes, and nothing else may access y during the call.
pub unsafe fn forward<T: FloatType>(windows: &Windows, [x, y]: [Place; 2]) {
    // SAFETY: guaranteed by the caller.
    let (x, y) = unsafe { (x.read::<T>(), y.write::<T>()) };
    each_window(windows, |at_y, inside| {
        y[at_y] = match windows.mode {
            PoolingMode::Max => x[largest(x, inside)],
            _ => {
                let sum: f64 = inside.iter().map(|at| x[*at].to_f64()).sum();
                T::from_f64(sum / divisor(windows, inside.len()))
            }
        };
    });
}

/// # Safety
/// `places` must contain x, y, dy and dx with the windows' shapes, and nothing else may access dx during the call.
pub unsafe fn backward<T: FloatType>(windows: &Windows, [x, _, dy, dx]: [Place; 4]) {
    // SAFETY: guaranteed by the caller.
    let (x, dy, dx) = unsafe { (x.read::<T>(), dy.read::<T>(), dx.write::<T>()) };
    let mut sums = vec![0f64; dx.len()];
    each_window(windows, |at_y, inside| match windows.mode {
        PoolingMode::Max => sums[largest(x, inside)] += dy[at_y].to_f64(),
        _ => {
            let share = dy[at_y].to_f64() / divisor(windows, inside.len());
            inside.iter().for_each(|at| sums[*at] += share);
        }
    });
    dx.iter_mut().zip(sums).for_each(|(element, sum)| *element = T::from_f64(sum));
}

/// Returns the number by which a window's sum is divided.
fn divisor(windows: &Windows, inside: usize) -> f64 {
    match windows.mode {
        PoolingMode::AverageWithPadding => windows.window.iter().map(|extent| *extent as f64).product(),
        _ => inside as f64,
    }
}

/// Returns the index of the first maximum. NaN counts as greater than any number. A window always contains at least one
/// element, because padding is at most half a window.
fn largest<T: FloatType>(x: &[T], inside: &[usize]) -> usize {
    let mut best = inside[0];
    for &at in &inside[1..] {
        let (value, most) = (x[at].to_f64(), x[best].to_f64());
        if value > most || (value.is_nan() && !most.is_nan()) {
            best = at;
        }
    }
    best
}

/// Calls a function with the index of each output and the indices of the input elements in its window.
fn each_window(windows: &Windows, mut call: impl FnMut(usize, &[usize])) {
    let Windows { x, y, window, padding, stride, .. } = windows;
    let (sx, sy) = (x.strides(), y.strides());
    // Returns the range of inputs along an axis that contribute to an output.
    let span = |axis: usize, output: usize| {
        let start = output * stride[axis];
        let end = (start + window[axis]).saturating_sub(padding[axis]).min(x.dims[axis + 2]);
        start.saturating_sub(padding[axis])..end
    };
    let mut inside = Vec::new();
    let [batch, channels, depth, height, width] = y.dims;
    for index in 0..batch * channels * depth * height * width {
        let (rest, v) = (index / width, index % width);
        let (rest, h) = (rest / height, rest % height);
        let (rest, d) = (rest / depth, rest % depth);
        let (n, c) = (rest / channels, rest % channels);
        inside.clear();
        for at_d in span(0, d) {
            for at_h in span(1, h) {
                let row = n * sx[0] + c * sx[1] + at_d * sx[2] + at_h * sx[3];
                inside.extend(span(2, v).map(|at_v| row + at_v * sx[4]));
            }
        }
        call(n * sy[0] + c * sy[1] + d * sy[2] + h * sy[3] + v * sy[4], &inside);
    }
}
