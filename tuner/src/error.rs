//! What can go wrong, each with what to do about it, in one line.

use std::path::PathBuf;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a run could not be set up or finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A size that is no element count.
    #[error("size {text:?}: {reason}")]
    Size {
        /// As given.
        text: String,
        /// What is wrong and what to write.
        reason: String,
    },
    /// A value of an axis that cannot be.
    #[error("{axis} {text:?}: {reason}")]
    Axis {
        /// The axis.
        axis: &'static str,
        /// As given.
        text: String,
        /// What is wrong and what to use.
        reason: String,
    },
    /// No such kernel.
    #[error("unknown kernel {name:?}: {hint}")]
    UnknownKernel {
        /// As given.
        name: String,
        /// Near names, or all of them.
        hint: String,
    },
    /// The kernel has no instance for the type.
    #[error("unknown type {dtype:?} for {kernel}: use one of {}", known.join(", "))]
    UnknownDtype {
        /// As given.
        dtype: String,
        /// The kernel.
        kernel: String,
        /// What there is.
        known: Vec<String>,
    },
    /// No configuration is left to measure.
    #[error(
        "no configuration of {kernel} for {dtype} is left: its blocks have at most {limit} threads; \
         give a smaller --blocks, or other --items and --vectors"
    )]
    EmptySpace {
        /// The kernel.
        kernel: String,
        /// The type.
        dtype: String,
        /// The largest block of its instances.
        limit: u32,
    },
    /// The buffers do not fit on the device.
    #[error(
        "{kernel} {dtype} of {} elements needs {} of device memory and {} are free; give a smaller size",
        crate::size::format_size(*n),
        crate::size::format_bytes(*needed),
        crate::size::format_bytes(*free)
    )]
    TooLarge {
        /// The kernel.
        kernel: String,
        /// The type.
        dtype: String,
        /// Elements.
        n: u64,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The results file cannot be written.
    #[error("cannot write {}: {source}; give another file with --out", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The runtime refused or failed.
    #[error(transparent)]
    Runtime(#[from] warpsmith::Error),
}

impl From<warpsmith::runtime::Error> for Error {
    fn from(error: warpsmith::runtime::Error) -> Self {
        Error::Runtime(error.into())
    }
}

impl Error {
    /// Whether the request itself was at fault, rather than the machine.
    pub fn is_wrong_use(&self) -> bool {
        !matches!(self, Error::Runtime(_))
    }
}
