//! Background thread that reclaims blocks no longer in use, so that requests need not do so.
//!
//! The thread starts when a block first waits. It polls every 100 µs while a block waits, sleeps otherwise, and
//! terminates when the device is closed. It refers to the device's blocks but not to the device, so it does not keep
//! the device open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::store::Store;

const PERIOD: Duration = Duration::from_micros(100);

#[derive(Debug, Default)]
struct State {
    /// True if a block may be waiting.
    work: bool,
    stop: bool,
}

#[derive(Debug, Default)]
struct Signal {
    state: Mutex<State>,
    changed: Condvar,
    running: AtomicBool,
}

impl Signal {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The background thread of one device, if it is running.
#[derive(Debug, Default)]
pub(super) struct Background {
    signal: Arc<Signal>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

impl Background {
    pub(super) fn is_running(&self) -> bool {
        self.signal.running.load(Ordering::Acquire)
    }

    /// Signals that a block is waiting. Starts the thread if it is not running. If no thread can be created, requests
    /// reclaim blocks themselves.
    pub(super) fn wake(&self, store: &Arc<Store>) {
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if !self.is_running() {
            let (store, signal) = (Arc::clone(store), Arc::clone(&self.signal));
            let builder = std::thread::Builder::new().name("warpsmith-pin".to_owned());
            self.signal.running.store(true, Ordering::Release);
            match builder.spawn(move || work(&store, &signal)) {
                Ok(started) => *thread = Some(started),
                Err(error) => {
                    tracing::debug!(%error, "the thread that reclaims free page-locked memory could not be started; \
                                             allocations reclaim it instead");
                    self.signal.running.store(false, Ordering::Release);
                }
            }
        }
        self.signal.state().work = true;
        self.signal.changed.notify_all();
    }

    pub(super) fn stop(&self) {
        self.signal.state().stop = true;
        self.signal.changed.notify_all();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // The thread does not panic, and a panic would need no cleanup.
            let _ = thread.join();
        }
    }
}

fn work(store: &Store, signal: &Signal) {
    loop {
        let mut state = signal.state();
        while !state.work && !state.stop {
            state = signal.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.stop {
            break;
        }
        drop(state);
        // After any other error, the blocks remain in the queues, and the next poll checks them again. A fault is
        // ignored, because every other call reports it.
        if store.poll().is_err_and(|error| error.stops_context()) {
            break;
        }
        let mut state = signal.state();
        if store.pending.is_empty() {
            state.work = false;
        } else if !state.stop {
            drop(signal.changed.wait_timeout(state, PERIOD).unwrap_or_else(PoisonError::into_inner));
        }
    }
    signal.running.store(false, Ordering::Release);
}
