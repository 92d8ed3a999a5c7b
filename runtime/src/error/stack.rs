//! [`StackError`]: errors of stack limits.

use super::{DeviceId, Error};

/// A stack limit that cannot be set, or that is too low for a kernel.
///
/// ```
/// use warpsmith_runtime::{Device, Error, StackError};
///
/// let error = Device::emulated(0)?.set_stack_limit(usize::MAX).unwrap_err();
/// assert!(matches!(error, Error::Stack(StackError::Refused { bytes: usize::MAX, .. })), "{error}");
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StackError {
    /// The limit exceeds the device's maximum or does not fit in its memory.
    #[error(
        "{device} cannot have a stack limit of {bytes} bytes per thread: the limit exceeds the maximum per thread, or there is \
         not enough memory for all resident threads; set a lower limit ({reason})"
    )]
    Refused {
        /// The device.
        device: DeviceId,
        /// Requested limit, in bytes per thread.
        bytes: usize,
        /// The driver's error.
        reason: String,
    },

    /// The limit cannot be changed while a graph is being captured.
    #[error(
        "the stack limit of {device} cannot be set to {bytes} bytes while a stream is being captured; look the \
         kernel up or call `Device::set_stack_limit` before the capture starts"
    )]
    Capturing {
        /// The device.
        device: DeviceId,
        /// Requested limit, in bytes per thread.
        bytes: usize,
    },

    /// A kernel was launched that needs more stack than the limit.
    #[error(
        "kernel `{kernel}` needs {needs} bytes of stack per thread, but the stack limit of {device} was set to \
         {limit} bytes; raise it with `Device::set_stack_limit`, or declare the required size with `#[kernel(stack = \
         BYTES)]`"
    )]
    TooLow {
        /// The instance's symbol.
        kernel: String,
        /// The device.
        device: DeviceId,
        /// Bytes per thread that the kernel declares, or an assumed value if its stack size is unknown.
        needs: usize,
        /// The current limit, in bytes per thread.
        limit: usize,
    },
}

impl From<StackError> for Error {
    fn from(error: StackError) -> Self {
        Error::Stack(error)
    }
}
