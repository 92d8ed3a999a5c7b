//! [`SnapshotError`]: errors of snapshot files.

use std::path::PathBuf;

/// A memory snapshot that could not be written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the memory snapshot {} cannot be written: {reason}; give a path in a writable folder", path.display())]
#[non_exhaustive]
pub struct SnapshotError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub reason: String,
}
