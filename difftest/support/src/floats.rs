//! Bit patterns of floats on which every device must agree.

use gpu_std::prelude::*;

/// Bits of a float, with one pattern for all NaNs.
#[inline(always)]
pub fn bits32(x: f32) -> u64 {
    if x.is_nan() { 0x7fc0_0000 } else { u64::from(x.to_bits()) }
}

/// Bits of an `f64`, as [`bits32`].
#[inline(always)]
pub fn bits64(x: f64) -> u64 {
    if x.is_nan() { 0x7ff8_0000_0000_0000 } else { x.to_bits() }
}

/// Bits of an `f16`, as [`bits32`].
#[inline(always)]
pub fn bits16(x: f16) -> u64 {
    if x.is_nan() { 0x7e00 } else { u64::from(x.to_bits()) }
}

/// Bits of a `bf16`, as [`bits32`].
#[inline(always)]
pub fn bitsb16(x: bf16) -> u64 {
    if x.is_nan() { 0x7fc0 } else { u64::from(x.to_bits()) }
}

/// Returns the float, or one half for a NaN. For comparisons that involve signs.
#[inline(always)]
pub fn number32(x: f32) -> f32 {
    if x.is_nan() { 0.5 } else { x }
}

/// Returns an `f64` as [`number32`] does.
#[inline(always)]
pub fn number64(x: f64) -> f64 {
    if x.is_nan() { 0.5 } else { x }
}
