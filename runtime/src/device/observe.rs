//! The observer API, through which a profiler sees the runtime's operations.
//!
//! [`begin`] reports each operation at its start and end, on the calling thread. Without observers and captures, an
//! operation costs one extra load and a predicted branch ([`around`]), and no clock is read. Captured work is always
//! [noted](super::graph_nodes), for observers that are registered later.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::panic::{AssertUnwindSafe, Location, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use gpu_spec::KernelSpec;

use super::graph_nodes::{GraphNodes, Note, Noted};
use super::source::Source;
use super::{Device, flags, fork};
use crate::driver::{EventHandle, GraphExecHandle, GraphHandle, LaunchConfig, StreamHandle, host_function};
use crate::error::{PoolId, Result};

/// Receives the operations of every device of the process; see [`observe`].
///
/// Callbacks run on any thread, possibly on several at once, and each operation waits for its callbacks. A callback may
/// compute, read clocks, and use the observer's own locks, atomics and channels. It must not use devices, streams,
/// buffers or the allocator's statistics, because the runtime may hold locks; such calls fail with
/// [`Error::InObserver`](crate::Error::InObserver) before they reach the driver. Values whose destructor needs a device
/// are dropped by another thread. Operations inside a callback are not reported. An observer that panics is removed.
///
/// See the example of [`observe`].
pub trait Observer: Send + Sync {
    /// Called at the start of an operation, before the driver is called.
    fn begin(&self, operation: &Observed<'_>) {
        let _ = operation;
    }

    /// Called at the end of an operation, although work that the operation enqueued may still be running. Called once
    /// for each [`Self::begin`], on the same thread, unless the observer was removed in between.
    fn end(&self, operation: &Observed<'_>, ended: Ended);
}

/// An operation of the runtime.
///
/// See the example of [`observe`].
#[derive(Debug)]
pub struct Observed<'a> {
    /// The ID: unique in the process, increasing, and the same in both callbacks.
    pub id: u64,
    /// The device. Only comparison and [`Device::id`] are allowed; calls that use the device fail.
    pub device: &'a Device,
    /// The stream, if the operation uses one.
    pub stream: Option<ObservedStream>,
    /// The operation.
    pub operation: Operation<'a>,
    /// Start time.
    pub began: SystemTime,
    /// The source line that called the runtime, if recorded.
    pub site: Option<&'static Location<'static>>,
}

/// A stream, as seen by observers.
///
/// See the example of [`observe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedStream {
    /// [`Stream::id`](crate::Stream::id).
    pub id: u64,
    /// The driver's handle of the stream.
    pub handle: StreamHandle,
    /// True if the stream is being captured, in which case the operation becomes part of a graph and does not run.
    pub is_capturing: bool,
}

/// The end of an operation.
///
/// See the example of [`observe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// End time.
    pub at: SystemTime,
    /// True if the operation returned without an error.
    pub succeeded: bool,
}

