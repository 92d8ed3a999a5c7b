//! The observer seam: what a profiler sees of the runtime.
//!
//! Guarantees: each operation is reported at its beginning and at its end, on the thread that called, by one function
//! ([`begin`]). While there is no observer and nothing is captured, an operation pays one load and a branch that is predicted
//! ([`around`]), and no time is taken. Captured work is [noted](super::graph_nodes) in any case, for observers that come later.
//!
//! Callbacks may come while locks of the runtime are held, so an observer must not use devices. Where it does, the runtime
//! refuses: calls fail with [`Error::InObserver`](crate::Error::InObserver), the driver is not called, and what needs a device to be dropped is dropped
//! by another thread, as in host functions. Callbacks cause no callbacks. An observer that panics is removed.

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
use super::{Device, fork};
use crate::driver::{EventHandle, GraphExecHandle, GraphHandle, LaunchConfig, StreamHandle, host_function};
use crate::error::{PoolId, Result};

/// Receives the operations of every device of the process: see [`observe`].
///
/// Callbacks come from any thread, also from several at once, and the operation waits for them. Computing, reading clocks,
/// locks of the observer's own, atomics and channels are fine. Devices, streams, buffers and the allocator's figures are not:
/// locks of the runtime may be held. Calls that would use a device fail with [`Error::InObserver`](crate::Error::InObserver).
pub trait Observer: Send + Sync {
    /// An operation begins: the driver has not been called yet.
    fn begin(&self, operation: &Observed<'_>) {
        let _ = operation;
    }

    /// The operation's call has returned. Work that it enqueued may still run. It comes once after each
    /// [`Self::begin`], on the same thread, unless the observer was removed meanwhile.
    fn end(&self, operation: &Observed<'_>, ended: Ended);
}

/// An operation of the runtime.
#[derive(Debug)]
pub struct Observed<'a> {
    /// The same at the beginning and at the end. No other operation of the process has it, and later ones have a larger one.
    pub id: u64,
    /// The device. It is for comparison and for [`Device::id`]; calls that use it fail.
    pub device: &'a Device,
    /// The stream, of an operation that has one.
    pub stream: Option<ObservedStream>,
    /// The operation.
    pub operation: Operation<'a>,
    /// When it began.
    pub began: SystemTime,
    /// The source line that called the runtime, of an operation whose method notes it.
    pub site: Option<&'static Location<'static>>,
}

/// A stream as observers see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObservedStream {
    /// [`Stream::id`](crate::Stream::id).
    pub id: u64,
    /// The driver's handle.
    pub handle: StreamHandle,
    /// Whether it is being captured: the operation becomes part of a graph and does not run.
    pub is_capturing: bool,
}

/// The end of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ended {
    /// When it ended.
    pub at: SystemTime,
    /// Whether it returned without an error.
    pub succeeded: bool,
}

