//! `warpsmith check`: runs a cargo command with the kernels of the program instrumented, and collects what the emulated
//! device finds wrong in them.
//!
//! [`run`] starts cargo with this program as the wrapper of rustc, so a program that calls it calls [`wrapper`] first in its
//! `main`. The wrapper adds LLVM's `tsan` pass to the crates that contain kernels. The emulated device answers the
//! calls of the pass (`warpsmith_emulator::check`) and appends its findings to a file, which [`run`] reads.
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

/// What a run came to.
#[derive(Debug)]
pub struct Outcome {
    /// What was found, each once for a pair of places.
    pub findings: Vec<Finding>,
    /// How cargo ended, in the first run in which it failed.
    pub failure: Option<ExitStatus>,
    /// The runs that were made.
    pub runs: u32,
}

/// Why a program could not be checked.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The machine is none that the instrumentation is for.
    #[error("kernels can be checked on x86-64 and aarch64 Linux only; `cargo {0}` runs them unchecked")]
    Machine(String),
    /// The compiler does not do what is needed.
    #[error(
        "{version} cannot instrument kernels, so nothing was checked: it refuses LLVM's `tsan` pass ({message}); \
         `cargo {command}` runs them unchecked"
    )]
    Compiler {
        /// What `rustc --version` says.
        version: String,
        /// What it says of the pass.
        message: String,
        /// The cargo command.
        command: String,
    },
    /// A program could not be started.
    #[error("cannot start `{program}`: {source}")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: io::Error,
    },
    /// Cargo does not know the workspace.
    #[error("cargo cannot read the package: {0}")]
    Workspace(String),
    /// The findings cannot be written or read.
    #[error("cannot use `{}`: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}
