//! What is to become of a rank's communicator: the program asks, the backend's thread ends it.
//!
//! Guarantees: when [`EndingState::wait_ended`] returns, the thread keeps nothing of the rank.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::mesh::Mesh;

/// What is to become of the communicator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// It works.
    None,
    /// It was dropped: it ends when its operations have.
    Dropped,
    /// All ranks end it.
    Finishing,
    /// Its thread has ended it.
    Ended,
}

/// The [`Ending`] of one communicator. `Ended` is final.
#[derive(Debug)]
pub(crate) struct EndingState {
    mesh: Arc<Mesh>,
    ending: Mutex<Ending>,
    changed: Condvar,
}

impl EndingState {
    /// Of a communicator that works.
    pub fn new(mesh: Arc<Mesh>) -> Arc<EndingState> {
        Arc::new(EndingState { mesh, ending: Mutex::new(Ending::None), changed: Condvar::new() })
    }

    /// Runs the thread that ends the communicator, which has ended when `run` has, however it has, and has dropped the rank.
    pub fn run<R>(self: Arc<Self>, rank: Arc<R>, run: impl FnOnce(&R)) {
        let _ended = Ended(self);
        // Dropped before the guard.
        let rank = rank;
        run(&rank);
    }

    pub fn get(&self) -> Ending {
        *self.ending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes it, unless the communicator has ended, and wakes the thread that ends it.
    pub fn set(&self, wanted: Ending) {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        if *ending != Ending::Ended {
            *ending = wanted;
        }
        drop(ending);
        self.changed.notify_all();
        self.mesh.member.wake();
    }

    /// Waits until the communicator has ended.
    pub fn wait_ended(&self) {
        let ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(ending, |ending| *ending != Ending::Ended));
    }
}

/// Says that the thread has ended.
struct Ended(Arc<EndingState>);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.set(Ending::Ended);
    }
}
