//! Activity recording of CUDA devices: [`ActivityDriver`] for [`CudaDriver`].
//!
//! Records come from CUPTI. A process has at most one recording. Calls that start, flush or stop it are serialized, but
//! never block calls that enqueue work.

mod buffers;
mod records;
mod session;

#[cfg(test)]
pub(super) mod fake;
#[cfg(test)]
mod tests;

use std::cell::RefCell;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError};

use cudarc::driver::sys::{CUcontext, CUgraphExec, CUgraphNode};

use self::records::EXTERNAL_KIND;
use self::session::Session;
use super::context::permitted;
use super::cupti::{self, Cupti};
use super::{CudaDriver, stream_of};
use crate::activity::{
    ActivityDriver, ActivityError, ActivityLoss, ActivityOptions, ActivityResult, ActivitySink,
    ActivityStarted, now,
};
use crate::process;
use crate::{Context, GraphExecHandle, NodeHandle, StreamHandle};

/// Recording of the process.
static RECORDING: Mutex<Option<Session>> = Mutex::new(None);
/// CUPTI library of the recording, for calls that must not wait for the [`RECORDING`] lock; null without a recording.
static CURRENT: AtomicPtr<Cupti> = AtomicPtr::new(std::ptr::null_mut());

thread_local! {
    /// The library that received each range pushed by this thread; `None` if no recording was active.
    static PUSHED: RefCell<Vec<Option<&'static Cupti>>> = const { RefCell::new(Vec::new()) };
}

fn recording() -> MutexGuard<'static, Option<Session>> {
    RECORDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the CUPTI library if it is recording.
fn current() -> Option<&'static Cupti> {
    // SAFETY: the pointer is null or points to a table that is never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Disables recording in forked children, where the threads and devices of a recording do not exist. The handler
/// acquires no lock, because a thread that does not exist may hold it.
fn stop_in_children() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        extern "C" fn in_child() {
            CURRENT.store(std::ptr::null_mut(), Ordering::Release);
        }
        // SAFETY: the function only writes one word, so it is async-signal-safe.
        unsafe { process::after_fork(in_child) };
    });
}

impl CudaDriver {
    /// Returns an error in a host function, and in a process forked from the one that started the driver.
    fn can_record(&self) -> ActivityResult<()> {
        permitted()?;
        if self.process == std::process::id() { Ok(()) } else { Err(ActivityError::Forked) }
    }

    fn start_cupti(
        &self,
        options: &ActivityOptions,
        sink: Arc<dyn ActivitySink>,
    ) -> ActivityResult<(Session, String)> {
        let cupti = cupti::cupti(self.version)?;
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
        let mut recording = recording();
        if recording.is_some() {
            return Err(ActivityError::Recording);
        }
        stop_in_children();
        let (session, source) = self.start_cupti(options, sink)?;
        *recording = Some(session);
        Ok(ActivityStarted { source })
    }

    fn activity_flush(&self) -> ActivityResult<()> {
        self.can_record()?;
        match &mut *recording() {
            None => Ok(()),
            Some(session) => {
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
            Some(session) => {
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
        let cupti = current().ok_or(ActivityError::Unsupported)?;
        let mut id = 0;
        // SAFETY: context and stream are alive, by the trait's contract; the pointer is to a local variable.
        let result = unsafe { (cupti.get_stream_id)(context.0 as CUcontext, stream_of(stream), 0, &mut id) };
        cupti.check("cuptiGetStreamIdEx", result, self.version)?;
        Ok(id)
    }

    fn activity_node(&self, _context: Context, node: NodeHandle) -> ActivityResult<u64> {
        // SAFETY: the node is alive, by the trait's contract.
        unsafe { node_number(node, self.version) }
    }

    fn activity_exec(&self, _context: Context, exec: GraphExecHandle) -> ActivityResult<u32> {
        // SAFETY: the executable is alive, by the trait's contract.
        unsafe { exec_number(exec, self.version) }
    }

    fn activity_push(&self, id: u64) {
        push(id);
    }

    fn activity_pop(&self) {
        pop();
    }
}

/// Returns the CUPTI ID of a graph node.
///
/// # Safety
/// The node must be alive.
unsafe fn node_number(node: NodeHandle, cuda: i32) -> ActivityResult<u64> {
    let known = current().and_then(|cupti| Some((cupti, cupti.get_graph_node_id?)));
    let (cupti, get) = known.ok_or(ActivityError::Unsupported)?;
    let mut id = 0;
    // SAFETY: guaranteed by the caller; the pointer is to a local variable.
    let result = unsafe { get(node.0 as CUgraphNode, &mut id) };
    cupti.check("cuptiGetGraphNodeId", result, cuda)?;
    Ok(id)
}

/// Returns the CUPTI ID of an executable graph.
///
/// # Safety
/// The executable must be alive.
unsafe fn exec_number(exec: GraphExecHandle, cuda: i32) -> ActivityResult<u32> {
    let known = current().and_then(|cupti| Some((cupti, cupti.get_graph_exec_id?)));
    let (cupti, get) = known.ok_or(ActivityError::Unsupported)?;
    let mut id = 0;
    // SAFETY: guaranteed by the caller; the pointer is to a local variable.
    let result = unsafe { get(exec.0 as CUgraphExec, &mut id) };
    cupti.check("cuptiGetGraphExecId", result, cuda)?;
    Ok(id)
}

fn push(id: u64) {
    let cupti = current();
    if let Some(cupti) = cupti {
        // SAFETY: the arguments are numbers.
        unsafe { (cupti.push_external_id)(EXTERNAL_KIND, id) };
    }
    // On an exiting thread, the list may already be destroyed.
    let _ = PUSHED.try_with(|pushed| pushed.borrow_mut().push(cupti));
}

/// Closes this thread's innermost range. A range pushed without a recording is not popped from CUPTI.
fn pop() {
    if let Ok(Some(Some(cupti))) = PUSHED.try_with(|pushed| pushed.borrow_mut().pop()) {
        let mut last = 0;
        // SAFETY: the pointer is to a local variable.
        unsafe { (cupti.pop_external_id)(EXTERNAL_KIND, &mut last) };
    }
}
