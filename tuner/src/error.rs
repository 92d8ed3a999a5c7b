//! Tuner errors. Each error states its cause and its remedy in one line.

use std::path::PathBuf;

/// Result with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Reason why a run could not be set up or finished.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A string that is not an element count.
    #[error("size {text:?}: {reason}")]
    Size {
        /// String as given.
        text: String,
        /// Cause and remedy.
        reason: String,
    },
    /// Invalid value for an axis.
    #[error("{axis}{}: {reason}", quoted(text))]
    Axis {
        /// Name of the axis.
        axis: String,
        /// Value as given.
        text: String,
        /// Cause and remedy.
        reason: String,
    },
    /// Kernel that does not exist.
    #[error("unknown kernel {name:?}: {hint}")]
    UnknownKernel {
        /// Name as given.
        name: String,
        /// Similar names, or all names.
        hint: String,
    },
    /// A kernel that was not included when this program was built.
    #[error(
        "this program was built without {name}: build it with warpsmith's feature `{feature}`; to install the \
         command with all features, run `cargo install --path cli --features full` in a clone of Warpsmith"
    )]
    LeftOut {
        /// Name as given.
        name: String,
        /// Cargo feature that enables the kernel.
        feature: &'static str,
    },
    /// Two benchmarks in a program have the same name.
    #[error("two benchmarks are called {name:?}; give each benchmark a unique name")]
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
    /// No configuration remains to be measured.
    #[error(
        "none of the {before} configurations of {kernel} remains; rejected: {}; widen an axis with --axis",
        refused.join(", ")
    )]
    EmptySpace {
        /// Name of the kernel.
        kernel: String,
        /// Number of configurations before the restrictions.
        before: usize,
        /// Restrictions, each with the number of configurations that it excludes.
        refused: Vec<String>,
    },
    /// A case was launched before a configuration had been selected.
    #[error("no configuration was chosen; call select before launch and check")]
    NothingSelected,
    /// Buffers that do not fit in the device's memory.
    #[error(
        "{kernel} {dtype} with {} elements needs {} of device memory, but {} are free; give a smaller size",
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
        /// Number of required bytes.
        needed: u64,
        /// Number of free bytes.
        free: u64,
    },
    /// The results file cannot be written.
    #[error("cannot write {}: {source}; give another file with --out", path.display())]
    Write {
        /// Path of the file.
        path: PathBuf,
        /// Error of the operating system.
        source: std::io::Error,
    },
    /// Results file that cannot be used.
    #[error("cannot use {}: {reason}", path.display())]
    Read {
        /// Path of the file.
        path: PathBuf,
        /// Cause and remedy.
        reason: String,
    },
    /// Documents that cannot be compared.
    #[error("cannot compare: {reason}")]
    Incomparable {
        /// Cause and remedy.
        reason: String,
    },
    /// A configuration has crashed the device, so nothing else can be measured in this process.
    #[error(
        "{case} with {configuration} stopped the device: {problem}; exclude one of its values with --axis and start \
         again"
    )]
    Lost {
        /// Kernel, type and size.
        case: String,
        /// Configuration that crashed the device.
        configuration: String,
        /// Cause of the crash.
        problem: String,
    },
    /// The launch of a benchmark failed or was rejected.
    #[error(transparent)]
    Launch(#[from] Box<dyn std::error::Error + Send + Sync>),
    /// The runtime returned an error.
    #[error(transparent)]
    Runtime(#[from] warpsmith_runtime::Error),
}

impl Error {
    /// Returns true if the request itself is invalid, rather than the machine being at fault.
    pub fn is_usage_error(&self) -> bool {
        !matches!(self, Error::Runtime(_) | Error::Launch(_) | Error::NothingSelected | Error::Lost { .. })
    }
}

fn quoted(text: &str) -> String {
    if text.is_empty() { String::new() } else { format!(" {text:?}") }
}
