//! [`Error`]: the error of an operator call, which becomes a Python exception.

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::{PyErr, Python};
use warpsmith_interop::dlpack::DLDevice;

/// Result of an operator.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Error of an operator call. It is raised as a Python exception.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Error of the runtime, for example of a kernel launch.
    #[error(transparent)]
    Runtime(#[from] warpsmith_runtime::Error),
    /// Exception raised by Python code that the operator called.
    #[error(transparent)]
    Python(#[from] PyErr),
    /// Invalid argument value, raised as `ValueError`. Operators return this error from their own checks.
    #[error("{0}")]
    Value(String),
    /// Argument that is not a tensor, raised as `TypeError`.
    #[error(
        "argument `{argument}` must be a tensor, not {found}; pass an object that implements `__dlpack__`"
    )]
    NoTensor {
        /// Name of the argument.
        argument: &'static str,
        /// Type of the argument.
        found: String,
    },
    /// Arguments that do not match the signature, raised as `TypeError`.
    #[error("{0}")]
    Arguments(String),
    /// Tensor on a different device than the first tensor.
    #[error(
        "argument `{argument}` is on {}, but an earlier tensor is on {}; move it to that device",
        name(*.found), name(*.expected)
    )]
    Device {
        /// Name of the argument.
        argument: &'static str,
        /// Device of the argument.
        found: DLDevice,
        /// Device of the first tensor.
        expected: DLDevice,
    },
    /// Tensor on a device that is neither a CPU nor a CUDA device.
    #[error(
        "argument `{argument}` is on {}, which is not supported; move it to the CPU or to a CUDA device",
        name(*.found)
    )]
    UnknownDevice {
        /// Name of the argument.
        argument: &'static str,
        /// Device of the argument.
        found: DLDevice,
    },
    /// Tensor that the operator writes and that shares memory with another argument.
    #[error(
        "argument `{written}` is modified in place and shares memory with `{other}`; pass a copy of one of them"
    )]
    Overlap {
        /// Name of the written argument.
        written: &'static str,
        /// Name of the other argument.
        other: &'static str,
    },
    /// Call without a tensor argument. The tensors determine the device and the stream.
    #[error("cannot determine the device, because no argument is a tensor; pass at least one tensor")]
    NoDevice,
    /// Operator that returned one of its arguments.
    #[error("the operator returned one of its arguments; return tensors from `Call::empty`, or nothing")]
    ReturnedArgument,
    /// Error of PyTorch: it is not loaded, does not export a function, or a function failed.
    #[error("PyTorch: {0}")]
    Torch(String),
    /// Error of a function of TVM FFI.
    #[error("TVM FFI: `{0}` failed")]
    Tvm(&'static str),
    /// The framework of the first tensor could not allocate a result.
    #[error("the framework cannot allocate the result: {0}")]
    Allocation(String),
    /// Panic in the operator's code.
    #[error("the operator panicked: {0}")]
    Panic(String),
}

impl Error {
    /// Creates an error for an invalid argument value, which Python raises as `ValueError`.
    pub fn value(text: impl Into<String>) -> Self {
        Self::Value(text.into())
    }

    /// Returns the name of the Python exception.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::NoTensor { .. } | Self::Arguments(_) => "TypeError",
            Self::Value(_)
            | Self::Device { .. }
            | Self::UnknownDevice { .. }
            | Self::Overlap { .. }
            | Self::NoDevice
            | Self::Runtime(warpsmith_runtime::Error::Extension(_)) => "ValueError",
            _ => "RuntimeError",
        }
    }
}

/// Returns the name of a device, in PyTorch's syntax for CUDA devices.
fn name(DLDevice { device_type, device_id }: DLDevice) -> String {
    match device_type {
        DLDevice::CPU => "the CPU".to_owned(),
        DLDevice::CUDA => format!("cuda:{device_id}"),
        _ => format!("a device of DLPack type {device_type}"),
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match (error.kind(), error) {
            (_, Error::Python(error)) => error,
            ("TypeError", _) => PyTypeError::new_err(text),
            ("ValueError", _) => PyValueError::new_err(text),
            _ => PyRuntimeError::new_err(text),
        }
    }
}

/// Clears and returns the exception that a function of Python's C API has set.
pub(crate) fn fetch(py: Python<'_>) -> Error {
    PyErr::fetch(py).into()
}

/// Returns the message of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message").to_owned()
}
