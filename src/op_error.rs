//! [`OpError`]: an error from [`ops`](crate::ops) or [`random`](crate::random), carried in an [`Error`](crate::Error).

use std::fmt;

use warpsmith_runtime::Error;

/// An error from an operation, retrieved with [`Error::downcast_ref`]. The message states the remedy.
///
/// ```
/// use warpsmith::prelude::*;
/// use warpsmith::{OpError, ops};
///
/// let stream = Stream::new(&Device::open("cpu")?)?;
/// let empty = DeviceBuffer::<f32>::zeros(&stream, 0)?;
/// let error = ops::min(&stream, &empty).unwrap_err();
/// assert!(matches!(error.downcast_ref(), Some(OpError::Empty { .. })));
/// # Ok::<(), warpsmith::Error>(())
/// ```
#[derive(Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum OpError {
    /// Arrays of one operation have different lengths.
    #[error(
        "{operation}: {first_name} has {first} element{}, but {second_name} has {second}; pass slices of equal length",
        if *first == 1 { "" } else { "s" }
    )]
    LengthMismatch {
        /// The operation.
        operation: &'static str,
        /// Name of the first array.
        first_name: &'static str,
        /// Length of the first array, in elements.
        first: usize,
        /// Name of the second array.
        second_name: &'static str,
        /// Length of the second array, in elements.
        second: usize,
    },

    /// Shapes, lengths or parameters of an operation are inconsistent.
    #[error("{operation}: {problem}")]
    Shape {
        /// The operation.
        operation: &'static str,
        /// The mismatch and the accepted values.
        problem: String,
    },

    /// An index is out of range. Nothing was written.
    #[error(
        "{operation}: {name}[{position}] is {index}, but must be at least 0 and below {bound}; nothing was written"
    )]
    Index {
        /// The operation.
        operation: &'static str,
        /// Name of the array that contains the indices.
        name: &'static str,
        /// Position of the first out-of-range index in the array.
        position: u64,
        /// The index.
        index: i128,
        /// Exclusive upper bound of valid indices.
        bound: u64,
    },

    /// A segment offset exceeds the next offset or the number of elements. Nothing was written.
    #[error(
        "{operation}: offsets[{position}] is {offset}, but must be at most {most}, the next offset or the number of \
         elements; nothing was written"
    )]
    Offset {
        /// The operation.
        operation: &'static str,
        /// Position of the first invalid offset in the array of offsets.
        position: u64,
        /// The offset.
        offset: u64,
        /// Maximum valid value: the next offset, or the number of elements.
        most: u64,
    },

    /// A scatter contains the same index more than once.
    #[error(
        "index {index} occurs more than once, so two elements would be written to the same position; pass each index \
         once"
    )]
    DuplicateIndex {
        /// The smallest index that occurs more than once.
        index: u64,
    },

    /// A minimum, maximum, argmin or argmax over zero elements was requested.
    #[error("{operation} is undefined for zero elements; pass at least one element")]
    Empty {
        /// The operation.
        operation: &'static str,
    },

    /// A random number operation or generator received an invalid request.
    #[error("{call}: {problem}")]
    Random {
        /// Name of the operation or function.
        call: &'static str,
        /// The request and the accepted values.
        problem: String,
    },

    /// The operation does not support the request.
    #[error("{operation}: {problem}")]
    Unsupported {
        /// The operation.
        operation: &'static str,
        /// The request and the accepted values.
        problem: String,
    },

    /// The configuration names an instance that is not compiled.
    #[error(
        "{kernel} for {dtype} is not compiled with items={items}, vector={vector}; use one of these items/vector \
         pairs: {}",
        list(available)
    )]
    NoSuchVariant {
        /// The kernel.
        kernel: &'static str,
        /// The element type, or types.
        dtype: String,
        /// The requested number of items per thread.
        items: u32,
        /// The requested number of bytes per access.
        vector: u32,
        /// Items per thread and bytes per access of each available instance.
        available: Vec<(u32, u32)>,
    },

    /// The string is not a valid grid rule.
    #[error(
        "`{0}` is not a grid rule; use auto, waves:N or blocks:N with N of at least 1, for example waves:4"
    )]
    GridRule(String),
}

/// Prints the same message as `Display`, so that `main` and `unwrap` show it.
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
