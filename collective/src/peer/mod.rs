//! The Peer backend: collectives by kernels that read the memory of the other ranks.
//!
//! Guarantees: results are reduced in the order of ranks: the bits of the Host backend, on all ranks, in all runs, but for those of
//! NaNs. An operation is one kernel for each half of a segment that it needs; the host waits for nothing. Ranks compare what they
//! do before data moves. A kernel that waits for a rank that does not come ends by the operation's deadline, and at once when the
//! communicator fails, also in a graph.
//!
//! What it has no kernel for, and what another backend does faster, is another backend's.

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
use warpsmith_runtime::seam::BufferUse;

use self::choice::Choice;
use self::rank::Rank;
use crate::backend::{Backend, Batch};
use crate::ending::Ending;
use crate::error::{Error, Result};
use crate::exchange::Term;
use crate::failure::Failure;
use crate::fingerprint::Fingerprint;
use crate::mesh::Mesh;
use crate::symmetric::{Agreement, Common};

/// The most ranks.
pub(crate) const MAX_RANKS: usize = warpsmith_collective_kernels::meeting::MAX_RANKS;

/// See the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct PeerBackend {
    rank: Arc<Rank>,
    choice: Choice,
    /// For what this one does not do.
    rest: Option<Box<dyn Backend>>,
}

/// How a backend is made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Making<'a> {
    pub mesh: &'a Arc<Mesh>,
    pub stream: &'a Stream,
    pub timeout: Duration,
    /// Whether operations are left to the rest where that is faster.
    pub is_auto: bool,
}

impl PeerBackend {
    /// All ranks, of one host, make theirs.
    ///
    /// # Errors
    /// The same on all ranks: [`Error::Symmetric`], after which the mesh works on; [`Error::Communicator`].
    pub fn new(making: Making<'_>) -> Result<Self> {
        let Making { mesh, stream, timeout, is_auto } = making;
        let choice = Choice { world: mesh.world(), is_emulated: stream.device().is_emulated(), is_auto };
        let operation = Arc::new(Fingerprint::new("init", Cow::Borrowed(""), 0));
        let agreement = Agreement { mesh, operation, term: Term::new(timeout) };
        let rank = Rank::meet(&agreement, mesh, stream, choice)?;
        let watched = Arc::clone(&rank);
        let thread = std::thread::Builder::new().name("warpsmith-peer".to_owned());
        match thread.spawn(move || Arc::clone(&watched.ending).run(watched, watch::run)) {
            Ok(_) => Ok(Self { rank, choice, rest: None }),
            Err(error) => {
                let reason = format!("cannot start a thread: {error}");
                let operation = Box::new((*agreement.operation).clone());
                let failure = mesh.fail(Failure::NotRun { rank: mesh.rank(), operation, reason });
                Err(mesh.error(None, failure).into())
            }
        }
    }

    /// Leaves the operations that it does not do to another backend.
    pub fn with_rest(mut self, rest: Option<Box<dyn Backend>>) -> Self {
        self.rest = rest;
        self
    }
}

impl Backend for PeerBackend {
    unsafe fn enqueue(&self, stream: &Stream, uses: &[BufferUse<'_>], batch: Batch) -> Result<()> {
        if self.choice.takes(&batch) {
            // SAFETY: passed on from the caller.
            return unsafe { self.rank.submit(stream, uses, batch) };
        }
        match &self.rest {
            // SAFETY: passed on from the caller.
            Some(rest) => unsafe { rest.enqueue(stream, uses, batch) },
            None => {
                let method = batch.calls[0].kind.method();
                let reason = format!(
                    "the Peer backend has no kernel for {method}, and without NCCL there is no other backend for it"
                );
                Err(Error::Argument { operation: method, rank: self.rank.mesh.rank(), reason })
            }
        }
    }

    fn adopt(&self, common: &Arc<Common>) {
        self.rank.adopt(common);
    }

    fn may_finish(&self) -> Result<()> {
        if self.rank.has_graphs() {
            let reason = "graphs have operations of the communicator; drop them first".to_owned();
            return Err(Error::Argument { operation: "finish", rank: self.rank.mesh.rank(), reason });
        }
        self.rest.as_ref().map_or(Ok(()), |rest| rest.may_finish())
    }

    fn finish(&self) -> Result<()> {
        self.rank.ending.set(Ending::Finishing);
        self.rank.ending.wait_ended();
        let finished = self.rest.as_ref().map_or(Ok(()), |rest| rest.finish());
        match self.rank.mesh.member.failure() {
            Some(failure) => Err(self.rank.mesh.error(None, failure).into()),
            None => finished,
        }
    }

    fn settle(&self) {
        self.rank.ending.wait_ended();
        if let Some(rest) = &self.rest {
            rest.settle();
        }
    }
}

impl Drop for PeerBackend {
    fn drop(&mut self) {
        self.rank.ending.set(Ending::Dropped);
    }
}
