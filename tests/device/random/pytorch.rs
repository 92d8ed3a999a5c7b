//! Reference numbers from PyTorch on an H200 (2.11, `torch.Generator` with [`SEED`] and [`OFFSET`]).
//!
//! Bit-identical numbers are compared by a sum over all elements: the bits of each, times 1, 3, 5, … in order, modulo
//! 2^64. Normal and exponential numbers are compared at the indices [`AT`].

use half::{bf16, f16};
use warpsmith::DeviceCopy;
use warpsmith::gpu_std::random::Draw;
use warpsmith::gpu_std::scalar::Float;
use warpsmith::prelude::*;
use warpsmith::random::{self, Generator};

use super::model::{filled, generator};
use crate::common::stream;

const SEED: u64 = 20_261_122;
const OFFSET: u64 = 16;
/// Slightly more than two steps of an H200, with its SMs and threads per SM.
const NUMBERS: usize = 2_500_001;
const H200: (u32, u32) = (132, 2048);
const AT: [usize; 12] =
    [0, 1, 255, 256, 270_335, 270_336, 540_672, 1_081_343, 1_081_344, 2_162_688, 2_499_999, 2_500_000];

trait Bits: DeviceCopy {
    fn bits(self) -> u64;
}

macro_rules! bits {
    ($($type:ty: $self:ident => $bits:expr;)*) => {$(
        impl Bits for $type {
            fn bits($self) -> u64 {
                $bits
            }
        }
    )*};
}

bits! {
    f32: self => self.to_bits().into();
    f64: self => self.to_bits();
    f16: self => self.to_bits().into();
    bf16: self => self.to_bits().into();
    u8: self => self.into();
    i32: self => self.cast_unsigned().into();
    i64: self => self.cast_unsigned();
}

/// Draws numbers from the start of PyTorch's sequence; fails unless the offset advances as in PyTorch.
fn drawn<T: DeviceCopy>(
    taken: u64,
    fill: impl FnOnce(&Stream, &Generator, &mut DeviceBuffer<T>) -> warpsmith::Result<()>,
) -> Vec<T> {
    let (stream, generator) = (stream(), generator(H200, SEED, OFFSET));
    let found = filled(&stream, NUMBERS, |out| fill(&stream, &generator, out));
    assert_eq!(generator.offset().unwrap(), OFFSET + taken);
    found
}

fn sum<T: Bits>(numbers: Vec<T>) -> u64 {
    let weighted = numbers.into_iter().zip((1u64..).step_by(2));
    weighted.fold(0, |sum, (number, weight)| sum.wrapping_add(number.bits().wrapping_mul(weight)))
}

#[test]
fn uniform_numbers_are_pytorchs() {
    let uniform = drawn::<f32>(12, |stream, generator, out| random::uniform(stream, generator, out));
    assert_eq!(sum(uniform), 0xb0da_7f2c_b90e_7d08);
    let found = sum(drawn::<f64>(20, |stream, generator, out| random::uniform(stream, generator, out)));
    assert_eq!(found, 0x3e0e_3354_8f46_5ba8);
    let found = sum(drawn::<f16>(12, |stream, generator, out| random::uniform(stream, generator, out)));
    assert_eq!(found, 0x0132_dcbe_6ca8_23a5);
    let found = sum(drawn::<bf16>(12, |stream, generator, out| random::uniform(stream, generator, out)));
    assert_eq!(found, 0x0163_fa64_6556_8ea4);
    let range = -2.5..7.0;
    let found =
        sum(drawn::<f32>(12, |stream, generator, out| random::uniform_in(stream, generator, range, out)));
    assert_eq!(found, 0x430c_43d3_e3cc_805a);
}

#[test]
fn bernoulli_numbers_are_pytorchs() {
    for (p, of_f32, of_u8) in [
        (0.9, 0xc844_7323_5a00_0000, 0x0000_051d_5bc9_5f4c),
        (0.3, 0x6273_765f_fc00_0000, 0x0000_01b4_f3b5_4408),
    ] {
        let found = drawn::<f32>(12, |stream, generator, out| random::bernoulli(stream, generator, p, out));
        assert_eq!(sum(found), of_f32, "{p}");
        let found = drawn::<u8>(12, |stream, generator, out| random::bernoulli(stream, generator, p, out));
        assert_eq!(sum(found), of_u8, "{p}");
    }
}

#[test]
fn integers_are_pytorchs() {
    let narrow =
        drawn::<i32>(12, |stream, generator, out| random::integers(stream, generator, -7..1000, out));
    assert_eq!(sum(narrow), 0x1ea0_b5e4_3f86_c0d1);
    let of_i32 = i32::MIN..i32::MAX;
    let wide = drawn::<i32>(20, |stream, generator, out| random::integers(stream, generator, of_i32, out));
    assert_eq!(sum(wide), 0xe8bb_6059_e001_456b);
    for (range, taken, expected) in [
        (-7..1000, 12, 0x000b_0474_3f86_c0d1),
        (0..1 << 28, 20, 0x81d2_3688_cdb1_5ac5),
        (3..1 << 60, 20, 0x8eed_da5e_6ae8_5d79),
    ] {
        let within = range.clone();
        let found =
            drawn::<i64>(taken, |stream, generator, out| random::integers(stream, generator, within, out));
        assert_eq!(sum(found), expected, "{range:?}");
    }
}

/// Fails unless the numbers at [`AT`] are within `bound` of PyTorch's numbers.
fn check_near<T: Into<f64> + Copy>(line: &str, found: &[T], expected: &[f64], bound: f64) {
    assert_eq!(expected.len(), AT.len());
    for (at, expected) in AT.into_iter().zip(expected) {
        let found: f64 = found[at].into();
        assert!((found - expected).abs() <= bound, "{line}: element {at} is {found}, {expected} expected");
    }
}

/// Draws from the distribution of a line of `pytorch.txt`.
fn drawn_from<T: Float<Accumulator: Draw>>(taken: u64, distribution: &[&str]) -> Vec<T> {
    let number = |at: usize| distribution[at].parse::<f64>().unwrap();
    drawn::<T>(taken, |stream, generator, out| match distribution[0] {
        "normal" => random::normal(stream, generator, number(2), number(3), out),
        _ => random::exponential(stream, generator, number(2), out),
    })
}

#[test]
fn normal_and_exponential_numbers_are_pytorchs() {
    // Distribution, type and parameters, and the numbers at the indices `AT`.
    for line in include_str!("pytorch.txt").lines() {
        let (distribution, numbers) = line.split_once(" : ").unwrap();
        let distribution: Vec<&str> = distribution.split(' ').collect();
        let expected: Vec<f64> = numbers.split(' ').map(|number| number.parse().unwrap()).collect();
        match distribution[1] {
            // Bound of single precision if not both numbers of a pair are near 0, see `gpu_std::random::normal2`.
            "f32" => check_near(line, &drawn_from::<f32>(12, &distribution), &expected, 1e-5),
            _ => check_near(line, &drawn_from::<f64>(20, &distribution), &expected, 1e-14),
        }
    }
}
