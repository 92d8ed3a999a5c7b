//! Trace file errors.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub(crate) use warpsmith_runtime::{Error, Result};

/// Error for a trace that could not be written or read. It is carried in a [`warpsmith_runtime::Error`]; to get it,
/// call `downcast_ref`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the trace {}{reason}", path.as_ref().map_or_else(String::new, |path| format!("{} ", path.display())))]
#[non_exhaustive]
pub struct TraceError {
    /// Path of the file; `None` for content in memory.
    pub path: Option<PathBuf>,
    /// Cause and remedy.
    pub reason: String,
}

impl TraceError {
    /// Creates the error for a file or for content in memory.
    pub(crate) fn of(path: Option<&Path>, reason: impl Into<String>) -> Error {
        Self { path: path.map(Path::to_path_buf), reason: reason.into() }.into()
    }
}

impl From<TraceError> for Error {
    fn from(error: TraceError) -> Self {
        Self::extension(error)
    }
}

/// Damage in a file that could be read only in part.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Byte offset of the damage in the file or in its decompressed content.
    pub at: u64,
    /// Description of the damage.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is damaged at byte {}: {}", self.at, self.reason)
    }
}

/// Reason why a reader stopped before the end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The file is damaged. The data before the damage is kept.
    Damaged(Damage),
    /// The file is not a readable trace.
    Foreign(String),
    /// The destination failed.
    Output(io::Error),
}

impl Stop {
    pub(crate) fn damaged(at: u64, reason: impl Into<String>) -> Stop {
        Stop::Damaged(Damage { at, reason: reason.into() })
    }

    pub(crate) fn cut_off(at: u64) -> Stop {
        Stop::damaged(at, "it is truncated there")
    }

    pub(crate) fn input(at: u64, error: io::Error) -> Stop {
        Stop::damaged(at, format!("reading failed ({error})"))
    }
}
