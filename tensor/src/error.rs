//! [`TensorError`]: errors from this crate's operations.

use warpsmith_runtime::{Device, Error};

/// An error from a GEMM or attention function. The message states the remedy. To extract it from an [`Error`], call
/// [`Error::downcast_ref`].
///
/// ```
/// use half::bf16;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
/// use warpsmith_tensor::{TensorError, matmul};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let a = DeviceBuffer::<bf16>::zeros(&stream, 64)?;
/// let mut c = DeviceBuffer::<bf16>::zeros(&stream, 64)?;
/// let error = matmul(&stream, a.as_2d(8, 8)?, a.as_2d(4, 16)?, c.as_2d_mut(8, 8)?).unwrap_err();
/// assert!(matches!(error.downcast_ref(), Some(TensorError::Shape { .. })), "{error}");
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TensorError {
    /// The shapes of the matrices do not match.
    #[error(
        "{operation}: {what}; a is m x k, b k x n and c m x n, the bias has n elements, and an unbatched a or b is broadcast over the batch"
    )]
    Shape {
        /// The operation.
        operation: &'static str,
        /// The mismatched sizes.
        what: String,
    },

    /// The sizes of the groups do not match.
    #[error(
        "{operation}: {what}; a is m x k, b is k x n for each group, c is m x n, and the bias has n elements for each group"
    )]
    Groups {
        /// The operation.
        operation: &'static str,
        /// The mismatched sizes.
        what: String,
    },

    /// The lengths or the groups of weights in host memory do not match the sizes of their matrix.
    #[error("weights in the format {format}: {what}")]
    Weights {
        /// The format.
        format: &'static str,
        /// The mismatch.
        what: String,
    },

    /// The sizes of the attention heads do not match.
    #[error("{operation}: {what}")]
    Heads {
        /// The operation.
        operation: &'static str,
        /// The mismatch.
        what: String,
    },

    /// A length or a page in device memory is out of range.
    #[error("{operation}: {name}[{position}] is {index}, but must be below {bound}")]
    Index {
        /// The operation.
        operation: &'static str,
        /// Name of the array.
        name: &'static str,
        /// Position of the first invalid element in the array.
        position: u64,
        /// The element.
        index: u64,
        /// Exclusive upper bound of valid elements.
        bound: u64,
    },

    /// The soft cap of the scores is not positive and finite.
    #[error("{operation}: the soft cap is {cap}; it must be positive and finite")]
    SoftCap {
        /// The operation.
        operation: &'static str,
        /// The soft cap.
        cap: String,
    },

    /// The softmax scale is not positive and finite.
    #[error("{operation}: scores cannot be multiplied by {scale}: the scale must be positive and finite")]
    Scale {
        /// The operation.
        operation: &'static str,
        /// The scale.
        scale: String,
    },

    /// The address or a stride of a matrix or of attention heads is not aligned to the boundary that the kernel
    /// requires.
    #[error(
        "{operation}: {matrix} starts at {address:#x} and has a row stride of {bytes} bytes; the kernel needs multiples of \
         16 bytes for both: pad the rows{}",
        or_library(.operation)
    )]
    Alignment {
        /// The operation.
        operation: &'static str,
        /// The matrix.
        matrix: &'static str,
        /// Row stride in bytes.
        bytes: usize,
        /// Address of the first row.
        address: u64,
    },

    /// The kernels do not support this layout for the element type.
    #[error(
        "{operation}: for {element}, the kernels need a and b to be contiguous along k, and {matrix} is not: \
         transpose it{}",
        or_library(.operation)
    )]
    Layout {
        /// The operation.
        operation: &'static str,
        /// The matrix.
        matrix: &'static str,
        /// The element type.
        element: &'static str,
    },

    /// No kernel exists for SwiGLU, accumulation or a norm with these matrices.
    #[error(
        "{operation}: SwiGLU, accumulation and norms in the epilogue need bf16 or f16, a row-major a, a transposed b \
         and rows that start on 16-byte boundaries: multiply without them, and use `ops::swiglu`, `ops::add` or \
         `ops::rms_norm`"
    )]
    Epilogue {
        /// The operation.
        operation: &'static str,
    },

    /// No kernel exists for the schedule.
    #[error("{operation}: {what}")]
    Schedule {
        /// The operation.
        operation: &'static str,
        /// The unsupported part of the schedule, and the values that are supported.
        what: String,
    },

    /// The kernel does not support the device's compute capability.
    #[error(
        "{operation}: {device} has compute capability {}.{}, but this kernel requires {needed}{}",
        capability.0,
        capability.1,
        or_library(.operation)
    )]
    Device {
        /// The operation.
        operation: &'static str,
        /// The device.
        device: String,
        /// Compute capability of the device.
        capability: (u32, u32),
        /// The compute capabilities that the kernel supports.
        needed: &'static str,
    },
}

impl TensorError {
    /// Returns the error for a device whose compute capability is not listed in `needed`.
    pub(crate) fn device(operation: &'static str, device: &Device, needed: &'static str) -> Error {
        let capability = device.properties().capability;
        Self::Device { operation, device: device.id().to_string(), capability, needed }.into()
    }
}

/// Returns an additional remedy for GEMMs: using cuBLAS.
fn or_library(operation: &str) -> &'static str {
    if operation == "matmul" {
        ", or use cuBLAS through `warpsmith::ops` with the feature `blas`"
    } else {
        ""
    }
}

impl From<TensorError> for Error {
    fn from(error: TensorError) -> Self {
        Self::extension(error)
    }
}
