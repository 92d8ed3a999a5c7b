//! Every operation of `warpsmith::ops` at the ends of its types' ranges, compared with exact arithmetic: if the result
//! is in range, no intermediate value may overflow or underflow.

mod elementwise;
mod fixed;
mod histograms;
mod norms;
mod order;
mod reductions;
mod sequences;

use crate::common::TestNumber;

/// Exponents of a float type: of the smallest subnormal, the smallest normal, and the largest power of two.
pub fn exponents<T: TestNumber>() -> [i32; 3] {
    match T::NAME {
        "f16" => [-24, -14, 15],
        "bf16" => [-133, -126, 127],
        "f32" => [-149, -126, 127],
        _ => [-1074, -1022, 1023],
    }
}

/// 2 to a power that f64 can represent.
pub fn two_to(exponent: i32) -> f64 {
    // In two steps: `powi` takes the reciprocal of a possibly infinite value.
    2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2)
}

/// Largest finite number of a type.
pub fn largest<T: TestNumber>() -> f64 {
    let mantissa = 2.0 - T::EPSILON;
    mantissa * two_to(exponents::<T>()[2])
}

/// Fails unless two numbers agree within `bound` times the latter, plus units of the smallest number of `T`. Infinities
/// and NaN must match.
#[track_caller]
pub fn assert_near<T: TestNumber>(
    found: f64,
    expected: f64,
    bound: f64,
    units: f64,
    what: &dyn std::fmt::Debug,
) {
    let same = found == expected || found.is_nan() && expected.is_nan();
    let smallest = two_to(exponents::<T>()[0]);
    assert!(
        same || (found - expected).abs() <= bound * expected.abs() + units * smallest,
        "{what:?} of {}: {found:e} for {expected:e}",
        T::NAME
    );
}
