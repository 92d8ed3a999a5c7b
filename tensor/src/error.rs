//! [`TensorError`]: what the products of this crate cannot multiply.

use warpsmith_core::{Device, Error};

/// The error of a product, with its remedy: [`Error::downcast_ref`] finds it.
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

    /// The rows of a matrix begin where the kernel cannot read them.
    #[error(
        "{operation}: the rows of {matrix} begin every {bytes} bytes from {address:#x}; the kernel needs multiples of 16 of \
         both: pad the rows, or let cuBLAS multiply"
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
        "{operation}: {device} has compute capability {}.{}, and this kernel is for {needed}; let cuBLAS multiply",
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
