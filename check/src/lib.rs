//! `warpsmith check`: runs a cargo command with the program's kernels instrumented, and collects the errors that the
//! emulated device finds in them.
//!
//! [`run`] starts cargo with the calling program as the rustc wrapper, so the calling program must first call
//! [`wrapper`] in its `main`. The wrapper adds LLVM's `tsan` pass to the crates that contain kernels. The emulated
//! device handles the calls inserted by this pass (`warpsmith_emulator::check`) and appends its findings to a file that
//! [`run`] reads.
#![deny(missing_docs)]

mod cargo;
mod finding;
mod sarif;
mod wrapper;

use std::io;
use std::path::PathBuf;
use std::process::ExitStatus;

pub use cargo::{Options, run};
pub use finding::{Access, Finding, Frame};
pub use sarif::sarif;
pub use wrapper::wrapper;

/// Outcome of a check.
#[derive(Debug)]
pub struct Outcome {
    /// Distinct findings: repeated findings of the same kind at the same source locations are listed once.
    pub findings: Vec<Finding>,
    /// Exit status of cargo in the first run that failed.
    pub failure: Option<ExitStatus>,
    /// Number of times that the program was run.
    pub runs: u32,
}

/// Reason why a program could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This platform does not support the instrumentation.
    #[error("kernels can be checked only on x86-64 and aarch64 Linux; `cargo {0}` runs them unchecked")]
    Machine(String),
    /// The compiler does not support the required instrumentation.
    #[error(
        "{version} cannot instrument kernels because it rejects LLVM's `tsan` pass ({message}); nothing was checked; \
         `cargo {command}` runs the kernels unchecked"
    )]
    Compiler {
        /// Output of `rustc --version`.
        version: String,
        /// Error message for the pass.
        message: String,
        /// Cargo command.
        command: String,
    },
    /// A program could not be started.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// Name of the program.
        program: String,
        /// Cause of the failure.
        source: io::Error,
    },
    /// Cargo cannot determine the workspace.
    #[error("cargo cannot read the package: {0}")]
    Workspace(String),
    /// The findings cannot be written or read.
    #[error("cannot use `{}`: {source}", path.display())]
    File {
        /// File or folder.
        path: PathBuf,
        /// Cause of the failure.
        source: io::Error,
    },
}
