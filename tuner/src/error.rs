//! The errors of the tuner: each names cause and remedy in one line.

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
        /// The cause, and what to write instead.
        reason: String,
    },
    /// A value of an axis that cannot be.
    #[error("{axis}{}: {reason}", quoted(text))]
    Axis {
        /// The axis.
        axis: String,
        /// As given.
        text: String,
        /// The cause, and what to use instead.
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
    /// A kernel that the program was built without.
    #[error(
        "{name} is left out of this program: build it with the feature `{feature}` of warpsmith; for the command, \
         `cargo install warpsmith-cli --features full`, or the same from git"
    )]
    LeftOut {
        /// As given.
        name: String,
        /// The cargo feature that brings it.
        feature: &'static str,
    },
    /// Two benchmarks of a program have the same name.
    #[error(
        "two benchmarks are called {name:?}, and only one could be selected; give each a name of its own"
    )]
    SameName {
        /// The name.
        name: String,
    },
    /// The kernel has no instance for the type.
    #[error("unknown type {dtype:?} for {kernel}: use one of {}", known.join(", "))]
    UnknownDtype {
        /// As given.
        dtype: String,
        /// The kernel.
        kernel: String,
        /// The existing ones.
        known: Vec<String>,
    },
    /// No configuration is left to measure.
    #[error(
        "no configuration of {kernel} is left of {before}: {} are refused; widen an axis with --axis",
        refused.join(", ")
    )]
    EmptySpace {
        /// The kernel.
        kernel: String,
        /// The number without restrictions.
        before: usize,
        /// Each restriction with the number that it refuses.
        refused: Vec<String>,
    },
    /// A case was launched before a configuration was chosen for it.
    #[error("no configuration was chosen; call select before launch and check")]
    NothingSelected,
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
    /// A file of results that cannot be used.
    #[error("cannot use {}: {reason}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why, and what to do.
        reason: String,
    },
    /// Two documents that say nothing about each other.
    #[error("cannot compare: {reason}")]
    Incomparable {
        /// Why, and what to do.
        reason: String,
    },
    /// A configuration stopped the device, and nothing more can be measured in this process.
    #[error(
        "{case} with {configuration} stopped the device: {problem}; leave out one of its values with --axis and start again"
    )]
    Lost {
        /// The kernel, type and size.
        case: String,
        /// The configuration.
        configuration: String,
        /// The cause.
        problem: String,
    },
    /// A launch that a benchmark makes was refused or failed.
    #[error(transparent)]
    Launch(#[from] Box<dyn std::error::Error + Send + Sync>),
    /// The runtime refused or failed.
    #[error(transparent)]
    Runtime(#[from] warpsmith_runtime::Error),
}

impl Error {
    /// Whether the request itself was at fault, rather than the machine.
    pub fn is_wrong_use(&self) -> bool {
        !matches!(self, Error::Runtime(_) | Error::Launch(_) | Error::NothingSelected | Error::Lost { .. })
    }
}

fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" {text:?}") }
}
