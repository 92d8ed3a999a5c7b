//! [`RawComm`]: a communicator of NCCL's that never lets the host wait, and its beginning and end.

use std::ffi::{CString, c_int};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use super::calls::{Refused, checked};
use super::sys::{Comm, Config, Nccl, Status, UniqueId, status};
use crate::failure::Failure;
use crate::mesh::Mesh;

/// How long what NCCL does in the background for each call takes, and a look at what takes longer waits.
const SOON: Duration = Duration::from_micros(200);
/// How long a call that ends a communicator may take before it is left to itself.
pub(super) const END_TIME: Duration = Duration::from_millis(if cfg!(test) { 1000 } else { 10_000 });

/// Why a communicator is not ready.
#[derive(Debug)]
pub(super) enum NotReady {
    Refused(Refused),
    Failed(Failure),
    Deadline,
}

/// See the [module's documentation](self).
#[derive(Debug)]
pub(super) struct RawComm {
    nccl: &'static Nccl,
    /// NCCL may write it from a thread of its own.
    comm: Box<AtomicPtr<std::ffi::c_void>>,
    /// NCCL keeps the pointer.
    _name: CString,
}

impl RawComm {
    /// Begins to connect with the other ranks, which goes on in the background. The device's context is current.
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
        // SAFETY: the place of the communicator and the name live as long as it; the library copies the rest.
        let status = unsafe { (nccl.init_rank_config)(this.comm.as_ptr(), world, id, rank, &mut config) };
        (this, checked("ncclCommInitRankConfig", status))
    }

    pub fn get(&self) -> Comm {
        self.comm.load(Ordering::Acquire)
    }

    /// What goes on in the background, or what went wrong there.
    pub fn state(&self) -> Result<Status, Refused> {
        let mut state = status::SUCCESS;
        // SAFETY: the communicator is alive; the pointer is to a local variable.
        let asked = unsafe { (self.nccl.get_async_error)(self.get(), &mut state) };
        checked("ncclCommGetAsyncError", asked)?;
        checked("an operation in the background", state)
    }

    /// Waits until NCCL has done what it does in the background, beginning with what the last call has returned.
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

    /// Ends it in common with the other ranks: waits for what was enqueued, on all of them.
    pub fn finish(self, mesh: &Mesh, deadline: Instant) -> Result<(), (Self, NotReady)> {
        // SAFETY: the communicator is alive, and no other thread uses it.
        let finalized = checked("ncclCommFinalize", unsafe { (self.nccl.finalize)(self.get()) });
        let finalized = finalized.map_err(NotReady::Refused);
        if let Err(why) = finalized.and_then(|state| self.wait_ready(state, mesh, deadline)) {
            return Err((self, why));
        }
        // SAFETY: as above; nothing goes on in the background.
        self.end("ncclCommDestroy", |nccl, comm| unsafe { (nccl.destroy)(comm) });
        Ok(())
    }

    /// Ends it now, with what runs on the device.
    pub fn abort(self) {
        // SAFETY: the communicator is alive, and no other thread uses it: this is its owner.
        self.end("ncclCommAbort", |nccl, comm| unsafe { (nccl.abort)(comm) });
    }

    /// These calls wait, and have hung. Then the thread is left, with the communicator.
    fn end(self, call: &'static str, end: impl FnOnce(&Nccl, Comm) -> Status + Send + 'static) {
        if self.get().is_null() {
            return;
        }
        let (sender, ended) = channel();
        let thread = std::thread::Builder::new().name("warpsmith-nccl-end".to_owned());
        let started = thread.spawn(move || {
            let status = end(self.nccl, self.get());
            // What it kept is freed.
            drop(self);
            let _ = sender.send(status);
        });
        let said = match started {
            Err(error) => format!("was not called: {error}"),
            Ok(_) => match ended.recv_timeout(END_TIME) {
                Ok(status::SUCCESS | status::IN_PROGRESS) => return,
                Ok(status) => format!("failed with {status}"),
                Err(_) => format!("has not returned within {END_TIME:?}, which is not waited for any longer"),
            },
        };
        tracing::warn!(
            "{call} {said}; what the communicator holds on the device may stay until the process ends"
        );
    }
}
