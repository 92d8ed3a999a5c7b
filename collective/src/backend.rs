//! [`Backend`]: the transport of operations. [`Call`] and [`Batch`]: the operations in the form that a backend
//! receives.
//!
//! The arguments of a batch have already been checked: lengths, roots and devices are valid, and no written buffer
//! overlaps another buffer.

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

/// Kind of an operation. Roots and peers are given as ranks.
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
    /// Returns the name of the [`Communicator`](crate::Communicator) method.
    pub fn method(self) -> &'static str {
        let name = self.name();
        name.strip_prefix("collective::").unwrap_or(name)
    }

    /// Returns the name of the operation for observers.
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

/// Sequence numbers of a rank's next operations; see [`Fingerprint::sequence`].
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

/// Range of device memory. If the range is empty, the address is meaningless.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    pub address: u64,
    pub bytes: usize,
}

/// Operation of this rank.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub kind: Kind,
    /// Fingerprint with the sequence number 0.
    pub fingerprint: Fingerprint,
    /// Reduction operator; `None` unless the operation reduces.
    pub reduction: Option<Reduction>,
    /// Memory that the operation reads. For an in-place operation, `from` equals `to`, is this rank's block within `to`
    /// (all-gather), or contains `to` as this rank's block (reduce-scatter).
    pub from: Memory,
    /// Memory that the operation writes.
    pub to: Memory,
}

impl Call {
    /// Returns the size, in bytes, of the elements that the fingerprint's [`count`](Fingerprint::count) covers. The
    /// result is the same on all ranks.
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

/// Operations enqueued together: a single operation or a group.
#[derive(Debug)]
pub(crate) struct Batch {
    /// Operations, at least one.
    pub calls: Vec<Call>,
    /// Timeout of each operation. The timeout starts when the stream reaches the operation.
    pub timeout: Duration,
    /// True if the batch is captured into a graph. If so, the graph can run the batch any number of times.
    pub is_captured: bool,
    pub work: Arc<WorkState>,
}

impl Batch {
    /// Returns the name of the batch for observers.
    pub fn name(&self) -> &'static str {
        match &self.calls[..] {
            [call] => call.kind.name(),
            _ => "collective::group",
        }
    }
}

/// Transport of a communicator. See the [module documentation](self).
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// Enqueues the operations as one unit of work.
    ///
    /// # Safety
    /// The uses must cover all memory that the calls access. No written use may overlap another use.
    unsafe fn enqueue(&self, stream: &Stream, uses: &[BufferUse<'_>], batch: Batch) -> Result<()>;

    /// Registers memory that all ranks can access from now on.
    fn adopt(&self, _common: &Arc<Common>) {}

    /// Fails if the program still holds an object that needs the communicator.
    fn may_finish(&self) -> Result<()> {
        Ok(())
    }

    /// Closes the backend collectively. All ranks must make this call. Nothing is enqueued afterwards.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// Waits until no work of the communicator is running. Called after the communicator has failed.
    fn settle(&self) {}
}
