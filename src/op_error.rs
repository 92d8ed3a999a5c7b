//! [`OpError`]: what [`ops`](crate::ops) and [`random`](crate::random) report, inside of the one [`Error`](crate::Error).

use std::fmt;

use warpsmith_runtime::Error;

/// The error of an operation, with its remedy: [`Error::downcast_ref`] finds it.
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// Arrays of one operation differ in length.
    #[error(
        "{operation}: {first_name} has {first} elements, but {second_name} has {second}; pass slices of one length"
    )]
    LengthMismatch {
        /// The operation.
        operation: &'static str,
        /// Which array.
        first_name: &'static str,
        /// Its length in elements.
        first: usize,
        /// Which other array.
        second_name: &'static str,
        /// Its length in elements.
        second: usize,
    },

    /// A minimum, maximum or the place of one was requested of no elements.
    #[error("{operation} of zero elements does not exist; pass at least one element")]
    Empty {
        /// The operation.
        operation: &'static str,
    },

    /// An impossible request to an operation or a generator of random numbers.
    #[error("{call}: {problem}")]
    Random {
        /// The operation or function.
        call: &'static str,
        /// The request, and what is possible.
        problem: String,
    },

    /// The configuration names an instance that was not compiled.
    #[error(
        "{kernel} for {dtype} is not compiled with items={items}, vector={vector}; there are items/vector {}",
        list(available)
    )]
    NoSuchVariant {
        /// The kernel.
        kernel: &'static str,
        /// The element type or types.
        dtype: String,
        /// The requested items.
        items: u32,
        /// The requested vector bytes.
        vector: u32,
        /// Items and vector bytes of the instances there are.
        available: Vec<(u32, u32)>,
    },

    /// A text that is no grid rule.
    #[error("`{0}` is no grid rule; use auto, waves:N or blocks:N with N from 1, for example waves:4")]
    GridRule(String),
}

/// The message, so that `main` and `unwrap` show it as it is meant to be read.
impl fmt::Debug for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl From<OpError> for Error {
    fn from(error: OpError) -> Self {
        Self::extension(error)
    }
}

fn list(variants: &[(u32, u32)]) -> String {
    if variants.is_empty() {
        return "none for this type".to_owned();
    }
    variants.iter().map(|(items, vector)| format!("{items}/{vector}")).collect::<Vec<_>>().join(", ")
}
