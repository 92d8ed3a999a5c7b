//! Host functions of streams and graphs.
//!
//! A stream's function is stored in a process-wide table, and the driver receives only its ID. If a context becomes
//! unusable before calling a function, the function can therefore be dropped with the context, and a late call finds no
//! function.
//!
//! A graph's function also has an ID in a table, but the graph's creator and running calls, not the table, keep it
//! alive.
//!
//! The tables' locks are not held during calls, drops or driver calls, so the driver's thread always makes progress.
//! After an error has made the context unusable, the driver starts no more calls of either kind, but a running call
//! continues.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};

use cudarc::driver::sys;

use super::call::{Feature, check, error};
use super::graph::capture;
use crate::error::{Result, code};
use crate::host_function::{self, HostCall};
use crate::{CaptureStatus, Context, GraphFunction, HostFunction};

/// Stream functions that have not been called yet, keyed by ID.
#[derive(Default)]
struct Table {
    next: usize,
    waiting: HashMap<usize, (Context, HostCall)>,
}

fn table() -> MutexGuard<'static, Table> {
    static TABLE: OnceLock<Mutex<Table>> = OnceLock::new();
    TABLE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a function of a context to the table and returns its ID.
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

/// Entry point for the driver, which receives the function's ID instead of a pointer.
unsafe extern "C" fn run(number: *mut c_void) {
    if let Some(function) = take(number.addr()) {
        function.call();
    }
}

/// Graph functions, keyed by ID. IDs are not reused.
#[derive(Default)]
struct GraphTable {
    next: usize,
    functions: HashMap<usize, Weak<GraphFunction>>,
    /// IDs, keyed by function address. An address is not reused while `functions` contains the function.
    numbers: HashMap<usize, usize>,
    /// Number of entries at which entries of dropped functions are removed.
    limit: usize,
}

impl GraphTable {
    /// Returns the ID of a function, the same on every call.
    fn number(&mut self, function: &Arc<GraphFunction>) -> usize {
        let address = Arc::as_ptr(function).addr();
        if let Some(number) = self.numbers.get(&address) {
            return *number;
        }
        if self.functions.len() >= self.limit {
            self.functions.retain(|_, function| function.strong_count() > 0);
            let Self { functions, numbers, .. } = self;
            numbers.retain(|_, number| functions.contains_key(number));
            self.limit = 2 * self.functions.len().max(32);
        }
        let number = self.next;
        self.next += 1;
        self.functions.insert(number, Arc::downgrade(function));
        self.numbers.insert(address, number);
        number
    }
}

fn graph_table() -> MutexGuard<'static, GraphTable> {
    static TABLE: OnceLock<Mutex<GraphTable>> = OnceLock::new();
    TABLE.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the function of a graph, if it still exists.
fn graph_function(number: usize) -> Option<Arc<GraphFunction>> {
    graph_table().functions.get(&number)?.upgrade()
}

/// Entry point for the driver's graph calls, which receives the function's ID instead of a pointer.
unsafe extern "C" fn run_of_graph(number: *mut c_void) {
    let Some(function) = graph_function(number.addr()) else { return };
    host_function::call_graph_function(&function);
    // If all other owners have dropped the function, dropping its captured values here may call the driver.
    if let Some(last) = Arc::into_inner(function) {
        host_function::drop_elsewhere(Box::new(last));
    }
}

/// Returns the node parameters of a graph's function. The caller must keep the function alive; a dropped function is
/// not called.
pub(super) fn of_graph(function: &Arc<GraphFunction>) -> sys::CUDA_HOST_NODE_PARAMS {
    let number = graph_table().number(function);
    sys::CUDA_HOST_NODE_PARAMS { fn_: Some(run_of_graph), userData: std::ptr::without_provenance_mut(number) }
}

