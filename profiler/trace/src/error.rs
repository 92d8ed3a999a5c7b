//! What goes wrong with files.

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
    /// The cause, and the remedy.
    pub reason: String,
}

/// Damage of a file that could be read in part.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Where it begins, in bytes of the file, or of what a compressed file holds.
    pub at: u64,
    /// What it is.
    pub reason: String,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "is damaged at byte {}: {}", self.at, self.reason)
    }
}

/// Why a reader stopped before the end.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The file is not what it should be; what was read before is kept.
    Damaged(Damage),
    /// The file is no trace that can be read.
    Foreign(String),
    /// What is read into failed.
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
