//! [`LaunchHook`]: a callback that is called immediately before each launch of a graph, on the stream of the launch.
//!
//! Work that the callback enqueues runs before the graph. The hook's lock is held until the graph has been enqueued, so
//! concurrent launches that share the callback cannot interleave with each other's work.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Stream;
use crate::error::{Error, GraphError, Result};

/// The callback, which receives the stream of the launch.
type Call = dyn Fn(&Stream) -> Result<()> + Send + Sync;

/// A callback that is called before each launch of a graph; see the [module's documentation](self).
pub(crate) struct LaunchHook {
    /// Unique number; locks are acquired in ascending order of these numbers.
    number: u64,
    lock: Mutex<()>,
    call: Box<Call>,
}

impl LaunchHook {
    fn new(call: impl Fn(&Stream) -> Result<()> + Send + Sync + 'static) -> Arc<Self> {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Arc::new(Self { number, lock: Mutex::default(), call: Box::new(call) })
    }
}

impl fmt::Debug for LaunchHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LaunchHook({})", self.number)
    }
}

/// The distinct hooks of a graph, in ascending order of their numbers.
#[derive(Debug, Default, Clone)]
pub(crate) struct LaunchHooks(Vec<Arc<LaunchHook>>);

impl LaunchHooks {
    pub fn add(&mut self, hook: Arc<LaunchHook>) {
        if let Err(place) = self.0.binary_search_by_key(&hook.number, |known| known.number) {
            self.0.insert(place, hook);
        }
    }

    pub fn add_all(&mut self, others: &Self) {
        others.0.iter().for_each(|hook| self.add(Arc::clone(hook)));
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls all hooks. The caller must hold the returned guards until the graph has been enqueued.
    ///
    /// # Errors
    /// Returns [`GraphError::LaunchInHook`] inside a hook, because the locks of two graphs have no defined order.
    /// Otherwise returns the first error from a hook, without calling later hooks.
    pub fn call(&self, stream: &Stream) -> Result<Vec<MutexGuard<'_, ()>>> {
        if self.is_empty() {
            return Ok(Vec::new());
        }
        let Some(_calling) = Calling::begin() else { return Err(GraphError::LaunchInHook.into()) };
        let guards =
            self.0.iter().map(|hook| hook.lock.lock().unwrap_or_else(PoisonError::into_inner)).collect();
        self.0.iter().try_for_each(|hook| (hook.call)(stream))?;
        Ok(guards)
    }
}

/// Marks this thread as calling hooks until dropped.
struct Calling;

thread_local! {
    static IS_CALLING: Cell<bool> = const { Cell::new(false) };
}

impl Calling {
    /// Marks this thread; `None` if it is already calling hooks.
    fn begin() -> Option<Self> {
        (!IS_CALLING.replace(true)).then_some(Self)
    }
}

impl Drop for Calling {
    fn drop(&mut self) {
        IS_CALLING.set(false);
    }
}

impl Stream {
    /// Registers a callback that is called immediately before each launch of the graph being captured on this stream.
    /// The callback runs on the launching thread and receives the launch's stream; work that it enqueues there runs
    /// before the graph. If it returns an error, the launch returns that error without enqueueing the graph.
    ///
    /// Use it for values that differ between launches: the callback can write them to a buffer that captured kernels
    /// read. Copies of the graph, graphs that contain it, and executables share the callback. It is called once per
    /// launch, even if the launch runs the captured work several times or not at all. It is never called for two
    /// launches at the same time. It is not called for a launch that fails validation, for example because a buffer was
    /// dropped. The callback may launch graphs that have no callbacks; launching any other graph fails with
    /// [`GraphError::LaunchInHook`]. The callback is dropped with the last graph or executable that uses it.
    ///
    /// ```
    /// use std::sync::Mutex;
    /// use std::sync::atomic::{AtomicU8, Ordering};
    /// use warpsmith_runtime::{Device, DeviceBuffer, Graph, Stream};
    ///
    /// let device = Device::emulated(0)?;
    /// let stream = Stream::new(&device)?;
    /// let number = DeviceBuffer::<u8>::zeros(&stream, 1)?;
    /// let mut y = DeviceBuffer::<u8>::zeros(&stream, 1)?;
    /// let graph = Graph::capture(&stream, || {
    ///     stream.copy(&number, &mut y)?;
    ///     let (number, launches) = (Mutex::new(number), AtomicU8::new(0));
    ///     stream.on_graph_launch(move |stream| {
    ///         let launch = launches.fetch_add(1, Ordering::Relaxed) + 1;
    ///         let mut number = number.lock().unwrap();
    ///         stream.memset(&mut *number, launch)
    ///     })
    /// })?;
    /// let exec = graph.instantiate()?;
    /// for launch in 1..4 {
    ///     exec.launch(&stream)?;
    ///     assert_eq!(y.to_host()?, [launch]);
    /// }
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`GraphError::NotCapturing`] if the stream is not being captured.
    pub fn on_graph_launch(
        &self,
        function: impl Fn(&Stream) -> Result<()> + Send + Sync + 'static,
    ) -> Result<()> {
        match self.capture_sink() {
            Some(capture) => capture.add_hook(LaunchHook::new(function)),
            None => Err(Error::Graph(GraphError::NotCapturing { call: "Stream::on_graph_launch" })),
        }
    }
}
