//! [`Communicator`]: one rank of a group that runs collective operations.

mod change;
mod choose;
mod group;
mod operations;
mod options;
mod prepare;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use warpsmith_runtime::{Device, DeviceCopy, Stream};

pub use self::group::Group;
pub use self::options::{BackendChoice, CommunicatorOptions};
use self::prepare::{Place, Prepared};
use crate::backend::{Backend, Batch};
use crate::error::{CollectiveError, Result};
use crate::exchange::Term;
use crate::fingerprint::{Fingerprint, type_name};
use crate::launch::Launch;
use crate::mesh::{self, Bootstrap, DeviceFacts, Mesh};
use crate::nccl;
use crate::recorder::FlightRecord;
use crate::store::{MemoryStore, Store};
use crate::symmetric::{self, Agreement, SymmetricBuffer};
use crate::work::{Work, WorkState};

/// One rank in a group of ranks that run collective operations. Each rank uses its own stream.
///
/// All operations run on the communicator's stream in call order, and each is ordered after earlier work on its
/// buffers. Later work on the buffers, on any stream, is ordered after the operation. A call enqueues the operation and
/// returns without blocking the host. If a communicator has its own stream, its operations overlap with kernels on
/// other streams.
///
/// All ranks must call the same operations in the same order, with the same element type, length, operator and root. If
/// several communicators share a stream, the call order across these communicators must also be the same on all ranks.
/// A mismatch causes an error that names both ranks and both calls. If a rank does not make a call, the operation that
/// waits for it fails when its deadline expires. NCCL itself does not compare operations: a mismatch that does not
/// block NCCL, such as a different operator, can lead to wrong results. With [`checked`](CommunicatorOptions::checked),
/// every mismatch of collective operations is detected before any data moves.
///
/// A failure ends the communicator on all ranks: pending and future operations fail with the same cause. The contents
/// of buffers used by failed operations are unspecified. [`Self::shrink`] creates a new communicator from the remaining
/// ranks.
///
/// Dropping a communicator does not block, and enqueued operations continue. Ranks that still need this rank then fail
/// with [`Failure::Left`](crate::Failure::Left). For a collective shutdown, call [`Self::finish`].
///
/// On a stream that is being captured, operations become part of the graph if the backend supports it. Each graph
/// launch then counts as one operation, so all ranks must launch their graphs in the same order. An emulated device
/// must execute its streams in threads, which is the default, rather than in steps.
///
/// ```
/// use std::time::Duration;
/// use warpsmith_collective::{Communicator, CommunicatorOptions, ReduceOp};
/// use warpsmith_emulated::EmulatedDriver;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
///
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let streams = [0, 1].map(|n| Device::with_driver(driver.clone(), n).map(|device| device.default_stream()));
/// let streams = streams.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let mut gradients = Vec::new();
/// for mut ranks in Communicator::init_all(&streams, &CommunicatorOptions::new())? {
///     let mut x = DeviceBuffer::from_host(ranks.stream(), &[1.0f32, 2.0 * ranks.rank() as f32])?;
///     let work = ranks.all_reduce_in_place(ReduceOp::Avg, &mut x)?;
///     gradients.push((x, work, ranks));
/// }
/// for (x, work, _) in &gradients {
///     work.wait(Duration::from_secs(60))?;
///     assert_eq!(x.to_host()?, [1.0, 1.0]);
/// }
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub struct Communicator {
    stream: Stream,
    mesh: Arc<Mesh>,
    pub(crate) backend: Box<dyn Backend>,
    launch: Launch,
    store: Arc<dyn Store>,
    options: CommunicatorOptions,
    /// Number of calls to [`Self::split`] so far.
    splits: u64,
    /// Number of calls to [`Self::symmetric_buffer`] so far.
    symmetric: u64,
}

impl CommunicatorOptions {
    /// Returns whether ranks on this device require NCCL.
    fn wants_nccl(&self, device: &Device) -> bool {
        #[cfg(test)]
        if self.nccl.is_some() {
            return true;
        }
        let is_wanted = match self.backend {
            BackendChoice::Nccl => true,
            BackendChoice::Auto | BackendChoice::Peer => !self.shares_gpu,
            BackendChoice::Host => false,
        };
        is_wanted && !device.is_emulated()
    }

