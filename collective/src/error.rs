//! [`CollectiveError`]: errors of this crate, which [`warpsmith_runtime::Error`] wraps.

use std::io;
use std::time::Duration;

pub(crate) use warpsmith_runtime::{Error, Result};

use crate::failure::CommunicatorError;
use crate::rendezvous_error::RendezvousError;

/// Advice for installing NCCL.
const NCCL_REMEDY: &str = "install NVIDIA's package libnccl2, install the wheel nvidia-nccl-cu13 (nvidia-nccl-cu12 \
                           for CUDA 12 drivers) in the active Python environment, or set WARPSMITH_LIBRARY_PATH to \
                           the folder that contains libnccl.so.2";

/// Error of a store, a launcher, NCCL, or a collective operation. [`warpsmith_runtime::Error::downcast_ref`] retrieves it.
/// Failures of a communicator are [`CommunicatorError`](crate::CommunicatorError)s instead, and failures of a
/// rendezvous are [`RendezvousError`](crate::rendezvous::RendezvousError)s.
///
/// ```
/// use std::time::Instant;
/// use warpsmith_collective::store::MemoryStore;
/// use warpsmith_collective::{CollectiveError, Store};
///
/// let error = MemoryStore::new().get("address", Instant::now()).unwrap_err();
/// assert!(matches!(error.downcast_ref(), Some(CollectiveError::StoreTimeout { .. })), "{error}");
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectiveError {
    /// An environment variable has an invalid value.
    #[error("{name}={value}: {problem}")]
    Variable {
        /// Name of the variable.
        name: String,
        /// Value of the variable.
        value: String,
        /// Problem with the value.
        problem: String,
    },
    /// An environment variable that another variable requires is missing.
    #[error("{present} is set but {missing} is not: {advice}")]
    MissingVariable {
        /// The missing variable.
        missing: &'static str,
        /// The variable that requires the missing one.
        present: String,
        /// Advice for the user.
        advice: &'static str,
    },
    /// Two environment variables contradict each other.
    #[error(
        "{}={}, but {}={}: unset the variables of the launcher that did not start this process",
        .first.0, .first.1, .second.0, .second.1
    )]
    Contradiction {
        /// Name and value of the first variable.
        first: (String, String),
        /// Name and value of the second variable.
        second: (String, String),
    },
    /// No rank set a key before the deadline.
    #[error("no rank has set `{key}` in the store by the deadline")]
    StoreTimeout {
        /// The key or keys.
        key: String,
    },
    /// The stored value, to which a number should be added, is not a number.
    #[error("`{key}` in the store is not a decimal number")]
    NotANumber {
        /// The key.
        key: String,
    },
    /// The ranks could not create a communicator.
    #[error("communicator `{communicator}`, rank {rank} of {world_size}: {reason}")]
    Init {
        /// Name of the communicator.
        communicator: String,
        /// This rank.
        rank: usize,
        /// Expected number of ranks.
        world_size: usize,
        /// Cause and advice.
        reason: String,
    },
    /// The ranks cannot map each other's memory. Nothing was allocated on any rank; the communicator remains usable.
    #[error("the ranks cannot share memory because of rank {rank}: {reason}")]
    Symmetric {
        /// The first rank that failed.
        rank: usize,
        /// Cause.
        reason: String,
    },
    /// An operation on a [`SymmetricBuffer`](crate::SymmetricBuffer) has failed, so other ranks may still be reading or
    /// writing its elements.
    #[error(
        "an operation on this SymmetricBuffer of {bytes} bytes has failed, and other ranks may still read and write \
         it; drop it, and create another one with a communicator of the remaining ranks (`Communicator::shrink`) or \
         with a new communicator"
    )]
    Withdrawn {
        /// Size of a rank's elements, in bytes.
        bytes: usize,
    },
    /// An argument is invalid. Nothing was sent; the communicator remains usable.
    #[error("{operation} on rank {rank}: {reason}")]
    Argument {
        /// The operation.
        operation: &'static str,
        /// This rank.
        rank: usize,
        /// The invalid argument and the problem, with the values.
        reason: String,
    },
    /// The closure of a group failed, so the communicator was aborted.
    #[error("the closure of a group failed, which aborted the communicator: {0}")]
    Group(#[source] Box<Error>),
    /// A wait on the host timed out. The work continues.
    #[error("{operation} had not finished after {waited:?}; it continues until its own deadline")]
    NotDone {
        /// The operation that the host was waiting for.
        operation: String,
        /// Duration of the wait.
        waited: Duration,
    },
    /// A key or a value exceeds the maximum length of the store.
    #[error("a {what} of {length} bytes is too long for a store: the maximum is {limit}")]
    TooLong {
        /// `key` or `value`.
        what: &'static str,
        /// Length in bytes.
        length: usize,
        /// Maximum length in bytes.
        limit: usize,
    },
    /// No server answered before the deadline.
    #[error(
        "cannot reach the store at {address} within {seconds:.1} s: {source}; check that rank 0 is running and that \
         the address is its host"
    )]
    StoreUnreachable {
        /// Host and port.
        address: String,
        /// Duration of the attempts, in seconds.
        seconds: f64,
        /// Error of the last attempt.
        source: io::Error,
    },
    /// The server closed the connection.
    #[error(
        "the store at {address} closed the connection during `{operation}`: the process that serves the store has \
         ended, requires a token, or has too many connections"
    )]
    StoreClosed {
        /// Host and port.
        address: String,
        /// The requested operation.
        operation: &'static str,
    },
    /// The server did not answer a request before the deadline.
    #[error("the store at {address} did not answer `{operation}` by the deadline: {source}")]
    StoreSilent {
        /// Host and port.
        address: String,
        /// The requested operation.
        operation: &'static str,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The server at the address does not speak the store's protocol.
    #[error("the server at {address} is not a store: {what}; use another port")]
    NotAStore {
        /// Host and port.
        address: String,
        /// Description of the response.
        what: &'static str,
    },
    /// The two ends of a connection have different tokens.
    #[error(
        "the store at {address} does not have this run's token (WARPSMITH_TOKEN): it belongs to another run"
    )]
    WrongToken {
        /// Host and port.
        address: String,
    },
    /// The operating system does not provide random numbers.
    #[error("the system provides no random numbers for a token: {source}")]
    NoRandomness {
        /// Error of the operating system.
        source: io::Error,
    },
    /// A server cannot listen.
    #[error("cannot serve a store at {address}: {source}")]
    Listen {
        /// Address and port.
        address: String,
        /// Error of the operating system.
        source: io::Error,
    },
    /// The run has several ranks but no store for their rendezvous.
    #[error(
        "rank {rank} of {world_size} has no rendezvous store: set WARPSMITH_STORE to HOST:PORT of rank 0"
    )]
    NoStore {
        /// This rank.
        rank: usize,
        /// Number of ranks.
        world_size: usize,
    },
    /// NCCL was not found, or cannot be loaded.
    #[error(
        "NCCL was not found: {reason}; searched for libnccl.so.2 in the system's search path and in {searched}; \
         {NCCL_REMEDY}"
    )]
    NcclMissing {
        /// Error of the dynamic loader.
        reason: String,
        /// Searched folders.
        searched: String,
    },
    /// NCCL lacks required functions.
    #[error("{found} is too old: {lacks}; version 2.18 or later is required: {NCCL_REMEDY}")]
    NcclTooOld {
        /// The library, with its version.
        found: String,
        /// The missing function or version.
        lacks: String,
    },
    /// A rendezvous key in the store has a value that ranks never write.
    #[error(
        "`{key}` in the store has a value that was not written by a Warpsmith rank: another program uses the same \
         keys; use another store"
    )]
    StrangeValue {
        /// The key.
        key: String,
    },
}

impl CollectiveError {
    /// Returns whether the error means that no rank set a key before the deadline.
    pub(crate) fn is_store_timeout(error: &Error) -> bool {
        matches!(error.downcast_ref(), Some(Self::StoreTimeout { .. }))
    }
}

impl From<CollectiveError> for Error {
    fn from(error: CollectiveError) -> Self {
        Self::extension(error)
    }
}

impl From<Box<CommunicatorError>> for Error {
    fn from(error: Box<CommunicatorError>) -> Self {
        Self::extension(*error)
    }
}

impl From<RendezvousError> for Error {
    fn from(error: RendezvousError) -> Self {
        Self::extension(error)
    }
}
