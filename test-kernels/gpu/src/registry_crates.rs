//! Crates from the registry in kernels.
//!
//! | kernel | crates |
//! | --- | --- |
//! | `numbered_hashes` | `heapless` formats a text by `core::fmt`, `sha2` hashes it |
//! | `decimals` | `itoa` writes numbers as text, `arrayvec` collects it |
//! | `orbits` | `num_complex` and `num_traits` iterate z² + c |
//! | `random_medians` | `oorandom` draws, `arrayvec` holds, `core` sorts |
//! | `fixed_means` | `fixed` adds and divides |
//! | `turned` | `glam` rotates points, by results of `libm` |
//! | `packed_halves` | `half` and `bytemuck` read two numbers from a word |
//! | `narrowed` | `half` writes the device's own memory, which the kernel then reads |

use core::fmt::Write;

use arrayvec::{ArrayString, ArrayVec};
use fixed::types::I16F16;
use glam::{Mat2, Vec2};
use gpu_std::prelude::*;
use half::f16;
use half::slice::HalfFloatSliceExt;
use heapless::String;
use num_complex::Complex;
use num_traits::{One, Zero};
use oorandom::Rand32;
use sha2::{Digest, Sha256};

/// Computes [`numbered_hash`] of `i` as digest `i`. `digests` has 32 bytes per digest.
#[kernel(stack = 4096)]
pub fn numbered_hashes(prefix: u32, mut digests: DisjointMut<u8, Chunks<32>>) {
    for i in thread::grid_stride(digests.chunks()) {
        if let Some(digest) = digests.get_mut(i) {
            digest.copy_from_slice(&numbered_hash(prefix, i.get() as u64));
        }
    }
}

/// SHA-256 of the text `prefix-number`, with the prefix in hexadecimal.
pub fn numbered_hash(prefix: u32, number: u64) -> [u8; 32] {
    let mut text = String::<32>::new();
    // 8 digits, a dash, at most 20 digits: they fit.
    _ = write!(text, "{prefix:08x}-{number}");
    Sha256::digest(text.as_bytes()).into()
}

/// Writes the [`decimal`] of number `i` as text `i`. `texts` has 12 bytes per text.
#[kernel(stack = 1024)]
pub fn decimals(numbers: &[i32], mut texts: DisjointMut<u8, Chunks<12>>) {
    for i in thread::grid_stride(texts.chunks()) {
        if let Some((text, number)) = texts.get_mut(i).zip(numbers.get(i.get())) {
            text.copy_from_slice(&decimal(*number));
        }
    }
}

/// Formats a number as digits, padded with spaces to 12 bytes.
pub fn decimal(number: i32) -> [u8; 12] {
    let mut digits = ArrayString::<12>::new();
    // A sign and at most ten digits: they fit.
    _ = digits.try_push_str(itoa::Buffer::new().format(number));
    let mut text = [b' '; 12];
    for (place, digit) in text.iter_mut().zip(digits.bytes()) {
        *place = digit;
    }
    text
}

/// Computes the [`orbit`] of point `i` as result `i`.
#[kernel]
pub fn orbits(points: &[f32], mut steps: DisjointMut<u32>) {
    for i in thread::grid_stride(steps.len()) {
        let point = Complex::new(points[2 * i.get()], points[2 * i.get() + 1]);
        if let Some(steps) = steps.get_mut(i) {
            *steps = orbit(point);
        }
    }
}

/// Number of steps of z² + c until |z| exceeds 2, at most 100.
pub fn orbit(c: Complex<f32>) -> u32 {
    let mut z: Complex<f32> = Complex::zero();
    for step in 0..100 {
        if z.norm_sqr() > 4.0 {
            return step;
        }
        z = z * z * Complex::<f32>::one() + c;
    }
    100
}

/// Computes the [`random_median`] of seed `i` as result `i`.
#[kernel(stack = 512)]
pub fn random_medians(mut medians: DisjointMut<u32>) {
    for i in thread::grid_stride(medians.len()) {
        let median = random_median(i.get() as u64);
        if let Some(place) = medians.get_mut(i) {
            *place = median;
        }
    }
}

/// Median of nine random numbers below 1000.
pub fn random_median(seed: u64) -> u32 {
    let mut random = Rand32::new(seed);
    let mut numbers: ArrayVec<u32, 9> = (0..9).map(|_| random.rand_range(0..1000)).collect();
    numbers.sort_unstable();
    numbers.get(4).copied().unwrap_or(0)
}

/// Computes the [`fixed_mean`] of the four numbers from index `4 i` on, each in units of 1/65536, as result `i`.
#[kernel]
pub fn fixed_means(numbers: &[i32], mut means: DisjointMut<i32>) {
    for i in thread::grid_stride(means.len()) {
        let four = [0, 1, 2, 3].map(|offset| numbers[4 * i.get() + offset]);
        if let Some(mean) = means.get_mut(i) {
            *mean = fixed_mean(four);
        }
    }
}

/// Mean of four fixed-point numbers with 16 fractional bits.
pub fn fixed_mean(bits: [i32; 4]) -> i32 {
    let sum = bits.iter().fold(I16F16::ZERO, |sum, &bits| sum.wrapping_add(I16F16::from_bits(bits)));
    (sum / 4).to_bits()
}

/// Multiplies each point by the [`turn`] of its index.
#[kernel]
pub fn turned(mut points: DisjointMut<Vec2>) {
    for i in thread::grid_stride(points.len()) {
        if let Some(point) = points.get_mut(i) {
            *point = turn(i.get() as u32) * *point;
        }
    }
}

/// Rotation with a scale, computed from an index by the error function.
pub fn turn(index: u32) -> Mat2 {
    let sine = libm::erff(index as f32 / 1000.0);
    Mat2::from_cols_array(&[1.0, sine, -sine, 1.0])
}

/// Computes the sum of the two numbers in word `i` as sum `i`.
#[kernel]
pub fn packed_halves(words: &[u32], mut sums: DisjointMut<f32>) {
    for i in thread::grid_stride(sums.len()) {
        let sum = packed_sum(words[i.get()]);
        if let Some(place) = sums.get_mut(i) {
            *place = sum;
        }
    }
}

/// Sum of the two half-precision numbers in a word.
pub fn packed_sum(word: u32) -> f32 {
    let [low, high]: [f16; 2] = bytemuck::cast(word);
    low.to_f32() + high.to_f32()
}

/// Converts groups of eight numbers to half precision, and sums them.
#[kernel]
pub fn narrowed(numbers: &[f32], mut halves: DisjointMut<f16, Chunks<8>>, mut sums: DisjointMut<f32>) {
    for i in thread::grid_stride(sums.len()) {
        let eight = &numbers[8 * i.get()..8 * i.get() + 8];
        if let Some(halves) = halves.get_mut(i) {
            halves.convert_from_f32_slice(eight);
            let sum = halves.iter().map(|half| half.to_f32()).sum();
            if let Some(place) = sums.get_mut(i) {
                *place = sum;
            }
        }
    }
}
