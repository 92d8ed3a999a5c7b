//! [`SetupError`]: installation errors and their remedies.

use std::path::PathBuf;

use crate::toolchain::INSTALL_COMMANDS;

/// Reason why a tool could not be installed. The text states the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The user's data folder could not be determined.
    #[error(
        "there is no folder for the tools: neither WARPSMITH_DATA_DIR, XDG_DATA_HOME nor HOME is set to an absolute path; set WARPSMITH_DATA_DIR to a folder that can be written"
    )]
    NoDataFolder,

    /// A variable that chooses tools has a relative path.
    #[error("{0}")]
    RelativePath(#[from] crate::toolchain::RelativePath),

    /// The folder for the tools cannot be written.
    #[error("cannot write to {}: {source}; make it writable, or set WARPSMITH_DATA_DIR to another folder", path.display())]
    Folder {
        /// Path of the folder.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },

    /// `WARPSMITH_DEVICE_RUSTC` or `WARPSMITH_LLVM_BIN` chooses an unsuitable toolchain; an installed one would not be
    /// used.
    #[error(
        "{variable} is set, but the tools that it names cannot compile kernels:\n{looked}\nUnset it, and run this again"
    )]
    Overridden {
        /// Name of the variable.
        variable: &'static str,
        /// Candidate, with the reason for its rejection.
        looked: String,
    },

    /// All attempts to install the device toolchain failed.
    #[error(
        "there is no toolchain for device code{}\nlooked at:\n{looked}\n\
         Install one in one of these ways, then run this again:\n{INSTALL_COMMANDS}",
        list(tried)
    )]
    NoToolchain {
        /// All attempts, and why each attempt failed.
        tried: Vec<String>,
        /// Candidates that an earlier search found, each with the reason for its rejection.
        looked: String,
    },

    /// No Python with pip was found, which is required to download NVIDIA's wheels.
    #[error(
        "NVIDIA's ptxas and libdevice are downloaded by pip, and {reason}; install it (Debian and Ubuntu: apt-get install \
         python3-venv), or set WARPSMITH_CUDA_TOOLS to a CUDA toolkit, then run this again"
    )]
    NoPip {
        /// Missing component.
        reason: String,
    },

    /// The package index could not be reached.
    #[error(
        "NVIDIA's wheels could not be downloaded: the package index was not reached ({message}); check the network (pip uses \
         HTTPS_PROXY, PIP_INDEX_URL and PIP_CERT), then run this again; nothing was changed"
    )]
    Network {
        /// Output of pip.
        message: String,
    },

    /// A downloaded file has an unexpected hash.
    #[error(
        "a download of NVIDIA's wheels is not the file it should be and was deleted ({message}); run this again; if that \
         does not help, the package index or a proxy changes files: set PIP_INDEX_URL to https://pypi.org/simple"
    )]
    BrokenDownload {
        /// Output of pip.
        message: String,
    },

    /// pip failed for another reason.
    #[error("pip could not install NVIDIA's wheels; nothing was changed:\n{message}")]
    Pip {
        /// Output of pip.
        message: String,
    },

    /// The wheels lack expected files.
    #[error(
        "the downloaded wheels lack something, and were deleted:\n{looked}\nSet WARPSMITH_CUDA_TOOLS to a CUDA toolkit instead"
    )]
    Incomplete {
        /// Missing files.
        looked: String,
    },
}

impl SetupError {
    /// Creates the error for a file operation on `path`, for use with `map_err`.
    pub(crate) fn folder(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> SetupError {
        let path = path.into();
        move |source| SetupError::Folder { path, source }
    }
}

fn list(tried: &[String]) -> String {
    tried.iter().map(|line| format!("\n{line}")).collect()
}
