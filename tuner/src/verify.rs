//! Compares a kernel's output with a float64 reference.
//!
//! Every element is compared. An element is correct if it equals the reference rounded to the element type,
//! or if it differs from the exact reference by no more than the [`Tolerance`] of the operation. NaN is correct only if
//! the reference is also NaN.

use gpu_std::scalar::Scalar;
use rayon::prelude::*;

use crate::data::CHUNK;

/// Allowed difference between an element and the reference: epsilon × (`relative` × |reference| + `absolute`).
///
/// Epsilon is the distance from 1 to the next number of the element type: 2⁻²³ for `f32`, 2⁻¹⁰ for `f16`, 2⁻⁷ for `bf16`,
/// and 0 for integers, which must be equal.
///
/// ```
/// use warpsmith_tuner::verify::{Tolerance, compare};
///
/// // Four roundings of the result, and 64 roundings of terms up to 1, even if the result is much smaller.
/// let tolerance = Tolerance { relative: 4.0, absolute: 64.0 };
/// assert!(compare(&[7e-6f32], tolerance, |_| 0.0).correct());
/// assert!(!compare(&[8e-6f32], tolerance, |_| 0.0).correct());
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tolerance {
    /// Allowed difference relative to the reference, in epsilons: about the number of roundings of a result.
    pub relative: f64,
    /// Allowed difference that does not depend on the reference, in epsilons of the value 1. It is needed if terms
    /// cancel, because their roundings can exceed a small result.
    pub absolute: f64,
}

impl Tolerance {
    /// Allows only the rounding of the reference to the element type.
    pub const EXACT: Tolerance = Tolerance { relative: 0.0, absolute: 0.0 };
}

/// Outcome of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Check {
    /// Number of compared elements.
    pub compared: u64,
    /// Number of incorrect elements.
    pub incorrect: u64,
    /// Largest difference. It is infinite or NaN if an output element is not finite although it should be.
    pub max_error: f64,
    /// First incorrect element.
    pub first: Option<Mismatch>,
}

/// An incorrect element.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Mismatch {
    /// Index of the element.
    pub index: u64,
    /// Value of the element.
    pub found: f64,
    /// Value of the reference.
    pub expected: f64,
    /// Largest allowed difference between the two values.
    pub allowed: f64,
}

impl Check {
    /// Returns true if every element is correct.
    pub fn correct(&self) -> bool {
        self.incorrect == 0
    }

    /// Returns a short description of the first mismatch.
    pub fn problem(&self) -> Option<String> {
        let Mismatch { index, found, expected, allowed } = self.first?;
        let are = if self.incorrect == 1 { "is" } else { "are" };
        let allowed = if allowed > 0.0 { format!(" ± {allowed:.2e}") } else { String::new() };
        Some(format!(
            "{} of {} elements {are} incorrect, first at index {index}: {found} instead of {expected}{allowed}",
            self.incorrect, self.compared
        ))
    }

    const RIGHT: Check = Check { compared: 0, incorrect: 0, max_error: 0.0, first: None };

    fn add<T: Scalar>(&mut self, index: u64, found: T, expected: f64, tolerance: Tolerance) {
        let (value, rounded) = (found.cast::<f64>(), T::from_f64(expected));
        let equal = found == rounded || (value.is_nan() && expected.is_nan());
        let error = if equal && !(value - expected).is_finite() { 0.0 } else { (value - expected).abs() };
        let allowed = T::EPSILON * (tolerance.relative * expected.abs() + tolerance.absolute);
        // An error that is NaN must never be allowed.
        let near = error <= allowed;
        self.compared += 1;
        if !equal && !near {
            self.incorrect += 1;
            self.first.get_or_insert(Mismatch { index, found: value, expected, allowed });
        }
        self.raise(error);
    }

    /// Raises the maximum error. NaN persists.
    fn raise(&mut self, error: f64) {
        if error.is_nan() || error > self.max_error {
            self.max_error = error;
        }
    }

    fn merge(mut self, later: Check) -> Check {
        self.compared += later.compared;
        self.incorrect += later.incorrect;
        self.raise(later.max_error);
        self.first = match (self.first, later.first) {
            (Some(a), Some(b)) => Some(if a.index <= b.index { a } else { b }),
            (a, b) => a.or(b),
        };
        self
    }
}

/// Compares `found[i]` with `reference(i)`, in parallel.
pub fn compare<T: Scalar>(
    found: &[T],
    tolerance: Tolerance,
    reference: impl Fn(usize) -> f64 + Sync,
) -> Check {
    found
        .par_chunks(CHUNK)
        .enumerate()
        .map(|(chunk, part)| {
            let mut check = Check::RIGHT;
            for (offset, &value) in part.iter().enumerate() {
                let index = chunk * CHUNK + offset;
                check.add(index as u64, value, reference(index), tolerance);
            }
            check
        })
        .reduce(|| Check::RIGHT, Check::merge)
}

