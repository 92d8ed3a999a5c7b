//! [`Communicator`]: ranks that do things together.

mod change;
mod choose;
mod group;
mod operations;
mod options;
mod prepare;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use warpsmith_runtime::memory::DeviceCopy;
use warpsmith_runtime::{Device, Stream};

pub use self::group::Group;
pub use self::options::{BackendChoice, CommunicatorOptions};
use self::prepare::{Place, Prepared};
use crate::backend::{Backend, Batch};
use crate::error::{Error, Result};
use crate::exchange::Term;
use crate::fingerprint::{Fingerprint, type_name};
use crate::launch::Launch;
use crate::mesh::{self, DeviceFacts, Meeting, Mesh};
use crate::nccl;
use crate::recorder::FlightRecord;
use crate::store::{MemoryStore, Store};
use crate::symmetric::{self, Agreement, Pool, SymmetricBuffer};
use crate::work::{Work, WorkState};

/// One rank of several that do things together, each on a stream of its own.
///
/// All operations run on the communicator's stream, in the order of the calls, each after earlier work on its buffers; later
/// work on the buffers follows it, on whatever stream. A call enqueues and returns: the host waits for nothing. With a stream
/// of its own a communicator works beside kernels on other streams.
///
/// Every rank calls the same operations in the same order, with the same element type, length, operator and root; with
/// several communicators, in the same order across all that share a stream. A mismatch is an error that names both ranks and
/// both calls, a missing call is one at the deadline of the operation that waits for it. NCCL compares nothing by itself: a
/// mismatch that does not block it, such as another operator, can give wrong results. With
/// [`checked`](CommunicatorOptions::checked) every mismatch is found before data moves.
///
/// A failure ends the communicator on all ranks: their operations fail with it, those to come are refused with it. The
/// contents of the buffers of failed operations are unspecified. [`Self::shrink`] makes a communicator of ranks that go on.
///
/// Dropping it waits for nothing: what was enqueued goes on, and ranks that need this one after that fail with
/// [`Failure::Left`](crate::Failure::Left). [`Self::finish`] is the end in common.
///
/// On a stream that is being captured operations become part of the graph, if its backend can. Every launch of the graph is
/// then an operation as every other: all ranks launch theirs in the same order. An emulated device must have threads for its
/// streams, as it has unless it is stepped.
///
/// ```
/// use std::time::Duration;
/// use warpsmith_collective::{Communicator, CommunicatorOptions, ReduceOp};
/// use warpsmith_emulated::EmulatedDriver;
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
///
/// # fn main() -> Result<(), warpsmith_collective::Error> {
/// let driver = EmulatedDriver::builder().devices(2).build();
/// let streams = [0, 1].map(|n| Device::with_driver(driver.clone(), n).map(|device| device.default_stream()));
/// let streams = streams.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let mut gradients = Vec::new();
/// for mut ranks in Communicator::init_all(&streams, &CommunicatorOptions::new())? {
///     let mut x = DeviceBuffer::from_host(ranks.stream(), &[1.0f32, 2.0 * ranks.rank() as f32])?;
///     let work = ranks.all_reduce_in_place(&mut x, ReduceOp::Avg)?;
///     gradients.push((x, work, ranks));
/// }
/// for (x, work, _) in &gradients {
///     work.wait(Duration::from_secs(60))?;
///     assert_eq!(x.to_host()?, [1.0, 1.0]);
/// }
/// # Ok(())
/// # }
/// ```
pub struct Communicator {
    stream: Stream,
    mesh: Arc<Mesh>,
    pub(crate) backend: Box<dyn Backend>,
    launch: Launch,
    store: Arc<dyn Store>,
    options: CommunicatorOptions,
    /// The calls of [`Self::split`] so far.
    splits: u64,
    /// The calls of [`Self::symmetric_buffer`] so far.
    symmetric: u64,
    /// The memory of symmetric buffers.
    pool: Pool,
}

