//! Convolutions on the host. Each output is accumulated in [`FloatType::Real`] and rounded once.

use std::ops::{AddAssign, Mul};

use super::super::call::Place;
use super::super::element::{round, widen};
use super::super::fused::Activation;
use super::super::geometry::{Geometry, Operation};
use crate::element::FloatType;
use crate::element::LibraryType;

/// Computes one of the three tensors from the other two.
///
/// # Safety
/// `places` must contain x, w and y with the geometry's shapes, and nothing else may access the computed tensor
/// during the call.
pub unsafe fn run<T: FloatType>(operation: Operation, geometry: &Geometry, places: [Place; 3]) {
    let [x, w, y] = places;
    let target = match operation {
        Operation::BackwardData => x,
        Operation::BackwardWeights => w,
        Operation::Forward => y,
    };
    // SAFETY: guaranteed by the caller. The target is not read below this line, because each operation reads only the
    // other two tensors.
    let sums = unsafe { sums::<T>(operation, geometry, places) };
    // SAFETY: guaranteed by the caller; the borrows of the inputs have ended.
    let target = unsafe { target.write::<T>() };
    finish(geometry, &sums, target, |sum, _| sum);
}

/// Computes y with bias and activation. `places` must contain x, w, y and the bias.
///
/// # Safety
/// The caller must uphold the safety contract of [`run`].
pub unsafe fn run_fused<T: FloatType>(geometry: &Geometry, places: [Place; 4], activation: Activation) {
    let [x, w, y, bias] = places;
    // SAFETY: guaranteed by the caller.
    let (sums, bias, y) = unsafe {
        let sums = sums::<T>(Operation::Forward, geometry, [x, w, y]);
        (sums, bias.read::<T>(), y.write::<T>())
    };
    let (strides, dims) = (geometry.y.strides(), geometry.y.dims);
    finish(geometry, &sums, y, |sum, index| {
        let sum = sum + widen(bias[index / strides[1] % dims[1]]);
        match activation {
            Activation::Relu if sum.to_f64() < 0.0 => T::Real::from_f64(0.0),
            _ => sum,
        }
    });
}

/// Writes `last(alpha * sum + beta * target, index)`. If `beta` is 0, `target` is not read.
fn finish<T: FloatType>(
    geometry: &Geometry,
    sums: &[T::Real],
    target: &mut [T],
    last: impl Fn(T::Real, usize) -> T::Real,
) {
    let (alpha, beta) = (T::Real::from_f64(geometry.alpha), T::Real::from_f64(geometry.beta));
    for (index, (element, sum)) in target.iter_mut().zip(sums).enumerate() {
        let mut value = alpha * *sum;
        if geometry.beta != 0.0 {
            value += beta * widen(*element);
        }
        *element = round(last(value, index));
    }
}

/// # Safety
/// The caller must uphold the safety contract of [`run`]. Only the two tensors that are not computed are read.
unsafe fn sums<T: FloatType>(
    operation: Operation,
    geometry: &Geometry,
    [x, w, y]: [Place; 3],
) -> Vec<T::Real> {
    let zeros = |len| vec![T::Real::from_f64(0.0); len];
    // SAFETY: guaranteed by the caller.
    let read = |place: Place| unsafe { place.read::<T>() };
    let (target, [one, other]) = match operation {
        Operation::Forward => (y, [x, w]),
        Operation::BackwardData => (x, [w, y]),
        Operation::BackwardWeights => (w, [x, y]),
    };
    if one.len == 0 || other.len == 0 {
        // The sum has no terms, and the extents are arbitrary.
        return zeros(target.len);
    }
    let (rows, mut sums) = (Rows::new(geometry), zeros(target.len));
    match operation {
        Operation::Forward => rows.forward(read(x), read(w), &mut sums),
        Operation::BackwardData => rows.backward_data(read(w), read(y), &mut sums),
        Operation::BackwardWeights => rows.backward_weights(read(x), read(y), &mut sums),
    }
    sums
}

/// Index that represents a padding element.
const OUTSIDE: usize = usize::MAX;

/// A convolution expressed as products of rows (im2col). For each output, a row contains the input of one tap in one
/// channel.
struct Rows<'a> {
    geometry: &'a Geometry,
    /// For each tap, the tap's offset in the weights, and the offset of its input in a channel for each output.
    taps: Vec<(usize, Vec<usize>)>,
    /// Offset of each output in its channel.
    outputs: Vec<usize>,
}

impl<'a> Rows<'a> {
    fn new(geometry: &'a Geometry) -> Self {
        let Geometry { x, w, y, padding, stride, dilation, .. } = geometry;
        let place = |strides: [usize; 5], at: [usize; 3]| {
            (0..3).map(|axis| at[axis] * strides[axis + 2]).sum::<usize>()
        };
        let meets = |tap: [usize; 3], output: [usize; 3]| {
            let mut input = [0; 3];
            for axis in 0..3 {
                let padded = output[axis] * stride[axis] + tap[axis] * dilation[axis];
                match padded.checked_sub(padding[axis]) {
                    Some(at) if at < x.dims[axis + 2] => input[axis] = at,
                    _ => return OUTSIDE,
                }
            }
            place(x.strides(), input)
        };
        let of_tap = |tap| (place(w.strides(), tap), positions(y.dims).map(|at| meets(tap, at)).collect());
        Self {
            geometry,
            taps: positions(w.dims).map(of_tap).collect(),
            outputs: positions(y.dims).map(|at| place(y.strides(), at)).collect(),
        }
    }

