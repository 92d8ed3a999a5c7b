//! [`PipelineError`]: what went wrong in a pipeline, with which item, in which stage.

use std::fmt;

use crate::error::Error;

/// The error of a pipeline's closures: any error, which `?` converts into this.
pub type Failure = Box<dyn std::error::Error + Send + Sync>;

/// A part of an item's way through a pipeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Getting the input from the iterator.
    Input,
    /// Copying it to the device.
    CopyIn,
    /// The work on the device.
    Compute,
    /// Copying the results to the host.
    CopyOut,
    /// The program's function for results.
    Take,
}

/// The failure that ended a run.
#[derive(thiserror::Error)]
#[error("item {item}, {stage}: {source}")]
pub struct PipelineError {
    /// The item's number, from 0. When a kernel stopped the device, the first item that was not done: it or a later one
    /// is to blame.
    pub item: usize,
    /// The stage.
    pub stage: Stage,
    /// The cause.
    pub source: Failure,
}

impl PipelineError {
    /// The runtime's error, when it is one.
    pub fn runtime_error(&self) -> Option<&Error> {
        self.source.downcast_ref()
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Stage::Input => "input",
            Stage::CopyIn => "copy in",
            Stage::Compute => "compute",
            Stage::CopyOut => "copy out",
            Stage::Take => "take",
        })
    }
}

/// The message, as for [`Error`].
impl fmt::Debug for PipelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
