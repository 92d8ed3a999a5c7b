//! What is to become of a rank's communicator: the program asks, the backend's thread ends it.

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
    pub fn new(mesh: Arc<Mesh>) -> EndingState {
        EndingState { mesh, ending: Mutex::new(Ending::None), changed: Condvar::new() }
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
