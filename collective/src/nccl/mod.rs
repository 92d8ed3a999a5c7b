//! Nccl backend: GPU collectives through NCCL.
//!
//! NCCL runs on the thread that calls an operation. The host does not wait for other ranks, with two exceptions: on the
//! first exchange between two ranks, it waits for their connection, and with too many enqueued operations, for one of
//! them. An operation that hangs, on the host or on the device, is aborted at its deadline, and the communicator is
//! aborted as soon as a rank fails. If an abort hangs, its thread is abandoned. Dropping a communicator does not block.

mod calls;
mod comm;
#[cfg(test)]
mod fake;
mod library;
mod owner;
mod rank;
#[cfg(test)]
#[path = "../../tests/ranks/support.rs"]
#[expect(dead_code, reason = "the tests of the crate use the rest")]
mod support;
mod sys;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use warpsmith_runtime::extension::BufferUse;
use warpsmith_runtime::{DeviceBuffer, Stream};

use self::calls::{Refused, checked};
use self::comm::{NotReady, RawComm};
pub use self::library::{NcclLibrary, nccl_library};
pub(crate) use self::library::{nccl, version_text};
use self::rank::Rank;
pub(crate) use self::sys::Nccl;
use self::sys::UniqueId;
use crate::backend::{Backend, Batch};
use crate::deadline;
use crate::error::{CollectiveError, Error, Result};
use crate::failure::Failure;
use crate::fingerprint::Fingerprint;
use crate::mesh::{Frame, Lane, Mesh, Part, Stop};
use crate::shutdown::Shutdown;

/// Nccl backend. See the [module documentation](self).
#[derive(Debug)]
pub(crate) struct NcclBackend(Arc<Rank>);

/// Inputs for creating the backend.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Making<'a> {
    pub nccl: &'static Nccl,
    pub mesh: &'a Arc<Mesh>,
    pub stream: &'a Stream,
    pub timeout: Duration,
    pub is_checked: bool,
}

impl NcclBackend {
    /// Creates the NCCL communicator for the ranks of the mesh. The ranks must use different devices.
    ///
    /// # Errors
    /// Returns the cause of the failure, which is the same on all ranks.
    pub fn new(making: Making<'_>) -> Result<Self> {
        let Making { nccl, mesh, stream, timeout, is_checked } = making;
        let failed = |failure: Failure| {
            Error::from(CollectiveError::Init {
                communicator: mesh.name.clone(),
                rank: mesh.rank(),
                world_size: mesh.world(),
                reason: failure.to_string(),
            })
        };
        let scratch = DeviceBuffer::zeros(stream, 1).inspect_err(|error| {
            mesh.fail(init_failed(mesh, error));
        })?;
        let deadline = deadline::within(timeout);
        let id = exchange_id(making, deadline).map_err(|failure| failed(mesh.fail(failure)))?;
        let (parent, child) = connect(making, id, deadline).map_err(failed)?;
        let rank = Rank::new(nccl, Arc::clone(mesh), child, scratch, is_checked);
        let owned = Arc::clone(&rank);
        let thread = std::thread::Builder::new().name("warpsmith-nccl".to_owned());
        let run = move || Arc::clone(&owned.shutdown).run(owned, |rank| owner::run(rank, parent, timeout));
        match thread.spawn(run) {
            Ok(_) => Ok(Self(rank)),
            Err(error) => {
                // The communicators stay allocated, because ending them also requires a thread.
                Err(failed(mesh.fail(init_failed(mesh, &format!("cannot start a thread: {error}")))))
            }
        }
    }
}

fn init_failed(mesh: &Mesh, reason: &dyn std::fmt::Display) -> Failure {
    Failure::NotRun {
        rank: mesh.rank(),
        operation: Box::new(Fingerprint::init()),
        reason: reason.to_string(),
    }
}

/// Returns the failure for an NCCL call that failed before a [`Rank`] existed.
fn refused(making: Making<'_>, refused: Refused, comm: sys::Comm) -> Failure {
    let reason = making.nccl.explain(refused.call, refused.status, comm);
    rank::failure_of(making.mesh, making.stream.device(), refused, reason, None)
}

/// Creates the unique ID on rank 0 and sends it to the other ranks. The ID is sent over the mesh, because any process
/// that knows it can join.
fn exchange_id(making: Making<'_>, deadline: Instant) -> Result<UniqueId, Failure> {
    let Making { nccl, mesh, timeout, .. } = making;
    let stopped = |stop| match stop {
        Stop::Failed(failure) => failure,
        Stop::Deadline => {
            init_failed(mesh, &format!("rank 0 did not send NCCL's unique ID within {timeout:?}"))
        }
    };
    let mut id = UniqueId([0; 128]);
    if mesh.rank() == 0 {
        // SAFETY: the pointer points to a local variable.
        let made = checked("ncclGetUniqueId", unsafe { (nccl.get_unique_id)(&mut id) });
        made.map_err(|why| refused(making, why, std::ptr::null_mut()))?;
        let operation = Arc::new(Fingerprint::init());
        for other in mesh.others() {
            let begin = Some((Arc::clone(&operation), id.0.len() as u64));
            let frame = Frame::Part(Lane::Collective, Part { begin, data: id.0.to_vec() });
            mesh.send(other, frame, deadline).map_err(stopped)?;
        }
        return Ok(id);
    }
    loop {
        let version = mesh.member.version();
        if let Some(part) = mesh.member.take_part(0, Lane::Collective) {
            id.0 = part.data.try_into().map_err(|part: Vec<u8>| {
                init_failed(
                    mesh,
                    &format!(
                        "rank 0 sent {} bytes as NCCL's unique ID, which has a different length",
                        part.len()
                    ),
                )
            })?;
            return Ok(id);
        }
        if mesh.member.has_left(0, Lane::Collective) {
            return Err(Failure::Left { rank: 0 });
        }
        mesh.member.wait_change(version, deadline).map_err(stopped)?;
    }
}

