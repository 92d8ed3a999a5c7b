//! [`listen`]: reports ranges to profilers.
//!
//! A listener receives the end of exactly those ranges whose start it received. A listener that panics is removed.
//! Ranges and marks that a listener itself creates are not reported.

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::ranges::label::Label;
use crate::ranges::misuse::Misuse;
use crate::ranges::state::{self, PerProcess};

/// ID of a range or mark, unique in the process. Later ranges have larger IDs.
///
/// See the example of [`listen`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeId(pub(crate) NonZeroU64);

impl RangeId {
    /// Returns the ID as a number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// Kind of an event.
///
/// See the example of [`listen`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Start of a range on the thread's stack.
    Push,
    /// End of a range on the thread's stack.
    Pop,
    /// A mark at a point in time.
    Mark,
    /// Start of a range that any thread may end.
    Start,
    /// End of a range that any thread may end.
    End,
}

/// The start or end of a range, or a mark.
///
/// See the example of [`listen`].
#[derive(Debug)]
pub struct Event<'a> {
    /// Kind of the event.
    pub kind: Kind,
    /// ID of the range, the same at its start and its end.
    pub id: RangeId,
    /// The innermost range that was open on the thread when this range started.
    pub parent: Option<RangeId>,
    /// System ID of the calling thread.
    pub thread: u64,
    /// Name, category, color, payload and source location, the same at the start and the end.
    pub label: &'a Label,
}

/// Receiver of the ranges and marks of the process, registered by [`listen`].
///
/// The methods are called synchronously on the thread that starts or ends the range, possibly on several threads at
/// once.
///
/// See the example of [`listen`].
pub trait Listener: Send + Sync {
    /// Receives an event when it occurs.
    fn event(&self, event: &Event<'_>);

    /// Receives a misuse of ranges by the program.
    fn misuse(&self, misuse: &Misuse) {
        let _ = misuse;
    }
}

struct Entry {
    listener: Box<dyn Listener>,
    active: AtomicBool,
    /// Lowest ID that the listener receives.
    since: AtomicU64,
}

type Entries = Option<Arc<[Arc<Entry>]>>;

static ENTRIES: PerProcess<RwLock<Entries>> = PerProcess::new();
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// Removes the listener when dropped.
///
/// See the example of [`listen`].
#[must_use = "the listener is removed when this is dropped"]
pub struct Listening {
    entry: Arc<Entry>,
    forks: u32,
}

/// Calls a listener for every range and mark of the process until the returned value is dropped. Ranges that are
/// already open are not reported. A forked process has no listeners.
///
/// ```
/// use std::sync::{Arc, Mutex};
/// use warpsmith_runtime::ranges::{Event, Kind, Listener, listen, range};
///
/// struct Names(Arc<Mutex<Vec<String>>>);
///
/// impl Listener for Names {
///     fn event(&self, event: &Event<'_>) {
///         if event.kind == Kind::Push {
///             self.0.lock().unwrap().push(event.label.name.to_string());
///         }
///     }
/// }
///
/// let names = Arc::new(Mutex::new(Vec::new()));
/// let listening = listen(Names(Arc::clone(&names)));
/// {
///     let _epoch = range!("epoch");
///     (0..2).for_each(|step| drop(range!("step {step}")));
/// }
/// drop(listening);
/// drop(range!("not heard"));
/// assert_eq!(*names.lock().unwrap(), ["epoch", "step 0", "step 1"]);
/// ```
pub fn listen(listener: impl Listener + 'static) -> Listening {
    state::watch_forks();
    let entry = Arc::new(Entry {
        listener: Box::new(listener),
        active: AtomicBool::new(true),
        since: AtomicU64::new(u64::MAX),
    });
    change(|entries| entries.push(Arc::clone(&entry)));
    // A thread that receives this ID or a later one reads the new list.
    entry.since.store(NEXT.fetch_add(1, Ordering::AcqRel), Ordering::Release);
    Listening { entry, forks: state::forks() }
}

fn change(how: impl FnOnce(&mut Vec<Arc<Entry>>)) {
    let mut entries = ENTRIES.get().write().unwrap_or_else(PoisonError::into_inner);
    let mut list = entries.iter().flat_map(|entries| entries.iter().cloned()).collect();
    how(&mut list);
    if list.is_empty() {
        state::clear(state::LISTENERS)
    } else {
        state::set(state::LISTENERS)
    }
    let before = entries.replace(list.into());
    drop(entries);
    // The lock is released first, because dropping the list may drop listeners.
    drop(before);
}

pub(crate) fn next_id() -> RangeId {
    let id = NEXT.fetch_add(1, Ordering::AcqRel);
    // The counter does not wrap during the lifetime of a process.
    RangeId(NonZeroU64::new(id).unwrap_or(NonZeroU64::MAX))
}

/// Returns true if this thread is inside a listener call.
pub(crate) fn is_calling() -> bool {
    CALLING.try_with(Cell::get).unwrap_or(true)
}

pub(crate) fn report(event: &Event<'_>) {
    let id = event.id.get();
    each(|entry| id >= entry.since.load(Ordering::Acquire), |listener| listener.event(event));
}

pub(crate) fn report_misuse(misuse: &Misuse) {
    tracing::warn!("{misuse}");
    each(|_| true, |listener| listener.misuse(misuse));
}

fn each(wanted: impl Fn(&Entry) -> bool, call: impl Fn(&dyn Listener)) {
    if !state::has(state::LISTENERS) || is_calling() {
        return;
    }
    let Some(entries) = ENTRIES.get().read().unwrap_or_else(PoisonError::into_inner).clone() else { return };
    CALLING.set(true);
    for entry in entries.iter().filter(|entry| wanted(entry)) {
        entry.call(&call);
    }
    // Dropping the list may drop a removed listener.
    forget_panic(catch_unwind(AssertUnwindSafe(|| drop(entries))));
    CALLING.set(false);
}

/// Discards a panic without dropping its payload, which might itself panic.
fn forget_panic(result: std::thread::Result<()>) {
    if let Err(payload) = result {
        std::mem::forget(payload);
    }
}

impl Entry {
    fn call(self: &Arc<Self>, call: impl FnOnce(&dyn Listener)) {
        if !self.active.load(Ordering::Acquire) {
            return;
        }
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| call(&*self.listener))) {
            self.remove();
            let text = payload.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| payload.downcast_ref::<&'static str>().copied());
            tracing::error!(
                panic = text.unwrap_or("without text"),
                "a listener of ranges panicked and was removed"
            );
            std::mem::forget(payload);
        }
    }

    fn remove(self: &Arc<Self>) {
        if self.active.swap(false, Ordering::AcqRel) {
            change(|entries| entries.retain(|entry| !Arc::ptr_eq(entry, self)));
        }
    }
}

impl Drop for Listening {
    /// Prevents further calls. One already started on another thread may still be running.
    fn drop(&mut self) {
        if self.forks == state::forks() {
            self.entry.remove();
        }
    }
}

impl fmt::Debug for Listening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listening")
    }
}
