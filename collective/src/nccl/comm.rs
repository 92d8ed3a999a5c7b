//! [`RawComm`]: a non-blocking NCCL communicator, its creation and its destruction.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::calls::{Refused, checked};
use super::sys::{Comm, Config, Nccl, Status, UniqueId, status};
use crate::failure::Failure;
use crate::mesh::Mesh;

/// Typical duration of NCCL's background work for a call. If the work takes longer, this is the polling interval.
const SOON: Duration = Duration::from_micros(200);
/// Time limit for a call that destroys or aborts a communicator. A communicator whose call exceeds it is abandoned.
pub(super) const END_TIME: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 10_000 });

/// Reason why a communicator is not ready.
#[derive(Debug)]
pub(super) enum NotReady {
    Refused(Refused),
    Failed(Failure),
    Deadline,
}

/// A non-blocking NCCL communicator. See the [module documentation](self).
#[derive(Debug)]
pub(super) struct RawComm {
    nccl: &'static Nccl,
    /// Handle of the communicator, which an NCCL thread can write.
    comm: Box<AtomicPtr<std::ffi::c_void>>,
    /// Name of the communicator, kept alive because NCCL stores a pointer to it.
    _name: CString,
}

impl RawComm {
    /// Starts to connect to the other ranks; the connection continues in the background. The device's context must be
    /// current.
    pub fn begin(
        nccl: &'static Nccl,
        (rank, world): (usize, usize),
        id: UniqueId,
        name: &str,
    ) -> (Self, Result<Status, Refused>) {
        let name = CString::new(name.replace('\0', " ")).unwrap_or_default();
        let mut config = Config::non_blocking(name.as_ptr());
        let this = Self { nccl, comm: Box::new(AtomicPtr::new(null_mut())), _name: name };
        let (rank, world) = (rank as c_int, world as c_int);
        // SAFETY: the handle and the name live as long as the communicator. The library copies the other arguments.
        let status = unsafe { (nccl.init_rank_config)(this.comm.as_ptr(), world, id, rank, &mut config) };
        (this, checked("ncclCommInitRankConfig", status))
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
        checked("an operation in the background", state)
    }

    /// Waits until NCCL has finished its background work. `state` is the status returned by the last call.
    pub fn wait_ready(&self, mut state: Status, mesh: &Mesh, deadline: Instant) -> Result<(), NotReady> {
        let begun = Instant::now();
        while state == status::IN_PROGRESS {
            if let Some(failure) = mesh.member.failure() {
                return Err(NotReady::Failed(failure));
            }
            let now = Instant::now();
            if now >= deadline {
                return Err(NotReady::Deadline);
            }
            if now - begun < SOON {
                std::thread::yield_now();
            } else {
                std::thread::sleep(SOON);
            }
            state = self.state().map_err(NotReady::Refused)?;
        }
        Ok(())
    }

    /// Shuts the communicator down collectively. Waits for all enqueued work on all ranks.
    pub fn finish(self, mesh: &Mesh, deadline: Instant) -> Result<(), (Self, NotReady)> {
        // SAFETY: the communicator is alive, and no other thread uses it.
        let finalized = checked("ncclCommFinalize", unsafe { (self.nccl.finalize)(self.get()) });
        let finalized = finalized.map_err(NotReady::Refused);
        if let Err(why) = finalized.and_then(|state| self.wait_ready(state, mesh, deadline)) {
            return Err((self, why));
        }
        // SAFETY: as above; no background work is running.
        self.end("ncclCommDestroy", |nccl, comm| unsafe { (nccl.destroy)(comm) });
        Ok(())
    }

    /// Aborts the communicator immediately, including work that is running on the device.
    pub fn abort(self) {
        // SAFETY: the communicator is alive. No other thread uses the communicator, because `self` owns it.
        self.end("ncclCommAbort", |nccl, comm| unsafe { (nccl.abort)(comm) });
    }

    /// Destroys or aborts the communicator on a separate thread, because the NCCL calls block and can hang. A hanging
    /// thread is abandoned together with the communicator.
    fn end(self, call: &'static str, end: impl FnOnce(&Nccl, Comm) -> Status + Send + 'static) {
        if self.get().is_null() {
            return;
        }
        let (sender, ended) = channel();
        let thread = std::thread::Builder::new().name("warpsmith-nccl-end".to_owned());
        let started = thread.spawn(move || {
            let status = end(self.nccl, self.get());
            // This drop frees the memory that the communicator used.
            drop(self);
            let _ = sender.send(status);
        });
        let said = match started {
            Err(error) => format!("was not called: {error}"),
            Ok(_) => match ended.recv_timeout(END_TIME) {
                Ok(status::SUCCESS | status::IN_PROGRESS) => return,
                Ok(status) => format!("failed with {status}"),
                Err(_) => format!("did not return within {END_TIME:?} and was abandoned"),
            },
        };
        tracing::warn!(
            "{call} {said}; the communicator's device memory may stay allocated until the process ends"
        );
    }
}