/// The kind of an operation. Addresses are device addresses, or process addresses for host memory.
///
/// See the example of [`observe`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Enqueues a kernel.
    Launch {
        /// The kernel's symbol in the image.
        kernel: &'a str,
        /// The launch configuration.
        config: &'a LaunchConfig,
        /// The kernel instance. For a kernel of a module loaded at run time, it contains only the name.
        spec: &'static KernelSpec,
        /// The origin of the block and grid dimensions.
        source: Source,
        /// Bytes of device memory that the kernel reads and writes, as declared by `#[kernel(bytes = …)]`; 0 if
        /// unknown.
        bytes: u64,
    },
    /// Begins a capture on the stream.
    CaptureBegin,
    /// Ends the capture that began on the stream. Also reported if the capture fails or is dropped.
    CaptureEnd {
        /// The graph; `None` at the start and after a failure.
        graph: Option<GraphHandle>,
        /// The number of kernels in the graph.
        kernels: usize,
    },
    /// Instantiates a graph.
    GraphInstantiate {
        /// The graph.
        graph: GraphHandle,
        /// The executable; `None` at the start and after a failure.
        exec: Option<GraphExecHandle>,
    },
    /// Adds a node to a graph.
    GraphAdd {
        /// The graph.
        graph: GraphHandle,
    },
    /// Enqueues a graph.
    GraphLaunch {
        /// The executable.
        exec: GraphExecHandle,
        /// The nodes of the executable.
        nodes: &'a Arc<GraphNodes>,
        /// The graph's kernels and their configurations, limited to the number that a fault message can name.
        kernels: &'a [(&'static KernelSpec, LaunchConfig)],
    },
    /// Enqueues a copy. A large copy staged through host memory is reported as several copies.
    Copy {
        /// The direction of the copy.
        direction: CopyDirection,
        /// Address of the source.
        from: u64,
        /// Address of the destination.
        to: u64,
        /// The number of bytes.
        bytes: usize,
    },
    /// Enqueues a memset.
    Memset {
        /// Address of the destination.
        to: u64,
        /// The value of each byte.
        value: u8,
        /// The number of bytes.
        bytes: usize,
    },
    /// Enqueues a host function call.
    HostFunction,
    /// Enqueues work through the [extension API](crate::extension), such as a library call.
    Extension {
        /// The [name](crate::Stream::enqueue_named) of the work. The default name is the path of the Rust function that
        /// enqueued the work, including the suffix that the compiler appends for closures.
        name: &'static str,
    },
    /// Records an event.
    EventRecord {
        /// The event.
        event: EventHandle,
    },
    /// Makes a stream wait for an event, explicitly or to synchronize two uses of a buffer.
    EventWait {
        /// The event.
        event: EventHandle,
        /// The stream on which the event was recorded, if known.
        on: Option<StreamHandle>,
        /// The buffer whose uses are synchronized; `None` if the program requested the wait.
        buffer: Option<AwaitedBuffer>,
    },
    /// Makes the host wait for work.
    Synchronize(Awaited),
    /// Allocates memory.
    Allocate {
        /// The kind of memory.
        memory: MemoryKind,
        /// The number of bytes requested.
        bytes: usize,
        /// Address of the memory; 0 at the start.
        address: u64,
        /// The pool that the memory came from; the default pool at the start.
        pool: PoolId,
        /// True if a free block of the cache served the request. False if the allocator called the driver or took
        /// memory from another stream, and at the start.
        cached: bool,
        /// For device memory, the bytes that the allocator has reserved from the driver after the operation; 0 at the
        /// start.
        reserved: u64,
    },
    /// Returns memory to the cache.
    Free {
        /// The kind of memory.
        memory: MemoryKind,
        /// The number of bytes originally requested.
        bytes: usize,
        /// Address of the memory.
        address: u64,
    },
}

/// The buffer that makes an operation wait for another stream.
///
/// [`Operation::EventWait`] contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwaitedBuffer {
    /// Address of the buffer.
    pub address: u64,
    /// Size of the buffer, in bytes.
    pub bytes: usize,
    /// True if the waiting work writes the buffer, false if it reads data that was written on the other stream.
    pub write: bool,
}

/// The direction of a copy.
///
/// [`Operation::Copy`] contains it, as in the example of [`observe`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum CopyDirection {
    HostToDevice,
    DeviceToHost,
    /// Within a device.
    DeviceToDevice,
    /// Between two devices.
    PeerToPeer,
}

/// The object for which the host waits.
///
/// [`Operation::Synchronize`] contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Awaited {
    /// All work on the device.
    Device,
    /// All work on the operation's stream.
    Stream,
    /// An event.
    Event(EventHandle),
}

/// A kind of memory.
///
/// [`Operation::Allocate`] and [`Operation::Free`] contain it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Device memory.
    Device,
    /// Page-locked host memory.
    Pinned,
}

/// An observer, with a flag that is true while the observer is active.
struct Entry {
    observer: Box<dyn Observer>,
    active: AtomicBool,
    origin: fork::Origin,
}

type Entries = Arc<[Arc<Entry>]>;

/// The registered observers. Observers are never called while the lock is held.
static ENTRIES: RwLock<Option<Entries>> = RwLock::new(None);