/// Returns an error for a capturing stream, because a graph can be launched any number of times.
fn not_captured(stream: sys::CUstream) -> Result<()> {
    if !Feature::Graphs.is_there() || capture::status(stream)? == CaptureStatus::None {
        return Ok(());
    }
    let text = "the stream is being captured, but this host function can be called only once; capture a function \
                that can be called repeatedly, or enqueue it before the capture starts or after it ends";
    let (code, name) = (code::STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED");
    Err(error("cuLaunchHostFunc", code, name, text.to_owned()))
}

/// Enqueues a function call. The context must be current.
pub(super) fn enqueue(context: Context, stream: sys::CUstream, function: HostFunction) -> Result<()> {
    Feature::HostFunctions.need("cuLaunchHostFunc")?;
    not_captured(stream)?;
    let number = keep(context, function);
    let data = std::ptr::without_provenance_mut(number);
    // SAFETY: the stream is alive, by the trait's contract; `run` accepts any number and does not unwind.
    let enqueued = unsafe { check("cuLaunchHostFunc", sys::cuLaunchHostFunc(stream, Some(run), data)) };
    if enqueued.is_err()
        && let Some(function) = take(number)
    {
        function.discard();
    }
    enqueued
}

/// Removes the uncalled functions of a context that no longer calls functions.
pub(super) fn take_all(context: Context) -> Vec<HostCall> {
    table().waiting.extract_if(|_, (of, _)| *of == context).map(|(_, (_, function))| function).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Returns a function that counts its calls, and a value that lives as long as the function.
    fn counting(calls: &Arc<AtomicUsize>) -> HostFunction {
        let calls = Arc::clone(calls);
        Box::new(move || _ = calls.fetch_add(1, Ordering::Relaxed))
    }

    fn as_the_driver_does(number: usize) {
        // SAFETY: any number is valid.
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
    fn panics_do_not_reach_the_driver() {
        as_the_driver_does(keep(Context(0xC1), Box::new(|| panic!("in a host function"))));
        let calls = Arc::new(AtomicUsize::new(0));
        let inner = Arc::clone(&calls);
        // The table is not locked while a function runs.
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
    fn graph_functions_run_at_each_launch_until_dropped() {
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
            // SAFETY: any number is valid.
            unsafe { run(userData) };
            assert_eq!(calls.load(Ordering::Relaxed), launches);
        }
        assert_eq!(of_graph(&function).userData, userData, "one number for each function");
        drop(function);
        assert_eq!(Arc::strong_count(&calls), 1, "the driver's side keeps nothing");
        // SAFETY: as above.
        unsafe { run(userData) };
        assert_eq!(calls.load(Ordering::Relaxed), 3, "nothing is there to be called");
    }

    #[test]
    fn graph_functions_outlive_their_calls() {
        /// Sends the ID of the thread on which it is dropped.
        struct Tells(std::sync::mpsc::Sender<std::thread::ThreadId>);
        impl Drop for Tells {
            fn drop(&mut self) {
                self.0.send(std::thread::current().id()).unwrap();
            }
        }

        let (sender, dropped) = std::sync::mpsc::channel();
        let owner: Arc<Mutex<Option<Arc<GraphFunction>>>> = Arc::default();
        let (inner, tells, calls) = (Arc::clone(&owner), Tells(sender), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&calls);
        let function = GraphFunction::new(move || {
            drop(inner.lock().unwrap().take());
            // Also tests that the captured values are still alive.
            assert!(tells.0.send(std::thread::current().id()).is_ok());
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let sys::CUDA_HOST_NODE_PARAMS { fn_: Some(run), userData } = of_graph(&function) else {
            panic!("there is a function");
        };
        *owner.lock().unwrap() = Some(function);
        // SAFETY: any number is valid.
        unsafe { run(userData) };
        let wait = || dropped.recv_timeout(std::time::Duration::from_secs(60)).unwrap();
        let here = std::thread::current().id();
        assert_eq!((wait() == here, calls.load(Ordering::Relaxed)), (true, 1));
        assert_ne!(wait(), here, "dropped by a thread that may call the driver");
    }

    #[test]
    fn dropped_graph_functions_leave_the_table() {
        let mut table = GraphTable::default();
        let kept: Vec<_> = (0..10).map(|_| GraphFunction::new(|| ())).collect();
        let numbers: Vec<_> = kept.iter().map(|function| table.number(function)).collect();
        for _ in 0..1000 {
            let number = table.number(&GraphFunction::new(|| ()));
            assert!(!numbers.contains(&number));
        }
        assert!(table.functions.len() <= 64 && table.numbers.len() <= 64);
        assert_eq!(kept.iter().map(|function| table.number(function)).collect::<Vec<_>>(), numbers);
    }
}
