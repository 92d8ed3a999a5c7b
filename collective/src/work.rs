//! [`Work`]: the handle of an enqueued operation.

use std::borrow::Cow;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::error::{CollectiveError, Result};
use crate::failure::CommunicatorError;

/// Handle to an operation, or to a group of operations, on a communicator's stream. The handle can be dropped, in which
/// case the operation continues, and later work on its buffers is still ordered after it.
///
/// A captured operation is complete when its graph has run it for the first time. With NCCL, however, it is complete as
/// soon as it has been captured.
///
/// ```
/// use std::time::Duration;
/// use warpsmith_collective::{Communicator, CommunicatorOptions, ReduceOp};
/// use warpsmith_emulated::EmulatedDriver;
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// # let driver = EmulatedDriver::builder().devices(2).build();
/// # let streams = [0, 1].map(|n| Device::with_driver(driver.clone(), n).map(|device| device.default_stream()));
/// # let streams = streams.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let mut works = Vec::new();
/// for mut ranks in Communicator::init_all(&streams, &CommunicatorOptions::new())? {
///     let mut x = DeviceBuffer::from_host(ranks.stream(), &[1u32])?;
///     works.push((ranks.all_reduce_in_place(ReduceOp::Sum, &mut x)?, x, ranks));
/// }
/// for (work, x, _) in &works {
///     // Returns an error if the operation has failed.
///     work.wait(Duration::from_secs(60))?;
///     assert!(work.query()?);
///     assert_eq!(x.to_host()?, [2]);
/// }
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use = "an operation that fails says so here; call `wait`, or drop it on purpose"]
pub struct Work {
    pub(crate) state: Arc<WorkState>,
}

/// Maximum polling interval for operations that do not report their own completion.
const LONGEST_PAUSE: Duration = Duration::from_micros(500);

/// Poller for operations that do not report their own completion.
pub(crate) trait Progress: fmt::Debug + Send + Sync {
    /// Completes the [`Work`] of operations that have finished.
    fn advance(&self);
}

/// State of a [`Work`].
#[derive(Debug)]
pub(crate) struct WorkState {
    operation: Cow<'static, str>,
    result: Mutex<Option<Result<(), Box<CommunicatorError>>>>,
    changed: Condvar,
    progress: OnceLock<Weak<dyn Progress>>,
}

impl WorkState {
    pub fn new(operation: Cow<'static, str>) -> Arc<Self> {
        let (result, changed, progress) = (Mutex::default(), Condvar::new(), OnceLock::new());
        Arc::new(Self { operation, result, changed, progress })
    }

    /// Registers the poller, which runs each time the result is requested.
    pub fn looked_after_by(&self, progress: Weak<dyn Progress>) {
        let _ = self.progress.set(progress);
    }

    fn look(&self) -> bool {
        let progress = self.progress.get().and_then(Weak::upgrade);
        progress.inspect(|progress| progress.advance()).is_some()
    }

    /// Sets the result of the operation. The first failure is final.
    pub fn end(&self, result: Result<(), Box<CommunicatorError>>) {
        let mut state = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, Some(Err(_))) {
            *state = Some(result);
        }
        self.changed.notify_all();
    }

    /// Returns whether the operation has failed, or `None` if it may not have ended yet. Does not poll.
    pub fn has_failed(&self) -> Option<bool> {
        self.result.lock().unwrap_or_else(PoisonError::into_inner).as_ref().map(Result::is_err)
    }

    /// Waits for the result. Returns `None` at the deadline.
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

    /// Waits until the operation has ended. The wait has no timeout, because the operation ends at its own deadline at
    /// the latest.
    pub fn wait_end(&self) -> Result<(), Box<CommunicatorError>> {
        self.wait(None).unwrap_or(Ok(()))
    }
}

impl Work {
    /// Returns whether the operation is complete. Does not block.
    ///
    /// # Errors
    /// Returns [`CommunicatorError`](crate::CommunicatorError) if the operation failed.
    pub fn query(&self) -> Result<bool> {
        self.state.look();
        match &*self.state.result.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(error)) => Err(error.clone().into()),
        }
    }

    /// Blocks the host until the operation is complete, but no longer than `timeout`. Programs need this call to detect
    /// errors, but not for ordering, because later work on the buffers is ordered automatically.
    ///
    /// # Errors
    /// Returns [`CommunicatorError`](crate::CommunicatorError) if the operation has failed, or
    /// [`CollectiveError::NotDone`] if the operation is not complete after `timeout`.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        match self.state.wait(Instant::now().checked_add(timeout)) {
            Some(result) => Ok(result?),
            None => {
                Err(CollectiveError::NotDone { operation: self.state.operation.to_string(), waited: timeout }
                    .into())
            }
        }
    }
}
