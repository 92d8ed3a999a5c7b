//! [`LoadError`]: errors of code loaded at run time.

use std::path::PathBuf;
use std::sync::Arc;

use super::{DeviceId, Error};

/// PTX, a cubin or a fatbin that could not be loaded, or that lacks the requested kernel or global.
///
/// ```
/// use warpsmith_runtime::{Device, Error, LoadError};
///
/// // SAFETY: the text is not code, so nothing is loaded.
/// let error = unsafe { Device::emulated(0)?.load_code("not code") }.unwrap_err();
/// assert!(matches!(error, Error::Load(LoadError::NotCode { .. })), "{error}");
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum LoadError {
    /// A file that cannot be read.
    #[error("cannot read {} as GPU code: {reason}", path.escape_debug())]
    File {
        /// The file.
        path: String,
        /// The reason.
        reason: String,
    },

    /// Bytes that are not PTX, a cubin or a fatbin.
    #[error("{code} is not a PTX, cubin or fatbin: {reason}")]
    NotCode {
        /// The file, or `the code`.
        code: String,
        /// The cause.
        reason: String,
    },

    /// GPU code loaded on an emulated device.
    #[error(
        "{code} runs only on a GPU, but {device} is emulated; load it on a CUDA device, or run a kernel written in \
         Rust"
    )]
    Emulated {
        /// The file, or `the code`.
        code: String,
        /// The device.
        device: DeviceId,
    },

    /// Code that the driver rejected.
    #[error("{device} (compute capability {}.{}) does not accept {code}: {source_error}", capability.0, capability.1)]
    Rejected {
        /// The file, or `the code`.
        code: String,
        /// The device.
        device: DeviceId,
        /// Compute capability of the device.
        capability: (u32, u32),
        /// The driver's error, including the compiler's log.
        source_error: Arc<Error>,
    },

    /// The code contains no kernel with the requested name.
    #[error("{code} has no kernel `{}`{}", kernel.escape_debug(), has(kernels))]
    NoKernel {
        /// The file, or `the code`.
        code: String,
        /// The requested name.
        kernel: String,
        /// Sorted names of the code's kernels; empty if the driver does not report them.
        kernels: Vec<String>,
    },

    /// The code contains no global variable with the requested name.
    #[error(
        "{code} has no global `{}`; use the names in the PTX; a variable that no other file declares needs `.visible`",
        global.escape_debug()
    )]
    NoGlobal {
        /// The file, or `the code`.
        code: String,
        /// The requested name.
        global: String,
    },
}

/// Maximum number of kernel names listed in a message.
const NAMED: usize = 16;

fn has(kernels: &[String]) -> String {
    if kernels.is_empty() {
        return "; C++ names are mangled, unless the kernel is `extern \"C\"`".to_owned();
    }
    let named: Vec<String> =
        kernels.iter().take(NAMED).map(|kernel| format!("`{}`", kernel.escape_debug())).collect();
    let more = match kernels.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    format!("; it has {}{more}", named.join(", "))
}

impl LoadError {
    pub(crate) fn file(path: PathBuf, reason: impl ToString) -> Self {
        Self::File { path: path.display().to_string(), reason: reason.to_string() }
    }
}

impl From<LoadError> for Error {
    fn from(error: LoadError) -> Self {
        Error::Load(error)
    }
}
