//! [`LibraryError`]: errors from NVIDIA's libraries. [`VendorVersion`]: the version of a library.

use std::fmt;

use warpsmith_runtime::error::Bytes;
use warpsmith_runtime::{Device, Error, Result, Stream};

/// A library's version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VendorVersion {
    /// Major version.
    pub major: u32,
    /// Minor version.
    pub minor: u32,
    /// Patch version.
    pub patch: u32,
}

impl VendorVersion {
    pub(crate) fn at_least(
        self,
        minimum: u32,
        library: &'static str,
    ) -> std::result::Result<Self, LibraryError> {
        if self.major < minimum {
            Err(LibraryError::TooOld { library, version: self, minimum })
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

/// An error from one of NVIDIA's libraries, or an error in a request to a library.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LibraryError {
    /// The library could not be loaded.
    #[error(
        "{library} (lib{file}) was not found or could not be loaded; install it (`pip install {package}`, or the \
         CUDA toolkit's package) and set WARPSMITH_LIBRARY_PATH to its folder, or use the emulated device `cpu`"
    )]
    Missing {
        /// Library name.
        library: &'static str,
        /// The part of the file name between `lib` and `.so`.
        file: &'static str,
        /// PyPI package that contains the library.
        package: &'static str,
    },

    /// The library is older than the bindings require.
    #[error(
        "{library} {version} is too old: install version {minimum} or newer, and put its folder first in \
         LD_LIBRARY_PATH"
    )]
    TooOld {
        /// Library name.
        library: &'static str,
        /// The installed version.
        version: VendorVersion,
        /// Minimum major version.
        minimum: u32,
    },

    /// A library call failed.
    #[error("{call} of {library} failed with {status}{}", context.as_deref().map(|c| format!(": {c}")).unwrap_or_default())]
    Call {
        /// Library name.
        library: &'static str,
        /// Function name.
        call: &'static str,
        /// NVIDIA's name for the returned status.
        status: String,
        /// The request and a possible remedy.
        context: Option<String>,
    },

    /// Shapes, strides or lengths do not match.
    #[error("{operation}: {problem}")]
    Shape {
        /// Requested operation.
        operation: &'static str,
        /// The mismatched values and the accepted values.
        problem: String,
    },

    /// The library or this GPU does not support the request.
    #[error("{operation}: {what} is not supported; it needs {needs}")]
    Unsupported {
        /// Requested operation.
        operation: &'static str,
        /// The unsupported type, layout or option.
        what: String,
        /// A supported alternative.
        needs: String,
    },

    /// No algorithm works within the workspace limit.
    #[error(
        "{operation}: no algorithm works within the workspace limit of {}; raise the limit to at least {}",
        Bytes(*limit), Bytes(*minimum)
    )]
    WorkspaceTooSmall {
        /// Requested operation.
        operation: &'static str,
        /// Workspace limit, in bytes.
        limit: u64,
        /// Smallest workspace that any algorithm needs, in bytes.
        minimum: u64,
    },
}

impl LibraryError {
    /// Creates the error for a failed library call. An empty context becomes `None`.
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
        Self::Unsupported { operation, what: what.into(), needs: needs.to_owned() }.into()
    }
}

/// Returns an error if any operand is not on the stream's device.
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
