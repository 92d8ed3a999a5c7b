//! Bits of floats that every device must agree on.

use gpu_std::prelude::*;

/// The bits of a float, one pattern for all NaNs.
#[inline(always)]
pub fn bits32(x: f32) -> u64 {
    if x.is_nan() { 0x7fc0_0000 } else { u64::from(x.to_bits()) }
}

/// [`bits32`] of `f64`.
#[inline(always)]
pub fn bits64(x: f64) -> u64 {
    if x.is_nan() { 0x7ff8_0000_0000_0000 } else { x.to_bits() }
}

/// [`bits32`] of `f16`.
#[inline(always)]
pub fn bits16(x: f16) -> u64 {
    if x.is_nan() { 0x7e00 } else { u64::from(x.to_bits()) }
}

/// [`bits32`] of `bf16`.
#[inline(always)]
pub fn bitsb16(x: bf16) -> u64 {
    if x.is_nan() { 0x7fc0 } else { u64::from(x.to_bits()) }
}

/// A float that is no NaN: a half instead. What has a sign is compared with it.
#[inline(always)]
pub fn number32(x: f32) -> f32 {
    if x.is_nan() { 0.5 } else { x }
}

/// [`number32`] of `f64`.
#[inline(always)]
pub fn number64(x: f64) -> f64 {
    if x.is_nan() { 0.5 } else { x }
}