thread_local! {
    static CALLING: Cell<bool> = const { Cell::new(false) };
    /// The source line that called the runtime on this thread.
    static SITE: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// Guard that attributes operations to a source line until dropped, if there are observers or captures.
///
/// See the example of [`site`].
#[must_use]
#[derive(Debug)]
pub struct Site {
    is_noted: bool,
    /// Makes the type `!Send`, because the guard must be dropped on the thread that created it.
    _of_thread: PhantomData<*const ()>,
}

/// Attributes this thread's operations to the caller's source line until the result is dropped, for
/// [observers](Observed::site) and captured work. The outermost call wins, so a crate built on the runtime can
/// attribute operations to its own caller. Without observers and captures, the cost is one load and one branch.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use warpsmith_runtime::extension::{Ended, Observed, Observer, observe, site};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// /// A function of another crate. Its operations are attributed to the line that calls it.
/// #[track_caller]
/// fn ones(device: &Device) -> Result<DeviceBuffer<u8>, warpsmith_runtime::Error> {
///     let _site = site();
///     DeviceBuffer::from_host(&device.default_stream(), &[1; 4])
/// }
///
/// struct Lines(Arc<Mutex<Vec<u32>>>);
///
/// impl Observer for Lines {
///     fn end(&self, observed: &Observed<'_>, _: Ended) {
///         self.0.lock().unwrap().extend(observed.site.map(|site| site.line()));
///     }
/// }
///
/// let (device, lines) = (Device::emulated(0)?, Arc::new(Mutex::new(Vec::new())));
/// let observation = observe(Lines(lines.clone()));
/// let (line, _ones) = (line!(), ones(&device)?);
/// drop(observation);
/// let lines = lines.lock().unwrap();
/// assert!(!lines.is_empty() && lines.iter().all(|found| *found == line));
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[inline(always)]
#[track_caller]
pub fn site() -> Site {
    let is_noted = flags::must_report() && note_site(Location::caller());
    Site { is_noted, _of_thread: PhantomData }
}

/// Like [`site`], but for methods that add graph nodes. Records the line even without observers.
#[track_caller]
pub(crate) fn site_of_node() -> Site {
    Site { is_noted: note_site(Location::caller()), _of_thread: PhantomData }
}

/// Records the line unless an outer call has recorded one. Returns true if the line was recorded.
#[cold]
#[inline(never)]
fn note_site(caller: &'static Location<'static>) -> bool {
    let is_outermost = SITE.get().is_none();
    if is_outermost {
        SITE.set(Some(caller));
    }
    is_outermost
}

impl Drop for Site {
    #[inline(always)]
    fn drop(&mut self) {
        if self.is_noted {
            SITE.set(None);
        }
    }
}

/// Returns true if this thread is running an observer's callback.
pub(super) fn is_calling() -> bool {
    CALLING.get()
}

/// Unregisters the observer when dropped; see [`observe`].
///
/// See the example of [`observe`].
#[must_use = "the observer is removed when this is dropped"]
pub struct Observation(Arc<Entry>);

/// Calls an observer for every operation on every device of the process, including devices opened later, until the
/// returned guard is dropped.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use warpsmith_runtime::extension::{Ended, Observed, Observer, Operation, observe};
/// use warpsmith_runtime::{Device, DeviceBuffer};
///
/// /// The bytes of each copy.
/// struct Copies(Arc<Mutex<Vec<usize>>>);
///
/// impl Observer for Copies {
///     fn end(&self, observed: &Observed<'_>, ended: Ended) {
///         if let Operation::Copy { bytes, .. } = observed.operation
///             && ended.succeeded
///         {
///             self.0.lock().unwrap().push(bytes);
///         }
///     }
/// }
///
/// let copies = Arc::new(Mutex::new(Vec::new()));
/// let observation = observe(Copies(Arc::clone(&copies)));
/// let buffer = DeviceBuffer::from_host(&Device::emulated(0)?.default_stream(), &[1.0f32, 2.0])?;
/// drop(observation);
/// assert_eq!(buffer.to_host()?, [1.0, 2.0]);
/// assert_eq!(*copies.lock().unwrap(), [8]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
pub fn observe(observer: impl Observer + 'static) -> Observation {
    let entry = Arc::new(Entry {
        observer: Box::new(observer),
        active: AtomicBool::new(true),
        origin: fork::Origin::default(),
    });
    change(|entries| entries.push(Arc::clone(&entry)));
    Observation(entry)
}

/// Modifies the list of observers.
fn change(how: impl FnOnce(&mut Vec<Arc<Entry>>)) {
    let mut entries = ENTRIES.write().unwrap_or_else(PoisonError::into_inner);
    let mut list = entries.iter().flat_map(|entries| entries.iter().cloned()).collect();
    how(&mut list);
    flags::set_observed(!list.is_empty());
    let before = entries.replace(list.into());
    drop(entries);
    drop(before);
}

impl Entry {
    /// Removes the observer.
    fn remove(self: &Arc<Self>) {
        if self.active.swap(false, Ordering::AcqRel) {
            change(|entries| entries.retain(|entry| !Arc::ptr_eq(entry, self)));
        }
    }

    /// Calls the observer, unless it was removed, and removes it if it panics.
    fn call(self: &Arc<Self>, call: impl FnOnce(&dyn Observer)) {
        if !self.active.load(Ordering::Acquire) || self.origin.is_elsewhere() {
            return;
        }
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| call(&*self.observer))) {
            self.remove();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&'static str>().copied());
            tracing::error!(panic = text.unwrap_or("without text"), "an observer panicked and was removed");
            // Dropping the panic payload may itself panic.
            std::mem::forget(payload);
        }
    }
}

impl Drop for Observation {
    /// Removes the observer. No callback starts afterwards, but one already started on another thread may still be
    /// running.
    fn drop(&mut self) {
        self.0.remove();
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observation")
    }
}

/// An operation in progress. The operation ends when this value is dropped.
#[must_use]
pub(crate) struct Watch<'a>(Option<Watching<'a>>);

