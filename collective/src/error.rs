//! The one error of the crate.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

use crate::failure::CommunicatorError;
use crate::rendezvous_error::RendezvousError;

/// Why ranks could not meet, or not do something together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A variable of the environment does not say what it should.
    #[error("{name}={value}: {problem}")]
    Variable {
        /// Its name.
        name: String,
        /// Its value.
        value: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A variable of the environment is missing beside another.
    #[error("{present} is set but {missing} is not: {advice}")]
    MissingVariable {
        /// The one that is missing.
        missing: &'static str,
        /// The one that needs it.
        present: String,
        /// What to do.
        advice: &'static str,
    },
    /// Two variables of the environment contradict each other.
    #[error("{} says {}, but {} says {}: unset the variables of the one that did not start this process", .first.0, .first.1, .second.0, .second.1)]
    Contradiction {
        /// Name and value.
        first: (String, String),
        /// Name and value.
        second: (String, String),
    },
    /// No rank set a key in time.
    #[error("no rank has set `{key}` in the store by the deadline")]
    StoreTimeout {
        /// The key, or several.
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
    /// Ranks cannot map each other's memory. Nothing was made on any rank, and the communicator works on.
    #[error("no memory in common, because of rank {rank}: {reason}")]
    Symmetric {
        /// The first rank that could not.
        rank: usize,
        /// Why.
        reason: String,
    },
    /// An operation on a [`SymmetricBuffer`](crate::SymmetricBuffer) has failed, so another rank may still read or write its
    /// elements.
    #[error(
        "an operation on this SymmetricBuffer of {bytes} bytes has failed, and other ranks may still read and write it; drop \
         it, and make another with a communicator of the ranks that are left (`Communicator::shrink`) or a new one"
    )]
    Withdrawn {
        /// Bytes of a rank's elements.
        bytes: usize,
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
    /// A key or a value is too long for a store.
    #[error("a {what} of {length} bytes is too long for a store: the most is {limit}")]
    TooLong {
        /// A key or a value.
        what: &'static str,
        /// Bytes.
        length: usize,
        /// Bytes.
        limit: usize,
    },
    /// No server answered by the deadline.
    #[error(
        "cannot reach the store at {address} within {seconds:.1} s: {source}; is rank 0 running, and is this its host?"
    )]
    StoreUnreachable {
        /// Host and port.
        address: String,
        /// How long was tried.
        seconds: f64,
        /// The last attempt.
        source: io::Error,
    },
    /// The server ended the connection.
    #[error(
        "the store at {address} closed the connection during `{operation}`: the process that serves it has ended, wants a token, or has too many connections"
    )]
    StoreClosed {
        /// Host and port.
        address: String,
        /// What was asked of it.
        operation: &'static str,
    },
    /// The server did not do what it was asked for by the deadline.
    #[error("the store at {address} did not answer `{operation}` by the deadline: {source}")]
    StoreSilent {
        /// Host and port, or the file.
        address: String,
        /// What was asked of it.
        operation: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// Something that is no store answers.
    #[error("what answers at {address} is no store: {what}; give another port")]
    NotAStore {
        /// Host and port.
        address: String,
        /// What came.
        what: &'static str,
    },
    /// The two ends of a connection do not have the same token.
    #[error("the store at {address} does not have this run's token (WARPSMITH_TOKEN): it is another run's")]
    WrongToken {
        /// Host and port.
        address: String,
    },
    /// The operating system has no random numbers.
    #[error("no random numbers for a token: {source}")]
    NoRandomness {
        /// The system's reason.
        source: io::Error,
    },
    /// A server cannot listen.
    #[error("cannot serve a store at {address}: {source}")]
    Listen {
        /// Address and port.
        address: String,
        /// The system's reason.
        source: io::Error,
    },
    /// A file of a store cannot be used.
    #[error("{}: {source}", .path.display())]
    StoreFile {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// There are other ranks, but no store to meet them.
    #[error(
        "rank {rank} of {world_size} has no store to meet the others: set WARPSMITH_STORE to HOST:PORT of rank 0"
    )]
    NoStore {
        /// This rank.
        rank: usize,
        /// The number of ranks.
        world_size: usize,
    },
    /// A key of a rendezvous has a value that no rank writes.
    #[error(
        "`{key}` in the store has a value that no rank of Warpsmith wrote: another program uses the same keys"
    )]
    StrangeValue {
        /// The key.
        key: String,
    },
    /// The ranks did not meet.
    #[error(transparent)]
    Rendezvous(Box<RendezvousError>),
    /// The runtime failed.
    #[error(transparent)]
    Runtime(#[from] warpsmith_runtime::Error),
}

impl From<Error> for warpsmith_runtime::Error {
    fn from(error: Error) -> Self {
        match error {
            Error::Runtime(error) => error,
            error => Self::extension(error),
        }
    }
}

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl From<RendezvousError> for Error {
    fn from(error: RendezvousError) -> Self {
        Self::Rendezvous(Box::new(error))
    }
}
