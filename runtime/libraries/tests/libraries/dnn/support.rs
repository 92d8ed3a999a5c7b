//! References in `f64` by the definitions, and what is shared by its tests.

use crate::numbers::number;
pub use crate::under_test::device;
use half::{bf16, f16};
use warpsmith_runtime::library::dnn::{Float, Layout};
use warpsmith_runtime::{DeviceBuffer, Error, Graph, Stream};

/// Does what enqueues work on the stream: as it is, or while it is captured, and launches the graph.
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

pub trait Number: Float + PartialEq + std::fmt::Debug {
    /// Half the distance from 1 to the next number.
    const UNIT: f64;
    /// The same of the sums.
    const SUM_UNIT: f64;
    fn of(value: f64) -> Self;
    fn to(self) -> f64;
}

macro_rules! number {
    ($type:ty, $bits:literal, $sum_bits:literal, $of:expr, $to:expr) => {
        impl Number for $type {
            const UNIT: f64 = 1.0 / (1u64 << $bits) as f64;
            const SUM_UNIT: f64 = 1.0 / (1u64 << $sum_bits) as f64;
            fn of(value: f64) -> Self {
                $of(value)
            }
            fn to(self) -> f64 {
                $to(self)
            }
        }
    };
}

number!(f32, 24, 24, |value| value as f32, f64::from);
number!(f64, 53, 53, |value| value, |value| value);
number!(f16, 11, 24, f16::from_f64, f16::to_f64);
number!(bf16, 8, 24, bf16::from_f64, bf16::to_f64);

/// Numbers from -1 to 1.
pub fn random<T: Number>(len: usize, seed: u64) -> Vec<T> {
    let mut random = fastrand::Rng::with_seed(seed);
    (0..len).map(|_| T::of(number(&mut random))).collect()
}

pub fn buffer<T: Number>(stream: &Stream, values: &[T]) -> DeviceBuffer<T> {
    DeviceBuffer::from_host(stream, values).unwrap()
}

/// The index of an element, given its place and the shape: batch, channels, then three spatial dimensions.
pub fn at(shape: [usize; 5], layout: Layout, [n, c, d, h, w]: [usize; 5]) -> usize {
    let [_, channels, depth, height, width] = shape;
    match layout {
        Layout::Nchw => (((n * channels + c) * depth + d) * height + h) * width + w,
        Layout::Nhwc => (((n * depth + d) * height + h) * width + w) * channels + c,
    }
}

/// All places of a shape.
pub fn places(shape: [usize; 5]) -> impl Iterator<Item = [usize; 5]> {
    let [a, b, c, d, e] = shape;
    let count = a * b * c * d * e;
    (0..count).map(move |i| [i / (b * c * d * e), i / (c * d * e) % b, i / (d * e) % c, i / e % d, i % e])
}

/// With ones for the spatial dimensions that are not there.
pub fn five(shape: &[usize]) -> [usize; 5] {
    let mut five = [shape[0], shape[1], 1, 1, 1];
    five[7 - shape.len()..].copy_from_slice(&shape[2..]);
    five
}

/// A convolution for the reference.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub x: &'static [usize],
    pub w: &'static [usize],
    pub padding: [usize; 3],
    pub stride: [usize; 3],
    pub dilation: [usize; 3],
    pub groups: usize,
}

/// Each element with the sum of the products' magnitudes and their number.
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

    /// The three tensors' sums of products, given the others: of y, x and w.
    pub fn sums<T: Number>(&self, layout: Layout, x: &[T], w: &[T], y: &[T]) -> [Sums; 3] {
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
                    let product = a.to() * b.to();
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

/// How exact results must be.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Bound {
    /// One rounding of each result; each sum within so many roundings of its magnitude as it has terms, times 8 for
    /// algorithms that transform their inputs.
    Exact,
    /// And inputs rounded to ten bits.
    Tf32,
}

/// Fails unless results are within the bound of `last(sum)`, where `last` does not stretch differences.
pub fn assert_close<T: Number>(
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
        let error = (found.to() - expected).abs();
        assert!(error <= allowed, "{what}: element {index} is {found:?} for {expected}: {error} > {allowed}");
    }
}