/// Creates the parent and the child, and waits until all ranks have created theirs.
fn connect(making: Making<'_>, id: UniqueId, deadline: Instant) -> Result<(RawComm, RawComm), Failure> {
    let Making { nccl, mesh, stream, timeout, .. } = making;
    let (place, device) = ((mesh.rank(), mesh.world()), stream.device());
    let bound = device.with_context(|| Ok(RawComm::init(nccl, place, id, &mesh.name)));
    let (parent, begun) = bound.map_err(|error| mesh.fail(init_failed(mesh, &error)))?;
    let wait = |begun: Result<(), Refused>| {
        begun.map_err(NotReady::Refused).and_then(|()| parent.wait_ready(mesh, deadline))
    };
    let split = || {
        let bound = device.with_context(|| Ok(parent.split(mesh.rank())));
        let (child, begun) = bound.map_err(|error| (None, NotReady::Failed(init_failed(mesh, &error))))?;
        match wait(begun) {
            Ok(()) => Ok(child),
            Err(why) => Err((Some(child), why)),
        }
    };
    let (child, why) = match wait(begun).map_err(|why| (None, why)).and_then(|()| split()) {
        Ok(child) => return Ok((parent, child)),
        Err(unready) => unready,
    };
    let failure = match why {
        NotReady::Refused(why) => refused(making, why, parent.get()),
        NotReady::Failed(failure) => failure,
        NotReady::Deadline => {
            let text = "NCCL has not connected the ranks";
            let advice =
                "set NCCL_DEBUG=INFO to see why, and NCCL_SOCKET_IFNAME to select the network interface";
            mesh.failure_within(Duration::ZERO)
                .unwrap_or_else(|| init_failed(mesh, &format!("{text} within {timeout:?}; {advice}")))
        }
    };
    // The other ranks are notified before the abort, because the abort may take a while.
    let failure = mesh.fail(failure);
    RawComm::abort_both(parent, child);
    Err(failure)
}

impl Backend for NcclBackend {
    unsafe fn enqueue(&self, stream: &Stream, uses: &[BufferUse<'_>], batch: Batch) -> Result<()> {
        let rank = &self.0;
        let operation = batch.calls[0].fingerprint.clone();
        let device = stream.device();
        let capability = (!device.is_emulated()).then(|| device.capability());
        for call in &batch.calls {
            let Some(reduction) = call.reduction else { continue };
            if let Some(reason) = sys::unsupported(reduction.element, rank.nccl.version, capability) {
                let operation = call.kind.method();
                return Err(CollectiveError::Argument { operation, rank: rank.mesh.rank(), reason }.into());
            }
        }
        if batch.is_captured {
            if rank.mesh.shares_process() {
                let reason =
                    "NCCL can hang when one process launches graphs with NCCL operations on several \
                              devices; to capture them, use one process per device"
                        .to_owned();
                let operation = batch.calls[0].kind.method();
                return Err(CollectiveError::Argument { operation, rank: rank.mesh.rank(), reason }.into());
            }
            // This keeps the NCCL communicator alive for as long as the graph exists.
            stream.keep_in_capture(|| Arc::new((Arc::clone(&rank.graphs), Arc::clone(rank))));
        }
        let mut failed = None;
        // SAFETY: NCCL enqueues only on this stream. It accesses only its own memory and the memory of the calls, which
        // the uses cover. Only this stream uses the scratch byte.
        let enqueued = unsafe {
            stream.enqueue_named(batch.name(), uses, |handle| {
                rank.submit(handle, batch).map_err(|error| {
                    failed = Some(error.clone());
                    warpsmith_runtime::Error::from(error)
                })
            })
        };
        match (enqueued, failed) {
            (_, Some(error)) => Err(error.into()),
            (Ok(()), None) => Ok(()),
            (Err(error), None) => {
                // The other ranks are waiting for this operation, so they must be notified.
                let (rank_number, operation) = (rank.mesh.rank(), Box::new(operation));
                rank.mesh.fail(Failure::NotRun { rank: rank_number, operation, reason: error.to_string() });
                Err(error)
            }
        }
    }

    fn may_finish(&self) -> Result<()> {
        if Arc::strong_count(&self.0.graphs) > 1 {
            let reason = "graphs contain operations of the communicator; drop these graphs first".to_owned();
            return Err(
                CollectiveError::Argument { operation: "finish", rank: self.0.mesh.rank(), reason }.into()
            );
        }
        Ok(())
    }

    fn finish(&self) -> Result<()> {
        self.0.shutdown.set(Shutdown::Finishing);
        self.0.shutdown.wait_ended();
        match self.0.mesh.member.failure() {
            Some(failure) => Err(self.0.mesh.error(None, failure).into()),
            None => Ok(()),
        }
    }

    fn settle(&self) {
        self.0.shutdown.wait_ended();
    }
}

impl Drop for NcclBackend {
    fn drop(&mut self) {
        if self.0.shutdown.get() == Shutdown::None {
            self.0.shutdown.set(Shutdown::Dropped);
        }
    }
}
