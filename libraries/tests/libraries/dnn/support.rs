//! References in `f64` from the definitions, and helpers shared by the tests.

use crate::numbers::{self, buffer};
use warpsmith_libraries::dnn::{self, Activation, Convolution, FloatType, Layout, Tensor, TensorMut};
use warpsmith_runtime::{DeviceBuffer, Error, Graph, Stream};

/// Enqueues the work on the stream, either directly or by capturing it and launching the graph.
pub fn enqueue(
    stream: &Stream,
    captured: bool,
    work: impl FnOnce() -> Result<(), Error>,
) -> Result<(), Error> {
    if !captured {
        return work();
    }
    Graph::capture(stream, work)?.instantiate()?.launch(stream)?;
    stream.synchronize()
}

/// Element types of tensors.
pub trait TestNumber: numbers::TestValue + FloatType {}

impl<T: numbers::TestValue + FloatType> TestNumber for T {}

/// Returns a buffer with the values from element `first` on, with other values before and after them.
pub fn padded<T: TestNumber>(stream: &Stream, values: &[T], first: usize) -> DeviceBuffer<T> {
    buffer(stream, &[&vec![T::of(0.0); first][..], values, &[T::of(7.0); 3]].concat())
}

/// Returns the current values of [`padded`] elements, after checking that nothing before and after them was written.
#[track_caller]
pub fn inside<T: TestNumber>(buffer: &DeviceBuffer<T>, first: usize) -> Vec<T> {
    let mut all = buffer.to_host().unwrap();
    let behind = all.split_off(all.len() - 3);
    let inside = all.split_off(first);
    assert!(all.iter().all(|value| value.value() == 0.0) && behind.iter().all(|value| value.value() == 7.0));
    inside
}

/// Runs the convolution of a case's tensors.
pub fn convolve<T: TestNumber>(
    stream: &Stream,
    operator: &Convolution,
    (case, layout): (&Case, Layout),
    [x, w]: [&DeviceBuffer<T>; 2],
    y: &mut DeviceBuffer<T>,
) -> Result<(), Error> {
    let (x, w) = (Tensor::new(x, case.x, layout)?, Tensor::new(w, case.w, layout)?);
    dnn::convolution(stream, operator, &x, &w, &mut TensorMut::new(y, &case.y(), layout)?)
}

/// Runs the convolution with fused bias and activation.
pub fn convolve_fused<T: TestNumber>(
    stream: &Stream,
    operator: &Convolution,
    (case, layout): (&Case, Layout),
    [x, w, bias]: [&DeviceBuffer<T>; 3],
    activation: Activation,
    y: &mut DeviceBuffer<T>,
) -> Result<(), Error> {
    let (x, w) = (Tensor::new(x, case.x, layout)?, Tensor::new(w, case.w, layout)?);
    let y = &mut TensorMut::new(y, &case.y(), layout)?;
    dnn::convolution_fused(stream, operator, &x, &w, &bias.as_slice(), activation, y)
}

/// Returns the index of an element, given its position and the shape: batch, channels, then three spatial dimensions.
pub fn at(shape: [usize; 5], layout: Layout, [n, c, d, h, w]: [usize; 5]) -> usize {
    let [_, channels, depth, height, width] = shape;
    match layout {
        Layout::Nchw => (((n * channels + c) * depth + d) * height + h) * width + w,
        Layout::Nhwc => (((n * depth + d) * height + h) * width + w) * channels + c,
    }
}

/// Returns all positions of a shape.
pub fn places(shape: [usize; 5]) -> impl Iterator<Item = [usize; 5]> {
    let [a, b, c, d, e] = shape;
    let count = a * b * c * d * e;
    (0..count).map(move |i| [i / (b * c * d * e), i / (c * d * e) % b, i / (d * e) % c, i / e % d, i % e])
}

/// Returns the shape with 1 for missing spatial dimensions.
pub fn five(shape: &[usize]) -> [usize; 5] {
    let mut five = [shape[0], shape[1], 1, 1, 1];
    five[7 - shape.len()..].copy_from_slice(&shape[2..]);
    five
}

