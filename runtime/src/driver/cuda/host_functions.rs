//! Functions that streams and graphs call on the host.
//!
//! A function of a stream waits in a table of the process, and the driver gets only its number, so that what a stopped context
//! never calls can be dropped with the context, and a late call of the driver finds nothing. The table has a lock of
//! its own, which nobody holds while anything is called or dropped or while the driver is called: the driver's
//! thread gets on whatever other threads wait for. A function of a graph is called by its address: whoever made the
//! graph keeps it. The driver calls none of either kind once an error has stopped the context.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use cudarc::driver::sys;

use super::call::{Feature, check, error};
use super::graph::capture;
use crate::driver::host_function::{self, HostCall};
use crate::driver::{CaptureStatus, Context, GraphFunction, HostFunction};
use crate::error::{Result, code};

/// The functions that were not called yet, by their numbers.
#[derive(Default)]
struct Table {
    next: usize,
    waiting: HashMap<usize, (Context, HostCall)>,
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    TABLE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Puts a function of a context into the table.
fn keep(context: Context, function: HostFunction) -> usize {
    let mut table = table();
    let number = table.next;
    table.next += 1;
    table.waiting.insert(number, (context, HostCall::new(function)));
    number
}

fn take(number: usize) -> Option<HostCall> {
    table().waiting.remove(&number).map(|(_, function)| function)
}

/// What the driver calls, with the function's number in place of a pointer.
unsafe extern "C" fn run(number: *mut c_void) {
    if let Some(function) = take(number.addr()) {
        function.call();
    }
}

/// What the driver calls with the address of a graph's function.
unsafe extern "C" fn run_of_graph(function: *mut c_void) {
    // SAFETY: the address is that of a function which is kept while an executable that calls it can run.
    host_function::call_graph_function(unsafe { &*function.cast::<GraphFunction>() });
}

/// A graph's function as the driver takes it. It has to be kept by others.
pub(super) fn of_graph(function: &Arc<GraphFunction>) -> sys::CUDA_HOST_NODE_PARAMS {
    sys::CUDA_HOST_NODE_PARAMS {
        fn_: Some(run_of_graph),
        userData: Arc::as_ptr(function).cast_mut().cast::<c_void>(),
    }
}

/// Fails for a stream that is being captured: a graph can be launched more than once, or never.
fn not_captured(stream: sys::CUstream) -> Result<()> {
    if !Feature::Graphs.is_there() || capture::status(stream)? == CaptureStatus::None {
        return Ok(());
    }
    let text = "the stream is being captured, and this function can be called only once; capture one that can be \
                called at each launch, or enqueue it before the capture begins or after it ends";
    let (code, name) = (code::STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED");
    Err(error("cuLaunchHostFunc", code, name, text.to_owned()))
}

/// Enqueues a call of a function. The context is current.
pub(super) fn enqueue(context: Context, stream: sys::CUstream, function: HostFunction) -> Result<()> {
    Feature::HostFunctions.need("cuLaunchHostFunc")?;
    not_captured(stream)?;
    let number = keep(context, function);
    let data = std::ptr::without_provenance_mut(number);
    // SAFETY: the stream is alive, by the trait's contract; `run` takes any number and lets no panic out.
    let enqueued = unsafe { check("cuLaunchHostFunc", sys::cuLaunchHostFunc(stream, Some(run), data)) };
    if enqueued.is_err()
        && let Some(function) = take(number)
    {
        function.discard();
    }
    enqueued
}

/// The functions of a context that were not called yet. They never will be.
pub(super) fn take_all(context: Context) -> Vec<HostCall> {
    table().waiting.extract_if(|_, (of, _)| *of == context).map(|(_, (_, function))| function).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// A function that counts its calls, and something that is alive as long as it.
    fn counting(calls: &Arc<AtomicUsize>) -> HostFunction {
        let calls = Arc::clone(calls);
        Box::new(move || _ = calls.fetch_add(1, Ordering::Relaxed))
    }

    fn as_the_driver_does(number: usize) {
        // SAFETY: any number is good.
        unsafe { run(std::ptr::without_provenance_mut(number)) };
    }

    #[test]
    fn a_function_is_called_once() {
        let calls = Arc::new(AtomicUsize::new(0));
        let number = keep(Context(0xA1), counting(&calls));
        assert_eq!(Arc::strong_count(&calls), 2);
        as_the_driver_does(number);
        as_the_driver_does(number);
        assert_eq!((calls.load(Ordering::Relaxed), Arc::strong_count(&calls)), (1, 1));
    }

    #[test]
    fn the_functions_of_a_context_go_with_it() {
        let (calls, others) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let gone = keep(Context(0xB1), counting(&calls));
        keep(Context(0xB1), counting(&calls));
        let stays = keep(Context(0xB2), counting(&others));
        let taken = take_all(Context(0xB1));
        assert_eq!(taken.len(), 2);
        taken.into_iter().for_each(HostCall::discard);
        assert_eq!(Arc::strong_count(&calls), 1);
        as_the_driver_does(gone);
        as_the_driver_does(stays);
        assert_eq!((calls.load(Ordering::Relaxed), others.load(Ordering::Relaxed)), (0, 1));
    }

    #[test]
    fn a_panic_does_not_reach_the_driver_and_the_table_works_on() {
        as_the_driver_does(keep(Context(0xC1), Box::new(|| panic!("in a host function"))));
        let calls = Arc::new(AtomicUsize::new(0));
        let inner = Arc::clone(&calls);
        // The table is free while a function runs.
        let number = keep(
            Context(0xC1),
            Box::new(move || {
                take_all(Context(0xC2));
                inner.fetch_add(1, Ordering::Relaxed);
            }),
        );
        as_the_driver_does(number);
        assert_eq!(calls.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn a_function_of_a_graph_is_called_at_each_launch_until_its_owner_drops_it() {
        let calls = Arc::new(AtomicUsize::new(0));
        let inner = Arc::clone(&calls);
        let function = GraphFunction::new(move || {
            inner.fetch_add(1, Ordering::Relaxed);
            panic!("in a function of a graph");
        });
        let sys::CUDA_HOST_NODE_PARAMS { fn_: Some(run), userData } = of_graph(&function) else {
            panic!("there is a function");
        };
        for launches in 1..=3 {
            // SAFETY: `function` is alive.
            unsafe { run(userData) };
            assert_eq!(calls.load(Ordering::Relaxed), launches);
        }
        drop(function);
        assert_eq!(Arc::strong_count(&calls), 1, "the driver's side keeps nothing");
    }
}