impl CommunicatorOptions {
    /// Whether ranks on this device need NCCL.
    fn wants_nccl(&self, device: &Device) -> bool {
        #[cfg(test)]
        if self.nccl.is_some() {
            return true;
        }
        self.backend != BackendChoice::Host && !device.is_emulated() && !self.shares_gpu
    }

    /// Whether ranks on this device may use each other's memory.
    fn wants_peers(&self, device: &Device) -> bool {
        match self.backend {
            BackendChoice::Peer => true,
            BackendChoice::Auto => !device.is_emulated(),
            BackendChoice::Nccl | BackendChoice::Host => false,
        }
    }

    fn nccl(&self) -> Result<&'static nccl::Nccl, nccl::NcclError> {
        #[cfg(test)]
        if let Some(nccl) = self.nccl {
            return Ok(nccl);
        }
        nccl::nccl()
    }
}

impl Communicator {
    /// Meets the other ranks through the store. All ranks call it; it returns when all have come. Operations will run on
    /// this stream.
    ///
    /// # Errors
    /// [`Error::Rendezvous`] and [`Error::Init`], on all ranks that have come: a rank that has not come by the deadline, has
    /// ended, is there twice, or has another version, world size or kind of device, or the GPU of another; devices for
    /// which there is no backend. Errors of the store.
    pub fn init(
        stream: &Stream,
        launch: &Launch,
        store: Arc<dyn Store>,
        options: &CommunicatorOptions,
    ) -> Result<Self> {
        Self::meet(stream, launch.clone(), store, options.clone())
    }

    /// A communicator for each of these streams, all of this process, in their order: rank 0 is the first. Each can be moved
    /// to a thread of its own, as those of GPUs must be; those of emulated devices can also all be used by one.
    ///
    /// # Errors
    /// As [`Self::init`]; [`Error::Runtime`] without streams.
    pub fn init_all(streams: &[Stream], options: &CommunicatorOptions) -> Result<Vec<Self>> {
        if streams.is_empty() {
            let error =
                warpsmith_runtime::Error::EmptyList { operation: "Communicator::init_all", list: "streams" };
            return Err(error.into());
        }
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
        std::thread::scope(|scope| {
            let met: Vec<_> = streams
                .iter()
                .zip(Launch::threads(streams.len()))
                .map(|(stream, launch)| {
                    let store = Arc::clone(&store);
                    scope.spawn(move || Self::meet(stream, launch, store, options.clone()))
                })
                .collect();
            met.into_iter()
                .map(|rank| rank.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect()
        })
    }

    fn meet(
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
        let meeting = Meeting {
            name: &options.name,
            launch: &launch,
            store: &store,
            timeout: options.init_timeout,
            address: options.address,
            device: facts,
            gpu: (!device.is_emulated() && !options.shares_gpu).then(|| device.uuid()),
            recorded: options.recorded,
            dump_to: options.dump_to.clone(),
        };
        let (mesh, devices) = mesh::connect(&meeting)?;
        // Parts of it do not know the address of the store.
        options.address = mesh.address;
        let backend =
            choose::Choosing { stream, options: &options, mesh: &mesh, devices: &devices }.backend()?;
        Ok(Self {
            stream: stream.clone(),
            mesh,
            backend,
            launch,
            store,
            options,
            splits: 0,
            symmetric: 0,
            pool: Pool::default(),
        })
    }

    /// This rank, from 0.
    pub fn rank(&self) -> usize {
        self.mesh.rank()
    }

    /// The number of ranks.
    pub fn world_size(&self) -> usize {
        self.mesh.world()
    }

    /// The device of the stream.
    pub fn device(&self) -> &Device {
        self.stream.device()
    }

    /// The stream that operations run on.
    pub fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Sets the time of operations that are called from now on. See [`CommunicatorOptions::timeout`].
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.options.timeout = timeout;
    }

