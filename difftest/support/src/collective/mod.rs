//! Warp and block operations that take one value from each thread and give one to each: `(value, n)`. All threads of a
//! block call them, with any block of at most 256 threads. Operations marked *whole warps* need a multiple of 32.
//!
//! On the host, [`model`] has each of them as a plain function of the values of a block.

mod blocks;
#[cfg(not(target_arch = "nvptx64"))]
pub mod model;
mod warps;

pub use self::blocks::*;
pub use self::warps::*;

/// Maximum threads per block.
pub const THREADS: usize = 256;

/// An associative but non-commutative operation: the composition of `x -> a * x + b`, with `a` in the upper half.
#[inline(always)]
pub fn compose(f: u64, g: u64) -> u64 {
    let (a, b, c, d) = ((f >> 32) as u32, f as u32, (g >> 32) as u32, g as u32);
    u64::from(c.wrapping_mul(a)) << 32 | u64::from(c.wrapping_mul(b).wrapping_add(d))
}
