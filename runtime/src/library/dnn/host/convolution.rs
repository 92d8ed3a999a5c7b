//! Convolutions: every product is added to a sum of its own in [`Float::Real`], which is rounded once.

use super::super::call::{Place, elements, elements_mut};
use super::super::element::{Float, round, sealed::Element, widen};
use super::super::fused::Activation;
use super::super::geometry::{Geometry, Operation};

/// Computes one of the three tensors from the others.
///
/// # Safety
/// At the places are x, w and y of the geometry's shapes; the one that is computed is used by nobody else meanwhile.
pub unsafe fn run<T: Float>(operation: Operation, geometry: &Geometry, places: [Place; 3]) {
    let [x, w, y] = places;
    let target = match operation {
        Operation::BackwardData => x,
        Operation::BackwardWeights => w,
        Operation::Forward => y,
    };
    // SAFETY: the caller's promise. The target is not among what is read below: each operation reads the other two.
    let sums = unsafe { sums::<T>(operation, geometry, places) };
    // SAFETY: the caller's promise; what was read is not borrowed any more.
    let target = unsafe { elements_mut::<T>(target.address, target.len) };
    finish(geometry, &sums, target, |sum, _| sum);
}

/// Computes y, with bias and activation. The places are of x, w, y and the bias.
///
/// # Safety
/// As [`run`].
pub unsafe fn run_fused<T: Float>(geometry: &Geometry, places: [Place; 4], activation: Activation) {
    let [x, w, y, bias] = places;
    // SAFETY: the caller's promise.
    let (sums, bias, y) = unsafe {
        let sums = sums::<T>(Operation::Forward, geometry, [x, w, y]);
        (sums, elements::<T>(bias.address, bias.len), elements_mut::<T>(y.address, y.len))
    };
    let (strides, dims) = (geometry.y.strides(), geometry.y.dims);
    finish(geometry, &sums, y, |sum, index| {
        let sum = sum + widen(bias[index / strides[1] % dims[1]]);
        match activation {
            Activation::Relu if sum.wide() < 0.0 => T::Real::narrow(0.0),
            _ => sum,
        }
    });
}

/// Writes `last(alpha * sum + beta * target, index)`. What is to be multiplied by zero is not read.
fn finish<T: Float>(
    geometry: &Geometry,
    sums: &[T::Real],
    target: &mut [T],
    last: impl Fn(T::Real, usize) -> T::Real,
) {
    let (alpha, beta) = (T::Real::narrow(geometry.alpha), T::Real::narrow(geometry.beta));
    for (index, (element, sum)) in target.iter_mut().zip(sums).enumerate() {
        let mut value = alpha * *sum;
        if geometry.beta != 0.0 {
            value += beta * widen(*element);
        }
        *element = round(last(value, index));
    }
}

/// # Safety
/// As [`run`]; the two that are not computed are read.
unsafe fn sums<T: Float>(operation: Operation, geometry: &Geometry, [x, w, y]: [Place; 3]) -> Vec<T::Real> {
    let zeros = |len| vec![T::Real::narrow(0.0); len];
    // SAFETY: the caller's promise.
    let read = |place: Place| unsafe { elements::<T>(place.address, place.len) };
    match operation {
        Operation::Forward => {
            let (mut sums, x, w) = (zeros(y.len), read(x), read(w));
            products(geometry, |at_x, at_w, at_y| sums[at_y] += widen(x[at_x]) * widen(w[at_w]));
            sums
        }
        Operation::BackwardData => {
            let (mut sums, w, y) = (zeros(x.len), read(w), read(y));
            products(geometry, |at_x, at_w, at_y| sums[at_x] += widen(y[at_y]) * widen(w[at_w]));
            sums
        }
        Operation::BackwardWeights => {
            let (mut sums, x, y) = (zeros(w.len), read(x), read(y));
            products(geometry, |at_x, at_w, at_y| sums[at_w] += widen(x[at_x]) * widen(y[at_y]));
            sums
        }
    }
}

/// Calls `product` with the indices of an input, a weight and an output for each product that the output is a sum of.
fn products(geometry: &Geometry, mut product: impl FnMut(usize, usize, usize)) {
    let Geometry { x, w, y, padding, stride, dilation, groups, .. } = geometry;
    let (sx, sw, sy) = (x.strides(), w.strides(), y.strides());
    let outputs_of_group = w.dims[0] / groups;
    // The outputs along an axis for which a tap meets the input, and the input that the first of them meets.
    let span = |axis: usize, tap: usize| {
        let offset = tap * dilation[axis];
        let first = padding[axis].saturating_sub(offset).div_ceil(stride[axis]);
        let end = (x.dims[axis + 2] + padding[axis]).saturating_sub(offset).div_ceil(stride[axis]);
        first..end.min(y.dims[axis + 2]).max(first)
    };
    let input =
        |axis: usize, tap: usize, output: usize| output * stride[axis] + tap * dilation[axis] - padding[axis];
    for n in 0..x.dims[0] {
        for k in 0..w.dims[0] {
            let group = k / outputs_of_group;
            for c in 0..w.dims[1] {
                let at_x = n * sx[0] + (group * w.dims[1] + c) * sx[1];
                let (at_w, at_y) = (k * sw[0] + c * sw[1], n * sy[0] + k * sy[1]);
                for (td, th, tw) in taps(w.dims) {
                    let at_w = at_w + td * sw[2] + th * sw[3] + tw * sw[4];
                    let across = span(2, tw);
                    for d in span(0, td) {
                        for h in span(1, th) {
                            let at_x = at_x + input(0, td, d) * sx[2] + input(1, th, h) * sx[3];
                            let at_y = at_y + d * sy[2] + h * sy[3];
                            for v in across.clone() {
                                product(at_x + input(2, tw, v) * sx[4], at_w, at_y + v * sy[4]);
                            }
                        }
                    }
                }
            }
        }
    }
}

/// The taps of a window.
fn taps(dims: [usize; 5]) -> impl Iterator<Item = (usize, usize, usize)> {
    let [_, _, depth, height, width] = dims;
    (0..depth).flat_map(move |d| (0..height).flat_map(move |h| (0..width).map(move |w| (d, h, w))))
}
