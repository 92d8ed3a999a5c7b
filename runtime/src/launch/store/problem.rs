//! [`StoreProblem`]: the reason why a tuned configuration is unknown or not stored.

use crate::Error;

/// Reason why a configuration is unknown, or not stored for later processes.
///
/// ```
/// use warpsmith_runtime::store;
///
/// // A file cannot be created below a file.
/// let file = std::env::temp_dir().join(format!("warpsmith-doc-problem-{}", std::process::id()));
/// std::fs::write(&file, "")?;
/// let store = store::open(file.join("below"));
/// let problem = store.problem().expect("the file cannot be read");
/// assert!(problem.starts_with("cannot read "), "{problem}");
/// # std::fs::remove_file(&file)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreProblem {
    /// The file cannot be read or written.
    #[error("{what}")]
    File {
        /// The failed operation, the file, the cause and the remedy.
        what: String,
    },
    /// The configuration cannot be stored.
    #[error("a tuned configuration cannot be stored: {what}")]
    Configuration {
        /// Reason why the configuration is invalid.
        what: String,
    },
    /// The store is full.
    #[error(
        "a tuned configuration cannot be stored: the launch store already has the maximum of {most} configurations; \
         delete its file to start again"
    )]
    Full {
        /// Maximum number of entries.
        most: usize,
    },
}

impl From<StoreProblem> for Error {
    fn from(problem: StoreProblem) -> Self {
        Error::extension(problem)
    }
}