    /// Returns whether ranks on this device may access each other's memory.
    fn wants_peers(&self, device: &Device) -> bool {
        match self.backend {
            BackendChoice::Peer => true,
            BackendChoice::Auto => !device.is_emulated(),
            BackendChoice::Nccl | BackendChoice::Host => false,
        }
    }

    fn nccl(&self) -> Result<&'static nccl::Nccl, CollectiveError> {
        #[cfg(test)]
        if let Some(nccl) = self.nccl {
            return Ok(nccl);
        }
        nccl::nccl()
    }
}

impl Communicator {
    /// Creates a communicator through a rendezvous of all ranks in the store. All ranks must make this call; it returns
    /// when all of them have arrived. Operations will run on `stream`.
    ///
    /// # Errors
    /// Returns [`RendezvousError`](crate::rendezvous::RendezvousError) and [`CollectiveError::Init`], on all ranks that
    /// have arrived. Possible causes are a rank that missed the deadline, has exited, or exists twice; a different
    /// version, world size or kind of device; two ranks on the same GPU; and devices that no backend supports. Also
    /// returns store errors.
    pub fn init(
        stream: &Stream,
        launch: &Launch,
        store: Arc<dyn Store>,
        options: &CommunicatorOptions,
    ) -> Result<Self> {
        Self::connect(stream, launch.clone(), store, options.clone())
    }

