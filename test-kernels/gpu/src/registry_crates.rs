//! Crates from the registry in kernels.
//!
//! | kernel | crates |
//! | --- | --- |
//! | `numbered_hashes` | `heapless` formats a text by `core::fmt`, `sha2` hashes it |
//! | `decimals` | `itoa` writes numbers as text, `arrayvec` collects it |
//! | `orbits` | `num_complex` and `num_traits` iterate z² + c |
//! | `random_medians` | `oorandom` draws, `arrayvec` holds, `core` sorts |
//! | `fixed_means` | `fixed` adds and divides |
//! | `turned` | `glam` turns points, by what `libm` returns |
//! | `packed_halves` | `half` and `bytemuck` read two numbers from a word |

use core::fmt::Write;

use arrayvec::{ArrayString, ArrayVec};
use fixed::types::I16F16;
use glam::{Mat2, Vec2};
use gpu_std::prelude::*;
use half::f16;
use heapless::String;
use num_complex::Complex;
use num_traits::{One, Zero};
use oorandom::Rand32;
use sha2::{Digest, Sha256};

/// Digest `i` is the [`numbered_hash`] of `i`. `digests` has 32 bytes for each.
#[kernel(stack = 4096)]
pub fn numbered_hashes(prefix: u32, mut digests: DisjointMut<u8, Chunks<32>>) {
    for i in thread::grid_stride(digests.chunks()) {
        if let Some(digest) = digests.get_mut(i) {
            digest.copy_from_slice(&numbered_hash(prefix, i.get() as u64));
        }
    }
}

/// The SHA-256 of the text `prefix-number`, the prefix in hexadecimal.
pub fn numbered_hash(prefix: u32, number: u64) -> [u8; 32] {
    let mut text = String::<32>::new();
    // 8 digits, a dash, at most 20 digits: they fit.
    _ = write!(text, "{prefix:08x}-{number}");
    Sha256::digest(text.as_bytes()).into()
}

/// Text `i` is the [`decimal`] of number `i`. `texts` has 12 bytes for each.
#[kernel(stack = 1024)]
pub fn decimals(numbers: &[i32], mut texts: DisjointMut<u8, Chunks<12>>) {
    for i in thread::grid_stride(texts.chunks()) {
        if let Some((text, number)) = texts.get_mut(i).zip(numbers.get(i.get())) {
            text.copy_from_slice(&decimal(*number));
        }
    }
}

/// A number in digits, with spaces up to 12 bytes.
pub fn decimal(number: i32) -> [u8; 12] {
    let mut digits = ArrayString::<12>::new();
    // A sign and ten digits at most: they fit.
    _ = digits.try_push_str(itoa::Buffer::new().format(number));
    let mut text = [b' '; 12];
    for (place, digit) in text.iter_mut().zip(digits.bytes()) {
        *place = digit;
    }
    text
}

/// Result `i` is the [`orbit`] of point `i`.
#[kernel]
pub fn orbits(points: &[f32], mut steps: DisjointMut<u32>) {
    for i in thread::grid_stride(steps.len()) {
        let point = Complex::new(points[2 * i.get()], points[2 * i.get() + 1]);
        if let Some(steps) = steps.get_mut(i) {
            *steps = orbit(point);
        }
    }
}

/// Steps of z² + c until |z| exceeds 2, 100 at most.
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

/// Result `i` is the [`random_median`] of seed `i`.
#[kernel(stack = 512)]
pub fn random_medians(mut medians: DisjointMut<u32>) {
    for i in thread::grid_stride(medians.len()) {
        let median = random_median(i.get() as u64);
        if let Some(place) = medians.get_mut(i) {
            *place = median;
        }
    }
}

/// The median of nine random numbers below 1000.
pub fn random_median(seed: u64) -> u32 {
    let mut random = Rand32::new(seed);
    let mut numbers: ArrayVec<u32, 9> = (0..9).map(|_| random.rand_range(0..1000)).collect();
    numbers.sort_unstable();
    numbers.get(4).copied().unwrap_or(0)
}

/// Result `i` is the [`fixed_mean`] of four numbers from `4 i`, each in 65536ths.
#[kernel]
pub fn fixed_means(numbers: &[i32], mut means: DisjointMut<i32>) {
    for i in thread::grid_stride(means.len()) {
        let four = [0, 1, 2, 3].map(|offset| numbers[4 * i.get() + offset]);
        if let Some(mean) = means.get_mut(i) {
            *mean = fixed_mean(four);
        }
    }
}

/// The mean of four numbers with 16 bits behind the point.
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

/// A rotation, with a scale, by the error function of an index.
pub fn turn(index: u32) -> Mat2 {
    let sine = libm::erff(index as f32 / 1000.0);
    Mat2::from_cols_array(&[1.0, sine, -sine, 1.0])
}

/// Sum `i` is that of the two numbers in word `i`.
#[kernel]
pub fn packed_halves(words: &[u32], mut sums: DisjointMut<f32>) {
    for i in thread::grid_stride(sums.len()) {
        let sum = packed_sum(words[i.get()]);
        if let Some(place) = sums.get_mut(i) {
            *place = sum;
        }
    }
}

/// The sum of the two half-precision numbers in a word.
pub fn packed_sum(word: u32) -> f32 {
    let [low, high]: [f16; 2] = bytemuck::cast(word);
    low.to_f32() + high.to_f32()
}
