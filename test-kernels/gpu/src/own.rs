//! Functions of elements and operators as kernels, as a user writes them.

use gpu_std::prelude::*;

/// `max(x, 0) * y`.
#[elementwise]
pub fn scaled_relu(x: f32, y: f32) -> f32 {
    x.max(0.0) * y
}

/// Whether `x` is above `limit`, as 0 or 1.
#[elementwise(types(T = f32, f64, bf16, u8), scalars(limit))]
pub fn is_above<T: Scalar>(x: T, limit: T) -> u8 {
    (x > limit) as u8
}

/// `momentum * y + x`, in the place of `y`.
#[elementwise(consts(ITEMS = 2; VECTOR = 8), scalars(momentum), updates(y))]
pub fn accumulate(momentum: f64, x: f32, y: f64) -> f64 {
    momentum * y + f64::from(x)
}

/// Three bytes, whose size is no power of two.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
pub struct Pixel {
    /// Red, green and blue.
    pub channels: [u8; 3],
}

/// The pixel of four planes in one: `weights[k] * planes[k]`, added up, and the alpha beside it.
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

/// The index of each element, from nothing: a function without arrays.
#[elementwise(scalars(value))]
pub fn constant(value: [u32; 2]) -> u64 {
    u64::from(value[0]) << 32 | u64::from(value[1])
}

/// What the operation `relu` does, to be compared with it.
#[elementwise]
pub fn own_relu(x: f32) -> f32 {
    x.max_propagate(0.0)
}

/// What the operation `sum` does, to be compared with it.
#[reduction(identity = 0.0, consts(ITEMS = 8; VECTOR = 16))]
pub fn own_sum(a: f32, b: f32) -> f32 {
    a + b
}

/// The greatest element.
#[reduction(identity = f32::NEG_INFINITY)]
pub fn greatest(a: f32, b: f32) -> f32 {
    a.max(b)
}

/// The sum of squares.
#[reduction(
    types(T = f32, f64, bf16),
    consts(ITEMS = 1, 4; VECTOR = 16),
    identity = T::Accumulator::ZERO,
    fold = |sum, x: T| sum + x.to_acc() * x.to_acc()
)]
pub fn sum_of_squares<T: Float>(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator {
    a + b
}

/// A key with what belongs to it.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
pub struct Keyed {
    /// The key.
    pub key: u32,
    /// What belongs to it.
    pub value: f32,
}

/// The element with the least key; of several the one with the least value.
#[reduction(identity = Keyed { key: u32::MAX, value: f32::INFINITY })]
pub fn least_key(a: Keyed, b: Keyed) -> Keyed {
    if b.key < a.key || (b.key == a.key && b.value < a.value) { b } else { a }
}

/// Count, sum, least and greatest of a number of pixels: 36 bytes of running value.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
pub struct Summary {
    /// The number of pixels.
    pub count: u32,
    /// The sum of each channel.
    pub sums: [u32; 3],
    /// The least of each channel.
    pub least: [u32; 3],
    /// The last pixel with a red channel of 255, by its index plus one.
    pub last_red: [u32; 2],
}

/// A summary of pixels.
#[reduction(
    identity = Summary { count: 0, sums: [0; 3], least: [255; 3], last_red: [0; 2] },
    fold = |all, pixel: Pixel, index| summary(all, Summary::of(pixel, index))
)]
pub fn summary(a: Summary, b: Summary) -> Summary {
    let add = |k: usize| a.sums[k].wrapping_add(b.sums[k]);
    let least = |k: usize| a.least[k].min(b.least[k]);
    let later = if b.last_red[0] > a.last_red[0] { b.last_red } else { a.last_red };
    Summary {
        count: a.count + b.count,
        sums: [add(0), add(1), add(2)],
        least: [least(0), least(1), least(2)],
        last_red: later,
    }
}

impl Summary {
    /// Of one pixel.
    #[inline(always)]
    pub fn of(pixel: Pixel, index: u64) -> Self {
        let channels = pixel.channels.map(u32::from);
        let last_red = if channels[0] == 255 { [index as u32 + 1, channels[1]] } else { [0; 2] };
        Self { count: 1, sums: channels, least: channels, last_red }
    }
}

/// The mean: what it is made of is not what it is.
#[reduction(
    identity = [0.0, 0.0],
    fold = |all, x: f32| [all[0] + f64::from(x), all[1] + 1.0],
    finish = |all| -> f32 { (all[0] / all[1]) as f32 }
)]
pub fn mean(a: [f64; 2], b: [f64; 2]) -> [f64; 2] {
    [a[0] + b[0], a[1] + b[1]]
}

/// A linear function, of which two make one in their order.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
pub struct Linear {
    /// What the argument is multiplied with.
    pub factor: u32,
    /// What is added.
    pub offset: u32,
    /// How many functions it is.
    pub count: u32,
}

/// One function after the other.
#[scan(identity = Linear { factor: 1, offset: 0, count: 0 })]
pub fn one_after_the_other(a: Linear, b: Linear) -> Linear {
    Linear {
        factor: a.factor.wrapping_mul(b.factor),
        offset: a.offset.wrapping_mul(b.factor).wrapping_add(b.offset),
        count: a.count + b.count,
    }
}

/// What the operation `inclusive_sum` does, to be compared with it.
#[scan(types(T = f32, f64), identity = T::from_f32(-0.0))]
pub fn own_running_sum<T: Float>(a: T, b: T) -> T {
    a + b
}