/// Returns true if two slices contain the same bytes; the comparison runs in parallel.
pub fn same_bytes<T: Scalar>(a: &[T], b: &[T]) -> bool {
    let (a, b): (&[u8], &[u8]) = (bytemuck::cast_slice(a), bytemuck::cast_slice(b));
    a.len() == b.len() && a.par_chunks(CHUNK * 4).zip(b.par_chunks(CHUNK * 4)).all(|(a, b)| a == b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    #[test]
    fn one_wrong_element_among_many_is_found() {
        for n in [1, 31, 32, 33, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 7] {
            let mut found: Vec<f32> = (0..n).map(|i| i as f32).collect();
            assert!(compare(&found, Tolerance::EXACT, |i| i as f64).correct(), "{n}");
            let at = n * 2 / 3;
            found[at] += 1.0;
            let check = compare(&found, Tolerance::EXACT, |i| i as f64);
            assert_eq!((check.incorrect, check.max_error), (1, 1.0), "{n}");
            let (index, expected) = (at as u64, at as f64);
            let first = Mismatch { index, found: expected + 1.0, expected, allowed: 0.0 };
            assert_eq!((check.first, check.compared), (Some(first), n as u64));
        }
        assert!(compare::<f32>(&[], Tolerance::EXACT, |_| 0.0).correct());
    }

    #[test]
    fn the_first_wrong_element_is_reported() {
        let found = vec![1i32; 5 * CHUNK];
        let check = compare(&found, Tolerance::EXACT, |i| if i % CHUNK == 5 { 2.0 } else { 1.0 });
        let first = check.first.unwrap();
        assert_eq!((check.incorrect, first.index, first.found, first.expected), (5, 5, 1.0, 2.0));
    }

    #[test]
    fn problems_name_the_allowed_difference() {
        let problem = |found: &[f32], relative| {
            compare(found, Tolerance { relative, absolute: 0.0 }, |_| 2.0).problem().unwrap()
        };
        let one = problem(&[2.0, 3.0, 2.0], 4.0);
        assert_eq!(one, "1 of 3 elements is incorrect, first at index 1: 3 instead of 2 ± 9.54e-7");
        assert_eq!(
            problem(&[1.0; 2], 0.0),
            "2 of 2 elements are incorrect, first at index 0: 1 instead of 2"
        );
    }

    #[test]
    fn tolerance_scales_with_the_type() {
        let tolerance = Tolerance { relative: 2.0, absolute: 0.0 };
        let near = |steps: f64, epsilon: f64| 1.0 + steps * epsilon;
        let f32_off = near(2.0, f32::EPSILON as f64) as f32;
        assert!(compare(&[f32_off], tolerance, |_| 1.0).correct());
        assert!(!compare(&[near(4.0, f32::EPSILON as f64) as f32], tolerance, |_| 1.0).correct());
        assert!(compare(&[bf16::from_f32(1.0078125)], tolerance, |_| 1.0).correct());
        assert!(!compare(&[1.0078125f32], tolerance, |_| 1.0).correct());
        assert!(!compare(&[1i32], Tolerance { relative: 1e9, absolute: 1e9 }, |_| 2.0).correct());
    }

    #[test]
    fn rounding_is_no_error_and_nan_is() {
        let third = f16::from_f64(1.0 / 3.0);
        let check = compare(&[third], Tolerance::EXACT, |_| 1.0 / 3.0);
        assert!(check.correct() && check.max_error > 0.0 && check.max_error < 1e-3);
        // Values that overflow the element type must be infinite on both sides.
        assert!(compare(&[f16::INFINITY], Tolerance::EXACT, |_| 1e9).correct());
        assert!(compare(&[f64::NAN], Tolerance::EXACT, |_| f64::NAN).correct());
        let poisoned = compare(&[0.0, f32::NAN, 0.0], Tolerance { relative: 9.0, absolute: 9.0 }, |_| 0.0);
        assert!(!poisoned.correct() && poisoned.max_error.is_nan());
        assert!(!compare(&[1.0f32], Tolerance { relative: 9.0, absolute: 9.0 }, |_| f64::NAN).correct());
        assert!(!compare(&[f32::INFINITY], Tolerance { relative: 9.0, absolute: 9.0 }, |_| 1.0).correct());
    }

    #[test]
    fn bytes_are_compared_whole() {
        let a = vec![0.0f32; CHUNK * 4 + 3];
        let mut b = a.clone();
        assert!(same_bytes(&a, &b));
        *b.last_mut().unwrap() = -0.0;
        assert!(!same_bytes(&a, &b));
        assert!(!same_bytes(&a, &a[1..]));
    }
}
