//! [`RawComm`]: an NCCL communicator, its creation and its destruction.
//!
//! Each rank has two communicators. The parent is non-blocking, so that its creation can time out. The child, split
//! from the parent, is blocking: it runs the operations on the thread that calls them, while a non-blocking
//! communicator starts a thread per call. The two share their resources, and with them the flag that `ncclCommAbort`
//! sets. When the parent is aborted, calls and kernels of the child return, and the child can be freed.
//!
//! A process that exits first waits for the threads that end communicators, because NCCL crashes if its global state is
//! destroyed during a call.

use std::ffi::{CString, c_int};
use std::mem::ManuallyDrop;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::{Duration, Instant};

use warpsmith_runtime::driver::process;

use super::calls::{Refused, checked};
use super::sys::{Comm, Config, Nccl, Status, UniqueId, status};
use crate::failure::Failure;
use crate::mesh::Mesh;

/// Polling interval while NCCL creates or destroys a communicator.
const PAUSE: Duration = Duration::from_micros(200);
/// Time limit for a call that destroys or aborts a communicator. A communicator whose call exceeds it is abandoned.
pub(super) const END_TIME: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 10_000 });

/// Reason why a communicator is not ready, or has not ended.
#[derive(Debug)]
pub(super) enum NotReady {
    Refused(Refused),
    Failed(Failure),
    Deadline,
}

/// An NCCL communicator. See the [module documentation](self).
#[derive(Debug)]
pub(super) struct RawComm {
    nccl: &'static Nccl,
    /// Handle of the communicator, which an NCCL thread can write.
    comm: Box<AtomicPtr<std::ffi::c_void>>,
    /// Name of the communicator, kept alive because NCCL stores a pointer to it.
    name: CString,
}

impl RawComm {
    /// Starts to create a communicator by the NCCL function `call`. The creation continues in the background.
    fn create(
        nccl: &'static Nccl,
        name: CString,
        is_blocking: bool,
        call: &'static str,
        create: impl FnOnce(*mut Comm, *mut Config) -> Status,
    ) -> (Self, Result<(), Refused>) {
        let this = Self { nccl, comm: Box::new(AtomicPtr::new(null_mut())), name };
        let mut config = Config::new(this.name.as_ptr(), is_blocking);
        let status = create(this.comm.as_ptr(), &mut config);
        (this, begun(call, status).map(drop))
    }

    /// Starts to create a parent, which connects to the other ranks. The device's context must be current.
    pub fn init(
        nccl: &'static Nccl,
        (rank, world): (usize, usize),
        id: UniqueId,
        name: &str,
    ) -> (Self, Result<(), Refused>) {
        static REGISTERED: Once = Once::new();
        // NCCL is loaded, so this function is called before NCCL's own exit handlers.
        REGISTERED.call_once(|| {
            process::at_exit(wait_for_ends);
        });
        let name = CString::new(name.replace('\0', " ")).unwrap_or_default();
        Self::create(nccl, name, false, "ncclCommInitRankConfig", |comm, config| {
            // SAFETY: the handle and the name live as long as the communicator. The library copies the other arguments.
            unsafe { (nccl.init_rank_config)(comm, world as c_int, id, rank as c_int, config) }
        })
    }

    /// Starts to create the child. It is ready when the parent is [ready](Self::wait_ready) again.
    pub fn split(&self, rank: usize) -> (Self, Result<(), Refused>) {
        Self::create(self.nccl, self.name.clone(), true, "ncclCommSplit", |comm, config| {
            // SAFETY: as above; the parent is ready, and no other thread uses it.
            unsafe { (self.nccl.split)(self.get(), 0, rank as c_int, comm, config) }
        })
    }

    pub fn get(&self) -> Comm {
        self.comm.load(Ordering::Acquire)
    }

    /// Returns the status of the background work, or the error that it reported.
    pub fn state(&self) -> Result<Status, Refused> {
        let mut state = status::SUCCESS;
        // SAFETY: the communicator is alive, and the pointer points to a local variable.
        let asked = unsafe { (self.nccl.get_async_error)(self.get(), &mut state) };
        checked("ncclCommGetAsyncError", asked)?;
        begun("an operation in the background", state)
    }

