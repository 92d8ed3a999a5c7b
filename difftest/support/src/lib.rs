//! Support library for the kernels of the differential test: input words, hashes, floats whose bits are the same on
//! every device, text in a fixed buffer, and [`collective`], the operations of warps and blocks.
#![cfg_attr(target_arch = "nvptx64", no_std)]
#![deny(missing_docs)]

pub mod collective;
mod floats;
mod text;

pub use gpu_std::atomic::{Atomic, Ordering};
pub use gpu_std::prelude::*;

pub use self::floats::*;
pub use self::text::Text;

/// Number of 64-bit words that every kernel reads.
pub const DATA: usize = 512;
/// Number of atomics in device memory that the threads of a launch update together.
pub const ATOMICS: usize = 24;
/// Number of words that a thread writes: the hash after each block of its function.
pub const WORDS: usize = 8;

/// Input of a thread of a generated kernel.
#[derive(Clone, Copy)]
pub struct Input<'a> {
    /// Random words.
    pub data: &'a [u64],
    /// Counters shared by all threads. Those below 8 are only added to; 8 to 11 take the maximum, 12 to 15 the minimum,
    /// 16 to 19 exclusive ors, 20 and 21 ors, 22 and 23 ands.
    pub atomics: &'a [Atomic<u64>],
    /// Zero, unknown to any compiler.
    pub zero: u64,
    /// Rank of the thread in the launch.
    pub thread: u64,
}

impl Input<'_> {
    /// Returns word `k` of this thread.
    #[inline(always)]
    pub fn w(&self, k: u64) -> u64 {
        let at = self.thread.wrapping_mul(7).wrapping_add(k) as usize % DATA;
        self.data.get(at).copied().unwrap_or(7)
    }

    /// Converts word `k` to a float: mostly of moderate size, sometimes any value.
    #[inline(always)]
    pub fn f32(&self, k: u64) -> f32 {
        let x = self.w(k);
        match x >> 61 {
            0 => f32::from_bits(x as u32),
            1 => (x as i16) as f32,
            2 => (x as i32) as f32 / 1024.0,
            _ => f32::from_bits((x as u32 & 0x807f_ffff) | ((120 + (x >> 40 & 15) as u32) << 23)),
        }
    }

    /// Converts to a double-width float, as [`f32`](Self::f32).
    #[inline(always)]
    pub fn f64(&self, k: u64) -> f64 {
        let x = self.w(k);
        match x >> 61 {
            0 => f64::from_bits(x.rotate_left(23)),
            1 => (x as i16) as f64,
            2 => (x as i32) as f64 / 1024.0,
            _ => f64::from_bits((x.rotate_left(9) & 0x800f_ffff_ffff_ffff) | ((1015 + (x >> 40 & 15)) << 52)),
        }
    }

    /// Returns `x`, so that no compiler can contract the operation that produced it with the one that uses it. All NaNs
    /// get one bit pattern.
    #[inline(always)]
    pub fn q32(&self, x: f32) -> f32 {
        f32::from_bits(bits32(x) as u32 ^ self.zero as u32)
    }

    /// Returns an `f64`, as [`q32`](Self::q32).
    #[inline(always)]
    pub fn q64(&self, x: f64) -> f64 {
        f64::from_bits(bits64(x) ^ self.zero)
    }

    /// Returns an `f16`, as [`q32`](Self::q32).
    #[inline(always)]
    pub fn q16(&self, x: f16) -> f16 {
        f16::from_bits(bits16(x) as u16 ^ self.zero as u16)
    }

    /// Returns a `bf16`, as [`q32`](Self::q32).
    #[inline(always)]
    pub fn qb16(&self, x: bf16) -> bf16 {
        bf16::from_bits(bitsb16(x) as u16 ^ self.zero as u16)
    }
}

/// State that the blocks of a function pass on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct State {
    /// Hash of all values so far.
    pub h: u64,
    /// Values of earlier blocks.
    pub v: [u64; 4],
}

impl State {
    /// State of a thread before its first block.
    #[inline(always)]
    pub fn new(thread: u64) -> Self {
        State { h: thread.wrapping_mul(0xD6E8_FEB8_6659_FD93), v: [thread, !thread, thread << 32, 1] }
    }

    /// Adds a value to the hash.
    #[inline(always)]
    pub fn add(&mut self, x: u64) {
        self.h = mix(self.h, x);
    }

    /// Adds a 128-bit value to the hash.
    #[inline(always)]
    pub fn add_wide(&mut self, x: u128) {
        self.add(x as u64);
        self.add((x >> 64) as u64);
    }
}

/// Combines a hash and a value.
#[inline(always)]
pub fn mix(h: u64, x: u64) -> u64 {
    let y = (h ^ x).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    y ^ (y >> 29) ^ h.rotate_left(17)
}
