//! Element functions and operators as kernels, as a user writes them.

use gpu_std::prelude::*;

/// Computes `max(x, 0) * y`.
#[elementwise]
pub fn scaled_relu(x: f32, y: f32) -> f32 {
    x.max(0.0) * y
}

/// Returns 1 if `x` is above `limit`, otherwise 0.
#[elementwise(types(T = f32, f64, bf16, u8), scalars(limit))]
pub fn is_above<T: Scalar>(x: T, limit: T) -> u8 {
    (x > limit) as u8
}

/// Computes `momentum * y + x`, written to `y`.
#[elementwise(consts(ITEMS = 2; VECTOR = 8), scalars(momentum), updates(y))]
pub fn accumulate(momentum: f64, x: f32, y: f64) -> f64 {
    momentum * y + f64::from(x)
}

/// A pixel of three bytes, whose size is not a power of two.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
pub struct Pixel {
    /// Red, green and blue channels.
    pub channels: [u8; 3],
}

/// Blends three planes into a pixel: `weights[k] * planes[k]` plus alpha.
#[elementwise(scalars(weights))]
pub fn blended(weights: [u8; 3], red: u8, green: u8, blue: u16, alpha: f32) -> Pixel {
    let part = |weight: u8, value: u16| ((u16::from(weight) * value) >> 8) as u8;
    let opaque = (alpha >= 1.0) as u8;
    Pixel {
        channels: [
            part(weights[0], u16::from(red)) | opaque,
            part(weights[1], u16::from(green)),
            part(weights[2], blue & 255),
        ],
    }
}

/// Returns a constant for each element: a function without arrays.
#[elementwise(scalars(value))]
pub fn constant(value: [u32; 2]) -> u64 {
    u64::from(value[0]) << 32 | u64::from(value[1])
}

/// Maximum.
#[reduction(identity = f32::NEG_INFINITY)]
pub fn largest(a: f32, b: f32) -> f32 {
    a.max(b)
}

/// Sum of squares.
#[reduction(
    types(T = f32, f64, bf16),
    consts(ITEMS = 1, 4; VECTOR = 16),
    identity = T::Accumulator::ZERO,
    fold = |sum, x: T| sum + x.to_acc() * x.to_acc()
)]
pub fn sum_of_squares<T: Float>(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator {
    a + b
}

/// A key-value pair.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
pub struct Keyed {
    /// The key.
    pub key: u32,
    /// The value.
    pub value: f32,
}

/// The element with the smallest key; among equal keys, the one with the smallest value.
#[reduction(identity = Keyed { key: u32::MAX, value: f32::INFINITY })]
pub fn min_key(a: Keyed, b: Keyed) -> Keyed {
    if b.key < a.key || (b.key == a.key && b.value < a.value) { b } else { a }
}

/// Count, channel sums, channel minima and last red pixel of several pixels: an accumulator of 36 bytes.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
pub struct Summary {
    /// Number of pixels.
    pub count: u32,
    /// Sum of each channel.
    pub sums: [u32; 3],
    /// Minimum of each channel.
    pub smallest: [u32; 3],
    /// Index plus one of the last pixel with a red channel of 255.
    pub last_red: [u32; 2],
}

/// Summarizes pixels.
#[reduction(
    identity = Summary { count: 0, sums: [0; 3], smallest: [255; 3], last_red: [0; 2] },
    fold = |all, pixel: Pixel, index| summary(all, Summary::of(pixel, index))
)]
pub fn summary(a: Summary, b: Summary) -> Summary {
    let add = |k: usize| a.sums[k].wrapping_add(b.sums[k]);
    let smallest = |k: usize| a.smallest[k].min(b.smallest[k]);
    let later = if b.last_red[0] > a.last_red[0] { b.last_red } else { a.last_red };
    Summary {
        count: a.count + b.count,
        sums: [add(0), add(1), add(2)],
        smallest: [smallest(0), smallest(1), smallest(2)],
        last_red: later,
    }
}

impl Summary {
    /// Summarizes one pixel.
    #[inline(always)]
    pub fn of(pixel: Pixel, index: u64) -> Self {
        let channels = pixel.channels.map(u32::from);
        let last_red = if channels[0] == 255 { [index as u32 + 1, channels[1]] } else { [0; 2] };
        Self { count: 1, sums: channels, smallest: channels, last_red }
    }
}

/// Mean: the accumulator differs from the result.
#[reduction(
    identity = [0.0, 0.0],
    fold = |all, x: f32| [all[0] + f64::from(x), all[1] + 1.0],
    finish = |all| -> f32 { (all[0] / all[1]) as f32 }
)]
pub fn mean(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
    [a[0] + b[0], a[1] + b[1]]
}

/// A linear function. Composing two of them in order gives another one.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
pub struct Linear {
    /// Factor of the argument.
    pub factor: u32,
    /// Offset that is added.
    pub offset: u32,
    /// Number of composed functions.
    pub count: u32,
}

/// Composes two functions in order.
#[scan(identity = Linear { factor: 1, offset: 0, count: 0 })]
pub fn one_after_the_other(a: Linear, b: Linear) -> Linear {
    Linear {
        factor: a.factor.wrapping_mul(b.factor),
        offset: a.offset.wrapping_mul(b.factor).wrapping_add(b.offset),
        count: a.count + b.count,
    }
}

/// The same as the operation `inclusive_sum`, for comparison.
#[scan(types(T = f32, f64), identity = T::from_f32(-0.0))]
pub fn own_running_sum<T: Float>(a: T, b: T) -> T {
    a + b
}
