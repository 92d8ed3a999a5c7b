//! Errors of trace files.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// A trace that could not be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the trace {} {reason}", path.display())]
#[non_exhaustive]
pub struct TraceError {
    /// The file.
    pub path: PathBuf,
    /// Cause and remedy.
    pub reason: String,
}

/// Damage of a file that could be read partially.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Offset of the damage in bytes, in the file or in the decompressed content.
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
    /// The file is damaged; data read so far is kept.
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
        Stop::damaged(at, "it is cut off there")
    }

    pub(crate) fn input(at: u64, error: io::Error) -> Stop {
        Stop::damaged(at, format!("it cannot be read further ({error})"))
    }
}
