//! [`SetupError`]: installation errors and their remedies.

use std::path::PathBuf;

use crate::toolchain::INSTALL_COMMANDS;

/// Reason why a tool could not be installed. The message states the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The user's data folder could not be determined.
    #[error(
        "there is no folder for the tools: none of WARPSMITH_DATA_DIR, XDG_DATA_HOME and HOME is an absolute path; \
         set WARPSMITH_DATA_DIR to a writable folder"
    )]
    NoDataFolder,

    /// A variable that selects tools contains a relative path.
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

    /// `WARPSMITH_DEVICE_RUSTC` or `WARPSMITH_LLVM_BIN` selects an unsuitable toolchain, so an installed toolchain
    /// would not be used.
    #[error(
        "{variable} is set, but the tools there cannot compile kernels:\n{looked}\nUnset the variable and run this \
         command again"
    )]
    Overridden {
        /// Name of the variable.
        variable: &'static str,
        /// Candidate, with the reason for its rejection.
        looked: String,
    },

    /// All attempts to install the device toolchain failed.
    #[error(
        "no toolchain for device code was found{}\nsearched:\n{looked}\nInstall one with one of these commands, then \
         run this command again:\n{INSTALL_COMMANDS}",
        list(tried)
    )]
    NoToolchain {
        /// All attempts, and why each attempt failed.
        tried: Vec<String>,
        /// Candidates that an earlier search found, each with the reason for its rejection.
        looked: String,
    },

    /// No Python with pip was found. It is required to download NVIDIA's wheels.
    #[error(
        "ptxas and libdevice cannot be downloaded with pip: {reason}; install pip (Debian and Ubuntu: apt-get \
         install python3-venv) or set WARPSMITH_CUDA_TOOLS to a CUDA toolkit, then run this command again"
    )]
    NoPip {
        /// Missing component.
        reason: String,
    },

    /// The package index could not be reached.
    #[error(
        "NVIDIA's wheels could not be downloaded: the package index is unreachable ({message}); check the network \
         (pip uses HTTPS_PROXY, PIP_INDEX_URL and PIP_CERT), then run this command again; nothing was changed"
    )]
    Network {
        /// Output of pip.
        message: String,
    },

    /// A downloaded file has an unexpected hash.
    #[error(
        "a downloaded NVIDIA wheel has the wrong hash and was deleted ({message}); run this command again; if it \
         fails again, the package index or a proxy modifies files: set PIP_INDEX_URL to https://pypi.org/simple"
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
        "the downloaded wheels are incomplete and were deleted:\n{looked}\nSet WARPSMITH_CUDA_TOOLS to a CUDA \
         toolkit instead"
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
