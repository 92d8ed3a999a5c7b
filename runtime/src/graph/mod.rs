//! Graphs: work that is instantiated once and launched many times, with one call per launch.
//!
//! A [`Graph`] is created by capturing enqueued work ([`Graph::capture`]), by adding nodes one by one
//! ([`Graph::add_kernel`] and similar), or both. [`Graph::instantiate`] creates a [`GraphExec`], whose
//! [`launch`](GraphExec::launch) enqueues all of the work.
//!
//! **Buffers.** A graph does not borrow its buffers, so a program can read and write them between launches. Each launch
//! counts as a use of every buffer in the graph and is synchronized with all other uses of these buffers on any stream.
//! After a buffer is dropped, new launches fail with [`GraphError::BufferDropped`], but launches that are already
//! enqueued complete. Memory allocated on a capturing stream comes from a private pool of the graph and lives as long
//! as the graph, even after its buffer is dropped. Create and drop buffers for intermediate results within the capture,
//! so that they reuse memory.
//!
//! **Order.** Captured work is ordered as it would be without the capture. An added node runs after the nodes listed in
//! `after`, and after every earlier node that conflicts with it (uses the same memory, and one of the two writes it).
//! Launches of graphs created from one capture are serialized.
//!
//! **Limits of capture.** Calls that wait for work (`synchronize`, `query`, copies to and from pageable host memory)
//! cannot be captured. Nor can copies that return host memory, copies between devices, and host functions that are
//! called once. During a capture, such a call fails with an error that names it, and the capture continues. Work
//! outside the capture fails if it conflicts with captured work on the same memory ([`GraphError::UsedInCapture`]).
//! Graphs can copy from and to a [`MappedBuffer`](crate::MappedBuffer), and [`Stream::graph_function`](crate::Stream::graph_function) adds a
//! host function that is called in each launch.
//!
//! ```
//! use warpsmith_runtime::graph::Graph;
//! use warpsmith_runtime::{Device, DeviceBuffer, Stream};
//!
//! let device = Device::emulated(0)?;
//! let stream = Stream::new(&device)?;
//! let mut x = DeviceBuffer::from_host(&stream, &[1u32, 2, 3])?;
//! let mut y = DeviceBuffer::zeros(&stream, 3)?;
//! let graph = Graph::capture(&stream, || stream.copy(&x, &mut y))?;
//! let exec = graph.instantiate()?;
//! exec.launch(&stream)?;
//! assert_eq!(y.to_host()?, [1, 2, 3]);
//! x.copy_from_host(&[4, 5, 6])?;
//! exec.launch(&stream)?;
//! assert_eq!(y.to_host()?, [4, 5, 6]);
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```
//!
//! | module | contents |
//! | --- | --- |
//! | `capture` | [`Capture`]: start and end of a capture |
//! | `content` | memory and objects of a graph |
//! | `nodes` | nodes added one by one |
//! | `origins` | operations that captured or added the nodes, for observers |
//! | `conditional` | conditional nodes, controlled by kernels |
//! | `exec` | [`GraphExec`]: launches and updates |
//! | `cache` | [`GraphCache`]: capture on first use |
//! | `dot` | Graphviz output |

mod cache;
mod capture;
mod conditional;
mod content;
mod dot;
mod exec;
mod nodes;
mod origins;

use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};

pub use self::cache::{CacheInput, CacheStats, GraphCache};
pub use self::capture::Capture;
pub use self::conditional::Condition;
use self::content::Content;
pub use self::exec::GraphExec;
use self::nodes::Added;
pub use self::nodes::{KernelNode, Node};
use self::origins::Origins;
use crate::device::Device;
use crate::device::observe::site;
pub use crate::driver::CaptureMode;
use crate::driver::{DriverError, Edge, GraphHandle, NodeHandle, host_function};
pub use crate::error::GraphError;
use crate::error::{Error, Result};
use crate::memory::graph_resource::Resources;
pub use crate::stream::CaptureId;
use crate::stream::Stream;

/// Work and its dependencies; see the [module's documentation](self). A graph can move between threads, but only one
/// thread can use it at a time.
///
/// The [module](self) captures a graph in its example; [`Graph::new`] builds one from nodes.
pub struct Graph {
    device: Device,
    handle: GraphHandle,
    content: Content,
    /// Memory uses in `content.resources` other than those of added nodes.
    others: Resources,
    /// Unique ID of the graph.
    number: u64,
    /// The nodes added one by one.
    added: Vec<Added>,
    /// The last nodes of the captured work, after which every added node runs.
    base: Vec<NodeHandle>,
    origins: Origins,
    /// Makes the graph `!Sync`, because drivers allow only one thread at a time to use a graph.
    one_thread: PhantomData<Cell<()>>,
}

impl Graph {
    /// Creates an empty graph.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, Graph, Stream};
    ///
    /// let device = Device::emulated(0)?;
    /// let stream = Stream::new(&device)?;
    /// let (mut x, mut y) = (DeviceBuffer::<u8>::zeros(&stream, 2)?, DeviceBuffer::zeros(&stream, 2)?);
    /// let mut graph = Graph::new(&device)?;
    /// let set = graph.add_memset(&mut x, 7, &[])?;
    /// graph.add_copy(&x, &mut y, &[set])?;
    /// graph.instantiate()?.launch(&stream)?;
    /// assert_eq!(y.to_host()?, [7, 7]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    pub fn new(device: &Device) -> Result<Self> {
        let handle = device.call(|driver, context| driver.graph_create(context))?;
        Ok(Self::of(device, handle, Content::default()))
    }

    fn of(device: &Device, handle: GraphHandle, content: Content) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            device: device.clone(),
            handle,
            others: content.resources.clone(),
            content,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            added: Vec::new(),
            base: Vec::new(),
            origins: Origins::default(),
            one_thread: PhantomData,
        }
    }

    /// Captures the work that `work` enqueues on a stream, and on other streams that wait for it, into a graph instead
    /// of running it.
    ///
    /// During the capture, other threads may use the device and allocate memory ([`CaptureMode::ThreadLocal`]), but
    /// must not use this stream.
    ///
    /// # Errors
    /// Returns [`SharedStream`](GraphError::SharedStream) for a shared stream of the device, or
    /// [`CaptureUnderway`](GraphError::CaptureUnderway) for a stream that is already being captured. Returns
    /// [`NotJoined`](GraphError::NotJoined) if this stream has not waited for all other streams of the capture at the
    /// end. Returns the error that `work` returns. After an error, the capture has ended, and the stream is no longer
    /// capturing.
    #[track_caller]
    pub fn capture<E: From<Error>>(
        stream: &Stream,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Self, E> {
        Self::capture_with(stream, CaptureMode::default(), work).map(|(graph, ())| graph)
    }

    /// Like [`Self::capture`], but with an explicit mode. Also returns the value that `work` returns.
    ///
    /// # Errors
    /// Returns the same errors as [`Self::capture`].
    #[track_caller]
    pub fn capture_with<R, E: From<Error>>(
        stream: &Stream,
        mode: CaptureMode,
        work: impl FnOnce() -> std::result::Result<R, E>,
    ) -> std::result::Result<(Self, R), E> {
        let capture = Capture::begin(stream, mode)?;
        let made = work()?;
        Ok((capture.end()?, made))
    }

    /// Returns the device on which the graph runs.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Returns the number of nodes, excluding nodes of nested graphs.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    pub fn node_count(&self) -> Result<usize> {
        Ok(self.device.call(|driver, context| driver.graph_nodes(context, self.handle))?.len())
    }

    /// Clones the graph, so that different nodes can be added to the clone. Both use the same buffers and share the
    /// memory of captured work. [`Node`] values of this graph cannot be used with the clone. Graphs with conditions
    /// cannot be cloned.
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    pub fn try_clone(&self) -> Result<Self> {
        let handle = self.device.call(|driver, context| driver.graph_clone(context, self.handle))?;
        let mut clone = Self::of(&self.device, handle, self.content.clone());
        let (nodes, edges) = clone.shape()?;
        clone.base = last_of(nodes, &edges);
        clone.origins = Origins::of_clone(&self.device, self.handle, &self.origins, handle);
        Ok(clone)
    }

    /// Creates an executable graph. Afterwards, this graph is needed only for updates.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver), for example if the blocks of a cooperative kernel cannot all
    /// be resident.
    #[track_caller]
    pub fn instantiate(&self) -> Result<GraphExec> {
        let _site = site();
        GraphExec::new(self)
    }

    fn shape(&self) -> Result<(Vec<NodeHandle>, Vec<Edge>)> {
        self.device.call(|driver, context| {
            Ok::<_, DriverError>((
                driver.graph_nodes(context, self.handle)?,
                driver.graph_edges(context, self.handle)?,
            ))
        })
    }
}

/// Returns the nodes on which no other node depends.
fn last_of(mut nodes: Vec<NodeHandle>, edges: &[Edge]) -> Vec<NodeHandle> {
    let first: HashSet<NodeHandle> = edges.iter().map(|edge| edge.from).collect();
    nodes.retain(|node| !first.contains(node));
    nodes
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.device.is_forked() {
            return;
        }
        if host_function::is_running() {
            let content = std::mem::take(&mut self.content);
            let moved = Self::of(&self.device, self.handle, content);
            return host_function::drop_elsewhere(Box::new(moved));
        }
        let (driver, context) = self.device.raw();
        // SAFETY: this value owns the graph and is being dropped; its nodes and bodies are used only through it.
        unsafe { driver.graph_destroy(context, self.handle) };
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({:#x} on {})", self.handle.0, self.device.id())
    }
}