/// The kind of an operation. Addresses are of the device, or of the process for memory of the host.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum Operation<'a> {
    /// Enqueues a kernel.
    Launch {
        /// Its symbol in the image.
        kernel: &'a str,
        /// Its configuration.
        config: &'a LaunchConfig,
        /// The kernel instance. Of a kernel of code that was loaded at run time it says the name alone.
        spec: &'static KernelSpec,
        /// Where block and grid come from.
        source: Source,
        /// Bytes of device memory that it reads and writes, as `#[kernel(bytes = …)]` says; 0 when that is unknown.
        bytes: u64,
    },
    /// Begins a capture on the stream.
    CaptureBegin,
    /// Ends the capture that began on the stream, also where it fails or is dropped.
    CaptureEnd {
        /// The graph; `None` before the end, and when it failed.
        graph: Option<GraphHandle>,
        /// Its kernels.
        kernels: usize,
    },
    /// Makes a graph executable.
    GraphInstantiate {
        /// The graph.
        graph: GraphHandle,
        /// The executable; `None` before the end.
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
        /// What it does.
        nodes: &'a Arc<GraphNodes>,
        /// Kernels of it, each in a configuration; not more than a message about a fault names.
        kernels: &'a [(&'static KernelSpec, LaunchConfig)],
    },
    /// Enqueues a copy. A large copy through host memory is several.
    Copy {
        /// From where to where.
        direction: CopyDirection,
        /// Where the source begins.
        from: u64,
        /// Where the target begins.
        to: u64,
        /// The number of bytes.
        bytes: usize,
    },
    /// Enqueues setting bytes to a value.
    Memset {
        /// Where it begins.
        to: u64,
        /// The value of each byte.
        value: u8,
        /// The number of bytes.
        bytes: usize,
    },
    /// Enqueues a call of a function of the host.
    HostFunction,
    /// Enqueues work through the [seam](crate::seam), for example a library's.
    Extension {
        /// Its [name](crate::Stream::enqueue_named), or the path of the Rust function that made it, with what the compiler
        /// appends for closures.
        name: &'static str,
    },
    /// Records an event.
    EventRecord {
        /// The event.
        event: EventHandle,
    },
    /// Makes a stream wait for an event, on its own account or because buffers need the order.
    EventWait {
        /// The event.
        event: EventHandle,
        /// The stream whose work is waited for, if it is known.
        on: Option<StreamHandle>,
        /// The buffer that needs the order; `None` of a wait of the program's own.
        buffer: Option<AwaitedBuffer>,
    },
    /// The host waits.
    Synchronize(Awaited),
    /// Allocates memory.
    Allocate {
        /// Which memory.
        memory: MemoryKind,
        /// The number of bytes requested.
        bytes: usize,
        /// Where it begins; 0 before the end.
        address: u64,
        /// The pool that it came from; the default one before the end.
        pool: PoolId,
        /// Whether a free block of the cache served the request. If not, the driver was called, or another stream's memory
        /// was taken. `false` before the end.
        cached: bool,
        /// Bytes that the allocator has from the driver afterwards, for memory of the device; 0 before the end.
        reserved: u64,
    },
    /// Frees memory, which goes to the cache.
    Free {
        /// Which memory.
        memory: MemoryKind,
        /// The number of bytes that had been requested.
        bytes: usize,
        /// Where it begins.
        address: u64,
    },
}

/// A buffer whose use on another stream must be waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AwaitedBuffer {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub bytes: usize,
    /// Whether the work that waits writes it; else it reads what was written.
    pub write: bool,
}

/// From where to where a copy goes.
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

/// The target of a wait of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Awaited {
    /// Everything on the device.
    Device,
    /// Everything on the operation's stream.
    Stream,
    /// An event.
    Event(EventHandle),
}

/// A kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// Of the device.
    Device,
    /// Page-locked memory of the host.
    Pinned,
}

/// An observer, and whether it is still called.
struct Entry {
    observer: Box<dyn Observer>,
    active: AtomicBool,
    origin: fork::Origin,
}

type Entries = Arc<[Arc<Entry>]>;

/// The observers. None is called under the lock.
static ENTRIES: RwLock<Option<Entries>> = RwLock::new(None);

thread_local! {
    static CALLING: Cell<bool> = const { Cell::new(false) };
    /// The source line that called the runtime on this thread.
    static SITE: Cell<Option<&'static Location<'static>>> = const { Cell::new(None) };
}

/// Notes the source line that calls the runtime for the operations until this is dropped, if there are observers.
#[must_use]
#[derive(Debug)]
pub struct Site {
    is_noted: bool,
    /// It is dropped on the thread that made it.
    _of_thread: PhantomData<*const ()>,
}

/// The caller's source line is that of the operations on this thread, for [observers](Observed::site) and for what is captured,
/// until the result is dropped. The outermost one counts, so that a crate which calls the runtime shows its own caller. While
/// there is no observer and no capture, it is a load and a branch.
#[inline(always)]
#[track_caller]
pub fn site() -> Site {
    let is_noted = fork::is_observed() && note_site(Location::caller());
    Site { is_noted, _of_thread: PhantomData }
}

/// As [`site`], of what adds to a graph, which keeps the line whether or not there are observers.
#[track_caller]
pub(crate) fn site_of_node() -> Site {
    Site { is_noted: note_site(Location::caller()), _of_thread: PhantomData }
}

/// Whether the line was noted.
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

/// Whether this thread calls an observer.
pub(super) fn is_calling() -> bool {
    CALLING.get()
}

