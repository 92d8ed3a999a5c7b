//! Graphs: work that is prepared once and launched many times, with one call for all of it.
//!
//! A [`Graph`] is made by capturing what a program enqueues anyway ([`Graph::capture`]), node by node
//! ([`Graph::add_kernel`] and the like), or both. [`Graph::instantiate`] makes a [`GraphExec`] of it, whose
//! [`launch`](GraphExec::launch) enqueues everything.
//!
//! Buffers. A graph does not borrow the buffers that it uses, so a program reads and writes them between launches as it
//! likes: each launch counts as a use of all of them, and is ordered with other uses as any work is. A buffer can be
//! dropped too; then launches fail with [`GraphError::BufferDropped`], and those
//! enqueued before run to their end. Memory allocated on a stream during its capture comes from a pool of the
//! graph's own and stays as long as the graph, also when the buffer is dropped: so buffers for intermediate results
//! are made and dropped within the capture, and share memory as usual.
//!
//! Order. Captured work is ordered as it would be when it runs. Nodes that are added come after those they name, and after
//! every earlier node that uses the same memory where one of the two writes. Launches of graphs that were made of one
//! capture run one after the other.
//!
//! What cannot be captured: what waits for work (`synchronize`, `query`, copies to and from ordinary host memory), copies
//! that return host memory, copies between devices, host functions that are called once. These fail, name themselves,
//! and the capture continues. So does work that runs beside the capture, where it reads what captured work writes or writes
//! what it reads ([`GraphError::UsedInCapture`]). [`HostBuffer`] is memory of the host that graphs copy from and to, and
//! [`Stream::graph_function`](crate::Stream::graph_function) has a function called at each launch.
//!
//! ```
//! use warpsmith_runtime::graph::Graph;
//! use warpsmith_runtime::{Device, DeviceBuffer, Stream};
//!
//! # fn main() -> Result<(), warpsmith_runtime::Error> {
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
//! # Ok(())
//! # }
//! ```
//!
//! | module | what it holds |
//! | --- | --- |
//! | `capture` | [`Capture`]: beginning and ending |
//! | `content` | what a graph uses and keeps |
//! | `nodes` | nodes that are added one by one |
//! | `origins` | where nodes come from, for observers |
//! | `conditional` | parts that run or not, or again and again, by what kernels decide |
//! | `exec` | [`GraphExec`]: launching and updating |
//! | `cache` | [`GraphCache`]: capturing on first use |
//! | `host_buffer` | [`HostBuffer`] |
//! | `dot` | a graph as text for Graphviz |

mod cache;
mod capture;
mod conditional;
mod content;
mod dot;
mod exec;
mod host_buffer;
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
pub use self::host_buffer::{HostBuffer, HostGuard};
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

/// Work and its order: see the [module's documentation](self). It can go from thread to thread, but be used by one at a
/// time.
pub struct Graph {
    device: Device,
    handle: GraphHandle,
    content: Content,
    /// What of it the nodes that were added one by one do not use.
    others: Resources,
    /// A number that no other graph has.
    number: u64,
    /// The nodes that were added one by one.
    added: Vec<Added>,
    /// What every added node comes after: the last nodes of what was captured.
    base: Vec<NodeHandle>,
    origins: Origins,
    /// Not `Sync`: drivers take the calls on a graph from one thread at a time.
    one_thread: PhantomData<Cell<()>>,
}

impl Graph {
    /// An empty graph, to which nodes are added.
    ///
    /// # Errors
    /// Whatever the driver reports.
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

    /// Captures what `work` enqueues on a stream, and on others that wait for it, instead of running it.
    ///
    /// Other threads may use the device meanwhile, also allocate ([`CaptureMode::ThreadLocal`]), but not this stream.
    ///
    /// # Errors
    /// [`SharedStream`](GraphError::SharedStream), [`CaptureUnderway`](GraphError::CaptureUnderway) for a stream that is
    /// being captured already, [`NotJoined`](GraphError::NotJoined) when other streams took part for which this one has
    /// not waited in the end; what `work`
    /// returns. The capture is over then, and the stream as before.
    #[track_caller]
    pub fn capture<E: From<Error>>(
        stream: &Stream,
        work: impl FnOnce() -> std::result::Result<(), E>,
    ) -> std::result::Result<Self, E> {
        Self::capture_with(stream, CaptureMode::default(), work).map(|(graph, ())| graph)
    }

    /// As [`Self::capture`] in a given mode; with what `work` returns.
    ///
    /// # Errors
    /// As [`Self::capture`].
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

    /// The device that it is of.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The number of its nodes, without those of graphs within.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn node_count(&self) -> Result<usize> {
        Ok(self.device.call(|driver, context| driver.graph_nodes(context, self.handle))?.len())
    }

    /// A copy of the graph, to which other nodes can be added. It uses the same buffers, and shares the memory of what was
    /// captured. Nodes that were added to this one are not nodes of the copy. Graphs with conditions are not copied.
    ///
    /// # Errors
    /// Whatever the driver reports.
    pub fn try_clone(&self) -> Result<Self> {
        let handle = self.device.call(|driver, context| driver.graph_clone(context, self.handle))?;
        let mut clone = Self::of(&self.device, handle, self.content.clone());
        let (nodes, edges) = clone.shape()?;
        clone.base = last_of(nodes, &edges);
        clone.origins = Origins::of_clone(&self.device, self.handle, &self.origins, handle);
        Ok(clone)
    }

    /// Makes it ready to be launched. The graph is not needed any more after that, unless to update.
    ///
    /// # Errors
    /// Whatever the driver reports, for example for a cooperative kernel whose blocks do not fit.
    #[track_caller]
    pub fn instantiate(&self) -> Result<GraphExec> {
        let _site = site();
        GraphExec::new(self)
    }

    /// The nodes and their edges.
    fn shape(&self) -> Result<(Vec<NodeHandle>, Vec<Edge>)> {
        self.device.call(|driver, context| {
            Ok::<_, DriverError>((
                driver.graph_nodes(context, self.handle)?,
                driver.graph_edges(context, self.handle)?,
            ))
        })
    }
}

/// The nodes that no other comes after.
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
        // SAFETY: this value owns the graph and is being dropped; nodes and bodies are used through it only.
        unsafe { driver.graph_destroy(context, self.handle) };
    }
}

impl fmt::Debug for Graph {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Graph({:#x} on {})", self.handle.0, self.device.id())
    }
}