struct Watching<'a> {
    observed: Observed<'a>,
    /// The observers to call; `None` if no observer is registered.
    entries: Option<Entries>,
    succeeded: bool,
    /// The note of the operation, if the operation captures work.
    note: Option<(Note, Arc<dyn Noted>)>,
}

/// The stream of an operation.
pub(crate) struct On {
    pub stream: ObservedStream,
    /// The capture to which the stream belongs.
    pub capture: Option<Arc<dyn Noted>>,
}

/// Calls `call`, and reports the start and the end of the operation. The closure `what`, which returns the stream and
/// the operation, is called only if an observer is registered or work is captured. Otherwise, the overhead is one load
/// and one branch.
#[inline(always)]
pub(crate) fn around<'a, R, E>(
    device: &'a Device,
    what: impl FnOnce() -> (Option<On>, Operation<'a>),
    call: impl FnOnce() -> Result<R, E>,
) -> Result<R, E> {
    let mut watch = begin(device, what);
    let result = call();
    watch.ended(result.is_ok());
    result
}

/// Reports the start of an operation. As in [`around`], the closure `what` is called only if an observer is registered
/// or work is captured.
#[inline]
pub(crate) fn begin<'a>(device: &'a Device, what: impl FnOnce() -> (Option<On>, Operation<'a>)) -> Watch<'a> {
    if flags::must_report() { Watch(begin_observed(device, what)) } else { Watch(None) }
}

#[cold]
#[inline(never)]
fn begin_observed<'a>(
    device: &'a Device,
    what: impl FnOnce() -> (Option<On>, Operation<'a>),
) -> Option<Watching<'a>> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if host_function::is_running() || device.is_forked() {
        // A forked child or an observer's callback cannot perform or report operations.
        return None;
    }
    let entries = ENTRIES.read().unwrap_or_else(PoisonError::into_inner).clone();
    let entries = entries.filter(|entries| !entries.is_empty());
    let (on, operation) = what();
    let (stream, capture) = on.map_or((None, None), |on| (Some(on.stream), on.capture));
    let id = if entries.is_some() { NEXT.fetch_add(1, Ordering::Relaxed) } else { 0 };
    let site = SITE.get();
    let note = capture.zip(stream).and_then(|(capture, stream)| {
        let note = Note::begin(&operation, || capture.tips(stream.handle))?;
        Some((Note { operation: id, site, ..note }, capture))
    });
    if entries.is_none() && note.is_none() {
        return None;
    }
    let began = if entries.is_some() { SystemTime::now() } else { SystemTime::UNIX_EPOCH };
    let observed = Observed { id, device, stream, operation, began, site };
    let watching = Watching { observed, entries, succeeded: false, note };
    watching.notify(|observer| observer.begin(&watching.observed));
    Some(watching)
}

impl Watching<'_> {
    /// Calls all observers.
    fn notify(&self, call: impl Fn(&dyn Observer)) {
        let Some(entries) = &self.entries else { return };
        CALLING.set(true);
        host_function::inside(|| entries.iter().for_each(|entry| entry.call(&call)));
        CALLING.set(false);
    }

    #[cold]
    #[inline(never)]
    fn end(mut self) {
        let at = if self.entries.is_some() { SystemTime::now() } else { SystemTime::UNIX_EPOCH };
        let ended = Ended { at, succeeded: self.succeeded };
        if let Some((mut note, capture)) = self.note.take()
            && let Some(stream) = self.observed.stream
        {
            note.after = capture.tips(stream.handle);
            capture.note(note);
        }
        self.notify(|observer| observer.end(&self.observed, ended));
        // Dropping the list may drop a removed observer.
        let Self { entries, .. } = self;
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(entries))) {
            std::mem::forget(payload);
        }
    }
}

impl<'a> Watch<'a> {
    /// Records the operation's result, so that the end callback can report it.
    #[inline]
    pub fn done<R, E>(mut self, result: Result<R, E>) -> Result<R, E> {
        self.ended(result.is_ok());
        result
    }

    /// Returns the operation's ID (0 without observers) and its source line.
    pub fn noted(&self) -> (u64, Option<&'static Location<'static>>) {
        (self.0.as_ref().map_or(0, |watching| watching.observed.id), SITE.get())
    }

    /// Records whether the operation succeeded.
    #[inline]
    pub fn ended(&mut self, succeeded: bool) {
        if let Some(watching) = &mut self.0 {
            watching.succeeded = succeeded;
        }
    }

    /// Updates the operation with results, such as an address.
    #[inline]
    pub fn found(&mut self, what: impl FnOnce() -> Operation<'a>) {
        if let Some(watching) = &mut self.0 {
            (watching.observed.operation, watching.succeeded) = (what(), true);
        }
    }
}

impl Drop for Watch<'_> {
    #[inline]
    fn drop(&mut self) {
        if let Some(watching) = self.0.take() {
            watching.end();
        }
    }
}
