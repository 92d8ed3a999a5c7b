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

    /// Shapes, lengths or parameters of one operation do not fit together.
    #[error("{operation}: {problem}")]
    Shape {
        /// The operation.
        operation: &'static str,
        /// What does not fit, and what would.
        problem: String,
    },

    /// An index is out of range. Nothing was written.
    #[error(
        "{operation}: {name}[{position}] is {index}, but must be at least 0 and below {bound}; nothing was written"
    )]
    Index {
        /// The operation.
        operation: &'static str,
        /// The array of indices.
        name: &'static str,
        /// Where in the array it is; the first of them.
        position: u64,
        /// The index.
        index: i128,
        /// The number that indices are below.
        bound: u64,
    },

    /// The offset of a segment is above the next one, or beyond the end of the elements. Nothing was written.
    #[error(
        "{operation}: offsets[{position}] is {offset}, but must be at most {most}, the next offset or the number of \
         elements; nothing was written"
    )]
    Offset {
        /// The operation.
        operation: &'static str,
        /// Where in the offsets it is; the first of them.
        position: u64,
        /// The offset.
        offset: u64,
        /// What it must not exceed.
        most: u64,
    },

    /// An index occurs twice where elements are written.
    #[error(
        "index {index} occurs more than once: two elements would be written to one place; pass each index once"
    )]
    DuplicateIndex {
        /// The least such index.
        index: u64,
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

    /// A request that an operation cannot fulfil.
    #[error("{operation}: {problem}")]
    Unsupported {
        /// The operation.
        operation: &'static str,
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
