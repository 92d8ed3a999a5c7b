//! Powers of two in `f64`.

/// Returns 2 to the power `exponent`, which must be from -1022 to 1023.
pub(crate) const fn two_to(exponent: i32) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

/// Returns the exponent of the largest power of two that does not exceed a positive number.
pub(crate) fn exponent(x: f64) -> i32 {
    let of_normal = |x: f64| (x.to_bits() >> 52) as i32 - 1023;
    if x < two_to(-1000) { of_normal(x * two_to(600)) - 600 } else { of_normal(x) }
}
