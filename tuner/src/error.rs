//! Errors of the tuner. Each names cause and remedy in one line.

use std::path::PathBuf;

/// A result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// The reason why a run could not be set up or finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A text that is not an element count.
    #[error("size {text:?}: {reason}")]
    Size {
        /// Text as given.
        text: String,
        /// The cause, and what to write instead.
        reason: String,
    },
    /// An invalid value for an axis.
    #[error("{axis}{}: {reason}", quoted(text))]
    Axis {
        /// Name of the axis.
        axis: String,
        /// Value as given.
        text: String,
        /// The cause, and what to use instead.
        reason: String,
    },
    /// Unknown kernel.
    #[error("unknown kernel {name:?}: {hint}")]
    UnknownKernel {
        /// Name as given.
        name: String,
        /// Near names, or all names.
        hint: String,
    },
    /// A kernel that this program was built without.
    #[error(
        "{name} is left out of this program: build it with the feature `{feature}` of warpsmith; for the command, \
         `cargo install --path cli --features full` in the clone of Warpsmith"
    )]
    LeftOut {
        /// Name as given.
        name: String,
        /// Cargo feature that enables the kernel.
        feature: &'static str,
    },
    /// Two benchmarks of a program have the same name.
    #[error(
        "two benchmarks are called {name:?}, and only one could be selected; give each a name of its own"
    )]
    SameName {
        /// The shared name.
        name: String,
    },
    /// The kernel has no instance for the type.
    #[error("unknown type {dtype:?} for {kernel}: use one of {}", known.join(", "))]
    UnknownDtype {
        /// Type name as given.
        dtype: String,
        /// Name of the kernel.
        kernel: String,
        /// Types that the kernel supports.
        known: Vec<String>,
    },
    /// The restrictions leave no configuration to measure.
    #[error(
        "no configuration of {kernel} is left of {before}: {} are refused; widen an axis with --axis",
        refused.join(", ")
    )]
    EmptySpace {
        /// Name of the kernel.
        kernel: String,
        /// Number of configurations without restrictions.
        before: usize,
        /// Each restriction with the number of configurations that it refuses.
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
        /// Name of the kernel.
        kernel: String,
        /// Element type.
        dtype: String,
        /// Number of elements.
        n: u64,
        /// Bytes needed.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// The results file cannot be written.
    #[error("cannot write {}: {source}; give another file with --out", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the system.
        source: std::io::Error,
    },
    /// A file of results that cannot be used.
    #[error("cannot use {}: {reason}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause and remedy.
        reason: String,
    },
    /// Two documents that cannot be compared.
    #[error("cannot compare: {reason}")]
    Incomparable {
        /// Cause and remedy.
        reason: String,
    },
    /// A configuration crashed the device, and nothing more can be measured in this process.
    #[error(
        "{case} with {configuration} stopped the device: {problem}; leave out one of its values with --axis and start again"
    )]
    Lost {
        /// Kernel, type and size.
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
    /// Returns true if the request itself was at fault, rather than the machine.
    pub fn is_usage_error(&self) -> bool {
        !matches!(self, Error::Runtime(_) | Error::Launch(_) | Error::NothingSelected | Error::Lost { .. })
    }
}

fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" {text:?}") }
}
