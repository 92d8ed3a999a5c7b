//! Random numbers in kernels: the counter-based generator Philox 4x32-10, and the steps from its words to uniform and
//! normal numbers.
//!
//! A number is a function of a seed, a subsequence and an offset, so threads need no state that is kept anywhere: each
//! takes a subsequence of its own. Words and uniform numbers are the same, bit by bit, on a GPU and on the host, and
//! those of cuRAND's device functions for Philox with the same three numbers. Normal numbers agree to a few units in
//! the last place, see [`normal2`].
//!
//! ```
//! use gpu_std::prelude::*;
//! use gpu_std::random::{self, Philox};
//!
//! /// Adds noise: four numbers of a subsequence for each four elements.
//! #[kernel]
//! fn add_noise(seed: u64, mut x: DisjointMut<f32, Chunks<4>>) {
//!     for chunk in thread::grid_stride(x.chunks()) {
//!         let noise = random::normal4(Philox::new(seed, chunk.get() as u64, 0).next4());
//!         if let Some(x) = x.get_mut(chunk) {
//!             for (x, noise) in x.iter_mut().zip(noise) {
//!                 *x += noise;
//!             }
//!         }
//!     }
//! }
//! ```

use core::f32::consts::{LN_2, PI};

use crate::math::{Math, fast};

/// The multipliers of a round.
const FIRST: u32 = 0xD251_1F53;
const SECOND: u32 = 0xCD9E_8D57;
/// The increment of the key after a round.
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// The four words of Philox 4x32-10 for a counter and a key (Salmon et al., "Parallel random numbers: as easy as 1, 2,
/// 3", 2011).
///
/// ```
/// let words = gpu_std::random::philox4x32([0; 4], [0; 2]);
/// assert_eq!(words, [0x6627_E8D5, 0xE169_C58D, 0xBC57_AC4C, 0x9B00_DBD8]);
/// ```
#[inline(always)]
pub fn philox4x32(mut counter: [u32; 4], mut key: [u32; 2]) -> [u32; 4] {
    let mut round = 0;
    while round < ROUNDS {
        if round > 0 {
            key = [key[0].wrapping_add(KEY_STEPS[0]), key[1].wrapping_add(KEY_STEPS[1])];
        }
        let (first_low, first_high) = multiply::<FIRST>(counter[0]);
        let (second_low, second_high) = multiply::<SECOND>(counter[2]);
        counter =
            [second_high ^ counter[1] ^ key[0], second_low, first_high ^ counter[3] ^ key[1], first_low];
        round += 1;
    }
    counter
}

/// Both halves of the product, the lower first.
///
/// On the GPU one instruction: of plain multiplications LLVM makes 64-bit arithmetic for the whole round.
#[inline(always)]
fn multiply<const BY: u32>(word: u32) -> (u32, u32) {
    #[cfg(target_arch = "nvptx64")]
    {
        let (low, high): (u32, u32);
        // SAFETY: arithmetic on registers.
        unsafe {
            core::arch::asm!(
                "{{ .reg .b64 product; mul.wide.u32 product, {word}, {by}; mov.b64 {{{low}, {high}}}, product; }}",
                word = in(reg32) word,
                by = const BY,
                low = out(reg32) low,
                high = out(reg32) high,
                options(pure, nomem, nostack),
            );
        }
        (low, high)
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        let product = word as u64 * BY as u64;
        (product as u32, (product >> 32) as u32)
    }
}

/// Philox 4x32-10 at a place of a subsequence, as `curand_init` counts: each of 2⁶⁴ subsequences of a seed has 2⁶⁶ words.
///
/// ```
/// use gpu_std::random::Philox;
///
/// let mut philox = Philox::new(42, 7, 0);
/// let (first, second) = (philox.next4(), philox.next4());
/// assert_eq!(Philox::new(42, 7, 4).next4(), second);
/// assert_ne!(first, second);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Philox {
    key: [u32; 2],
    block: u64,
    subsequence: u64,
}

impl Philox {
    /// At word `offset` of a subsequence of the seed. Words come in blocks of four: the offset is rounded down to one.
    #[inline(always)]
    pub const fn new(seed: u64, subsequence: u64, offset: u64) -> Self {
        Self::at_block(seed, subsequence, offset / 4)
    }

    /// At a block of four words of a subsequence of the seed.
    #[inline(always)]
    pub const fn at_block(seed: u64, subsequence: u64, block: u64) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32], block, subsequence }
    }

    /// The next four words.
    #[inline(always)]
    pub fn next4(&mut self) -> [u32; 4] {
        let Self { key, block, subsequence } = *self;
        self.block = block.wrapping_add(1);
        let counter = [block as u32, (block >> 32) as u32, subsequence as u32, (subsequence >> 32) as u32];
        philox4x32(counter, key)
    }
}

/// 2⁻³².
const WORD: f32 = 1.0 / (1u64 << 32) as f32;
/// 2⁻⁵³.
const WORD53: f64 = 1.0 / (1u64 << 53) as f64;

/// A uniform number in (0, 1]: `word` · 2⁻³² + 2⁻³³, rounded twice, as `curand_uniform` has it.
#[inline(always)]
pub fn uniform(word: u32) -> f32 {
    word as f32 * WORD + 0.5 * WORD
}