    /// Waits until NCCL has created the communicators.
    pub fn wait_ready(&self, mesh: &Mesh, deadline: Instant) -> Result<(), NotReady> {
        while self.state().map_err(NotReady::Refused)? == status::IN_PROGRESS {
            go_on(mesh, deadline)?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Starts to destroy the communicator, after its enqueued work.
    pub fn destroy(self) -> Ending {
        // SAFETY: the communicator is alive. No other thread uses the communicator, because `self` owns it.
        self.end("ncclCommDestroy", |nccl, comm| unsafe { (nccl.destroy)(comm) })
    }

    /// Aborts the communicator immediately, including work that is running on the device. Returns false if the call has
    /// not returned, so that NCCL can still write the handles of the communicator and of its child.
    pub fn abort(self) -> bool {
        // SAFETY: as above. Calls of a child that shares the resources can still be running.
        self.end("ncclCommAbort", |nccl, comm| unsafe { (nccl.abort)(comm) }).wait()
    }

    /// Aborts a parent, and then the child, which other threads no longer use.
    pub fn abort_both(parent: Self, child: Option<Self>) {
        let has_returned = parent.abort();
        match child {
            Some(child) if has_returned => {
                child.abort();
            }
            child => std::mem::forget(child),
        }
    }

    /// Ends the communicator on a separate thread, because the NCCL calls block and can hang.
    fn end(self, call: &'static str, end: impl FnOnce(&Nccl, Comm) -> Status + Send + 'static) -> Ending {
        let (sender, ended) = channel();
        // If the thread does not start, NCCL keeps pointers to the handle and the name.
        let this = ManuallyDrop::new(self);
        let thread = std::thread::Builder::new().name("warpsmith-nccl-end".to_owned());
        let started = thread.spawn(move || {
            let Some(_running) = RunningEnd::begin() else { return };
            let comm = this.get();
            let status = if comm.is_null() { status::SUCCESS } else { end(this.nccl, comm) };
            // This drop frees the memory that the communicator used.
            drop(ManuallyDrop::into_inner(this));
            let _ = sender.send(begun(call, status).map(drop));
        });
        if let Err(error) = started {
            tracing::warn!("{call} was not called: {error}; {STAYS}");
        }
        Ending { call, ended }
    }
}

/// Checks the status of a call that can continue in the background.
fn begun(call: &'static str, status: Status) -> Result<Status, Refused> {
    match status {
        status::IN_PROGRESS => Ok(status),
        status => checked(call, status).map(|()| status),
    }
}

/// Consequence of a communicator that has not been freed.
const STAYS: &str = "the communicator's device memory may stay allocated until the process ends";

/// Calls of this process that end communicators.
#[derive(Debug)]
struct Ends {
    running: usize,
    is_exiting: bool,
}

static ENDS: Mutex<Ends> = Mutex::new(Ends { running: 0, is_exiting: false });
static END_RETURNED: Condvar = Condvar::new();

fn ends() -> MutexGuard<'static, Ends> {
    ENDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until all running calls that end communicators have returned, at most for [`END_TIME`], and prevents new ones.
extern "C" fn wait_for_ends() {
    let mut ends = ends();
    ends.is_exiting = true;
    drop(END_RETURNED.wait_timeout_while(ends, END_TIME, |ends| ends.running > 0));
}

/// Guard of a running call that ends a communicator.
struct RunningEnd;

impl RunningEnd {
    /// Returns `None` if the process is exiting.
    fn begin() -> Option<Self> {
        let mut ends = ends();
        (!ends.is_exiting).then(|| {
            ends.running += 1;
            Self
        })
    }
}

impl Drop for RunningEnd {
    fn drop(&mut self) {
        ends().running -= 1;
        END_RETURNED.notify_all();
    }
}

/// A call that ends a communicator.
#[derive(Debug)]
pub(super) struct Ending {
    call: &'static str,
    ended: Receiver<Result<(), Refused>>,
}

impl Ending {
    /// Waits until the call has returned.
    pub fn wait_ended(&self, mesh: &Mesh, deadline: Instant) -> Result<(), NotReady> {
        loop {
            match self.ended.recv_timeout(PAUSE) {
                Ok(ended) => return ended.map_err(NotReady::Refused),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
                Err(RecvTimeoutError::Timeout) => go_on(mesh, deadline)?,
            }
        }
    }

    /// Waits until the call has returned, at most for [`END_TIME`]. A hanging thread is abandoned together with the
    /// communicator. Returns whether the call has returned.
    pub fn wait(self) -> bool {
        let call = self.call;
        match self.ended.recv_timeout(END_TIME) {
            Ok(Ok(())) => return true,
            Err(RecvTimeoutError::Disconnected) => {}
            Ok(Err(Refused { status, .. })) => {
                tracing::warn!("{call} failed with {status}; {STAYS}");
                return true;
            }
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("{call} did not return within {END_TIME:?} and was abandoned; {STAYS}");
            }
        }
        false
    }
}

/// Returns an error if the communicator of the mesh has failed, or if the deadline has passed.
fn go_on(mesh: &Mesh, deadline: Instant) -> Result<(), NotReady> {
    match mesh.member.failure() {
        Some(failure) => Err(NotReady::Failed(failure)),
        None if Instant::now() >= deadline => Err(NotReady::Deadline),
        None => Ok(()),
    }
}
