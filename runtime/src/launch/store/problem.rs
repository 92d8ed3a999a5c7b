//! [`StoreProblem`]: why a tuned configuration is not known or not kept.

use crate::Error;

/// Why something is not known, or not kept for later processes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreProblem {
    /// The file cannot be read or written.
    #[error("{what}")]
    File {
        /// The operation that failed, the file, the cause, and the remedy.
        what: String,
    },
    /// This is no configuration that can be kept.
    #[error("a tuned configuration cannot be kept: {what}")]
    Configuration {
        /// Why it is damaged.
        what: String,
    },
    /// There is no room in memory for more.
    #[error("a tuned configuration is not kept: the store has {most} of them; remove its file to begin anew")]
    Full {
        /// The most entries there can be.
        most: usize,
    },
}

impl From<StoreProblem> for Error {
    fn from(problem: StoreProblem) -> Self {
        Error::extension(problem)
    }
}
