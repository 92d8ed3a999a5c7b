//! [`Work`]: an enqueued operation.

use std::fmt;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use crate::error::{CollectiveError, Result};
use crate::failure::CommunicatorError;

/// An operation, or a group of operations, enqueued on a communicator's stream. It may be dropped: the operation
/// continues, and later work on its buffers is ordered after it.
///
/// A captured operation is done after its graph has run it for the first time. With NCCL it is done once it is
/// captured.
///
/// ```
/// use std::time::Duration;
/// use warpsmith_collective::{Communicator, CommunicatorOptions, ReduceOp};
/// use warpsmith_emulated::EmulatedDriver;
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// # let driver = EmulatedDriver::builder().devices(2).build();
/// # let streams = [0, 1].map(|n| Device::with_driver(driver.clone(), n).map(|device| device.default_stream()));
/// # let streams = streams.into_iter().collect::<Result<Vec<_>, _>>()?;
/// let mut works = Vec::new();
/// for mut ranks in Communicator::init_all(&streams, &CommunicatorOptions::new())? {
///     let mut x = DeviceBuffer::from_host(ranks.stream(), &[1u32])?;
///     works.push((ranks.all_reduce_in_place(ReduceOp::Sum, &mut x)?, x, ranks));
/// }
/// for (work, x, _) in &works {
///     // A failure of the operation is an error here.
///     work.wait(Duration::from_secs(60))?;
///     assert!(work.query()?);
///     assert_eq!(x.to_host()?, [2]);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
#[must_use = "an operation that fails says so here; call `wait`, or drop it on purpose"]
pub struct Work {
    pub(crate) state: Arc<WorkState>,
}

/// Maximum polling interval for work whose end is not reported.
const LONGEST_PAUSE: Duration = Duration::from_micros(500);

/// Poller for work whose end is not reported.
pub(crate) trait Progress: fmt::Debug + Send + Sync {
    /// Completes the works that are done.
    fn advance(&self);
}

/// State of a [`Work`].
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

    /// Registers the poller, which runs whenever the result is requested.
    pub fn looked_after_by(&self, progress: Weak<dyn Progress>) {
        let _ = self.progress.set(progress);
    }

    fn look(&self) -> bool {
        let progress = self.progress.get().and_then(Weak::upgrade);
        progress.inspect(|progress| progress.advance()).is_some()
    }

    /// Sets the result of the work. The first failure is final.
    pub fn end(&self, result: Result<(), Box<CommunicatorError>>) {
        let mut state = self.result.lock().unwrap_or_else(PoisonError::into_inner);
        if !matches!(*state, Some(Err(_))) {
            *state = Some(result);
        }
        self.changed.notify_all();
    }

    /// Returns whether the work has failed; `None` if it is not known to have ended. Does not poll.
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

    /// Waits until the work has ended. It ends by its own deadline, which starts when its stream reaches it.
    pub fn wait_end(&self) -> Result<(), Box<CommunicatorError>> {
        self.wait(None).unwrap_or(Ok(()))
    }
}

impl Work {
    /// Returns whether the work is done. Does not block.
    ///
    /// # Errors
    /// [`CommunicatorError`](crate::CommunicatorError) if it failed.
    pub fn query(&self) -> Result<bool> {
        self.state.look();
        match &*self.state.result.lock().unwrap_or_else(PoisonError::into_inner) {
            None => Ok(false),
            Some(Ok(())) => Ok(true),
            Some(Err(error)) => Err(error.clone().into()),
        }
    }

    /// Blocks the host until the work is done, at most for this time. Programs need it for errors, not for ordering:
    /// later work on the buffers is ordered automatically.
    ///
    /// # Errors
    /// [`CommunicatorError`](crate::CommunicatorError) if it failed; [`CollectiveError::NotDone`] after this time.
    pub fn wait(&self, timeout: Duration) -> Result<()> {
        match self.state.wait(Instant::now().checked_add(timeout)) {
            Some(result) => Ok(result?),
            None => {
                Err(CollectiveError::NotDone { operation: self.state.operation.clone(), waited: timeout }
                    .into())
            }
        }
    }
}
