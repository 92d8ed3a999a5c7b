//! Hardware counters of CUDA devices: [`CounterDriver`] for [`CudaDriver`].
//!
//! The values come from CUPTI's range profiler. Each context has one session.

mod calls;
mod library;
mod metrics;
mod params;
mod session;
pub(super) mod sessions;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod metrics_on_gpu;
#[cfg(test)]
mod tests;

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys::CUcontext;

use self::calls::Calls;
use self::session::Session;
use super::call::{self, RelaxedCapture};
use super::context::make_current;
use super::{CudaDriver, activity};
use crate::Context;
use crate::counters::{Counted, CounterDriver, CounterError, CounterResult, CounterSetup};

/// Makes a context current and runs `work` with its session.
fn with<R>(context: Context, work: impl FnOnce(&mut Session) -> CounterResult<R>) -> CounterResult<R> {
    let Some(session) = sessions::of(context) else {
        return Err(CounterError::Misuse("the device is not prepared"));
    };
    make_current(context)?;
    let _relaxed = RelaxedCapture::enter();
    work(&mut session.lock().unwrap_or_else(PoisonError::into_inner))
}

impl CudaDriver {
    /// Returns an error in a process forked from the one that started the driver. Unlike other calls, counters may be
    /// read in an observer's callback.
    fn can_count(&self) -> CounterResult<()> {
        if self.process == std::process::id() { Ok(()) } else { Err(CounterError::Forked) }
    }

    fn open_counters(&self, context: Context) -> CounterResult<CounterSetup> {
        let device = self.contexts.ordinal_of(context)?;
        let (cupti, functions) = library::loaded(self.version)?;
        let handle = call::device(device)?;
        make_current(context)?;
        let _relaxed = RelaxedCapture::enter();
        let session = Session::open(Calls { cupti, functions, device }, context.0 as CUcontext, handle)?;
        let setup = session.setup().clone();
        sessions::add(context, session);
        Ok(setup)
    }
}

impl CounterDriver for CudaDriver {
    fn counters_open(&self, context: Context) -> CounterResult<CounterSetup> {
        self.can_count()?;
        // Prevents two concurrent calls from both finding the context closed.
        static OPENING: Mutex<()> = Mutex::new(());
        let _opening = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        if sessions::of(context).is_some() {
            return Err(CounterError::Misuse("the device's counters are already in use"));
        }
        activity::unless_recording(|| self.open_counters(context)).unwrap_or(Err(CounterError::Recording))
    }

    fn counters_begin(&self, context: Context) -> CounterResult<()> {
        self.can_count()?;
        with(context, Session::begin)
    }

    fn counters_end(&self, context: Context) -> CounterResult<Counted> {
        self.can_count()?;
        with(context, Session::end)
    }

    fn counters_close(&self, context: Context) {
        if self.can_count().is_err() {
            return;
        }
        let session = sessions::remove(context);
        if session.is_some() && make_current(context).is_ok() {
            let _relaxed = RelaxedCapture::enter();
            drop(session);
        }
    }
}
