//! Measuring in another process: one that a configuration may bring down, or another program altogether.
//!
//! Guarantees: whatever becomes of the other process (a fault, an abort, a hang), [`Remote::measure`] answers: the
//! configuration is [`Outcome::Crashed`] with the reason, and the next one is measured
//! by a new process. Once a flag is set ([`Remote::set_stop`]) it answers soon, with the samples so far. No process is left
//! behind when it is dropped. What kernels print does not disturb the protocol. A program of another protocol is refused.
//!
//! A program is a worker when it calls [`serve`]; `warpsmith worker` does, and so does every program with
//! `warpsmith::bench_main!`. The two speak lines of JSON over the worker's standard input and output.

mod remote;
mod serve;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

pub use remote::Remote;
pub use serve::serve;

use crate::document::Outcome;
use crate::error::{Error, Result};
use crate::measure::{Effort, Mode, Timing};
use crate::value::Configuration;

/// The version of the protocol.
const PROTOCOL: u32 = 2;
/// What a worker's lines begin with; others are what kernels printed.
const PREFIX: &str = "warpsmith-worker:";
/// The argument that makes a program a worker.
pub const ARGUMENT: &str = "worker";

/// A program that can be a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The executable.
    pub path: PathBuf,
    /// What it is given.
    pub arguments: Vec<OsString>,
    /// Variables that are set for it, besides this process's own.
    pub environment: Vec<(OsString, OsString)>,
}

impl Program {
    /// An executable that is a worker when its argument is [`ARGUMENT`].
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_path_buf(), arguments: vec![ARGUMENT.into()], environment: Vec::new() }
    }

    /// This process's own executable.
    ///
    /// # Errors
    /// [`Error::Worker`] where the system does not tell which it is.
    pub fn current() -> Result<Self> {
        let path = std::env::current_exe().map_err(|error| Error::Worker {
            program: PathBuf::from("this program"),
            reason: format!("cannot be started again: {error}"),
        })?;
        Ok(Self::new(&path))
    }
}

/// What to measure configurations of.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CaseRequest {
    /// The device, as [`Device::open`](warpsmith_runtime::Device::open) takes it.
    pub device: String,
    /// The benchmark's name.
    pub kernel: String,
    /// The element type.
    pub dtype: String,
    /// Elements.
    pub n: u64,
    /// Sets of buffers to go round over.
    pub copies: usize,
    /// What data are made from.
    pub seed: u64,
    /// What is timed.
    pub mode: Mode,
    /// How long.
    pub effort: Effort,
}

/// What came out of one measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What became of the configuration.
    pub outcome: Outcome,
    /// What was wrong; empty when nothing was.
    pub problem: String,
    /// The largest difference from the reference.
    pub max_error: Option<f64>,
    /// Its times, if it is correct.
    pub timing: Option<Timing>,
    /// Seconds that checking and timing took.
    pub seconds: f64,
}

impl Measured {
    /// Microseconds a launch, for each accepted sample.
    pub fn samples_us(&self) -> &[f64] {
        self.timing.as_ref().map_or(&[], |timing| &timing.samples_us)
    }

    /// The clock at each of them in MHz; empty where it cannot be read.
    pub fn clocks_mhz(&self) -> &[u32] {
        self.timing.as_ref().map_or(&[], |timing| &timing.clocks_mhz)
    }

    /// Of a configuration that brought down its process or its device.
    pub(crate) fn crashed(problem: String, seconds: f64) -> Self {
        Self { outcome: Outcome::Crashed, problem, max_error: None, timing: None, seconds }
    }
}

/// What the worker is told.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "request", rename_all = "lowercase")]
enum Request {
    /// Puts a case's buffers on its device, instead of those before.
    Open(CaseRequest),
    /// Checks a configuration if that was not done, and times it.
    Measure {
        configuration: Configuration,
        /// Samples to take; as many as the case's effort asks for if absent.
        samples: Option<usize>,
        /// Launches in a sample; as many as suit the case's first configuration if absent.
        #[serde(default)]
        launches: Option<u32>,
    },
    /// Checks a configuration, whether that was done or not. It is answered as a measurement without times.
    Check { configuration: Configuration },
    /// Ends the timing in progress with the samples so far, and every later one. It has no answer.
    Stop,
}

/// What the worker answers.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "lowercase")]
enum Reply {
    /// The first line, before any request.
    Hello { protocol: u32, version: String },
    /// The case is there.
    Opened,
    /// A configuration was measured, for better or worse.
    Measured(Measured),
    /// What was asked for could not be done.
    Refused { reason: String },
}

impl Reply {
    fn to_line(&self) -> String {
        // What a kernel printed may not have ended its line.
        let json = serde_json::to_string(self).expect("plain data always becomes JSON");
        format!("\n{PREFIX}{json}\n")
    }

    /// What a line of the worker's output says; `None` for other output.
    fn of_line(line: &[u8]) -> Option<serde_json::Result<Self>> {
        Some(serde_json::from_slice(line.strip_prefix(PREFIX.as_bytes())?.trim_ascii_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_told_from_what_kernels_print() {
        let line = Reply::Opened.to_line();
        let printed = format!("kernel output without an end{line}more");
        let replies: Vec<_> =
            printed.split_inclusive('\n').filter_map(|line| Reply::of_line(line.as_bytes())).collect();
        assert!(matches!(&replies[..], [Ok(Reply::Opened)]), "{replies:?}");
        assert!(Reply::of_line(b"warpsmith-worker:{").unwrap().is_err());
    }
}
