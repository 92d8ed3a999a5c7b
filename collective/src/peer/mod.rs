//! Peer backend: collective operations in kernels that access the memory of other ranks.
//!
//! Results are reduced in rank order and, except for the bits of NaN, are bit-identical to the Host backend's results,
//! on all ranks and in all runs. An operation launches one kernel per half of the segment that its data fills, and does
//! not block the host. Ranks compare their operations before any data moves. A kernel that waits for a missing rank
//! exits when the deadline of the operation expires, or as soon as the communicator fails, even in a graph.
//!
//! Operations without a kernel, and operations that another backend runs faster, are passed on to that backend.

mod choice;
mod kernels;
mod known;
mod launching;
mod rank;
mod watch;

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use warpsmith_runtime::Stream;
use warpsmith_runtime::extension::BufferUse;

use self::choice::Choice;
use self::rank::Rank;
use crate::backend::{Backend, Batch};
use crate::error::{CollectiveError, Result};
use crate::exchange::Term;
use crate::failure::Failure;
use crate::fingerprint::Fingerprint;
use crate::mesh::Mesh;
use crate::shutdown::Shutdown;
use crate::symmetric::{Agreement, Common};

/// Maximum number of ranks.
pub(crate) const MAX_RANKS: usize = warpsmith_collective_kernels::device_comm::MAX_RANKS;

/// Peer backend. See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct PeerBackend {
    rank: Arc<Rank>,
    choice: Choice,
    /// Backend for the operations that this backend does not run.
    rest: Option<Box<dyn Backend>>,
}

/// Inputs for creating the backend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Making<'a> {
    pub mesh: &'a Arc<Mesh>,
    pub stream: &'a Stream,
    pub timeout: Duration,
    /// True if operations that another backend runs faster are passed on to that backend.
    pub is_auto: bool,
}

impl PeerBackend {
    /// Creates the backend. All ranks must be on one host, and all must make this call.
    ///
    /// # Errors
    /// Returns [`CollectiveError::Symmetric`], after which the mesh remains usable, and
    /// [`CommunicatorError`](crate::CommunicatorError). All ranks return the same error.
    pub fn new(making: Making<'_>) -> Result<Self> {
        let Making { mesh, stream, timeout, is_auto } = making;
        let choice = Choice { world: mesh.world(), is_emulated: stream.device().is_emulated(), is_auto };
        let operation = Arc::new(Fingerprint::new("init", Cow::Borrowed(""), 0));
        let agreement = Agreement { mesh, operation, term: Term::new(timeout) };
        let rank = Rank::rendezvous(&agreement, mesh, stream, choice)?;
        let watched = Arc::clone(&rank);
        let thread = std::thread::Builder::new().name("warpsmith-peer".to_owned());
        match thread.spawn(move || Arc::clone(&watched.shutdown).run(watched, watch::run)) {
            Ok(_) => Ok(Self { rank, choice, rest: None }),
            Err(error) => {
                let reason = format!("cannot start a thread: {error}");
                let operation = Box::new((*agreement.operation).clone());
                let failure = mesh.fail(Failure::NotRun { rank: mesh.rank(), operation, reason });
                Err(mesh.error(None, failure).into())
            }
        }
    }

    /// Sets the backend for the operations that this backend does not run.
    pub fn with_rest(mut self, rest: Option<Box<dyn Backend>>) -> Self {
        self.rest = rest;
        self
    }
}

impl Backend for PeerBackend {
    unsafe fn enqueue(&self, stream: &Stream, uses: &[BufferUse<'_>], batch: Batch) -> Result<()> {
        if self.choice.takes(&batch) {
            // SAFETY: guaranteed by the caller.
            return unsafe { self.rank.submit(stream, uses, batch) };
        }
        match &self.rest {
            // SAFETY: guaranteed by the caller.
            Some(rest) => unsafe { rest.enqueue(stream, uses, batch) },
            None => {
                let method = batch.calls[0].kind.method();
                let reason = format!(
                    "the Peer backend has no kernel for {method}, and without NCCL there is no other backend for it"
                );
                Err(CollectiveError::Argument { operation: method, rank: self.rank.mesh.rank(), reason }
                    .into())
            }
        }
    }

    fn adopt(&self, common: &Arc<Common>) {
        self.rank.adopt(common);
    }

    fn may_finish(&self) -> Result<()> {
        if self.rank.has_graphs() {
            let reason = "graphs contain operations of the communicator; drop these graphs first".to_owned();
            return Err(CollectiveError::Argument {
                operation: "finish",
                rank: self.rank.mesh.rank(),
                reason,
            }
            .into());
        }
        self.rest.as_ref().map_or(Ok(()), |rest| rest.may_finish())
    }

    fn finish(&self) -> Result<()> {
        self.rank.shutdown.set(Shutdown::Finishing);
        self.rank.shutdown.wait_ended();
        let finished = self.rest.as_ref().map_or(Ok(()), |rest| rest.finish());
        match self.rank.mesh.member.failure() {
            Some(failure) => Err(self.rank.mesh.error(None, failure).into()),
            None => finished,
        }
    }

    fn settle(&self) {
        self.rank.shutdown.wait_ended();
        if let Some(rest) = &self.rest {
            rest.settle();
        }
    }
}

impl Drop for PeerBackend {
    fn drop(&mut self) {
        self.rank.shutdown.set(Shutdown::Dropped);
    }
}
