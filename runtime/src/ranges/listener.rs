//! [`listen`]: what profilers get of ranges.
//!
//! Guarantees: a listener gets the end of each range whose beginning it got, and of no other. One that panics is removed.
//! What a listener does in a call causes no calls.

use std::cell::Cell;
use std::fmt;
use std::num::NonZeroU64;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use crate::ranges::label::Label;
use crate::ranges::misuse::Misuse;
use crate::ranges::state::{self, PerProcess};

/// A number that no other range or mark of the process has. Later ones have larger numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RangeId(pub(crate) NonZeroU64);

impl RangeId {
    /// The number.
    pub fn get(self) -> u64 {
        self.0.get()
    }
}

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A range of the thread's stack began.
    Push,
    /// A range of the thread's stack ended.
    Pop,
    /// A moment.
    Mark,
    /// A range began that any thread may end.
    Start,
    /// Such a range ended.
    End,
}

/// The beginning or end of a range, or a mark.
#[derive(Debug)]
pub struct Event<'a> {
    /// What happened.
    pub kind: Kind,
    /// Of the range: the same at its beginning and its end.
    pub id: RangeId,
    /// The innermost range that was open on the thread when this one began.
    pub parent: Option<RangeId>,
    /// The thread that called, by the system's number.
    pub thread: u64,
    /// Name, category, colour, payload and place in the source, the same at the beginning and at the end.
    pub label: &'a Label,
}

/// Gets the ranges and marks of the process: see [`listen`].
///
/// Calls come on the thread that uses the range, from several at once, and the program waits for them.
pub trait Listener: Send + Sync {
    /// Something happened, now.
    fn event(&self, event: &Event<'_>);

    /// The program made a mistake with ranges.
    fn misuse(&self, misuse: &Misuse) {
        let _ = misuse;
    }
}

struct Entry {
    listener: Box<dyn Listener>,
    active: AtomicBool,
    /// The first id that it gets.
    since: AtomicU64,
}

type Entries = Option<Arc<[Arc<Entry>]>>;

static ENTRIES: PerProcess<RwLock<Entries>> = PerProcess::new();
static NEXT: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static CALLING: Cell<bool> = const { Cell::new(false) };
}

/// A registered listener. It is removed when this is dropped.
#[must_use = "the listener is removed when this is dropped"]
pub struct Listening {
    entry: Arc<Entry>,
    forks: u32,
}

/// Calls a listener for every range and mark of the process from now on, until the result is dropped. Ranges that are open
/// already are not reported. A forked process has no listeners.
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
    // Whoever gets this id or a later one reads the list after it was changed.
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
    // Without the lock: listeners may go with it.
    drop(before);
}

/// The next id.
pub(crate) fn next_id() -> RangeId {
    let id = NEXT.fetch_add(1, Ordering::AcqRel);
    // It does not wrap around in the life of a process.
    RangeId(NonZeroU64::new(id).unwrap_or(NonZeroU64::MAX))
}

/// Whether this thread is in a call of a listener.
pub(crate) fn is_calling() -> bool {
    CALLING.try_with(Cell::get).unwrap_or(true)
}

/// Reports an event.
pub(crate) fn report(event: &Event<'_>) {
    let id = event.id.get();
    each(|entry| id >= entry.since.load(Ordering::Acquire), |listener| listener.event(event));
}

/// Reports a mistake.
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
    // What is left of a removed listener may be dropped with the list.
    forget_panic(catch_unwind(AssertUnwindSafe(|| drop(entries))));
    CALLING.set(false);
}

/// Dropping what was panicked with may panic.
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
    /// No call begins afterwards. One that another thread has begun may still run.
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
