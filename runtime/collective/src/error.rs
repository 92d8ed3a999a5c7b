//! The one error of the crate.

use std::time::Duration;

use crate::failure::CommunicatorError;

/// Why ranks could not meet, or not do something together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No rank set a key in time.
    #[error("no rank has set `{key}` in the store by the deadline")]
    StoreTimeout {
        /// The key.
        key: String,
    },
    /// A key whose value is no number was added to.
    #[error("`{key}` in the store holds no decimal number")]
    NotANumber {
        /// The key.
        key: String,
    },
    /// Ranks could not meet to make a communicator.
    #[error("communicator `{communicator}`, rank {rank} of {world_size}: {reason}")]
    Init {
        /// The communicator's name.
        communicator: String,
        /// This rank.
        rank: usize,
        /// The number of ranks that were to meet.
        world_size: usize,
        /// What went wrong, and what to do.
        reason: String,
    },
    /// An argument that cannot be; nothing was sent, and the communicator works on.
    #[error("{operation} on rank {rank}: {reason}")]
    Argument {
        /// The operation.
        operation: &'static str,
        /// This rank.
        rank: usize,
        /// What is wrong with which argument, with the figures.
        reason: String,
    },
    /// The communicator works no more.
    #[error(transparent)]
    Communicator(#[from] Box<CommunicatorError>),
    /// The closure of a group failed, so the communicator was aborted.
    #[error("the closure of a group failed, which aborted the communicator: {0}")]
    Group(#[source] Box<Error>),
    /// The host did not wait longer. The work goes on.
    #[error("{operation} was not done after {waited:?}; it goes on until its own deadline")]
    NotDone {
        /// What was waited for.
        operation: String,
        /// How long.
        waited: Duration,
    },
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] warpsmith_core::Error),
}

impl From<Error> for warpsmith_core::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Runtime(error) => error,
            error => Self::extension(error),
        }
    }
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;