    /// Creates one communicator per stream, all in this process; the first one is rank 0. Communicators on GPUs need
    /// one thread each; communicators on emulated devices can share a thread.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::init`], or [`EmptyList`](warpsmith_runtime::Error::EmptyList) if `streams` is
    /// empty.
    pub fn init_all(streams: &[Stream], options: &CommunicatorOptions) -> Result<Vec<Self>> {
        if streams.is_empty() {
            let error =
                warpsmith_runtime::Error::EmptyList { operation: "Communicator::init_all", list: "streams" };
            return Err(error);
        }
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        std::thread::scope(|scope| {
            let met: Vec<_> = streams
                .iter()
                .zip(Launch::threads(streams.len()))
                .map(|(stream, launch)| {
                    let store = Arc::clone(&store);
                    scope.spawn(move || Self::connect(stream, launch, store, options.clone()))
                })
                .collect();
            met.into_iter()
                .map(|rank| rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    }

    fn connect(
        stream: &Stream,
        launch: Launch,
        store: Arc<dyn Store>,
        mut options: CommunicatorOptions,
    ) -> Result<Self> {
        let device = stream.device();
        device.check()?;
        let facts = DeviceFacts {
            name: device.id().to_string(),
            is_emulated: device.is_emulated(),
            stream: stream.id(),
            nccl: options.wants_nccl(device).then(|| match options.nccl() {
                Ok(nccl) => Ok(nccl.version),
                Err(error) => Err(error.to_string()),
            }),
            shares: options.wants_peers(device).then(|| symmetric::host_of(device)),
        };
        let bootstrap = Bootstrap {
            name: &options.name,
            launch: &launch,
            store: &store,
            timeout: options.init_timeout,
            address: options.address,
            device: facts,
            gpu: (!device.is_emulated() && !options.shares_gpu).then(|| device.uuid()),
            dump_to: options.dump_to.clone(),
        };
        let (mesh, devices) = mesh::connect(&bootstrap)?;
        // Communicators split from this one do not know the address of the store.
        options.address = mesh.address;
        let backend =
            choose::Choosing { stream, options: &options, mesh: &mesh, devices: &devices }.backend()?;
        Ok(Self { stream: stream.clone(), mesh, backend, launch, store, options, splits: 0, symmetric: 0 })
    }

    /// Returns this rank, counted from 0.
    pub fn rank(&self) -> usize {
        self.mesh.rank()
    }

    /// Returns the number of ranks in the communicator.
    pub fn world_size(&self) -> usize {
        self.mesh.world()
    }

    /// Returns the device of the stream.
    pub fn device(&self) -> &Device {
        self.stream.device()
    }

    /// Returns the stream on which the operations run.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Sets the timeout of all later operations. See [`CommunicatorOptions::timeout`].
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.options.timeout = timeout;
    }

    /// Aborts the communicator on all ranks immediately: running and waiting operations fail with
    /// [`Failure::Aborted`](crate::Failure::Aborted). The call does not wait. A second call has no effect.
    pub fn abort(&self) {
        self.abort_with("the program called `abort`");
    }

    /// Returns the contents of the flight recorder: the outcomes of the last 1024 operations.
    pub fn dump(&self) -> FlightRecord {
        self.mesh.record()
    }

    /// Shuts the communicator down collectively. The call blocks until all ranks have made it and all operations of
    /// this rank are complete.
    ///
    /// # Errors
    /// Returns [`CommunicatorError`](crate::CommunicatorError) if the communicator has already failed, or if a rank
    /// does not make the call. Returns [`CollectiveError::Argument`] while the stream is being captured and, with NCCL,
    /// while graphs that contain operations of the communicator exist.
    pub fn finish(mut self) -> Result<()> {
        if self.stream.is_capturing() {
            let reason = "the communicator's stream is being captured; end the capture first".to_owned();
            return Err(CollectiveError::Argument { operation: "finish", rank: self.rank(), reason }.into());
        }
        self.backend.may_finish()?;
        let work = self.barrier()?;
        work.state.wait_end()?;
        self.backend.finish()?;
        self.mesh.leave();
        Ok(())
    }

    /// Allocates a zeroed buffer of `len` elements on each rank; kernels of all ranks can access it. All ranks must
    /// make this call with the same length. The call waits for the other ranks to make it, but not for their streams.
    /// Each buffer occupies whole allocation pages on each rank, normally of 2 MiB on GPUs.
    ///
    /// # Errors
    /// Returns [`CollectiveError::Symmetric`] on all ranks, if any rank is out of memory or cannot map the memory of
    /// another rank; [`Failure::Mismatch`](crate::Failure::Mismatch), which names both calls, if lengths or types
    /// differ; or an error if a rank does not make the call within [`timeout`](CommunicatorOptions::timeout).
    pub fn symmetric_buffer<T: DeviceCopy>(&mut self, len: usize) -> Result<SymmetricBuffer<T>> {
        let mut operation = Fingerprint::new("symmetric_buffer", type_name::<T>(), len);
        operation.sequence = self.symmetric;
        if let Some(failure) = self.mesh.member.failure() {
            return Err(self.mesh.error(Some(operation), failure).into());
        }
        self.symmetric += 1;
        let (operation, term) = (Arc::new(operation), Term::new(self.options.timeout));
        let agreement = Agreement { mesh: &self.mesh, operation, term };
        let buffer = SymmetricBuffer::rendezvous(&agreement, &self.stream, len)?;
        self.backend.adopt(buffer.common());
        Ok(buffer)
    }

    fn place(&self) -> Place {
        Place { rank: self.rank(), world: self.world_size() }
    }

    /// Enqueues operations as one batch.
    fn submit(&self, prepared: Vec<Prepared<'_>>) -> Result<Work> {
        let Some(first) = prepared.first() else {
            let state = WorkState::new("an empty group".into());
            state.end(Ok(()));
            return Ok(Work { state });
        };
        if let Some(failure) = self.mesh.member.failure() {
            return Err(self.mesh.error(Some(first.call.fingerprint.clone()), failure).into());
        }
        for Prepared { call, uses } in &prepared {
            if let Some(other) = uses.iter().find(|used| used.device() != self.device()) {
                return Err(warpsmith_runtime::Error::DifferentDevices {
                    operation: call.fingerprint.operation.to_string(),
                    what: "a buffer".to_owned(),
                    found: other.device().id(),
                    expected: self.device().id(),
                    beside: "the stream",
                    remedy: "copy it there first",
                });
            }
        }
        let state = WorkState::new(first.call.fingerprint.operation.clone());
        let (mut calls, mut uses) = (Vec::with_capacity(prepared.len()), Vec::new());
        for Prepared { call, uses: of_call } in prepared {
            calls.push(call);
            match uses.is_empty() {
                true => uses = of_call,
                false => uses.extend(of_call),
            }
        }
        self.stream.with_stable_capture_state(|| {
            let (timeout, is_captured) = (self.options.timeout, self.stream.is_capturing());
            let batch = Batch { calls, timeout, is_captured, work: Arc::clone(&state) };
            // SAFETY: the uses cover the memory that the calls access. The group borrows the slices, so no written
            // slice overlaps another.
            unsafe { self.backend.enqueue(&self.stream, &uses, batch) }
        })?;
        Ok(Work { state })
    }
}

impl fmt::Debug for Communicator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rank, world) = (self.rank(), self.world_size());
        write!(f, "Communicator({}, rank {rank} of {world}, {})", self.options.name, self.device().id())
    }
}
