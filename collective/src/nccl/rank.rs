//! [`Rank`]: state that the thread that calls operations shares with the owner thread.
//!
//! Only one thread at a time calls NCCL with the communicator. The timeout of an operation starts with its call. When the
//! call has returned, it starts again as soon as the stream reaches the operation, which is enclosed by two events. If the
//! device is lost, the loss is reported as the cause of NCCL's errors.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use warpsmith_runtime::driver::{EventHandle, StreamHandle};
use warpsmith_runtime::{Device, DeviceBuffer};

use super::calls::{Refused, Target};
use super::comm::RawComm;
use super::sys::{Comm, Nccl, status};
use crate::backend::{Batch, Call, Places};
use crate::deadline;
use crate::failure::{CommunicatorError, Failure};
use crate::fingerprint::Fingerprint;
use crate::mesh::{Lane, Mesh, Stop};
use crate::shutdown::ShutdownState;
use crate::work::Progress;

/// Time within which the mesh must report the end of a process that NCCL has already detected.
const NAMED_WITHIN: Duration = Duration::from_secs(1);
/// Duration after which a call counts as waiting for other ranks.
const CALL_TIME: Duration = Duration::from_millis(20);

/// Operations that may not be complete yet.
#[derive(Debug)]
struct Outstanding {
    batch: Arc<Batch>,
    /// Flight-recorder entry number of the first call, unless the calls are captured. The other calls have consecutive
    /// numbers.
    number: Option<u64>,
    called: Instant,
    /// Events recorded before and after the operations; `None` until the call has returned.
    events: Option<[EventHandle; 2]>,
    started: Option<Instant>,
}

impl Outstanding {
    /// Returns the calls with their flight-recorder entry numbers.
    fn numbered(&self) -> impl Iterator<Item = (&Call, u64)> {
        self.batch.calls.iter().zip(self.number.into_iter().flat_map(|first| first..))
    }
}

/// Sequence numbers of the next operations and the outstanding operations.
#[derive(Debug)]
struct Queue {
    outstanding: VecDeque<Outstanding>,
    spare: Vec<EventHandle>,
    places: Places,
}

/// Progress of the operations.
#[derive(Debug, Default)]
pub(super) struct Standing {
    pub is_idle: bool,
    /// Operation that is running, with its start time, its timeout and the ranks that it needs.
    pub running: Option<Running>,
}

#[derive(Debug)]
pub(super) struct Running {
    pub operation: Fingerprint,
    pub since: Instant,
    pub timeout: Duration,
    pub peers: Vec<usize>,
}

