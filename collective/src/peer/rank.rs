//! [`Rank`]: state that the thread that calls operations shares with the thread that watches them.
//!
//! Launches of a communicator's kernels are serialized across all streams and graphs, because each of them writes the
//! rank's segment. Memory that kernels use stays allocated until the kernels have run.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use warpsmith_collective_kernels::device_comm::{
    ABORT, CONTROL_WORDS, DeviceComm, HEAD_BYTES, HOST_WORDS, MAX_BLOCKS, MAX_RANKS, VERDICT, Verdict,
};
use warpsmith_runtime::extension::BufferUse;
use warpsmith_runtime::{Device, DeviceBuffer, DevicePtr, Event, PinnedBuffer, Stream};

use super::choice::Choice;
use super::kernels::Kernels;
use super::known::Known;
use super::launching::Launching;
use crate::backend::{Batch, Call, Kind};
use crate::error::Result;
use crate::failure::Failure;
use crate::fingerprint::Fingerprint;
use crate::mesh::Mesh;
use crate::shutdown::ShutdownState;
use crate::symmetric::{Agreement, Common, Failing, PeerMemory};
use crate::work::{Progress, WorkState};

/// Pinned host memory that kernels read and write while they are running.
#[derive(Debug)]
struct HostWords {
    /// Address of the memory; all accesses must use [`Self::word`].
    address: usize,
    device_address: DevicePtr,
    _memory: PinnedBuffer<u64>,
}

impl HostWords {
    fn new(device: &Device) -> warpsmith_runtime::Result<Self> {
        let mut memory = PinnedBuffer::<u64>::zeroed(device, HOST_WORDS)?;
        let pointer = memory.as_mut_ptr();
        let device_address = device.with_context(|| {
            // SAFETY: the context is used while the device is alive.
            let (driver, context) = unsafe { device.driver() };
            Ok(driver.host_address(context, pointer.cast())?)
        })?;
        Ok(Self { address: pointer.expose_provenance(), device_address, _memory: memory })
    }

    fn word(&self, index: usize) -> &AtomicU64 {
        assert!(index < HOST_WORDS, "there is no word {index}");
        let pointer = std::ptr::with_exposed_provenance_mut::<u64>(self.address).wrapping_add(index);
        // SAFETY: the word is in the memory, which lives at least as long as the reference and is accessed only
        // atomically.
        unsafe { AtomicU64::from_ptr(pointer) }
    }
}

/// Owners of the memory that kernels use.
type Kept = (PeerMemory, DeviceBuffer<u32>, Arc<HostWords>);

/// Enqueued operations that may not be complete yet.
#[derive(Debug)]
struct Outstanding {
    calls: Vec<Call>,
    /// Hashes of the calls.
    hashes: Vec<u32>,
    /// Flight-recorder entry number of the first call. The other calls have consecutive numbers.
    number: u64,
    before: Event,
    behind: Event,
    started: bool,
    work: Arc<WorkState>,
}

#[derive(Debug, Default)]
struct Queue {
    outstanding: VecDeque<Outstanding>,
    /// Number of operations so far.
    count: u64,
    known: Known,
    /// Failure that new operations return.
    failure: Option<Failure>,
}

/// Progress of the operations.
#[derive(Debug)]
pub(super) enum Standing {
    /// No operation is outstanding.
    Idle,
    /// An operation is running or is waiting for its stream.
    Busy { is_running: bool },
    /// A kernel has failed.
    Failed(Verdict),
}

