//! Comparison of output words.

use crate::case::Case;

/// A difference between a device and plain Rust.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// Index of the first differing word.
    pub index: usize,
    /// Step that wrote it; `None` for atomics.
    pub step: Option<usize>,
    /// Description of the word, with its value on both sides.
    pub text: String,
}

/// Finds the first differing word of the earliest step; atomics come last.
pub fn compare(case: &Case, expected: &[u64], found: &[u64]) -> Option<Difference> {
    if expected.len() != found.len() {
        let text = format!("{} words instead of {}", found.len(), expected.len());
        return Some(Difference { index: 0, step: None, text });
    }
    let wrong: Vec<usize> = (0..expected.len()).filter(|index| expected[*index] != found[*index]).collect();
    let step = |index: usize| case.step(index, expected.len());
    let first = *wrong.iter().min_by_key(|index| (step(**index).unwrap_or(usize::MAX), **index))?;
    let text = format!(
        "{}: {:#018x} instead of {:#018x}; {} of {} words differ",
        case.word(first, expected.len()),
        found[first],
        expected[first],
        wrong.len(),
        expected.len()
    );
    Some(Difference { index: first, step: step(first), text })
}
