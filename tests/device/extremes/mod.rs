//! Every operation of `warpsmith::ops` at the ends of its types' ranges, against exact arithmetic: where the result is in range,
//! nothing on the way to it leaves the range.

mod elementwise;
mod fixed;
mod histograms;
mod norms;
mod order;
mod reductions;
mod sequences;

use crate::common::Element;

/// The least power of two above 0 of a float type, the least normal one, and the greatest, as exponents.
pub fn exponents<T: Element>() -> [i32; 3] {
    match T::NAME {
        "f16" => [-24, -14, 15],
        "bf16" => [-133, -126, 127],
        "f32" => [-149, -126, 127],
        _ => [-1074, -1022, 1023],
    }
}

/// 2 to a power of which f64 has a number.
pub fn two_to(exponent: i32) -> f64 {
    // In two steps: `powi` takes the reciprocal of what may be infinite.
    2f64.powi(exponent / 2) * 2f64.powi(exponent - exponent / 2)
}

/// The greatest finite number of a type.
pub fn greatest<T: Element>() -> f64 {
    let mantissa = 2.0 - T::EPSILON;
    mantissa * two_to(exponents::<T>()[2])
}

/// Whether two numbers agree within `bound` times the latter, and units of the least number of `T`; infinities and NaN are the same.
#[track_caller]
pub fn assert_near<T: Element>(
    found: f64,
    expected: f64,
    bound: f64,
    units: f64,
    what: &dyn std::fmt::Debug,
) {
    let same = found == expected || found.is_nan() && expected.is_nan();
    let least = two_to(exponents::<T>()[0]);
    assert!(
        same || (found - expected).abs() <= bound * expected.abs() + units * least,
        "{what:?} of {}: {found:e} for {expected:e}",
        T::NAME
    );
}
