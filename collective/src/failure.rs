//! Why a communicator works no more: [`Failure`], the same fact on all ranks, and [`CommunicatorError`], that fact as one
//! rank's operation meets it.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;

/// What ended a communicator. The rank that finds it out tells the others, so that all report the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A process ended, or the connection to it broke.
    #[error("rank {rank} is gone: {reason}; `shrink(&[{rank}])` makes a communicator of the others")]
    Lost {
        /// The rank.
        rank: usize,
        /// How it was found out, with its process and host.
        reason: String,
    },
    /// A rank has dropped or finished its communicator, which another, or a graph of its own, still needs.
    #[error("rank {rank} has left: it has dropped or finished its communicator, which is still needed")]
    Left {
        /// The rank.
        rank: usize,
    },
    /// An operation was not done by its deadline.
    #[error("rank {rank} waited {waited_ms} ms for {operation}: {}", reports(peers))]
    Timeout {
        /// The rank that has waited.
        rank: usize,
        /// What it has waited for.
        operation: Box<Fingerprint>,
        /// How long, in milliseconds.
        waited_ms: u64,
        /// The ranks that it has waited for, and what each says of itself.
        peers: Vec<(usize, String)>,
    },
    /// Two ranks called different operations.
    #[error(
        "rank {} calls {}, rank {} calls {}; all ranks must call the same operations, with the same element type, length, \
         operator and root, in the same order", left.0, left.1, right.0, right.1
    )]
    Mismatch {
        /// A rank, and what it called.
        left: Box<(usize, Fingerprint)>,
        /// Another rank, and what it called.
        right: Box<(usize, Fingerprint)>,
    },
    /// A program aborted it.
    #[error("rank {rank} aborted the communicator: {reason}")]
    Aborted {
        /// The rank.
        rank: usize,
        /// Its reason.
        reason: String,
    },
    /// A rank did not run an operation, because its device is lost or refused it.
    #[error("rank {rank} did not run {operation}: {reason}")]
    NotRun {
        /// The rank.
        rank: usize,
        /// The operation, with a sequence of 0 if it is not known.
        operation: Box<Fingerprint>,
        /// The device's error.
        reason: String,
    },
    /// The library that moves the data failed.
    #[error("rank {rank}: {reason}")]
    Library {
        /// The rank.
        rank: usize,
        /// The call and the library's own text, and what it means.
        reason: String,
    },
}

/// What was heard of each rank, as one text.
fn reports(peers: &[(usize, String)]) -> String {
    peers.iter().map(|(rank, report)| format!("rank {rank} {report}")).collect::<Vec<_>>().join("; ")
}

/// A [`Failure`] as a rank's operation meets it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommunicatorError {
    /// The rank that reports it.
    pub rank: usize,
    /// The communicator's name.
    pub communicator: String,
    /// The operation that failed, or was refused; `None` for what is no operation.
    pub operation: Option<Fingerprint>,
    /// What ended the communicator.
    pub failure: Failure,
}

impl fmt::Display for CommunicatorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.operation {
            Some(operation) => write!(f, "{operation}")?,
            None => f.write_str("call")?,
        }
        write!(f, " on rank {} of communicator `{}`: {}", self.rank, self.communicator, self.failure)
    }
}

impl std::error::Error for CommunicatorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.failure)
    }
}
