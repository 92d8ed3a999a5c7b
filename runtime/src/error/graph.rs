//! [`GraphError`]: errors of captures, graphs and their executables.

use super::DeviceId;
use super::Error;

/// An error from a capture, a graph or an executable.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer, Error, Graph, GraphError};
///
/// let stream = Device::emulated(0)?.default_stream();
/// let mut x = DeviceBuffer::<u8>::zeros(&stream, 4)?;
/// let mut graph = Graph::new(stream.device())?;
/// graph.add_memset(&mut x, 7, &[])?;
/// let exec = graph.instantiate()?;
/// drop(x);
/// assert!(matches!(exec.launch(&stream), Err(Error::Graph(GraphError::BufferDropped { .. }))));
/// # Ok::<(), Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// A call that waits for work was made during a capture. Captured work does not run, so the wait would never end.
    #[error(
        "the call is not allowed while a capture is active on the device; make it before the capture starts or after \
         it ends"
    )]
    CaptureUnderway,

    /// A call that cannot become part of a graph was made on a capturing stream. The capture continues.
    #[error("{call} cannot be captured into a graph: {instead}")]
    NotCapturable {
        /// The call that cannot be captured.
        call: &'static str,
        /// The reason and the alternative.
        instead: &'static str,
    },

    /// A call outside the capture uses a buffer in conflict with captured work, which runs only when its graph is
    /// launched and so cannot be ordered with the call. The capture continues.
    #[error(
        "{call}: the buffer of {bytes} bytes is used by captured work, which runs only when the graph is launched; \
         make the call before the capture starts, after it ends, or on a stream that takes part in the capture"
    )]
    UsedInCapture {
        /// The rejected call.
        call: &'static str,
        /// Size of the buffer, in bytes.
        bytes: usize,
    },

    /// A call would allocate memory on an adopted stream while the stream's owner captures it.
    #[error(
        "{call}: the stream's owner is capturing the stream, and the runtime would reuse memory that the graph still \
         uses; allocate before the capture, or with the owner's allocator"
    )]
    CapturedElsewhere {
        /// The rejected call.
        call: &'static str,
    },

    /// A call that is valid only during a capture was made outside of one.
    #[error("{call}: nothing is being captured on this stream; call it within `Graph::capture`")]
    NotCapturing {
        /// The rejected call.
        call: &'static str,
    },

    /// A callback registered with [`Stream::on_graph_launch`](crate::Stream::on_graph_launch) launched a graph that has
    /// such callbacks.
    #[error(
        "a callback of `Stream::on_graph_launch` launched a graph that has such callbacks itself, and would wait for them \
         forever; launch that graph elsewhere"
    )]
    LaunchInHook,

    /// A capture was requested on a shared stream of the device.
    #[error(
        "the default stream and streams of the pool cannot be captured into a graph, because other work would become \
         part of it; capture on a stream from `Stream::new`"
    )]
    SharedStream,

    /// An object of a capture was used after the capture had ended.
    #[error("the capture has ended; an event recorded in a capture can be awaited only in that capture")]
    CaptureEnded,

    /// A wait of a capturing stream for an event or stream outside the capture was requested.
    #[error(
        "a stream that is being captured cannot wait for work outside its capture ({what} elsewhere); wait before \
         the capture starts, or let the other stream take part by waiting for this one first"
    )]
    OutsideCapture {
        /// The event or stream outside the capture.
        what: &'static str,
    },

    /// A capture ended before its origin stream had waited for all other streams of the capture (unjoined work).
    #[error(
        "the stream on which the capture started has not waited for all other streams that took part in it; \
         call `wait_stream` for each of them before the capture ends"
    )]
    NotJoined,

    /// The graph may contain work that the runtime did not record.
    #[error(
        "another thread enqueued work on a stream while its capture started or ended, and some of it may be in the graph; \
         capture on streams that no other thread uses"
    )]
    Invalidated,

    /// A buffer used by a graph was dropped.
    #[error(
        "the graph uses a buffer of {bytes} bytes on {device} that was dropped; keep the buffers as long as the graph is launched, \
         or capture the graph again"
    )]
    BufferDropped {
        /// The device of the buffer.
        device: DeviceId,
        /// Size of the buffer, in bytes.
        bytes: usize,
    },

    /// The program has locked the memory of a [`MappedBuffer`](crate::MappedBuffer).
    #[error("the host buffer is locked by the program; drop the guard of its `lock` first")]
    HostBufferInUse,

    /// An executable graph could not be updated from a graph with a different topology.
    #[error("the graph cannot be updated in place: {reason}; instantiate the new graph instead")]
    NotUpdated {
        /// The difference, as the driver reports it.
        reason: String,
    },

    /// A node or condition of one graph was used in another graph.
    #[error(
        "the node or condition belongs to a different graph than this one, or than the graph from which the executable \
         was instantiated or last updated"
    )]
    NodeOfOtherGraph,

    /// The new arguments of a node require a dependency that the graph does not contain.
    #[error(
        "node {node} would use memory that node {other} uses, and the graph does not order the two nodes; create a graph with \
         the new arguments and update from it"
    )]
    NodeConflict {
        /// Index of the node to change, in insertion order.
        node: usize,
        /// Index of the conflicting node.
        other: usize,
    },

    /// A launch without threads cannot be added to a graph.
    #[error(
        "kernel `{kernel}`: a launch without threads cannot be a node; omit it, or use `Graph::add_empty`"
    )]
    EmptyLaunch {
        /// The symbol of the kernel instance.
        kernel: String,
    },
}

impl From<GraphError> for Error {
    fn from(error: GraphError) -> Self {
        Self::Graph(error)
    }
}
