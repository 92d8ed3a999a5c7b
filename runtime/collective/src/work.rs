//! [`Work`]: an operation that was enqueued.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::failure::CommunicatorError;

/// An operation that was enqueued on a communicator's stream, or a group of them. It may be dropped: the operation goes on,
/// and later work on its buffers follows it.
///
/// An operation that was captured is done when its graph has run it for the first time.
#[derive(Debug, Clone)]
#[must_use = "an operation that fails says so here; call `wait`, or drop it on purpose"]
pub struct Work {
    pub(crate) state: Arc<WorkState>,
}

/// How far a [`Work`] is.
#[derive(Debug)]
pub(crate) struct WorkState {
    operation: String,
    result: Mutex<Option<Result<(), Box<CommunicatorError>>>>,
    changed: Condvar,
}

impl WorkState {
    pub fn new(operation: String) -> Arc<Self> {
        Arc::new(Self { operation, result: Mutex::default(), changed: Condvar::new() })
    }

    /// The work is done, or failed. The first failure stays.
    pub fn end(&self, result: Result<(), Box<CommunicatorError>>) {
        let mut state = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, Some(Err(_))) {
            *state = Some(result);
        }
        self.changed.notify_all();
    }

    /// Waits for the result; `None` at the deadline.
    fn wait(&self, deadline: Option<Instant>) -> Option<Result<(), Box<CommunicatorError>>> {
        let mut state = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if let Some(result) = &*state {
                return Some(result.clone());
            }
            state = match deadline {
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
                Some(deadline) => {
                    let left = deadline.checked_duration_since(Instant::now())?;
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
    }

    /// Waits until the work has ended, as it does by its own deadline once its stream has come to it.
    pub fn wait_end(&self) -> Result<(), Box<CommunicatorError>> {
        self.wait(None).unwrap_or(Ok(()))
    }
}

impl Work {
    /// Whether it is done. Does not wait.
    ///
    /// # Errors
    /// [`Error::Communicator`] if it failed.
    pub fn query(&self) -> Result<bool> {
        match &*self.state.result.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(error)) => Err(error.clone().into()),
        }
    }

    /// Lets the host wait until it is done, at most this long. Programs need it for errors, not for order: work on the
    /// buffers follows by itself.
    ///
    /// # Errors
    /// [`Error::Communicator`] if it failed; [`Error::NotDone`] after this time.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        match self.state.wait(Instant::now().checked_add(timeout)) {
            Some(result) => Ok(result?),
            None => Err(Error::NotDone { operation: self.state.operation.clone(), waited: timeout }),
        }
    }
}
