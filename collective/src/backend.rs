//! [`Backend`]: moves the data of operations. [`Call`] and [`Batch`]: the operations as a backend receives them.
//!
//! The arguments of a batch are already checked: lengths, roots, devices, and that a written use overlaps no other use.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use warpsmith_runtime::Stream;
use warpsmith_runtime::extension::BufferUse;

use crate::element::Reduction;
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::symmetric::Common;
use crate::work::WorkState;

/// Kind of an operation. Roots and peers are ranks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    AllReduce,
    Reduce { root: usize },
    Broadcast { root: usize },
    AllGather,
    ReduceScatter,
    AllToAll,
    Gather { root: usize },
    Scatter { root: usize },
    Send { to: usize },
    Receive { from: usize },
    Barrier,
}

impl Kind {
    /// Name of the method of [`Communicator`](crate::Communicator).
    pub fn method(self) -> &'static str {
        let name = self.name();
        name.strip_prefix("collective::").unwrap_or(name)
    }

    /// Name of the operation for observers.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "collective::all_reduce",
            Self::Reduce { .. } => "collective::reduce",
            Self::Broadcast { .. } => "collective::broadcast",
            Self::AllGather => "collective::all_gather",
            Self::ReduceScatter => "collective::reduce_scatter",
            Self::AllToAll => "collective::all_to_all",
            Self::Gather { .. } => "collective::gather",
            Self::Scatter { .. } => "collective::scatter",
            Self::Send { .. } => "collective::send",
            Self::Receive { .. } => "collective::recv",
            Self::Barrier => "collective::barrier",
        }
    }
}

/// Sequence numbers of a rank's next operations: see [`Fingerprint::sequence`].
#[derive(Debug)]
pub(crate) struct Places {
    collective: u64,
    sent: Vec<u64>,
    received: Vec<u64>,
}

impl Places {
    pub fn new(world: usize) -> Self {
        Self { collective: 0, sent: vec![0; world], received: vec![0; world] }
    }

    /// Returns the sequence number of an operation and advances its counter.
    pub fn next(&mut self, kind: Kind) -> u64 {
        let place = match kind {
            Kind::Send { to } => &mut self.sent[to],
            Kind::Receive { from } => &mut self.received[from],
            _ => &mut self.collective,
        };
        *place += 1;
        *place - 1
    }
}

/// A range of device memory. The address of an empty range is meaningless.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    pub address: u64,
    pub bytes: usize,
}

/// An operation of this rank.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub kind: Kind,
    /// Fingerprint with sequence 0.
    pub fingerprint: Fingerprint,
    /// Reduction operator; `None` unless the operation reduces.
    pub reduction: Option<Reduction>,
    /// Memory that the operation reads. In place it equals `to`, or one of the two is this rank's block of the other.
    pub from: Memory,
    /// Memory that the operation writes.
    pub to: Memory,
}

impl Call {
    /// Bytes of the elements counted by the [fingerprint's count](Fingerprint::count): the same on all ranks.
    pub fn counted_bytes(&self, world: usize) -> usize {
        match self.kind {
            Kind::Barrier => 0,
            Kind::AllReduce | Kind::Broadcast { .. } | Kind::ReduceScatter | Kind::Scatter { .. } => {
                self.to.bytes
            }
            Kind::Reduce { .. } | Kind::AllGather | Kind::Gather { .. } | Kind::Send { .. } => {
                self.from.bytes
            }
            Kind::AllToAll => self.to.bytes / world,
            Kind::Receive { .. } => self.to.bytes,
        }
    }
}

/// Operations that are enqueued together: a single one, or a group.
#[derive(Debug)]
pub(crate) struct Batch {
    /// The calls; at least one.
    pub calls: Vec<Call>,
    /// Timeout of each operation, counted from when its stream reaches it.
    pub timeout: Duration,
    /// True if the batch is captured into a graph, which can run it any number of times.
    pub is_captured: bool,
    pub work: Arc<WorkState>,
}

impl Batch {
    /// Name of the batch for observers.
    pub fn name(&self) -> &'static str {
        match &self.calls[..] {
            [call] => call.kind.name(),
            _ => "collective::group",
        }
    }
}

/// Transport of a communicator. See the [module's documentation](self).
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// Enqueues the operations as one piece of work.
    ///
    /// # Safety
    /// The uses are the memory of the calls. A use that is written overlaps no other use.
    unsafe fn enqueue(&self, stream: &Stream, uses: &[BufferUse<'_>], batch: Batch) -> Result<()>;

    /// Registers memory that all ranks can reach from now on.
    fn adopt(&self, _common: &Arc<Common>) {}

    /// Fails if an object of the program still needs the communicator.
    fn may_finish(&self) -> Result<()> {
        Ok(())
    }

    /// Closes the backend together with the other ranks, which call it too. Nothing is enqueued afterwards.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// Called after the communicator has failed: waits until none of its work is running.
    fn settle(&self) {}
}
