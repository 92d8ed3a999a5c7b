//! [`Error`]: what an operator reports to Python.

use pyo3::exceptions::{PyRuntimeError, PyTypeError, PyValueError};
use pyo3::{PyErr, Python};
use warpsmith_interop::dlpack::DLDevice;

/// Result of an operator.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error of an operator, which becomes a Python exception.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A call of the runtime, or a launch.
    #[error(transparent)]
    Runtime(#[from] warpsmith_runtime::Error),
    /// An exception of Python code that was called.
    #[error(transparent)]
    Python(#[from] PyErr),
    /// The operator's own check of its arguments: a `ValueError`.
    #[error("{0}")]
    Value(String),
    /// An argument that is no tensor: a `TypeError`.
    #[error("argument `{argument}` is {found}, not a tensor; pass an object with `__dlpack__`")]
    NoTensor {
        /// Name of the argument.
        argument: &'static str,
        /// The Python type.
        found: String,
    },
    /// Arguments that do not match the signature: a `TypeError`.
    #[error("{0}")]
    Arguments(String),
    /// A tensor of another device than the first.
    #[error("argument `{argument}` is on {}, and an earlier tensor is on {}; move it there first", name(*.found), name(*.expected))]
    Device {
        /// Name of the argument.
        argument: &'static str,
        /// Its device.
        found: DLDevice,
        /// The first tensor's device.
        expected: DLDevice,
    },
    /// A tensor on a device that is neither a CPU nor a CUDA device.
    #[error("argument `{argument}` is on {}; move it to the CPU or to a CUDA device", name(*.found))]
    UnknownDevice {
        /// Name of the argument.
        argument: &'static str,
        /// Its device.
        found: DLDevice,
    },
    /// A tensor that the operator writes, whose memory another argument also uses.
    #[error("argument `{written}` is written and shares memory with `{other}`; pass a copy of one of them")]
    Overlap {
        /// The argument that is written.
        written: &'static str,
        /// The other argument.
        other: &'static str,
    },
    /// An operator without a tensor argument, from which its device and stream follow.
    #[error("no argument is a tensor, so that the device is unknown; pass at least one tensor")]
    NoDevice,
    /// An operator that returns a tensor that it did not allocate.
    #[error("the operator returns an argument; return what `Call::empty` allocated, or nothing")]
    ReturnedArgument,
    /// PyTorch in the process, which lacks a function or fails.
    #[error("PyTorch: {0}")]
    Torch(String),
    /// A function of TVM FFI that fails.
    #[error("TVM FFI: `{0}` failed")]
    Tvm(&'static str),
    /// A panic of the operator's code.
    #[error("panicked: {0}")]
    Panic(String),
}

impl Error {
    /// An error in the value of an argument: `ValueError` in Python.
    pub fn value(text: impl Into<String>) -> Self {
        Self::Value(text.into())
    }

    /// Name of the Python exception.
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

/// Names a device as PyTorch does.
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

/// Takes the exception that a function of the C API has set.
pub(crate) fn fetch(py: Python<'_>) -> Error {
    PyErr::fetch(py).into()
}

/// The text of a panic.
pub(crate) fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a text").to_owned()
}