/// Keeps an observer: see [`observe`].
#[must_use = "the observer is removed when this is dropped"]
pub struct Observation(Arc<Entry>);

/// Calls an observer for every operation of every device of the process, open or to be opened, until the result is dropped.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use warpsmith_runtime::seam::{Ended, Observed, Observer, Operation, observe};
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
/// # fn main() -> Result<(), warpsmith_runtime::Error> {
/// let copies = Arc::new(Mutex::new(Vec::new()));
/// let observation = observe(Copies(Arc::clone(&copies)));
/// let buffer = DeviceBuffer::from_host(&Device::emulated(0)?.default_stream(), &[1.0f32, 2.0])?;
/// drop(observation);
/// assert_eq!(buffer.to_host()?, [1.0, 2.0]);
/// assert_eq!(*copies.lock().unwrap(), [8]);
/// # Ok(())
/// # }
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

/// Changes the list of observers.
fn change(how: impl FnOnce(&mut Vec<Arc<Entry>>)) {
    let mut entries = ENTRIES.write().unwrap_or_else(PoisonError::into_inner);
    let mut list = entries.iter().flat_map(|entries| entries.iter().cloned()).collect();
    how(&mut list);
    fork::set_observed(!list.is_empty());
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

    /// Calls the observer, unless it was removed.
    fn call(self: &Arc<Self>, call: impl FnOnce(&dyn Observer)) {
        if !self.active.load(Ordering::Acquire) || self.origin.is_elsewhere() {
            return;
        }
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| call(&*self.observer))) {
            self.remove();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&'static str>().copied());
            tracing::error!(panic = text.unwrap_or("without text"), "an observer panicked and was removed");
            // Dropping what it panicked with may panic.
            std::mem::forget(payload);
        }
    }
}

impl Drop for Observation {
    /// No callback begins afterwards. One that another thread has begun may still run.
    fn drop(&mut self) {
        self.0.remove();
    }
}

impl fmt::Debug for Observation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observation")
    }
}

/// An operation that has begun. It ends when this is dropped.
#[must_use]
pub(crate) struct Watch<'a>(Option<Watching<'a>>);

struct Watching<'a> {
    observed: Observed<'a>,
    /// `None` without observers.
    entries: Option<Entries>,
    succeeded: bool,
    /// Of an operation that captures work.
    note: Option<(Note, Arc<dyn Noted>)>,
}

/// The stream of an operation.
pub(crate) struct On {
    pub stream: ObservedStream,
    /// The capture that it takes part in.
    pub capture: Option<Arc<dyn Noted>>,
}

/// Reports an operation, for which `what` is called if an observer is registered or work is captured. Otherwise it costs a load
/// and a branch beside `call`.
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

/// Reports the beginning of an operation, for which `what` is called as in [`around`].
#[inline]
pub(crate) fn begin<'a>(device: &'a Device, what: impl FnOnce() -> (Option<On>, Operation<'a>)) -> Watch<'a> {
    if fork::is_observed() { Watch(begin_observed(device, what)) } else { Watch(None) }
}

#[cold]
#[inline(never)]
fn begin_observed<'a>(
    device: &'a Device,
    what: impl FnOnce() -> (Option<On>, Operation<'a>),
) -> Option<Watching<'a>> {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    if host_function::is_running() || device.is_forked() {
        // Nothing can be done there, by observers neither.
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
        // What is left of a removed observer may be dropped with the list.
        let Self { entries, .. } = self;
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(entries))) {
            std::mem::forget(payload);
        }
    }
}

impl<'a> Watch<'a> {
    /// Notes the result of the operation.
    #[inline]
    pub fn done<R, E>(mut self, result: Result<R, E>) -> Result<R, E> {
        self.ended(result.is_ok());
        result
    }

    /// The operation's id, 0 without observers, and its source line.
    pub fn noted(&self) -> (u64, Option<&'static Location<'static>>) {
        (self.0.as_ref().map_or(0, |watching| watching.observed.id), SITE.get())
    }

    /// Notes whether the operation succeeded.
    #[inline]
    pub fn ended(&mut self, succeeded: bool) {
        if let Some(watching) = &mut self.0 {
            watching.succeeded = succeeded;
        }
    }

    /// Says with what the operation succeeds, where that was not known when it began.
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
