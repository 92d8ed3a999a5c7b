//! Calling and dropping functions that streams call on the host, whatever they do.
//!
//! A panic of such a function, of its captures when they are dropped, or of what it panicked with, is caught and
//! forgotten. While a function runs, its thread is known to be inside of one ([`is_running`]), so that calls of the
//! driver can be refused there: CUDA does not permit them, and a wait would wait for itself.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Sender, channel};

use super::{DevicePtr, GraphFunction, HostFunction};

thread_local! {
    static RUNNING: Cell<bool> = const { Cell::new(false) };
}

/// The error of the driver's calls from inside a host function.
pub const REFUSED: &str = "a host function must not call the driver; let it signal another thread";

/// Whether this thread runs a host function.
#[inline]
pub fn is_running() -> bool {
    RUNNING.get()
}

/// Drops something on a thread that may call drivers and wait, soon. If the system has no thread, never. A panic of the
/// drop is forgotten.
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
    /// Where it begins.
    pub ptr: DevicePtr,
    /// Its length in bytes.
    pub bytes: usize,
    /// Whether the work writes there; else it only reads.
    pub write: bool,
}

/// Work of the host on device memory, in the order of a stream: what an emulated device does in place of a library.
/// It is dropped as if it were called, whatever that does.
pub struct HostWork {
    name: &'static str,
    uses: Vec<HostAccess>,
    function: Option<Box<dyn Fn() + Send + Sync>>,
}

impl HostWork {
    /// `function` is called once, or once for each launch of a graph. The rules of
    /// [`StreamDriver::host_function`](super::StreamDriver::host_function) hold for it. In recordings it is a kernel of that
    /// name, without threads.
    pub fn new(name: &'static str, uses: Vec<HostAccess>, function: Box<dyn Fn() + Send + Sync>) -> Self {
        Self { name, uses, function: Some(function) }
    }

    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The device memory that it uses.
    pub fn uses(&self) -> &[HostAccess] {
        &self.uses
    }

    /// Calls it. Fails with the text of its panic.
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

/// A function that is called once or never.
pub struct HostCall(HostFunction);

impl HostCall {
    /// The function, as a program gave it.
    pub fn new(function: HostFunction) -> Self {
        Self(function)
    }

    /// Calls it.
    pub fn call(self) {
        inside(|| forgive(self.0));
    }

    /// Drops it without a call, on the thread that would have called it.
    pub fn skip(self) {
        inside(|| self.discard());
    }

    /// Drops it without a call, on a thread of the program's.
    pub fn discard(self) {
        forgive(|| drop(self.0));
    }
}

impl fmt::Debug for HostCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HostCall")
    }
}

/// Calls a function of a graph, which may be called again.
pub fn call_graph_function(function: &GraphFunction) {
    inside(|| forgive(|| function.call()));
}

/// Runs `work`, which does not panic, as part of a host function: meanwhile the driver refuses calls of this thread, and what
/// needs a device to be dropped is dropped elsewhere.
pub fn inside(work: impl FnOnce()) {
    let before = RUNNING.replace(true);
    work();
    RUNNING.set(before);
}

/// Runs `work` and forgets its panic, and one of dropping what it panicked with.
fn forgive(work: impl FnOnce()) {
    // State that a panic left half done is not observed: everything that `work` owns is gone.
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
