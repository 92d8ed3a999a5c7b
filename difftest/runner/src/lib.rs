//! Runs kernels as plain Rust on the host and on a device, and compares every word that they write.
//!
//! A program of `cargo xtask difftest` has a list of [`Case`]s and calls [`main`]. The cases run one after the other
//! until one faults.
#![deny(missing_docs)]

mod case;
mod compare;
mod plain;
mod program;

pub use warpsmith_runtime::{Device, GpuImage, include_image};

pub use self::case::{Arguments, Case, Session, Step};
pub use self::compare::{Difference, compare};
pub use self::program::main;

/// Input words of all kernels: random words, including the extremes of every width.
pub fn data() -> Vec<u64> {
    const EXTREMES: [u64; 16] = [
        0,
        1,
        u64::MAX,
        i64::MAX as u64,
        1 << 63,
        u32::MAX as u64,
        1 << 31,
        0x7fff_ffff,
        0x7f80_0000,
        0x8000_0000_8000_0000,
        0x7ff0_0000_0000_0000,
        0xff,
        0x80,
        0xffff_ffff_0000_0000,
        0x3ff0_0000_0000_0000,
        0x8000,
    ];
    let mut state = 0x5EED_0000_0000_0001u64;
    let random = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        if state.is_multiple_of(11) {
            EXTREMES[(state >> 32) as usize % 16]
        } else {
            state.wrapping_mul(0x2545_F491_4F6C_DD1D)
        }
    };
    (0..difftest_support::DATA).map(random).collect()
}

/// Initial values of the atomics.
pub fn atomics() -> Vec<u64> {
    (0..difftest_support::ATOMICS as u64).map(|i| i.wrapping_mul(0x9E37_79B9_7F4A_7C15)).collect()
}
