//! [`Work`]: an operation that was enqueued.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};
use crate::failure::CommunicatorError;

/// An operation that was enqueued on a communicator's stream, or a group of them. It may be dropped: the operation goes on,
/// and later work on its buffers follows it.
///
/// An operation that was captured is done when its graph has run it for the first time; one of NCCL's, when it is captured.
#[derive(Debug, Clone)]
#[must_use = "an operation that fails says so here; call `wait`, or drop it on purpose"]
pub struct Work {
    pub(crate) state: Arc<WorkState>,
}

/// The longest time between two looks at work that is not reported when it is done.
const LONGEST_PAUSE: Duration = Duration::from_micros(500);

/// What finds out whether work is done, where nothing reports it.
pub(crate) trait Progress: fmt::Debug + Send + Sync {
    /// Ends the works that are done.
    fn advance(&self);
}

/// How far a [`Work`] is.
#[derive(Debug)]
pub(crate) struct WorkState {
    operation: String,
    result: Mutex<Option<Result<(), Box<CommunicatorError>>>>,
    changed: Condvar,
    progress: OnceLock<Weak<dyn Progress>>,
}

impl WorkState {
    pub fn new(operation: String) -> Arc<Self> {
        let (result, changed, progress) = (Mutex::default(), Condvar::new(), OnceLock::new());
        Arc::new(Self { operation, result, changed, progress })
    }

    /// Who asks for the result lets this look.
    pub fn looked_after_by(&self, progress: Weak<dyn Progress>) {
        let _ = self.progress.set(progress);
    }

    fn look(&self) -> bool {
        let progress = self.progress.get().and_then(Weak::upgrade);
        progress.inspect(|progress| progress.advance()).is_some()
    }

    /// The work is done, or failed. The first failure stays.
    pub fn end(&self, result: Result<(), Box<CommunicatorError>>) {
        let mut state = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, Some(Err(_))) {
            *state = Some(result);
        }
        self.changed.notify_all();
    }

    /// Whether the work has failed; `None` if it has not ended as far as is known. Does not look.
    pub fn has_failed(&self) -> Option<bool> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Result::is_err)
    }

    /// Waits for the result; `None` at the deadline.
    fn wait(&self, deadline: Option<Instant>) -> Option<Result<(), Box<CommunicatorError>>> {
        let mut pause = Duration::from_micros(20);
        loop {
            let is_looked_after = self.look();
            let state = self.result.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(result) = &*state {
                return Some(result.clone());
            }
            let left = match deadline {
                Some(deadline) => Some(deadline.checked_duration_since(Instant::now())?),
                None => None,
            };
            let longest = is_looked_after.then_some(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            match left.into_iter().chain(longest).min() {
                None => drop(self.changed.wait(state)),
                Some(time) => drop(self.changed.wait_timeout(state, time)),
            }
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
        self.state.look();
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