    /// Ends the communicator on all ranks, now: operations that run or wait fail with
    /// [`Failure::Aborted`](crate::Failure::Aborted). Does not wait. A second call does nothing.
    pub fn abort(&self) {
        self.abort_with("the program called `abort`");
    }

    /// The flight recorder's content: what became of the last operations.
    pub fn dump(&self) -> FlightRecord {
        self.mesh.record()
    }

    /// The end in common: waits until all ranks have called it and all operations of this rank are done.
    ///
    /// # Errors
    /// [`Error::Communicator`]: the failure that ended the communicator before, or a rank that did not come.
    /// [`Error::Argument`] while the stream is being captured; with NCCL, while there are graphs with its operations.
    pub fn finish(mut self) -> Result<()> {
        if self.stream.is_capturing() {
            let reason = "its stream is being captured; end the capture first".to_owned();
            return Err(Error::Argument { operation: "finish", rank: self.rank(), reason });
        }
        self.backend.may_finish()?;
        let work = self.barrier()?;
        work.state.wait_end()?;
        self.backend.finish()?;
        self.mesh.leave();
        Ok(())
    }

    /// Makes a buffer of `len` elements on each rank, filled with zeros, which the kernels of all ranks reach. All ranks call it,
    /// with the same length; it waits for them, and not for their streams.
    ///
    /// # Errors
    /// [`Error::Symmetric`] on all ranks, if one has no memory for it or cannot map that of another;
    /// [`Failure::Mismatch`](crate::Failure::Mismatch) for other lengths or types, which names both; a rank that did not come
    /// within [`timeout`](CommunicatorOptions::timeout).
    pub fn symmetric_buffer<T: DeviceCopy>(&mut self, len: usize) -> Result<SymmetricBuffer<T>> {
        let mut operation = Fingerprint::new("symmetric_buffer", type_name::<T>(), len);
        operation.sequence = self.symmetric;
        if let Some(failure) = self.mesh.member.failure() {
            return Err(self.mesh.error(Some(operation), failure).into());
        }
        self.symmetric += 1;
        let (operation, term) = (Arc::new(operation), Term::new(self.options.timeout));
        let agreement = Agreement { mesh: &self.mesh, operation, term };
        let buffer = SymmetricBuffer::meet(&agreement, &mut self.pool, &self.stream, len)?;
        self.backend.adopt(buffer.common());
        Ok(buffer)
    }

    fn place(&self) -> Place {
        Place { rank: self.rank(), world: self.world_size() }
    }

    /// Enqueues operations as one.
    fn submit(&self, prepared: Vec<Prepared<'_>>) -> Result<Work> {
        let Some(first) = prepared.first() else {
            let state = WorkState::new("an empty group".to_owned());
            state.end(Ok(()));
            return Ok(Work { state });
        };
        if let Some(failure) = self.mesh.member.failure() {
            return Err(self.mesh.error(Some(first.call.fingerprint.clone()), failure).into());
        }
        for Prepared { call, uses } in &prepared {
            if let Some(other) = uses.iter().find(|used| used.device() != self.device()) {
                return Err(Error::Runtime(warpsmith_runtime::Error::DifferentDevices {
                    operation: call.fingerprint.operation.to_string(),
                    what: "a buffer".to_owned(),
                    found: other.device().id(),
                    expected: self.device().id(),
                    beside: "the stream",
                    remedy: "copy it there first",
                }));
            }
        }
        let state = WorkState::new(first.call.fingerprint.operation.to_string());
        let (calls, uses): (Vec<_>, Vec<_>) =
            prepared.into_iter().map(|prepared| (prepared.call, prepared.uses)).unzip();
        let uses = uses.concat();
        self.stream.with_stable_capture_state(|| {
            let (timeout, is_captured) = (self.options.timeout, self.stream.is_capturing());
            let batch = Batch { calls, timeout, is_captured, work: Arc::clone(&state) };
            // SAFETY: the calls' memory is that of the uses, which are borrowed as a group of slices is: none that is
            // written overlaps another.
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
