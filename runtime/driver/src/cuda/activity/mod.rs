//! What CUDA devices did and when: [`ActivityDriver`] for [`CudaDriver`].
//!
//! Records come from CUPTI, or, where it cannot be used, from events around each operation. There is one recording in a
//! process. Starting, flushing and stopping wait for each other; what enqueues work waits for none of them.

mod buffers;
mod library;
mod records;
mod session;

#[cfg(test)]
mod fake;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use cudarc::driver::sys::CUcontext;

use self::library::Cupti;
use self::records::EXTERNAL_KIND;
use self::session::Session;
use super::context::permitted;
use super::{CudaDriver, stream_of};
use crate::activity::{
    ActivityDriver, ActivityError, ActivityLoss, ActivityOptions, ActivityResult, ActivitySink,
    ActivitySource, ActivityStarted,
};
use crate::{Context, StreamDriver, StreamHandle};

/// What records.
enum Recording {
    Cupti(Session),
}

/// The recording of the process.
static RECORDING: Mutex<Option<Recording>> = Mutex::new(None);
/// The library of the recording, for calls that must not wait for [`RECORDING`]; null while CUPTI records nothing.
static CURRENT: AtomicPtr<Cupti> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// The library to which each push of this thread went, if one recorded.
    static PUSHED: RefCell<Vec<Option<&'static Cupti>>> = const { RefCell::new(Vec::new()) };
}

fn recording() -> MutexGuard<'static, Option<Recording>> {
    RECORDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The library, while it records.
fn current() -> Option<&'static Cupti> {
    // SAFETY: it is null or of a table that is never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Nanoseconds since 1970: the clock of CUPTI's records.
fn now() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as u64)
}

/// Lets a forked child record nothing: the threads and devices of a recording are not there. It takes no lock, as one may be
/// held by a thread that was not copied.
fn stop_in_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        #[cfg(unix)]
        {
            extern "C" fn in_child() {
                CURRENT.store(std::ptr::null_mut(), Ordering::Release);
            }
            // SAFETY: the function is safe to call in a forked child: it writes one word.
            unsafe { libc::pthread_atfork(None, None, Some(in_child)) };
        }
    });
}

impl CudaDriver {
    /// Fails in a host function, and in a process that was forked from the one that started the driver.
    fn can_record(&self) -> ActivityResult<()> {
        permitted()?;
        if self.process == std::process::id() { Ok(()) } else { Err(ActivityError::Forked) }
    }

    fn start_cupti(
        &self,
        options: &ActivityOptions,
        sink: Arc<dyn ActivitySink>,
    ) -> ActivityResult<(Session, String)> {
        let cupti = library::cupti(self.version)?;
        let session = Session::start(cupti, self.version, options, sink)?;
        session.learn(&self.contexts.all());
        CURRENT.store(std::ptr::from_ref(cupti).cast_mut(), Ordering::Release);
        let source = match session.ahead() {
            0 => cupti.name(),
            ahead => format!("{} (its clock was {ahead} ns ahead, which is corrected)", cupti.name()),
        };
        Ok((session, source))
    }
}

impl ActivityDriver for CudaDriver {
    fn activity_start(
        &self,
        options: &ActivityOptions,
        sink: Arc<dyn ActivitySink>,
    ) -> ActivityResult<ActivityStarted> {
        self.can_record()?;
        if options.source == ActivitySource::Events {
            return Err(ActivityError::Unsupported);
        }
        let mut recording = recording();
        if recording.is_some() {
            return Err(ActivityError::Recording);
        }
        stop_in_children();
        let (session, source) = self.start_cupti(options, sink)?;
        *recording = Some(Recording::Cupti(session));
        Ok(ActivityStarted { source, without_cupti: None })
    }

    fn activity_flush(&self) -> ActivityResult<()> {
        self.can_record()?;
        match &mut *recording() {
            None => Ok(()),
            Some(Recording::Cupti(session)) => {
                session.learn(&self.contexts.all());
                session.flush()
            }
        }
    }

    fn activity_stop(&self) -> ActivityResult<ActivityLoss> {
        self.can_record()?;
        let mut recording = recording();
        match recording.take() {
            None => Ok(ActivityLoss::default()),
            Some(Recording::Cupti(session)) => {
                CURRENT.store(std::ptr::null_mut(), Ordering::Release);
                session.learn(&self.contexts.all());
                let (loss, result) = session.stop();
                result.map(|()| loss)
            }
        }
    }

    fn activity_now(&self) -> u64 {
        now()
    }

    fn activity_stream(&self, context: Context, stream: StreamHandle) -> ActivityResult<u32> {
        permitted()?;
        let Some(cupti) = current() else { return Ok(self.stream_unique_id(context, stream)? as u32) };
        let mut id = 0;
        // SAFETY: context and stream are alive, by the trait's contract; the pointer is to a local variable.
        let result = unsafe { (cupti.get_stream_id)(context.0 as CUcontext, stream_of(stream), 0, &mut id) };
        cupti.check("cuptiGetStreamIdEx", result, self.version)?;
        Ok(id)
    }

    fn activity_push(&self, id: u64) {
        push(id);
    }

    fn activity_pop(&self) {
        pop();
    }
}

/// Begins a part of the program on this thread.
fn push(id: u64) {
    let cupti = current();
    if let Some(cupti) = cupti {
        // SAFETY: numbers only. It fails for kinds that CUPTI does not know alone.
        unsafe { (cupti.push_external_id)(EXTERNAL_KIND, id) };
    }
    // A thread that ends has no list any more.
    let _ = PUSHED.try_with(|pushed| pushed.borrow_mut().push(cupti));
}

/// Ends the part that [`push`] began last on this thread. What was pushed while nothing recorded is not popped from CUPTI.
fn pop() {
    if let Ok(Some(Some(cupti))) = PUSHED.try_with(|pushed| pushed.borrow_mut().pop()) {
        let mut last = 0;
        // SAFETY: the pointer is to a local variable.
        unsafe { (cupti.pop_external_id)(EXTERNAL_KIND, &mut last) };
    }
}
