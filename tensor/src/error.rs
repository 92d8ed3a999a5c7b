//! [`TensorError`]: what the operations of this crate cannot compute.

use warpsmith_core::{Device, Error};

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

    /// The heads of attention do not fit.
    #[error(
        "{operation}: {what}; q and out have as many rows, heads and sequences, k and v have, with a number of heads that \
         divides that of q, and all have 64, 128 or 256 elements a row"
    )]
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
         both: pad the rows (cuBLAS multiplies matrices without)"
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
        "{operation}: tensor cores multiply {element} of which the rows of a and the columns of b are adjacent in memory, and \
         those of {matrix} are not: transpose it, or let cuBLAS multiply"
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
        "{operation}: {device} has compute capability {}.{}, and this kernel is for {needed} (cuBLAS multiplies matrices)",
        capability.0,
        capability.1
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

impl From<TensorError> for Error {
    fn from(error: TensorError) -> Self {
        Self::extension(error)
    }
}