/// State of a rank. See the [module documentation](self).
#[derive(Debug)]
pub(super) struct Rank {
    pub mesh: Arc<Mesh>,
    device: Device,
    pub choice: Choice,
    pub kernels: Kernels,
    /// Kernel parameter of every launch, without the fields that depend on the operation.
    pub comm: DeviceComm,
    host: Arc<HostWords>,
    /// Segment of the rank. Every launch writes this buffer, so the launches are ordered. The buffer also keeps the
    /// rest of the memory allocated.
    pub segment: DeviceBuffer<u8>,
    queue: Mutex<Queue>,
    /// Symmetric memory of the program that all ranks can access.
    symmetric: Mutex<Vec<Weak<Common>>>,
    /// Reference count of the graphs that contain operations of the communicator.
    graphs: Arc<()>,
    pub shutdown: Arc<ShutdownState>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rank {
    /// Creates the state that the ranks share. All ranks must make this call.
    pub fn rendezvous(
        agreement: &Agreement<'_>,
        mesh: &Arc<Mesh>,
        stream: &Stream,
        choice: Choice,
    ) -> Result<Arc<Self>> {
        let device = stream.device();
        let bytes = HEAD_BYTES + 2 * choice.half_bytes();
        let memory = PeerMemory::rendezvous(agreement, device, bytes)?;
        let made = (|| {
            let mut segments = [0; MAX_RANKS];
            segments.iter_mut().zip(0..mesh.world()).for_each(|(to, rank)| *to = memory.address(rank).0);
            let mut words = [0; CONTROL_WORDS];
            words[..MAX_BLOCKS].fill(choice.epochs_before());
            // The setup uses a separate stream that does not wait for other ranks.
            let setup = Stream::new(device)?;
            let control = DeviceBuffer::from_host(&setup, &words)?;
            setup.synchronize()?;
            let host = Arc::new(HostWords::new(device)?);
            let comm = DeviceComm {
                segments,
                control: control.as_device_ptr().0,
                host: host.device_address.0,
                direct: 0,
                direct_offset: 0,
                half_bytes: choice.half_bytes() as u64,
                timeout: 0,
                hash: 0,
                rank: mesh.rank() as u32,
                world: mesh.world() as u32,
                options: 0,
            };
            let own = memory.own();
            let kept: Kept = (memory, control, Arc::clone(&host));
            // SAFETY: this memory belongs to the rank, and `kept` keeps it allocated. Kernels of other ranks access it
            // only according to the protocol of `comm`.
            let segment = unsafe { DeviceBuffer::from_raw(stream, own, bytes, kept) }?;
            let kernels = Kernels::load(device, mesh.world())?;
            Ok(Arc::new(Self {
                mesh: Arc::clone(mesh),
                device: device.clone(),
                choice,
                kernels,
                comm,
                host,
                segment,
                queue: Mutex::default(),
                symmetric: Mutex::default(),
                graphs: Arc::new(()),
                shutdown: ShutdownState::new(Arc::clone(mesh)),
            }))
        })();
        let said = made.as_ref().map(|_| Vec::new());
        let said = said.map_err(|error: &warpsmith_runtime::Error| error.to_string());
        agreement.share(said)?;
        made
    }

    /// Registers memory of the program that all ranks can access from now on.
    pub fn adopt(self: &Arc<Self>, common: &Arc<Common>) {
        common.belong_to(Arc::downgrade(self) as _);
        let mut symmetric = locked(&self.symmetric);
        symmetric.retain(|common| common.strong_count() > 0);
        symmetric.push(Arc::downgrade(common));
    }

    /// If the kernels of an operation access its elements directly, returns the symmetric memory and the offset of the
    /// elements in it.
    pub fn direct(&self, call: &Call) -> Option<(Arc<Common>, usize)> {
        let is_aligned =
            call.kind != Kind::ReduceScatter || call.counted_bytes(self.choice.world).is_multiple_of(16);
        if call.reduction.is_none() || !is_aligned || !self.choice.is_direct(call.from.bytes) {
            return None;
        }
        let symmetric = locked(&self.symmetric);
        let within = |common: &Weak<Common>| {
            let common = common.upgrade()?;
            let offset = common.offset_of(call.from.address, call.from.bytes)?;
            offset.is_multiple_of(16).then_some((common, offset))
        };
        symmetric.iter().find_map(within)
    }

    /// Returns whether the results of the operation overwrite elements that kernels read directly, on all ranks.
    pub fn is_in_place(&self, call: &Call) -> bool {
        call.kind == Kind::AllReduce && call.from.address == call.to.address && self.direct(call).is_some()
    }

    /// Returns the hash of an operation; the ranks compare these hashes. The hash covers the operation and the
    /// symmetric memory that the operation accesses directly.
    pub fn hash_of(&self, call: &Call) -> u32 {
        match self.direct(call) {
            None => hash(&call.fingerprint, None),
            Some((common, offset)) => {
                hash(&call.fingerprint, Some((common.number, offset, self.is_in_place(call))))
            }
        }
    }

    /// Enqueues operations.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Backend::enqueue`](crate::backend::Backend::enqueue).
    pub unsafe fn submit(
        self: &Arc<Self>,
        stream: &Stream,
        uses: &[BufferUse<'_>],
        mut batch: Batch,
    ) -> Result<()> {
        let recorder = &self.mesh.member.recorder;
        let mut number = None;
        let hashes: Vec<u32> = batch.calls.iter().map(|call| self.hash_of(call)).collect();
        {
            let mut queue = locked(&self.queue);
            for (call, hash) in batch.calls.iter_mut().zip(&hashes) {
                if !batch.is_captured {
                    call.fingerprint.sequence = queue.count;
                    queue.count += 1;
                    number.get_or_insert(recorder.enqueued(&call.fingerprint));
                }
                queue.known.begin(*hash, &call.fingerprint, batch.timeout, batch.is_captured);
            }
        }
        for (common, _) in batch.calls.iter().filter_map(|call| self.direct(call)) {
            common.reached_by(&batch.work, batch.is_captured);
        }
        if batch.is_captured {
            stream.keep_in_capture(|| Arc::new(Arc::clone(&self.graphs)));
        }
        // SAFETY: guaranteed by the caller.
        let enqueued = unsafe { self.enqueue(stream, uses, &batch) };
        match enqueued {
            Ok(Some((before, behind))) => {
                batch.work.looked_after_by(Arc::downgrade(self) as _);
                let Batch { calls, work, .. } = batch;
                let number = number.unwrap_or_default();
                let outstanding = Outstanding { calls, hashes, number, before, behind, started: false, work };
                let mut queue = locked(&self.queue);
                match queue.failure.clone() {
                    None => queue.outstanding.push_back(outstanding),
                    // The communicator has failed, and no thread monitors it any longer.
                    Some(failure) => {
                        drop(queue);
                        self.end_failed(outstanding, &failure);
                    }
                }
                Ok(())
            }
            Ok(None) => {
                batch.work.end(Ok(()));
                Ok(())
            }
            Err(error) => {
                // The other ranks are waiting for this operation, so they must be notified.
                let operation = batch.calls[0].fingerprint.clone();
                let failure = self.mesh.fail(self.not_run(&operation, &error));
                let ended = self.mesh.error(Some(operation), failure);
                if let Some(number) = number {
                    self.ended_all(&batch.calls, number, Some(ended.failure.to_string()));
                }
                self.mesh.dump();
                batch.work.end(Err(ended));
                Err(error)
            }
        }
    }

    /// # Safety
    /// The caller must uphold the safety contract of [`Self::submit`].
    unsafe fn enqueue(
        &self,
        stream: &Stream,
        uses: &[BufferUse<'_>],
        batch: &Batch,
    ) -> warpsmith_runtime::Result<Option<(Event, Event)>> {
        let record = || {
            if batch.is_captured {
                return Ok(None);
            }
            let event = Event::new(&self.device)?;
            event.record(stream).map(|()| Some(event))
        };
        let before = record()?;
        for call in &batch.calls {
            let timeout = batch.timeout;
            // SAFETY: guaranteed by the caller.
            unsafe { Launching { rank: self, stream, uses, call, timeout }.launch() }?;
        }
        Ok(before.zip(record()?))
    }

    fn not_run(&self, operation: &Fingerprint, reason: &dyn std::fmt::Display) -> Failure {
        let (rank, operation) = (self.mesh.rank(), Box::new(operation.clone()));
        Failure::NotRun { rank, operation, reason: reason.to_string() }
    }

    fn ended_all(&self, calls: &[Call], first: u64, error: Option<String>) {
        for (call, number) in calls.iter().zip(first..) {
            self.mesh.member.recorder.ended(number, &call.fingerprint, error.clone());
        }
    }

    /// Polls the progress of the operations and completes the [`Work`](crate::Work) of those that have finished.
    pub fn look(&self) -> Result<Standing, Failure> {
        let mut queue = locked(&self.queue);
        while let Some(first) = queue.outstanding.front_mut() {
            let reached = |event: &Event| {
                event.query().map_err(|error| self.not_run(&first.calls[0].fingerprint, &error))
            };
            if !first.started && reached(&first.before)? {
                for (call, number) in first.calls.iter().zip(first.number..) {
                    self.mesh.member.recorder.started(number, &call.fingerprint);
                }
                first.started = true;
            }
            let is_done = first.started && reached(&first.behind)?;
            // A failing kernel writes its verdict before its stream continues.
            if let Some(verdict) = self.verdict() {
                return Ok(Standing::Failed(verdict));
            }
            if !is_done {
                return Ok(Standing::Busy { is_running: first.started });
            }
            if let Some(done) = queue.outstanding.pop_front() {
                done.hashes.iter().for_each(|hash| queue.known.end(*hash));
                self.ended_all(&done.calls, done.number, None);
                done.work.end(Ok(()));
            }
        }
        Ok(self.verdict().map_or(Standing::Idle, Standing::Failed))
    }

    /// Returns the verdict of a failed kernel, if any.
    fn verdict(&self) -> Option<Verdict> {
        let verdict = Verdict::of_word(self.host.word(VERDICT).load(Ordering::Acquire));
        Some(verdict).filter(|verdict| *verdict != Verdict::None)
    }

    /// Returns the communicator failure that the verdict of a kernel implies.
    pub fn failure_of(&self, verdict: Verdict) -> Failure {
        let operation = |hash: u32| {
            let queue = locked(&self.queue);
            let outstanding = queue.outstanding.iter();
            let mut calls =
                outstanding.flat_map(|outstanding| outstanding.calls.iter().zip(&outstanding.hashes));
            let first = calls.find(|(_, of_call)| **of_call == hash).map(|(call, _)| &call.fingerprint);
            let (last, timeout) = queue.known.find(hash).unzip();
            let unknown = || Fingerprint::new("operation", std::borrow::Cow::Borrowed(""), 0);
            (first.or(last).cloned().unwrap_or_else(unknown), timeout.unwrap_or_default())
        };
        match verdict {
            Verdict::None | Verdict::Aborted => {
                Failure::Aborted { rank: self.mesh.rank(), reason: "its kernels were stopped".to_owned() }
            }
            Verdict::TimedOut { rank, hash } => {
                let (operation, timeout) = operation(hash);
                self.mesh.timed_out(&operation, timeout, &[rank])
            }
            Verdict::Mismatched { rank, hash } => {
                let (ours, _) = operation(hash);
                // The other rank may not yet have noticed that its operation has started.
                for _ in 0..10 {
                    let answers = self.mesh.ask(&[rank]).into_iter().flatten();
                    let running = answers.flat_map(|progress| progress.running);
                    let mut others = running.filter(|theirs| !theirs.matches(&ours));
                    if let Some(theirs) = others.next() {
                        return self.mesh.mismatch(&ours, rank, theirs);
                    }
                    if let Some(failure) = self.mesh.failure_within(Duration::from_millis(2)) {
                        return failure;
                    }
                }
                let reason = format!(
                    "this rank calls {ours}, but rank {rank} calls a different operation, or passes a different part \
                     of a SymmetricBuffer or a different output"
                );
                Failure::Library { rank: self.mesh.rank(), reason }
            }
        }
    }

    /// Aborts all waiting kernels and all kernels launched later.
    pub fn abort(&self) {
        self.host.word(ABORT).store(1, Ordering::Release);
    }

    /// Completes the [`Work`](crate::Work) of all current and future operations with the given failure. Returns the
    /// event recorded after the last operation.
    pub fn fail_all(&self, failure: &Failure) -> Option<Event> {
        let failed = {
            let mut queue = locked(&self.queue);
            queue.failure.get_or_insert_with(|| failure.clone());
            std::mem::take(&mut queue.outstanding)
        };
        let last = failed.into_iter().fold(None, |_, failed| Some(self.end_failed(failed, failure)));
        locked(&self.symmetric).iter().filter_map(Weak::upgrade).for_each(|common| common.settle());
        last
    }

    /// Completes the [`Work`](crate::Work) of an operation with the given failure. Returns the event recorded after the
    /// operation.
    fn end_failed(&self, failed: Outstanding, failure: &Failure) -> Event {
        let operation = failed.calls[0].fingerprint.clone();
        let error = self.mesh.error(Some(operation), failure.clone());
        self.ended_all(&failed.calls, failed.number, Some(error.failure.to_string()));
        self.mesh.dump();
        failed.work.end(Err(error));
        failed.behind
    }

    /// Returns whether any graph contains operations of the communicator.
    pub fn has_graphs(&self) -> bool {
        Arc::strong_count(&self.graphs) > 1
    }

    /// Waits up to `patience` until the work before the event has finished.
    pub fn drain(&self, last: &Event, patience: Duration) {
        let deadline = Instant::now() + patience;
        // On a lost device, nothing is running.
        while Instant::now() < deadline && matches!(last.query(), Ok(false)) {
            std::thread::sleep(Duration::from_micros(200));
        }
    }
}

impl Failing for Rank {
    fn has_failed(&self) -> bool {
        // A failing kernel writes its verdict before its stream continues.
        self.verdict().is_some() || locked(&self.queue).failure.is_some()
    }
}

impl Progress for Rank {
    fn advance(&self) {
        // The result is ignored, because the monitoring thread reports failures.
        let _ = self.look();
    }
}

/// Computes the FNV-1a hash of the fields that ranks compare. The sequence number is excluded, because a graph repeats
/// an operation. The hash is never zero.
fn hash(operation: &Fingerprint, direct: Option<(u64, usize, bool)>) -> u32 {
    let mut hash = 0x811c_9dc5u32;
    let mut add = |bytes: &[u8]| {
        for byte in bytes.iter().chain(&[0xFF]) {
            hash = (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193);
        }
    };
    add(operation.operation.as_bytes());
    add(operation.element.as_bytes());
    add(&operation.count.to_le_bytes());
    add(operation.reduction.as_deref().unwrap_or_default().as_bytes());
    add(&operation.root.map_or(u64::MAX, |root| root as u64).to_le_bytes());
    if let Some((number, offset, is_in_place)) = direct {
        add(&number.to_le_bytes());
        add(&(offset as u64).to_le_bytes());
        add(&[is_in_place.into()]);
    }
    hash.max(1)
}
