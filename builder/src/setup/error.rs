//! [`SetupError`]: why something could not be installed, and what to do.

use std::path::PathBuf;

use crate::toolchain::INSTALL_COMMANDS;

/// Why something could not be installed. The text says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// There is no folder for the user's data.
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
        /// The folder.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },

    /// `WARPSMITH_DEVICE_RUSTC` or `WARPSMITH_LLVM_BIN` chooses a toolchain that does not do, and nothing that could be
    /// installed would be used.
    #[error(
        "{variable} is set, and what it names cannot compile kernels:\n{looked}\nUnset it, and run this again"
    )]
    Overridden {
        /// The variable.
        variable: &'static str,
        /// The candidate and why it was rejected.
        looked: String,
    },

    /// No way to install the device toolchain worked.
    #[error(
        "there is no toolchain for device code{}\nlooked at:\n{looked}\n\
         Install one in one of these ways, then run this again:\n{INSTALL_COMMANDS}",
        list(tried)
    )]
    NoToolchain {
        /// What was tried, and how it failed.
        tried: Vec<String>,
        /// The candidates that were found before, and why each was rejected.
        looked: String,
    },

    /// There is no Python with pip, which downloads NVIDIA's wheels.
    #[error(
        "NVIDIA's ptxas and libdevice are downloaded by pip, and {reason}; install it (Debian and Ubuntu: apt-get install \
         python3-venv), or set WARPSMITH_CUDA_TOOLS to a CUDA toolkit, then run this again"
    )]
    NoPip {
        /// What is missing.
        reason: String,
    },

    /// The package index was not reached.
    #[error(
        "NVIDIA's wheels could not be downloaded: the package index was not reached ({message}); check the network (pip uses \
         HTTPS_PROXY, PIP_INDEX_URL and PIP_CERT), then run this again; nothing was changed"
    )]
    Network {
        /// pip's words.
        message: String,
    },

    /// A download is not the file that it should be.
    #[error(
        "a download of NVIDIA's wheels is not the file it should be and was deleted ({message}); run this again; if that \
         does not help, the package index or a proxy changes files: set PIP_INDEX_URL to https://pypi.org/simple"
    )]
    BrokenDownload {
        /// pip's words.
        message: String,
    },

    /// pip failed for another reason.
    #[error("pip could not install NVIDIA's wheels; nothing was changed:\n{message}")]
    Pip {
        /// pip's words.
        message: String,
    },

    /// The wheels do not hold what they should.
    #[error(
        "the downloaded wheels lack something, and were deleted:\n{looked}\nSet WARPSMITH_CUDA_TOOLS to a CUDA toolkit instead"
    )]
    Incomplete {
        /// What is missing.
        looked: String,
    },
}

impl SetupError {
    /// For `map_err` of a file operation in `path`.
    pub(crate) fn folder(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> SetupError {
        let path = path.into();
        move |source| SetupError::Folder { path, source }
    }
}

fn list(tried: &[String]) -> String {
    tried.iter().map(|line| format!("\n{line}")).collect()
}