    fn forward<T: FloatType>(&self, x: &[T], w: &[T], sums: &mut [T::Real]) {
        let mut row = vec![T::Real::from_f64(0.0); self.outputs.len()];
        self.each_group(|group| {
            let mut of_group = vec![T::Real::from_f64(0.0); group.y.len() * row.len()];
            group.each_tap(self, |at_x, at_w, tap| {
                gather(x, at_x, tap, &mut row);
                for (sums, k) in of_group.chunks_exact_mut(row.len()).zip(&group.w) {
                    add_scaled(sums, widen(w[k + at_w]), &row);
                }
            });
            for (of_output, at_y) in of_group.chunks_exact(row.len()).zip(&group.y) {
                self.outputs.iter().zip(of_output).for_each(|(at, sum)| sums[at_y + at] = *sum);
            }
        });
    }

    fn backward_data<T: FloatType>(&self, w: &[T], dy: &[T], sums: &mut [T::Real]) {
        let mut row = vec![T::Real::from_f64(0.0); self.outputs.len()];
        self.each_group(|group| {
            let of_group = self.packed(dy, group);
            group.each_tap(self, |at_x, at_w, tap| {
                row.fill(T::Real::from_f64(0.0));
                for (gradients, k) in of_group.chunks_exact(row.len()).zip(&group.w) {
                    add_scaled(&mut row, widen(w[k + at_w]), gradients);
                }
                for (at, sum) in tap.iter().zip(&row).filter(|(at, _)| **at != OUTSIDE) {
                    sums[at_x + at] += *sum;
                }
            });
        });
    }

    fn backward_weights<T: FloatType>(&self, x: &[T], dy: &[T], sums: &mut [T::Real]) {
        let mut row = vec![T::Real::from_f64(0.0); self.outputs.len()];
        self.each_group(|group| {
            let of_group = self.packed(dy, group);
            group.each_tap(self, |at_x, at_w, tap| {
                gather(x, at_x, tap, &mut row);
                for (gradients, k) in of_group.chunks_exact(row.len()).zip(&group.w) {
                    for (value, gradient) in row.iter().zip(gradients) {
                        sums[k + at_w] += *value * *gradient;
                    }
                }
            });
        });
    }

    /// Returns the outputs of a group, channel by channel.
    fn packed<T: FloatType>(&self, y: &[T], group: &Group) -> Vec<T::Real> {
        let of_channel = |at_y: &usize| {
            let at_y = *at_y;
            self.outputs.iter().map(move |at| widen(y[at_y + at]))
        };
        group.y.iter().flat_map(of_channel).collect()
    }

    /// Calls a function for each combination of an image and a channel group. Does nothing if the output is empty.
    fn each_group(&self, mut call: impl FnMut(&Group)) {
        let Geometry { x, w, y, groups, .. } = self.geometry;
        let (sx, sw, sy) = (x.strides(), w.strides(), y.strides());
        let outputs = w.dims[0] / groups;
        if self.outputs.is_empty() {
            return;
        }
        for n in 0..x.dims[0] {
            for group in 0..*groups {
                let of_group = group * outputs..(group + 1) * outputs;
                call(&Group {
                    x: (0..w.dims[1]).map(|c| n * sx[0] + (group * w.dims[1] + c) * sx[1]).collect(),
                    w: of_group.clone().map(|k| k * sw[0]).collect(),
                    y: of_group.map(|k| n * sy[0] + k * sy[1]).collect(),
                });
            }
        }
    }
}

/// Index of the first input element of a group's channels, and for each output channel, the indices of its first weight
/// and first output.
struct Group {
    x: Vec<usize>,
    w: Vec<usize>,
    y: Vec<usize>,
}

impl Group {
    /// Calls a function for each tap of each input channel. The arguments are the offset of the channel, the offset of
    /// the tap's weight, and the tap's inputs.
    fn each_tap(&self, rows: &Rows<'_>, mut call: impl FnMut(usize, usize, &[usize])) {
        let of_channel = rows.geometry.w.strides()[1];
        for (c, at_x) in self.x.iter().enumerate() {
            for (at_w, tap) in &rows.taps {
                call(*at_x, c * of_channel + at_w, tap);
            }
        }
    }
}

/// Gathers the inputs of a tap from the channel that starts at this element.
fn gather<T: FloatType>(x: &[T], channel: usize, tap: &[usize], row: &mut [T::Real]) {
    for (value, at) in row.iter_mut().zip(tap) {
        *value = if *at == OUTSIDE { T::Real::from_f64(0.0) } else { widen(x[channel + at]) };
    }
}

/// Adds `factor * row` to the sums.
fn add_scaled<R: FloatType<Real = R> + Mul<Output = R> + AddAssign>(sums: &mut [R], factor: R, row: &[R]) {
    sums.iter_mut().zip(row).for_each(|(sum, value)| *sum += factor * *value);
}

/// Iterates over all spatial positions.
fn positions(dims: [usize; 5]) -> impl Iterator<Item = [usize; 3]> {
    let [_, _, depth, height, width] = dims;
    (0..depth).flat_map(move |d| (0..height).flat_map(move |h| (0..width).map(move |w| [d, h, w])))
}
