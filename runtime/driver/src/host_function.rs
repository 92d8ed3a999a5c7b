//! Calls and drops host functions and catches their panics.
//!
//! A panic is caught and discarded, whether it occurs in the function or while its captured values or a panic payload
//! are dropped. While a function runs, its thread is marked ([`is_running`]), so that driver calls on it can be
//! rejected: CUDA does not permit them, and a wait would deadlock.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use super::{DevicePtr, GraphFunction, HostFunction};

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// Error text for driver calls in a host function.
pub const REFUSED: &str = "a host function must not call the driver; let it signal another thread";

/// Returns true if this thread is running a host function.
#[inline]
pub fn is_running() -> bool {
    RUNNING.get()
}

/// Drops an item asynchronously, on a thread that may call drivers and wait. If no thread can be created, the item is
/// leaked. A panic while the item is dropped is discarded.
#[cold]
pub fn drop_elsewhere(item: Box<dyn Send>) {
    static ELSEWHERE: OnceLock<Option<Sender<Box<dyn Send>>>> = OnceLock::new();
    let elsewhere = ELSEWHERE.get_or_init(|| {
        let (sender, items) = channel();
        let thread = std::thread::Builder::new().name("warpsmith-drop".to_owned());
        thread.spawn(move || items.into_iter().for_each(|item| forgive(|| drop(item)))).ok().map(|_| sender)
    });
    match elsewhere {
        Some(elsewhere) => {
            if let Err(kept) = elsewhere.send(item) {
                std::mem::forget(kept);
            }
        }
        None => std::mem::forget(item),
    }
}

/// A range of device memory that [`HostWork`] uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAccess {
    /// Start of the range.
    pub ptr: DevicePtr,
    /// Length in bytes.
    pub bytes: usize,
    /// True if the work writes the range; false if the work only reads it.
    pub write: bool,
}

/// Host work on device memory that runs in stream order. On the emulated device, it replaces a library call. Dropping
/// this value counts as part of a host function: driver calls are rejected, and panics are discarded.
pub struct HostWork {
    name: &'static str,
    uses: Vec<HostAccess>,
    function: Option<Box<dyn Fn() + Send + Sync>>,
}

impl HostWork {
    /// Wraps a function that is called once, or once per launch of a graph. The function must follow the rules of
    /// [`StreamDriver::host_function`](super::StreamDriver::host_function). In recordings, the work appears as a kernel
    /// with this name and no threads.
    pub fn new(name: &'static str, uses: Vec<HostAccess>, function: Box<dyn Fn() + Send + Sync>) -> Self {
        Self { name, uses, function: Some(function) }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the device memory that the work uses.
    pub fn uses(&self) -> &[HostAccess] {
        &self.uses
    }

    /// Calls the function. If it panics, returns the panic message as the error.
    pub fn run(&self) -> Result<(), String> {
        let mut done = Ok(());
        inside(|| {
            let call = || self.function.iter().for_each(|function| function());
            if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
                let text = payload.downcast_ref::<String>().map(String::as_str);
                let text = text.or_else(|| payload.downcast_ref::<&'static str>().copied());
                done = Err(text.unwrap_or("a panic without text").to_owned());
                forgive(|| drop(payload));
            }
        });
        done
    }
}

impl Drop for HostWork {
    fn drop(&mut self) {
        let function = self.function.take();
        inside(|| forgive(|| drop(function)));
    }
}

impl fmt::Debug for HostWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostWork").field("name", &self.name).field("uses", &self.uses).finish_non_exhaustive()
    }
}

/// A host function that is called at most once.
pub struct HostCall(HostFunction);

impl HostCall {
    /// Wraps a function.
    pub fn new(function: HostFunction) -> Self {
        Self(function)
    }

    /// Calls the function.
    pub fn call(self) {
        inside(|| forgive(self.0));
    }

    /// Drops the function without calling it, on the thread that would have called it.
    pub fn skip(self) {
        inside(|| self.discard());
    }

    /// Drops the function without calling it, on one of the program's threads.
    pub fn discard(self) {
        forgive(|| drop(self.0));
    }
}

impl fmt::Debug for HostCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostCall")
    }
}

/// Calls a graph's function.
pub fn call_graph_function(function: &GraphFunction) {
    inside(|| forgive(|| function.call()));
}

/// Runs `work`, which must not panic, as part of a host function: the driver rejects calls from this thread, and items
/// whose drop requires a device are dropped on another thread.
pub fn inside(work: impl FnOnce()) {
    let before = RUNNING.replace(true);
    work();
    RUNNING.set(before);
}

/// Runs `work` and discards any panic, including one from dropping the panic payload.
fn forgive(work: impl FnOnce()) {
    // No inconsistent state is observable after a panic, because everything that `work` owns has been dropped.
    if let Err(payload) = catch_unwind(AssertUnwindSafe(work))
        && let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(payload)))
    {
        std::mem::forget(payload);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    /// Panics when it is dropped.
    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[test]
    fn threads_are_inside_during_calls_and_skips_only() {
        struct Sees(Arc<Mutex<Option<bool>>>);
        impl Drop for Sees {
            fn drop(&mut self) {
                *self.0.lock().unwrap() = Some(is_running());
            }
        }

        let seen = Arc::new(Mutex::new(None));
        let function = || {
            let sees = Sees(Arc::clone(&seen));
            HostCall::new(Box::new(move || drop(sees)))
        };
        for (what, expected) in
            [(HostCall::call as fn(HostCall), true), (HostCall::skip, true), (HostCall::discard, false)]
        {
            assert!(!is_running());
            what(function());
            assert_eq!(seen.lock().unwrap().take(), Some(expected));
        }
        assert!(!is_running());
    }

    #[test]
    fn a_function_of_a_graph_is_protected_alike_each_time() {
        let seen = Arc::new(Mutex::new(Vec::new()));
        let inner = Arc::clone(&seen);
        let function = GraphFunction::new(move || {
            inner.lock().unwrap().push(is_running());
            std::panic::panic_any(Bomb);
        });
        for calls in 1..=2 {
            call_graph_function(&function);
            assert_eq!(*seen.lock().unwrap(), vec![true; calls]);
            assert!(!is_running());
        }
    }

    #[test]
    fn the_thread_that_drops_survives_a_panic() {
        struct Tells(std::sync::mpsc::Sender<()>);
        impl Drop for Tells {
            fn drop(&mut self) {
                self.0.send(()).unwrap();
            }
        }

        let (sender, dropped) = channel();
        for _ in 0..3 {
            drop_elsewhere(Box::new(Bomb));
            drop_elsewhere(Box::new(Tells(sender.clone())));
            dropped.recv_timeout(std::time::Duration::from_secs(60)).expect("dropped behind one that panics");
        }
    }

    #[test]
    fn no_panic_comes_out() {
        HostCall::new(Box::new(|| panic!("called"))).call();
        HostCall::new(Box::new(|| std::panic::panic_any(Bomb))).call();
        let bomb = || {
            let bomb = Bomb;
            HostCall::new(Box::new(move || drop(bomb)))
        };
        bomb().call();
        bomb().skip();
        bomb().discard();
        assert!(!is_running());
    }
}
