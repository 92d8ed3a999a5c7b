//! [`SnapshotError`]: errors of snapshot files.

use std::path::PathBuf;

/// A memory snapshot that could not be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the memory snapshot {}{reason}", path.as_ref().map_or_else(String::new, |path| format!("{} ", path.display())))]
#[non_exhaustive]
pub struct SnapshotError {
    /// The file; `None` for a snapshot in memory.
    pub path: Option<PathBuf>,
    /// The cause, and the remedy.
    pub reason: String,
}
