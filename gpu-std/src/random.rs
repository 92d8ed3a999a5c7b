//! Random numbers in kernels: the counter-based generator Philox 4x32-10, and conversions of its words to uniform and
//! normal numbers.
//!
//! Each number is a function of a seed, a subsequence and an offset. Threads therefore store no state, and each thread
//! uses its own subsequence. Words and uniform numbers are bit-identical on GPU and host, and equal the results of
//! cuRAND's Philox device functions for the same three parameters. Normal numbers agree to a few units in the last
//! place (see [`normal2`]).
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

/// The multipliers of each round.
const FIRST: u32 = 0xD251_1F53;
const SECOND: u32 = 0xCD9E_8D57;
/// The increments of the key after each round.
const KEY_STEPS: [u32; 2] = [0x9E37_79B9, 0xBB67_AE85];
const ROUNDS: u32 = 10;

/// Returns the four words of Philox 4x32-10 for a counter and a key (Salmon et al., "Parallel random numbers: as easy
/// as 1, 2, 3", 2011).
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

/// Returns the low and the high half of `word` · `BY`.
///
/// On the GPU, the multiplication is one instruction. From plain multiplications, LLVM would generate 64-bit arithmetic
/// for the whole round.
#[inline(always)]
fn multiply<const BY: u32>(word: u32) -> (u32, u32) {
    #[cfg(target_arch = "nvptx64")]
    {
        let (low, high): (u32, u32);
        // SAFETY: the instruction accesses only registers.
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

/// Philox 4x32-10 generator at a position in a subsequence, with the same parameters as `curand_init`. A seed has 2⁶⁴
/// subsequences of 2⁶⁶ words each.
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
    /// Creates a generator that starts at word `offset` in a subsequence of the seed. Words come in blocks of four, so
    /// the offset is rounded down to a multiple of four.
    #[inline(always)]
    pub const fn new(seed: u64, subsequence: u64, offset: u64) -> Self {
        Self::at_block(seed, subsequence, offset / 4)
    }

    /// Creates a generator that starts at four-word block `block` in a subsequence of the seed.
    #[inline(always)]
    pub const fn at_block(seed: u64, subsequence: u64, block: u64) -> Self {
        Self { key: [seed as u32, (seed >> 32) as u32], block, subsequence }
    }

    /// Returns the next four words.
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

/// Returns a uniform number in (0, 1]: `word` · 2⁻³² + 2⁻³³, rounded twice, like `curand_uniform`.
#[inline(always)]
pub fn uniform(word: u32) -> f32 {
    word as f32 * WORD + 0.5 * WORD
}

/// Returns a uniform number in [0, 1), like `torch.rand`: the result of [`uniform()`] with 1 replaced by 0. There are
/// slightly more than 2²⁴ different results, and the probability of 0 is 2⁻²⁵.
#[inline(always)]
pub fn uniform_below_one(word: u32) -> f32 {
    let value = uniform(word);
    if value == 1.0 { 0.0 } else { value }
}

/// Returns a uniform number in (0, 1] with 53 bits from two words, like `curand_uniform2_double`.
#[inline(always)]
pub fn uniform_f64(words: [u32; 2]) -> f64 {
    bits53(words) as f64 * WORD53 + 0.5 * WORD53
}

#[inline(always)]
fn bits53([low, high]: [u32; 2]) -> u64 {
    low as u64 ^ ((high as u64) << 21)
}

/// Returns two independent normal numbers with mean 0 and variance 1 from two words by the Box-Muller method, like
/// `curand_normal2`.
///
/// On a GPU, the logarithm, square root, sine and cosine are the approximate functions of [`fast`]. With r = √(x² +
/// y²), the results differ from those of the exact functions by at most 2·10⁻⁶ r + 2·10⁻⁷ / r. The difference is at
/// most 6·10⁻⁴, near the origin. r is at most 6.8.
#[inline(always)]
pub fn normal2([first, second]: [u32; 2]) -> [f32; 2] {
    const RADIANS: f32 = 2.0 * PI * WORD;
    let square = -2.0 * LN_2 * fast::log2(uniform(first));
    // For arguments near 1, the approximate logarithm may be slightly above 0.
    let radius = -fast::sqrt(if square > 0.0 { square } else { 0.0 });
    // Uses the angle minus π because sine and cosine are most accurate there. The negative radius compensates for the
    // shift.
    let angle = Math::mul_add(second as f32, RADIANS, 0.5 * RADIANS - PI);
    [radius * fast::sin(angle), radius * fast::cos(angle)]
}

/// Applies [`normal2`] to both halves of a four-word block.
#[inline(always)]
pub fn normal4([a, b, c, d]: [u32; 4]) -> [f32; 4] {
    let ([x, y], [z, w]) = (normal2([a, b]), normal2([c, d]));
    [x, y, z, w]
}

/// Returns two independent normal numbers with mean 0 and variance 1 and `f64` accuracy from four words by the
/// Box-Muller method, like `curand_normal2_double`.
///
/// GPU and host results differ by a few units in the last place.
#[inline(always)]
pub fn normal2_f64([a, b, c, d]: [u32; 4]) -> [f64; 2] {
    let radius = (-2.0 * uniform_f64([a, b]).ln()).sqrt();
    let (sine, cosine) = sin_cos_pi(bits53([c, d]) as f64 * (2.0 * WORD53) + WORD53);
    [radius * sine, radius * cosine]
}

/// Returns the sine and cosine of πx for x from 0 to 2, with an error of at most 3·10⁻¹⁶. Unlike a general sine, the
/// function needs no lookup table in memory.
#[inline(always)]
fn sin_cos_pi(x: f64) -> (f64, f64) {
    // The nearest quarter turn. The remaining angle is exact.
    let quarter = (2.0 * x + 0.5) as i32;
    let angle = (x - 0.5 * quarter as f64) * core::f64::consts::PI;
    let square = angle * angle;
    // Taylor series. Up to π / 4, the first omitted term is below 10⁻¹⁸.
    let mut sine = 0.0;
    let mut cosine = 0.0;
    let mut n = 8;
    while n > 0 {
        // Terms with indices 2n + 1 and 2n, evaluated by Horner's method: 1 - x² / ((2n) (2n + 1)) (…).
        let k = 2.0 * n as f64;
        sine = square * (-1.0 / (k * (k + 1.0))) * (1.0 + sine);
        cosine = square * (-1.0 / (k * (k - 1.0))) * (1.0 + cosine);
        n -= 1;
    }
    let (sine, cosine) = (Math::mul_add(angle, sine, angle), 1.0 + cosine);
    let (sine, cosine) = if quarter & 1 == 0 { (sine, cosine) } else { (cosine, -sine) };
    if quarter & 2 == 0 { (sine, cosine) } else { (-sine, -cosine) }
}

/// A float type for random numbers: `f32` or `f64`.
///
/// ```
/// use gpu_std::random::{Draw, Philox};
///
/// /// Returns uniform numbers of either type.
/// fn uniform<T: Draw>(seed: u64) -> Vec<T> {
///     T::uniform(Philox::new(seed, 0, 0).next4())[..T::LANES].to_vec()
/// }
/// assert_eq!((uniform::<f32>(7).len(), uniform::<f64>(7).len()), (4, 2));
/// assert!(uniform::<f64>(7).iter().all(|x| *x > 0.0 && *x <= 1.0));
/// ```
pub trait Draw: Math {
    /// Number of results per block of four words: 4 or 2.
    const LANES: usize;
    /// Returns uniform numbers in (0, 1]; only the first [`LANES`](Self::LANES) are valid.
    fn uniform(words: [u32; 4]) -> [Self; 4];
    /// Returns normal numbers with mean 0 and variance 1; only the first [`LANES`](Self::LANES) are valid.
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