/// A uniform number in [0, 1), as `torch.rand` has it: [`uniform()`] with 0 for 1. There are a little more than 2²⁴ of
/// them, and 0 comes with a probability of 2⁻²⁵.
#[inline(always)]
pub fn uniform_below_one(word: u32) -> f32 {
    let value = uniform(word);
    if value == 1.0 { 0.0 } else { value }
}

/// A uniform number in (0, 1] with 53 bits of two words, as `curand_uniform2_double` has it.
#[inline(always)]
pub fn uniform_f64(words: [u32; 2]) -> f64 {
    bits53(words) as f64 * WORD53 + 0.5 * WORD53
}

#[inline(always)]
fn bits53([low, high]: [u32; 2]) -> u64 {
    low as u64 ^ ((high as u64) << 21)
}

/// Two independent normal numbers of mean 0 and variance 1 from two words, by the method of Box and Muller, as
/// `curand_normal2` has them.
///
/// On a GPU the logarithm, root, sine and cosine are the approximate ones of [`fast`]. With r = √(x² + y²), results differ
/// from those of exact functions by at most 2·10⁻⁶ r + 2·10⁻⁷ / r, and by 6·10⁻⁴ at most: near the origin, where the
/// words make steps of that size themselves. r is 6.8 at most.
#[inline(always)]
pub fn normal2([first, second]: [u32; 2]) -> [f32; 2] {
    const RADIANS: f32 = 2.0 * PI * WORD;
    let square = -2.0 * LN_2 * fast::log2(uniform(first));
    // The logarithm may come out a little above 0 next to 1.
    let radius = -fast::sqrt(if square > 0.0 { square } else { 0.0 });
    // The angle less π, where sine and cosine are most exact; the radius has the sign that this changes.
    let angle = Math::mul_add(second as f32, RADIANS, 0.5 * RADIANS - PI);
    [radius * fast::sin(angle), radius * fast::cos(angle)]
}

/// [`normal2`] of both halves of a block.
#[inline(always)]
pub fn normal4([a, b, c, d]: [u32; 4]) -> [f32; 4] {
    let ([x, y], [z, w]) = (normal2([a, b]), normal2([c, d]));
    [x, y, z, w]
}

/// Two independent normal numbers of mean 0 and variance 1 with the accuracy of `f64` from four words, by the method of
/// Box and Muller, as `curand_normal2_double` has them.
///
/// Those of a GPU and of the host differ by what their logarithms do, some units in the last place.
#[inline(always)]
pub fn normal2_f64([a, b, c, d]: [u32; 4]) -> [f64; 2] {
    let radius = (-2.0 * uniform_f64([a, b]).ln()).sqrt();
    let (sine, cosine) = sin_cos_pi(bits53([c, d]) as f64 * (2.0 * WORD53) + WORD53);
    [radius * sine, radius * cosine]
}

/// Sine and cosine of πx for x from 0 to 2, within 3·10⁻¹⁶, without the table in memory that a general sine needs.
#[inline(always)]
fn sin_cos_pi(x: f64) -> (f64, f64) {
    // The nearest quarter turn, and what is left of the angle: exact.
    let quarter = (2.0 * x + 0.5) as i32;
    let angle = (x - 0.5 * quarter as f64) * core::f64::consts::PI;
    let square = angle * angle;
    // The Taylor series, whose next term is below 10⁻¹⁸ up to π / 4.
    let mut sine = 0.0;
    let mut cosine = 0.0;
    let mut n = 8;
    while n > 0 {
        // Of index 2n + 1 and 2n, in the manner of Horner: 1 - x² / ((2n) (2n + 1)) (…).
        let k = 2.0 * n as f64;
        sine = square * (-1.0 / (k * (k + 1.0))) * (1.0 + sine);
        cosine = square * (-1.0 / (k * (k - 1.0))) * (1.0 + cosine);
        n -= 1;
    }
    let (sine, cosine) = (Math::mul_add(angle, sine, angle), 1.0 + cosine);
    let (sine, cosine) = if quarter & 1 == 0 { (sine, cosine) } else { (cosine, -sine) };
    if quarter & 2 == 0 { (sine, cosine) } else { (-sine, -cosine) }
}

/// `f32` and `f64`: what random numbers of the float types are made of.
pub trait Draw: Math {
    /// Numbers that a block of four words makes: 4 or 2.
    const LANES: usize;
    /// Uniform numbers in (0, 1], the first [`LANES`](Self::LANES) of these.
    fn uniform(words: [u32; 4]) -> [Self; 4];
    /// Normal numbers of mean 0 and variance 1, the first [`LANES`](Self::LANES) of these.
    fn normal(words: [u32; 4]) -> [Self; 4];
}

impl Draw for f32 {
    const LANES: usize = 4;

    #[inline(always)]
    fn uniform([a, b, c, d]: [u32; 4]) -> [Self; 4] {
        [uniform(a), uniform(b), uniform(c), uniform(d)]
    }

    #[inline(always)]
    fn normal(words: [u32; 4]) -> [Self; 4] {
        normal4(words)
    }
}

impl Draw for f64 {
    const LANES: usize = 2;

    #[inline(always)]
    fn uniform([a, b, c, d]: [u32; 4]) -> [Self; 4] {
        [uniform_f64([a, b]), uniform_f64([c, d]), 0.0, 0.0]
    }

    #[inline(always)]
    fn normal(words: [u32; 4]) -> [Self; 4] {
        let [x, y] = normal2_f64(words);
        [x, y, 0.0, 0.0]
    }
}
