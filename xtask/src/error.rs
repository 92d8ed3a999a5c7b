//! Errors that tasks return, with their exit codes.

use std::path::PathBuf;
use std::process::ExitStatus;

pub type Result<T, E = Error> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program ran and failed.
    #[error("`{command}` failed ({status})")]
    Failed { command: String, status: ExitStatus },

    /// A program could not be started.
    #[error("`{command}` could not be started: {source}")]
    NotStarted { command: String, source: std::io::Error },

    /// A named step of a longer run failed.
    #[error("{step} failed after {seconds:.1} s: {source}")]
    Step { step: String, seconds: f64, source: Box<Error> },

    /// A required program or file is missing, and the task cannot or must not install it.
    #[error("{what}\n{advice}")]
    Missing { what: String, advice: String },

    /// A tool for compiling kernels could not be installed.
    #[error("{0}")]
    Setup(warpsmith_builder::setup::SetupError),

    /// A file could not be read or written.
    #[error("{path}: {source}", path = path.display())]
    File { path: PathBuf, source: std::io::Error },

    /// A program printed something unexpected, or a result violates one of the project's rules.
    #[error("{0}")]
    Unexpected(String),
}

impl Error {
    pub fn exit_code(&self) -> u8 {
        match self {
            Error::Missing { .. } | Error::Setup(_) => 2,
            Error::Step { source, .. } => source.exit_code(),
            _ => 1,
        }
    }

    /// Creates the error for a failed file operation, for use with `map_err`.
    pub fn file(path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::File { path, source }
    }
}
