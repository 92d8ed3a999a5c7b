//! Notes that record which graph nodes a captured operation creates; see [`graph_nodes`](crate::device::graph_nodes).
//!
//! A stream's last nodes are read under the capture's lock. Driver calls on the capture's streams acquire the same
//! lock, unless they were already in progress when the capture began; in that case, no notes are recorded.

use std::sync::atomic::Ordering;

use super::{Capturing, lock};
use crate::device::graph_nodes::{Note, Noted};
use crate::driver::{NodeHandle, StreamHandle};
use crate::stream::captures::Holds;

impl Noted for Capturing {
    fn tips(&self, stream: StreamHandle) -> Vec<NodeHandle> {
        let state = if Holds::is_of(self) { None } else { Some(self.lock()) };
        let has_ended = state.as_ref().is_some_and(|state| state.ended);
        if has_ended || self.is_disturbed.load(Ordering::Acquire) || self.invalidation.load(Ordering::Acquire)
        {
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
    use std::sync::{Barrier, mpsc};
    use std::time::Duration;

    use super::super::begin;
    use crate::device::Device;
    use crate::device::graph_nodes::Noted;
    use crate::device::observe::Operation;
    use crate::driver::{CaptureMode, GraphFunction};
    use crate::error::Error;
    use crate::stream::Stream;
    use crate::stream::captures::CaptureSink;
    use warpsmith_emulated::EmulatedDriver;

    /// Another thread enqueues an operation meanwhile.
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

    /// The call checked that the stream is not captured before the capture began.
    #[test]
    fn a_late_driver_call_takes_the_captures_lock() {
        let device = Device::with_driver(EmulatedDriver::builder().build(), 0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let capturing = begin(&stream, CaptureMode::Relaxed).unwrap();
        let (sender, called) = mpsc::channel();
        std::thread::scope(|scope| {
            let state = capturing.lock();
            // This thread holds the lock.
            stream.call(|_, _| Ok::<_, Error>(())).unwrap();
            scope.spawn(|| {
                let call = stream.call(|_, _| {
                    sender.send(()).unwrap();
                    Ok::<_, Error>(())
                });
                call.unwrap();
            });
            assert!(called.recv_timeout(Duration::from_millis(50)).is_err());
            drop(state);
            called.recv().unwrap();
        });
        capturing.end().unwrap();
    }

    /// The call may return, and change the driver's list of nodes, while that list is read.
    #[test]
    fn nothing_is_noted_beside_a_pending_driver_call() {
        let device = Device::with_driver(EmulatedDriver::builder().build(), 0).unwrap();
        let stream = Stream::new(&device).unwrap();
        let (began, end) = (Barrier::new(2), Barrier::new(2));
        let nodes = || {
            let capturing = begin(&stream, CaptureMode::Relaxed).unwrap();
            let function = GraphFunction::new(|| ());
            CaptureSink::host_function(&*capturing, &stream, function).unwrap();
            let nodes = Noted::tips(&*capturing, stream.handle()).len();
            capturing.end().unwrap();
            nodes
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let call = stream.call(|_, _| {
                    began.wait();
                    end.wait();
                    Ok::<_, Error>(())
                });
                call.unwrap();
            });
            began.wait();
            assert_eq!(nodes(), 0);
            end.wait();
        });
        assert_eq!(nodes(), 1);
    }
}
