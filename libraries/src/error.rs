//! [`LibraryError`]: what goes wrong with NVIDIA's libraries, and [`VendorVersion`], which it names.

use std::fmt;

use warpsmith_runtime::device::Device;
use warpsmith_runtime::error::{Bytes, Error, Result};
use warpsmith_runtime::stream::Stream;

/// A library's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VendorVersion {
    /// The number before the first dot.
    pub major: u32,
    /// The second number.
    pub minor: u32,
    /// The third number.
    pub patch: u32,
}

impl VendorVersion {
    pub(crate) fn at_least(
        self,
        least: u32,
        library: &'static str,
    ) -> std::result::Result<Self, LibraryError> {
        if self.major < least {
            Err(LibraryError::TooOld { library, version: self, least })
        } else {
            Ok(self)
        }
    }
}

impl fmt::Display for VendorVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// An error of one of NVIDIA's libraries, or of the request to it.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// The library could not be loaded.
    #[error(
        "{library} (lib{file}) was not found or could not be loaded; install it (`pip install {package}`, or the CUDA \
         toolkit's package) and name its folder in WARPSMITH_LIBRARY_PATH, or use the emulated device `cpu`"
    )]
    Missing {
        /// Its name.
        library: &'static str,
        /// The file's name between `lib` and `.so`.
        file: &'static str,
        /// The package of PyPI that has it.
        package: &'static str,
    },

    /// The library is older than what the bindings were made for.
    #[error(
        "{library} {version} is too old: install version {least} or newer, where the system finds it first (LD_LIBRARY_PATH)"
    )]
    TooOld {
        /// Its name.
        library: &'static str,
        /// The version that was found.
        version: VendorVersion,
        /// The least major version.
        least: u32,
    },

    /// A call of a library failed.
    #[error("{call} of {library} failed with {status}{}", context.as_deref().map(|c| format!(": {c}")).unwrap_or_default())]
    Call {
        /// The library's name.
        library: &'static str,
        /// The function.
        call: &'static str,
        /// The status that it returned, by NVIDIA's name.
        status: String,
        /// The request, and what may be done about it.
        context: Option<String>,
    },

    /// Shapes, strides or lengths that do not fit each other.
    #[error("{operation}: {problem}")]
    Shape {
        /// The request.
        operation: &'static str,
        /// The mismatch, with the figures, and what would fit.
        problem: String,
    },

    /// The library, or this GPU, does not do this.
    #[error("{operation}: {what} is not supported{}", needs.as_deref().map(|n| format!("; it needs {n}")).unwrap_or_default())]
    Unsupported {
        /// The request.
        operation: &'static str,
        /// The type, layout or option.
        what: String,
        /// An alternative.
        needs: Option<String>,
    },

    /// The emulated device has no such operation.
    #[error(
        "{operation} needs a GPU: the emulated device does not have it; open a CUDA device, `Device::cuda(0)`"
    )]
    NeedsGpu {
        /// The request.
        operation: &'static str,
    },

    /// No algorithm gets by with the workspace that is allowed.
    #[error(
        "{operation}: no algorithm gets by with {} of workspace; the smallest that works needs {}",
        Bytes(*limit), Bytes(*least)
    )]
    WorkspaceTooSmall {
        /// The request.
        operation: &'static str,
        /// The limit, in bytes.
        limit: u64,
        /// The need of the least demanding algorithm, in bytes.
        least: u64,
    },
}

impl LibraryError {
    /// The error of a call that failed; an empty context is none.
    #[cold]
    pub(crate) fn of_call(
        library: &'static str,
        call: &'static str,
        status: impl fmt::Debug,
        context: impl Into<String>,
    ) -> Error {
        let context = Some(context.into()).filter(|context| !context.is_empty());
        Self::Call { library, call, status: format!("{status:?}"), context }.into()
    }

    #[cold]
    pub(crate) fn shape(operation: &'static str, problem: impl Into<String>) -> Error {
        Self::Shape { operation, problem: problem.into() }.into()
    }

    #[cfg(any(feature = "blas", feature = "dnn"))]
    #[cold]
    pub(crate) fn unsupported(operation: &'static str, what: impl Into<String>, needs: &str) -> Error {
        Self::Unsupported { operation, what: what.into(), needs: Some(needs.to_owned()) }.into()
    }
}

/// Fails unless what an operation uses is on the stream's device.
pub(crate) fn check_devices<const N: usize>(
    stream: &Stream,
    operation: &'static str,
    used: [(&Device, &'static str); N],
) -> Result<()> {
    used.into_iter().try_for_each(|(device, name)| {
        stream.check_device(device, || (operation.to_owned(), name.to_owned()))
    })
}

impl From<LibraryError> for Error {
    fn from(error: LibraryError) -> Self {
        Self::extension(error)
    }
}
