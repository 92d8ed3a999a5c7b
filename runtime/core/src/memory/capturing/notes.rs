//! What operations note of the nodes that they become: see [`graph_nodes`](crate::device::graph_nodes).
//!
//! The last nodes of a stream are read with the capture's lock held. A launch begins to note before it takes that lock, other
//! operations do with it, so that a thread knows whether it has it. What takes no lock is work that another thread had begun to
//! enqueue when the capture began: it invalidates the graph, of which nothing more is noted.

use std::cell::Cell;
use std::sync::atomic::Ordering;

use super::{Capturing, lock};
use crate::device::graph_nodes::{Note, Noted};
use crate::driver::{NodeHandle, StreamHandle};

thread_local! {
    /// The capture whose lock this thread holds while it enqueues work; null for none.
    static ENQUEUES: Cell<*const Capturing> = const { Cell::new(std::ptr::null()) };
}

/// While it lives, this thread enqueues work of a capture.
pub(super) struct Enqueuing(*const Capturing);

impl Enqueuing {
    pub(super) fn begin(capturing: &Capturing) -> Self {
        Self(ENQUEUES.replace(capturing))
    }
}

impl Drop for Enqueuing {
    fn drop(&mut self) {
        ENQUEUES.set(self.0);
    }
}

impl Noted for Capturing {
    fn tips(&self, stream: StreamHandle) -> Vec<NodeHandle> {
        let state = if ENQUEUES.get() == std::ptr::from_ref(self) { None } else { Some(self.lock()) };
        let has_ended = state.as_ref().is_some_and(|state| state.ended);
        if has_ended || self.invalidation.load(Ordering::Acquire) {
            return Vec::new();
        }
        let (driver, context) = self.device.raw();
        driver.capture_tips(context, stream).unwrap_or_default()
    }

    fn note(&self, note: Note) {
        lock(&self.notes).push(note);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use super::super::begin;
    use crate::device::Device;
    use crate::device::observe::Operation;
    use crate::driver::CaptureMode;
    use crate::driver::emulated::EmulatedDriver;
    use crate::stream::Stream;

    /// Of an operation that another thread enqueues meanwhile.
    #[test]
    fn last_nodes_are_read_under_the_captures_lock() {
        let device = Device::with_driver(EmulatedDriver::builder().build(), 0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let capturing = begin(&stream, CaptureMode::Relaxed).unwrap();
        let (sender, began) = mpsc::channel();
        std::thread::scope(|scope| {
            let state = capturing.lock();
            scope.spawn(|| {
                let watch = stream.watch(|| Operation::HostFunction);
                sender.send(()).unwrap();
                drop(watch);
            });
            assert!(began.recv_timeout(Duration::from_millis(50)).is_err());
            drop(state);
            began.recv().unwrap();
        });
        capturing.end().unwrap();
    }
}
