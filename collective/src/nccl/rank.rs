//! [`Rank`]: state that the thread that calls operations shares with the owner thread.
//!
//! Only one thread at a time calls NCCL with the communicator. The timeout of an operation starts with its call. When
//! the call has returned, it starts again as soon as the stream reaches the operation, which is enclosed by two events.
//! If the device is lost, the loss is reported as the cause of NCCL's errors.

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
    has_returned: bool,
    /// Events recorded before and after the operations, unless these are captured.
    events: Option<[EventHandle; 2]>,
    started: Option<Instant>,
}

/// Returns the calls with their flight-recorder entry numbers.
fn numbered(batch: &Batch, first: Option<u64>) -> impl Iterator<Item = (&Call, u64)> {
    batch.calls.iter().zip(first.into_iter().flat_map(|first| first..))
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

    /// Enqueues a batch on the stream. The context of the communicator's device must be current, and no other thread
    /// may be enqueuing.
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
        let mut events = Ok(None);
        if !batch.is_captured {
            for call in &mut batch.calls {
                call.fingerprint.sequence = queue.places.next(call.kind);
                number.get_or_insert(self.mesh.member.recorder.enqueued(&call.fingerprint));
            }
            batch.work.looked_after_by(Arc::downgrade(self) as _);
            events = self.events(&mut queue).map(Some);
        }
        let (batch, called) = (Arc::new(batch), Instant::now());
        queue.outstanding.push_back(Outstanding {
            batch: Arc::clone(&batch),
            number,
            called,
            has_returned: false,
            events: *events.as_ref().unwrap_or(&None),
            started: None,
        });
        drop(queue);
        let first = &batch.calls[0].fingerprint;
        let events = events.map_err(|error| self.not_run(first, &error));
        // SAFETY: guaranteed by the caller.
        let enqueued = events.and_then(|events| unsafe { self.enqueue(stream, &batch, called, events) });
        let failure = match enqueued {
            Ok(()) => {
                let mut queue = locked(&self.queue);
                match queue.outstanding.back_mut() {
                    Some(last) => {
                        (last.has_returned, last.started) = (true, None);
                        if batch.is_captured {
                            queue.outstanding.pop_back();
                            batch.work.end(Ok(()));
                        }
                        return Ok(());
                    }
                    // The communicator has failed in the meantime.
                    None => self.mesh.member.failure().unwrap_or(Failure::Left { rank: self.mesh.rank() }),
                }
            }
            Err(failure) => self.mesh.fail(failure),
        };
        self.fail_all(&failure);
        Err(self.mesh.error(Some(first.clone()), failure))
    }

    /// Returns two events from the spare ones, or creates them.
    fn events(&self, queue: &mut Queue) -> warpsmith_runtime::Result<[EventHandle; 2]> {
        // SAFETY: the context is used while `self` keeps the device alive.
        let (driver, context) = unsafe { self.device.driver() };
        while queue.spare.len() < 2 {
            queue.spare.push(driver.event_create(context, false)?);
        }
        let rest = queue.spare.len() - 2;
        let events = [queue.spare[rest], queue.spare[rest + 1]];
        queue.spare.truncate(rest);
        Ok(events)
    }

    /// Enqueues a batch like [`Self::submit`], and records `events` before and after the operations.
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Self::submit`].
    unsafe fn enqueue(
        &self,
        stream: StreamHandle,
        batch: &Batch,
        called: Instant,
        events: Option<[EventHandle; 2]>,
    ) -> Result<(), Failure> {
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
        // SAFETY: the context is used while `self` keeps the device alive, and the handles belong to the device's
        // driver.
        let (driver, context) = unsafe { self.device.driver() };
        let record =
            |event| driver.event_record(context, event, stream).map_err(|error| self.not_run(first, &error));
        if let Some([before, _]) = events {
            record(before)?;
        }
        // SAFETY: the lock is held, and the child is blocking. The caller keeps the memory valid.
        let enqueued = unsafe { target.enqueue(&batch.calls) };
        enqueued.map_err(|refused| self.failure_of(refused, target.comm, Some(first)))?;
        events.map_or(Ok(()), |[_, behind]| record(behind))
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

    fn started(&self, batch: &Batch, number: Option<u64>) {
        for (call, number) in numbered(batch, number) {
            self.mesh.member.recorder.started(number, &call.fingerprint);
        }
    }

    fn ended(&self, of: &Outstanding, error: Option<&CommunicatorError>) {
        for (call, number) in numbered(&of.batch, of.number) {
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
        let mut fault = None;
        let mut reached = |event| {
            self.is_reached(event).unwrap_or_else(|error| {
                fault = Some(error);
                false
            })
        };
        // The operations end in their order, so a binary search queries few events.
        let ended = queue.outstanding.partition_point(|of| {
            of.events.filter(|_| of.has_returned).is_some_and(|[_, behind]| reached(behind))
        });
        let has_started = queue.outstanding.get(ended).is_some_and(|of| match of.events {
            Some([before, _]) if of.has_returned => of.started.is_some() || reached(before),
            _ => of.called.elapsed() >= CALL_TIME,
        });
        if let (Some(fault), Some(first)) = (fault, queue.outstanding.front()) {
            return Err(self.not_run(&first.batch.calls[0].fingerprint, &fault));
        }
        // After a failure, an abort makes the stream continue past unfinished operations.
        if let Some(failure) = self.mesh.member.failure() {
            drop(queue);
            self.fail_all(&failure);
            return Ok(idle);
        }
        for _ in 0..ended {
            let Some(done) = queue.outstanding.pop_front() else { break };
            if done.started.is_none() {
                self.started(&done.batch, done.number);
            }
            self.ended(&done, None);
            queue.spare.extend(done.events.into_iter().flatten());
            done.batch.work.end(Ok(()));
        }
        let Some(first) = queue.outstanding.front_mut() else { return Ok(idle) };
        if !has_started {
            return Ok(Standing::default());
        }
        let since = *first.started.get_or_insert_with(|| {
            self.started(&first.batch, first.number);
            if first.has_returned { Instant::now() } else { first.called }
        });
        let (operation, timeout) = (first.batch.calls[0].fingerprint.clone(), first.batch.timeout);
        let peers = self.peers(&first.batch.calls);
        Ok(Standing { is_idle: false, running: Some(Running { operation, since, timeout, peers }) })
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
