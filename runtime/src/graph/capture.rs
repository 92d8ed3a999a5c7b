//! [`Capture`]: a guard that ends a capture when dropped.

use std::marker::PhantomData;
use std::sync::Arc;

use super::content::Content;
use super::origins::Origins;
use super::{Graph, last_of};
use crate::device::health::Quiet;
use crate::device::observe::site;
use crate::driver::CaptureMode;
use crate::error::{Error, GraphError, Result, code};
use crate::memory::capturing::{self, Captured, Capturing};
use crate::stream::Stream;

/// An active capture, during which work on its stream becomes part of a graph. Dropping the value ends the capture and
/// discards the captured work. [`Graph::capture`] starts and ends a capture in one call.
///
/// CUDA requires the thread that began a capture to end it, so the value cannot be sent to another thread. A leaked
/// capture ([`std::mem::forget`]) never ends: its streams keep capturing, and waiting for the entire device fails, but
/// other streams continue to work.
///
/// ```
/// use warpsmith_runtime::graph::{Capture, CaptureMode};
/// use warpsmith_runtime::{Device, DeviceBuffer, Stream};
///
/// let stream = Stream::new(&Device::emulated(0)?)?;
/// let mut x = DeviceBuffer::from_host(&stream, &[1u8, 2, 3])?;
/// let capture = Capture::begin(&stream, CaptureMode::ThreadLocal)?;
/// stream.memset(&mut x, 0)?;
/// let graph = capture.end()?;
/// assert_eq!(x.to_host()?, [1, 2, 3]); // no captured work has run
/// graph.instantiate()?.launch(&stream)?;
/// assert_eq!(x.to_host()?, [0; 3]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[must_use = "the capture ends when this is dropped"]
#[derive(Debug)]
pub struct Capture {
    stream: Stream,
    capturing: Option<Arc<Capturing>>,
    /// Makes the value `!Send`, because the thread that began a capture must end it.
    thread: PhantomData<*const ()>,
}

impl Capture {
    /// Starts a capture on a stream.
    ///
    /// # Errors
    /// Returns the same errors as [`Graph::capture`].
    #[track_caller]
    pub fn begin(stream: &Stream, mode: CaptureMode) -> Result<Self> {
        let _site = site();
        let capturing = capturing::begin(stream, mode)?;
        Ok(Self { stream: stream.clone(), capturing: Some(capturing), thread: PhantomData })
    }

    /// Ends the capture and returns the graph.
    ///
    /// # Errors
    /// Returns the same errors as [`Graph::capture`]. The capture ends even after an error.
    #[track_caller]
    pub fn end(mut self) -> Result<Graph> {
        let _site = site();
        let Some(capturing) = self.capturing.take() else {
            return Err(GraphError::CaptureEnded.into());
        };
        let mut captured = capturing.end().map_err(|error| match error.driver_code() {
            Some(code::STREAM_CAPTURE_UNJOINED) => Error::Graph(GraphError::NotJoined),
            _ => error,
        })?;
        let Captured { handle, .. } = captured;
        let notes = std::mem::take(&mut captured.notes);
        let mut graph = Graph::of(self.stream.device(), handle, Content::of_capture(captured, &self.stream));
        let (nodes, edges) = graph.shape()?;
        graph.origins = Origins::of_capture(&nodes, &edges, &notes);
        graph.base = last_of(nodes, &edges);
        Ok(graph)
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        let Some(capturing) = self.capturing.take() else { return };
        let device = self.stream.device();
        if device.is_forked() {
            return;
        }
        match capturing.end() {
            Ok(captured) => {
                let (driver, context) = device.raw();
                // SAFETY: no other code uses the graph.
                unsafe { driver.graph_destroy(context, captured.handle) };
            }
            // Dropping an invalidated capture is not an error.
            Err(error) if error.driver_code().is_some() => {}
            // A lost device reports its fault in every call.
            Err(_) if device.is_lost() => {}
            Err(error) => device.0.health.record_drop(Err(error)),
        }
    }
}
