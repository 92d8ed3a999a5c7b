//! [`SnapshotError`]: errors of snapshot files.

use std::path::PathBuf;

/// A memory snapshot that could not be written.
///
/// ```
/// use warpsmith_runtime::Error;
/// use warpsmith_runtime::snapshot::Snapshot;
///
/// // A file cannot be created below a file.
/// let file = std::env::temp_dir().join(format!("warpsmith-doc-snapshot-{}", std::process::id()));
/// std::fs::write(&file, "")?;
/// let written = Snapshot::default().write_json(file.join("memory.json"));
/// let Err(Error::Snapshot(error)) = written else { unreachable!("there is no such folder") };
/// assert_eq!(error.path, file.join("memory.json"));
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the memory snapshot {} cannot be written: {reason}; give a path in a writable folder", path.display())]
#[non_exhaustive]
pub struct SnapshotError {
    /// The file.
    pub path: PathBuf,
    /// The cause.
    pub reason: String,
}