/// State of a rank. See the [module documentation](self).
#[derive(Debug)]
pub(super) struct Rank {
    pub nccl: &'static Nccl,
    pub mesh: Arc<Mesh>,
    device: Device,
    is_checked: bool,
    /// NCCL communicator. A thread locks it while calling NCCL. `None` after the communicator has ended.
    raw: Mutex<Option<RawComm>>,
    queue: Mutex<Queue>,
    /// Scratch memory for barriers.
    scratch: DeviceBuffer<u8>,
    /// Reference count of the graphs that contain operations of the communicator.
    pub graphs: Arc<()>,
    pub shutdown: Arc<ShutdownState>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Rank {
    pub fn new(
        nccl: &'static Nccl,
        mesh: Arc<Mesh>,
        raw: RawComm,
        scratch: DeviceBuffer<u8>,
        is_checked: bool,
    ) -> Arc<Self> {
        let places = Places::new(mesh.world());
        let queue = Queue { outstanding: VecDeque::new(), spare: Vec::new(), places };
        Arc::new(Self {
            nccl,
            shutdown: ShutdownState::new(Arc::clone(&mesh)),
            mesh,
            device: scratch.device().clone(),
            is_checked,
            raw: Mutex::new(Some(raw)),
            queue: Mutex::new(queue),
            scratch,
            graphs: Arc::new(()),
        })
    }

    /// Enqueues a batch on the stream. The context of the communicator's device must be current, and no other thread may
    /// be enqueuing.
    ///
    /// # Safety
    /// The memory of the calls must stay valid until the stream has executed them.
    pub unsafe fn submit(
        self: &Arc<Self>,
        stream: StreamHandle,
        mut batch: Batch,
    ) -> Result<(), Box<CommunicatorError>> {
        let mut queue = locked(&self.queue);
        let mut number = None;
        if !batch.is_captured {
            for call in &mut batch.calls {
                call.fingerprint.sequence = queue.places.next(call.kind);
                number.get_or_insert(self.mesh.member.recorder.enqueued(&call.fingerprint));
            }
            batch.work.looked_after_by(Arc::downgrade(self) as _);
        }
        let (batch, called) = (Arc::new(batch), Instant::now());
        let outstanding =
            Outstanding { batch: Arc::clone(&batch), number, called, events: None, started: None };
        queue.outstanding.push_back(outstanding);
        drop(queue);
        // SAFETY: guaranteed by the caller.
        let failure = match unsafe { self.enqueue(stream, &batch, called) } {
            Ok(events) => {
                let mut queue = locked(&self.queue);
                match (queue.outstanding.pop_back(), events) {
                    (Some(last), Some(_)) => {
                        queue.outstanding.push_back(Outstanding { events, started: None, ..last });
                        return Ok(());
                    }
                    (Some(_), None) => {
                        batch.work.end(Ok(()));
                        return Ok(());
                    }
                    // The communicator has failed in the meantime.
                    (None, events) => {
                        queue.spare.extend(events.into_iter().flatten());
                        self.mesh.member.failure().unwrap_or(Failure::Left { rank: self.mesh.rank() })
                    }
                }
            }
            Err(failure) => self.mesh.fail(failure),
        };
        self.fail_all(&failure);
        Err(self.mesh.error(Some(batch.calls[0].fingerprint.clone()), failure))
    }

    /// Enqueues a batch like [`Self::submit`]. Returns the events recorded before and after the operations, unless the
    /// operations are captured.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::submit`].
    unsafe fn enqueue(
        &self,
        stream: StreamHandle,
        batch: &Batch,
        called: Instant,
    ) -> Result<Option<[EventHandle; 2]>, Failure> {
        let first = &batch.calls[0].fingerprint;
        if self.is_checked {
            let deadline = deadline::after(called, batch.timeout);
            for call in batch.calls.iter().filter(|call| !call.fingerprint.is_point_to_point()) {
                self.mesh.compare(&call.fingerprint, deadline).map_err(|stop| match stop {
                    Stop::Failed(failure) => failure,
                    Stop::Deadline => self.mesh.timed_out(first, called.elapsed(), &self.peers(&batch.calls)),
                })?;
            }
        }
        let raw = locked(&self.raw);
        let Some(raw) = &*raw else {
            return Err(self.mesh.member.failure().unwrap_or(Failure::Left { rank: self.mesh.rank() }));
        };
        let (rank, world) = (self.mesh.rank(), self.mesh.world());
        let target = Target {
            nccl: self.nccl,
            comm: raw.get(),
            stream: std::ptr::with_exposed_provenance_mut(stream.0 as usize),
            rank,
            world,
            scratch: std::ptr::with_exposed_provenance_mut(self.scratch.as_device_ptr().0 as usize),
        };
        let record = || if batch.is_captured { Ok(None) } else { self.record(stream, first).map(Some) };
        let before = record()?;
        // SAFETY: the lock is held, and the child is blocking. The caller keeps the memory valid.
        let enqueued = unsafe { target.enqueue(&batch.calls) };
        enqueued.map_err(|refused| self.failure_of(refused, target.comm, Some(first)))?;
        Ok(before.zip(record()?).map(<[EventHandle; 2]>::from))
    }

    /// Records an event on the stream.
    fn record(&self, stream: StreamHandle, operation: &Fingerprint) -> Result<EventHandle, Failure> {
        // SAFETY: the context is used while `self` keeps the device alive, and the handles belong to the device's
        // driver.
        let (driver, context) = unsafe { self.device.driver() };
        let spare = locked(&self.queue).spare.pop();
        let recorded = spare.map_or_else(|| driver.event_create(context, false), Ok).and_then(|event| {
            driver.event_record(context, event, stream)?;
            Ok(event)
        });
        recorded.map_err(|error| self.not_run(operation, &error))
    }

    fn not_run(&self, operation: &Fingerprint, reason: &dyn std::fmt::Display) -> Failure {
        let (rank, operation) = (self.mesh.rank(), Box::new(operation.clone()));
        Failure::NotRun { rank, operation, reason: reason.to_string() }
    }

    /// Returns whether the device has reached an event.
    fn is_reached(&self, event: EventHandle) -> warpsmith_runtime::Result<bool> {
        self.device.with_context(|| {
            // SAFETY: the context is used while `self` keeps the device alive, and the event is alive.
            let (driver, context) = unsafe { self.device.driver() };
            Ok(driver.event_query(context, event)?)
        })
    }

    /// Returns the ranks that the operations need.
    fn peers(&self, calls: &[Call]) -> Vec<usize> {
        let peer = |call: &Call| call.fingerprint.peer;
        match calls.iter().map(peer).collect::<Option<Vec<_>>>() {
            Some(mut peers) => {
                peers.sort_unstable();
                peers.dedup();
                peers.retain(|peer| *peer != self.mesh.rank());
                peers
            }
            None => self.mesh.others().collect(),
        }
    }

    /// Records that operations have started.
    fn started(&self, of: &Outstanding) {
        for (call, number) in of.numbered() {
            self.mesh.member.recorder.started(number, &call.fingerprint);
        }
    }

    fn ended(&self, of: &Outstanding, error: Option<&CommunicatorError>) {
        for (call, number) in of.numbered() {
            let text = error.map(|error| error.failure.to_string());
            self.mesh.member.recorder.ended(number, &call.fingerprint, text);
        }
    }

    /// Polls the progress of the operations and completes the [`Work`](crate::Work) of those that have finished.
    pub fn look(&self) -> Result<Standing, Failure> {
        let idle = Standing { is_idle: true, running: None };
        if let Some(failure) = self.mesh.member.failure() {
            self.fail_all(&failure);
            return Ok(idle);
        }
        let mut queue = locked(&self.queue);
        while let Some(first) = queue.outstanding.front_mut() {
            let operation = &first.batch.calls[0].fingerprint;
            let reached = |event| self.is_reached(event).map_err(|error| self.not_run(operation, &error));
            let has_started = match first.events {
                Some([before, _]) => first.started.is_some() || reached(before)?,
                None => first.called.elapsed() >= CALL_TIME,
            };
            if !has_started {
                return Ok(Standing::default());
            }
            if first.started.is_none() {
                first.started = Some(if first.events.is_some() { Instant::now() } else { first.called });
                self.started(first);
            }
            let has_ended = first.events.map(|[_, behind]| reached(behind)).transpose()?;
            if has_ended != Some(true) {
                let (operation, timeout) = (operation.clone(), first.batch.timeout);
                let since = first.started.unwrap_or(first.called);
                let peers = self.peers(&first.batch.calls);
                return Ok(Standing {
                    is_idle: false,
                    running: Some(Running { operation, since, timeout, peers }),
                });
            }
            // After a failure, an abort makes the stream continue past unfinished operations.
            if let Some(failure) = self.mesh.member.failure() {
                drop(queue);
                self.fail_all(&failure);
                return Ok(idle);
            }
            if let Some(done) = queue.outstanding.pop_front() {
                self.ended(&done, None);
                queue.spare.extend(done.events.into_iter().flatten());
                done.batch.work.end(Ok(()));
            }
        }
        Ok(idle)
    }

    /// Completes the [`Work`](crate::Work) of all operations with the given failure.
    pub fn fail_all(&self, failure: &Failure) {
        let mut queue = locked(&self.queue);
        while let Some(failed) = queue.outstanding.pop_front() {
            let operation = failed.batch.calls[0].fingerprint.clone();
            let error = self.mesh.error(Some(operation), failure.clone());
            self.ended(&failed, Some(&error));
            queue.spare.extend(failed.events.into_iter().flatten());
            drop(queue);
            self.mesh.dump();
            failed.batch.work.end(Err(error));
            queue = locked(&self.queue);
        }
    }

    /// Returns the communicator failure that a failed NCCL call indicates.
    pub fn failure_of(&self, refused: Refused, comm: Comm, operation: Option<&Fingerprint>) -> Failure {
        let reason = self.nccl.explain(refused.call, refused.status, comm);
        failure_of(&self.mesh, &self.device, refused, reason, operation)
    }

    /// Returns an error of NCCL's background work, or `None` while another thread is calling NCCL.
    pub fn background_failure(&self) -> Option<Failure> {
        let raw = match self.raw.try_lock() {
            Ok(raw) => raw,
            Err(std::sync::TryLockError::Poisoned(raw)) => raw.into_inner(),
            Err(std::sync::TryLockError::WouldBlock) => return None,
        };
        let raw = raw.as_ref()?;
        let refused = raw.state().err()?;
        Some(self.failure_of(refused, raw.get(), None))
    }

    /// Takes the NCCL communicator out of the rank in order to end it. Returns `None` while another thread is calling
    /// NCCL with the communicator, and after the first call.
    pub fn take_raw(&self, patience: Duration) -> Option<RawComm> {
        let deadline = Instant::now() + patience;
        loop {
            match self.raw.try_lock() {
                Ok(mut raw) => return raw.take(),
                Err(std::sync::TryLockError::Poisoned(raw)) => return raw.into_inner().take(),
                Err(std::sync::TryLockError::WouldBlock) if Instant::now() < deadline => {
                    std::thread::sleep(Duration::from_millis(1));
                }
                Err(std::sync::TryLockError::WouldBlock) => return None,
            }
        }
    }
}

impl Progress for Rank {
    fn advance(&self) {
        // The result is ignored, because the owner thread also polls and reports failures.
        let _ = self.look();
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        let queue = self.queue.get_mut().unwrap_or_else(PoisonError::into_inner);
        let events = std::mem::take(&mut queue.spare);
        // On a lost device, the events no longer exist.
        let _ = self.device.with_context(|| {
            // SAFETY: the context is used while `self` keeps the device alive.
            let (driver, context) = unsafe { self.device.driver() };
            for event in events {
                // SAFETY: the handle is not used again.
                unsafe { driver.event_destroy(context, event) };
            }
            Ok(())
        });
    }
}

/// Returns the cause of a communicator's failure, after an NCCL call failed with the message `reason`.
pub(super) fn failure_of(
    mesh: &Mesh,
    device: &Device,
    refused: Refused,
    reason: String,
    operation: Option<&Fingerprint>,
) -> Failure {
    let rank = mesh.rank();
    // A kernel fault causes all later work on the device to fail.
    let asked = device.with_context(|| {
        // SAFETY: the context is used while the device is alive, and the event is destroyed only once.
        let (driver, context) = unsafe { device.driver() };
        let event = driver.event_create(context, false)?;
        let asked = driver.event_query(context, event);
        // SAFETY: as above.
        unsafe { driver.event_destroy(context, event) };
        Ok(asked.map(drop)?)
    });
    if let Err(fault) = asked {
        let operation = Box::new(operation.cloned().unwrap_or_else(Fingerprint::init));
        return Failure::NotRun { rank, operation, reason: fault.to_string() };
    }
    if !matches!(refused.status, status::INVALID_ARGUMENT | status::INVALID_USAGE) {
        // The end of a connection identifies the lost rank, but NCCL may have detected the loss first.
        if let Some(failure) = mesh.failure_within(NAMED_WITHIN) {
            return failure;
        }
        if let Some(left) = mesh.others().find(|other| mesh.member.has_left(*other, Lane::Collective)) {
            return Failure::Left { rank: left };
        }
    }
    Failure::Library { rank, reason }
}