/// A convolution case for the reference.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub x: &'static [usize],
    pub w: &'static [usize],
    pub padding: [usize; 3],
    pub stride: [usize; 3],
    pub dilation: [usize; 3],
    pub groups: usize,
}

/// For each element, the sum, the sum of the products' magnitudes, and their number.
pub type Sums = Vec<(f64, f64, f64)>;

impl Case {
    pub fn y(&self) -> Vec<usize> {
        let (x, w) = (five(self.x), five(self.w));
        let spatial = (0..3).map(|i| {
            (x[i + 2] + 2 * self.padding[i] - self.dilation[i] * (w[i + 2] - 1) - 1) / self.stride[i] + 1
        });
        let spatial: Vec<usize> = spatial.collect();
        let given = self.x.len() - 2;
        [&[x[0], w[0]], &spatial[3 - given..]].concat()
    }

    /// Returns the reference sums of y, x and w, each computed from the other tensors.
    pub fn sums<T: TestNumber>(&self, layout: Layout, x: &[T], w: &[T], y: &[T]) -> [Sums; 3] {
        let (shape_x, shape_w, shape_y) = (five(self.x), five(self.w), five(&self.y()));
        let mut sums = [y.len(), x.len(), w.len()].map(|len| vec![(0.0, 0.0, 0.0); len]);
        let channels = shape_w[1];
        for place @ [n, k, ..] in places(shape_y) {
            let group = k / (shape_w[0] / self.groups);
            let at_y = at(shape_y, layout, place);
            for tap in places([1, channels, shape_w[2], shape_w[3], shape_w[4]]) {
                let mut from = [n, group * channels + tap[1], 0, 0, 0];
                let inside = (0..3).all(|i| {
                    let padded = place[i + 2] * self.stride[i] + tap[i + 2] * self.dilation[i];
                    from[i + 2] = padded.wrapping_sub(self.padding[i]);
                    from[i + 2] < shape_x[i + 2]
                });
                if !inside {
                    continue;
                }
                let at_x = at(shape_x, layout, from);
                let at_w = at(shape_w, layout, [k, tap[1], tap[2], tap[3], tap[4]]);
                let products = [(at_y, x[at_x], w[at_w]), (at_x, y[at_y], w[at_w]), (at_w, x[at_x], y[at_y])];
                for (sums, (index, a, b)) in sums.iter_mut().zip(products) {
                    let product = a.value() * b.value();
                    let (sum, magnitude, count) = &mut sums[index];
                    *sum += product;
                    *magnitude += product.abs();
                    *count += 1.0;
                }
            }
        }
        sums
    }
}

/// Error bounds of results.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// Each result is rounded once. Each sum may be off by one rounding of its magnitude per term, times 8 for
    /// algorithms that transform their inputs.
    Exact,
    /// In addition, inputs are rounded to ten mantissa bits.
    Tf32,
}

/// Panics unless results are within the bound of `last(sum)`. `last` must not amplify differences.
pub fn assert_close<T: TestNumber>(
    found: &[T],
    sums: &Sums,
    bound: Bound,
    last: impl Fn(f64, usize) -> f64,
    what: &str,
) {
    assert_eq!(found.len(), sums.len(), "{what}");
    for (index, (found, (sum, magnitude, count))) in found.iter().zip(sums).enumerate() {
        let expected = last(*sum, index);
        let mut allowed = (8.0 * count + 16.0) * T::SUM_UNIT * (magnitude + expected.abs());
        allowed += 2.0 * T::UNIT * (expected.abs() + if T::UNIT > T::SUM_UNIT { *magnitude } else { 0.0 });
        if bound == Bound::Tf32 {
            allowed += magnitude / 512.0;
        }
        let error = (found.value() - expected).abs();
        assert!(error <= allowed, "{what}: element {index} is {found:?} for {expected}: {error} > {allowed}");
    }
}
