//! [`TensorError`]: what the operations of this crate cannot compute.

use warpsmith_runtime::{Device, Error};

/// The error of an operation, with its remedy: [`Error::downcast_ref`] finds it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The sides of the matrices do not fit.
    #[error(
        "{operation}: {what}; a is m x k, b k x n and c m x n, the bias has n elements, and a single a or b is that of all of a batch"
    )]
    Shape {
        /// The operation.
        operation: &'static str,
        /// Which sides, and what they are.
        what: String,
    },

    /// The groups of rows do not fit.
    #[error(
        "{operation}: {what}; a is m x k, b a matrix of k x n for each group, c m x n, and the bias has n elements for each group"
    )]
    Groups {
        /// The operation.
        operation: &'static str,
        /// Which sides, and what they are.
        what: String,
    },

    /// The heads of attention do not fit.
    #[error("{operation}: {what}")]
    Heads {
        /// The operation.
        operation: &'static str,
        /// What does not fit.
        what: String,
    },

    /// The factor of scores is not a positive number.
    #[error("{operation}: scores cannot be multiplied by {scale}: the scale is positive and finite")]
    Scale {
        /// The operation.
        operation: &'static str,
        /// The factor.
        scale: String,
    },

    /// The rows of a matrix or of heads begin where the kernel cannot read them.
    #[error(
        "{operation}: the rows of {matrix} begin every {bytes} bytes from {address:#x}; the kernel needs multiples of 16 of \
         both: pad the rows{}",
        or_library(.operation)
    )]
    Alignment {
        /// The operation.
        operation: &'static str,
        /// The matrix.
        matrix: &'static str,
        /// Bytes from one row to the next.
        bytes: usize,
        /// The address of the first.
        address: u64,
    },

    /// The type is not multiplied in this layout.
    #[error(
        "{operation}: kernels multiply {element} of which the rows of a and the columns of b are adjacent in memory, and those \
         of {matrix} are not: transpose it{}",
        or_library(.operation)
    )]
    Layout {
        /// The operation.
        operation: &'static str,
        /// The matrix.
        matrix: &'static str,
        /// The type of the elements.
        element: &'static str,
    },

    /// The schedule is none that there is.
    #[error("{operation}: {what}")]
    Schedule {
        /// The operation.
        operation: &'static str,
        /// What there is not, and what there is.
        what: String,
    },

    /// The device has other tensor cores.
    #[error(
        "{operation}: {device} has compute capability {}.{}, and this kernel is for {needed}{}",
        capability.0,
        capability.1,
        or_library(.operation)
    )]
    Device {
        /// The operation.
        operation: &'static str,
        /// The device.
        device: String,
        /// Its compute capability.
        capability: (u32, u32),
        /// Those that the kernel is for.
        needed: &'static str,
    },
}

impl TensorError {
    /// That of a device that is not one of those `needed`.
    pub(crate) fn device(operation: &'static str, device: &Device, needed: &'static str) -> Error {
        let capability = device.properties().capability;
        Self::Device { operation, device: device.id().to_string(), capability, needed }.into()
    }
}

/// The remedy that products have beside others.
fn or_library(operation: &str) -> &'static str {
    if operation == "matmul" {
        ", or have cuBLAS multiply: `warpsmith::ops` does, with the feature `blas`"
    } else {
        ""
    }
}

impl From<TensorError> for Error {
    fn from(error: TensorError) -> Self {
        Self::extension(error)
    }
}
