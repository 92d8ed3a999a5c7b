//! Shutdown state of a rank's communicator. The program requests the shutdown, and a thread of the backend performs it.
//!
//! When [`ShutdownState::wait_ended`] returns, the thread has released all resources of the rank.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::mesh::Mesh;

/// Shutdown state of the communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shutdown {
    /// The communicator is in use.
    None,
    /// The communicator was dropped. It shuts down after its operations have completed.
    Dropped,
    /// All ranks are finishing the communicator.
    Finishing,
    /// The backend's thread has shut the communicator down.
    Ended,
}

/// The [`Shutdown`] of one communicator. `Ended` is final.
#[derive(Debug)]
pub(crate) struct ShutdownState {
    mesh: Arc<Mesh>,
    shutdown: Mutex<Shutdown>,
    changed: Condvar,
}

impl ShutdownState {
    /// Creates the state of a communicator that is in use.
    pub fn new(mesh: Arc<Mesh>) -> Arc<ShutdownState> {
        Arc::new(ShutdownState { mesh, shutdown: Mutex::new(Shutdown::None), changed: Condvar::new() })
    }

    /// Body of the thread that shuts the communicator down. The state becomes `Ended` after `run` has returned or
    /// panicked and `self` has dropped the rank.
    pub fn run<R>(self: Arc<Self>, rank: Arc<R>, run: impl FnOnce(&R)) {
        let _ended = Ended(self);
        // The rank must be dropped before the guard.
        let rank = rank;
        run(&rank);
    }

    pub fn get(&self) -> Shutdown {
        *self.shutdown.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the state, unless the communicator has already ended, and wakes the thread that shuts it down.
    pub fn set(&self, wanted: Shutdown) {
        let mut shutdown = self.shutdown.lock().unwrap_or_else(PoisonError::into_inner);
        if *shutdown != Shutdown::Ended {
            *shutdown = wanted;
        }
        drop(shutdown);
        self.changed.notify_all();
        self.mesh.member.wake();
    }

    /// Waits until the communicator has ended.
    pub fn wait_ended(&self) {
        let shutdown = self.shutdown.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(shutdown, |shutdown| *shutdown != Shutdown::Ended));
    }
}

/// Guard that marks the state as ended when the thread exits.
struct Ended(Arc<ShutdownState>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.set(Shutdown::Ended);
    }
}
