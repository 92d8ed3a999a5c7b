//! [`Backend`]: what moves the data of operations, and the operations as it gets them.
//!
//! A batch's arguments were checked: lengths, roots, devices, and that no two uses overlap where one is written.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use warpsmith_runtime::Stream;
use warpsmith_runtime::seam::BufferUse;

use crate::element::Reduction;
use crate::error::Result;
use crate::fingerprint::Fingerprint;
use crate::symmetric::Common;
use crate::work::WorkState;

/// What an operation does. Roots and peers are ranks.
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
    /// The method of [`Communicator`](crate::Communicator).
    pub fn method(self) -> &'static str {
        let name = self.name();
        name.strip_prefix("collective::").unwrap_or(name)
    }

    /// Its name for observers.
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

/// The places of a rank's next operations: see [`Fingerprint::sequence`].
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

    /// The place of an operation, which is counted.
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

/// A range of device memory; without bytes its address means nothing.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    pub address: u64,
    pub bytes: usize,
}

/// An operation of this rank.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub kind: Kind,
    /// With sequence 0.
    pub fingerprint: Fingerprint,
    /// Of those that reduce.
    pub reduction: Option<Reduction>,
    /// What it reads. In place it is `to`, or one is this rank's block of the other.
    pub from: Memory,
    /// What it writes.
    pub to: Memory,
}

impl Call {
    /// Bytes of the elements that the [fingerprint's count](Fingerprint::count) is of: the same on all ranks.
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

/// Operations that are enqueued together: one, or a group.
#[derive(Debug)]
pub(crate) struct Batch {
    /// At least one.
    pub calls: Vec<Call>,
    /// The time that each has from when its stream comes to it.
    pub timeout: Duration,
    /// Whether it becomes part of a graph, which runs it any number of times.
    pub is_captured: bool,
    pub work: Arc<WorkState>,
}

impl Batch {
    /// Its name for observers.
    pub fn name(&self) -> &'static str {
        match &self.calls[..] {
            [call] => call.kind.name(),
            _ => "collective::group",
        }
    }
}

/// See the [module's documentation](self).
pub(crate) trait Backend: fmt::Debug + Send + Sync {
    /// Enqueues the operations, as one piece of work.
    ///
    /// # Safety
    /// The uses are the memory of the calls. Where one is a write, no two of them overlap.
    unsafe fn enqueue(&self, stream: &Stream, uses: &[BufferUse<'_>], batch: Batch) -> Result<()>;

    /// Memory that all ranks reach from now on.
    fn adopt(&self, _common: &Arc<Common>) {}

    /// Fails if something that the program has still needs the communicator.
    fn may_finish(&self) -> Result<()> {
        Ok(())
    }

    /// Ends what it has in common with the other ranks, which do so too. Nothing is enqueued after that.
    fn finish(&self) -> Result<()> {
        Ok(())
    }

    /// After a failure of the communicator: waits until nothing of it runs any more.
    fn settle(&self) {}
}
