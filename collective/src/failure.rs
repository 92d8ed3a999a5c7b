//! Causes of failures. [`Failure`] is the cause of a communicator's failure, which is the same on all ranks.
//! [`CommunicatorError`] adds the rank and the operation that report the failure.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::fingerprint::Fingerprint;

/// Cause of a communicator's failure. The rank that detects a failure notifies all other ranks, so all ranks report the
/// same cause.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A process has exited, or the connection to it has broken.
    #[error("rank {rank} failed: {reason}; `shrink(&[{rank}])` creates a communicator of the other ranks")]
    Lost {
        /// The rank that failed.
        rank: usize,
        /// Evidence of the loss, with the process and the host of the rank.
        reason: String,
    },
    /// A rank dropped or finished its communicator while another rank, or a graph of the rank itself, still needed it.
    #[error("rank {rank} dropped or finished its communicator while other ranks still needed it")]
    Left {
        /// The rank that dropped or finished its communicator.
        rank: usize,
    },
    /// An operation missed its deadline.
    #[error("rank {rank} waited {waited_ms} ms for {operation}: {}", reports(peers))]
    Timeout {
        /// The rank that waited.
        rank: usize,
        /// The operation in which the rank was waiting.
        operation: Box<Fingerprint>,
        /// Duration of the wait in milliseconds.
        waited_ms: u64,
        /// The ranks that had not arrived, with the status reported by each of them.
        peers: Vec<(usize, String)>,
    },
    /// Two ranks called different operations.
    #[error(
        "rank {} calls {}, rank {} calls {}; all ranks must call the same operations, with the same element type, length, \
         operator and root, in the same order", left.0, left.1, right.0, right.1
    )]
    Mismatch {
        /// One rank and its call.
        left: Box<(usize, Fingerprint)>,
        /// Another rank and its call.
        right: Box<(usize, Fingerprint)>,
    },
    /// The program aborted the communicator.
    #[error("rank {rank} aborted the communicator: {reason}")]
    Aborted {
        /// The rank that aborted.
        rank: usize,
        /// Reason for the abort.
        reason: String,
    },
    /// A rank could not run an operation, because its device was lost or rejected the operation.
    #[error("rank {rank} did not run {operation}: {reason}")]
    NotRun {
        /// The rank that did not run the operation.
        rank: usize,
        /// The operation that did not run; its sequence number is 0 if unknown.
        operation: Box<Fingerprint>,
        /// The device's error.
        reason: String,
    },
    /// The library that transfers the data (NCCL) returned an error.
    #[error("rank {rank}: {reason}")]
    Library {
        /// The rank on which the library call failed.
        rank: usize,
        /// The library call, with the library's message and its explanation.
        reason: String,
    },
}

/// Formats the status reports of the ranks as one string.
fn reports(peers: &[(usize, String)]) -> String {
    peers.iter().map(|(rank, report)| format!("rank {rank} {report}")).collect::<Vec<_>>().join("; ")
}

/// A [`Failure`], as reported by an operation of one rank.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommunicatorError {
    /// The rank that reports the failure.
    pub rank: usize,
    /// The communicator's name.
    pub communicator: String,
    /// The operation that failed or was rejected; `None` if the error does not belong to an operation.
    pub operation: Option<Fingerprint>,
    /// Cause of the communicator's failure.
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
