//! Nested ranges: a stack per thread, which determines the parent of a range.
//!
//! Ending a range before a range nested in it is a [`Misuse`]. The end is reported immediately, except to tools that
//! support only a stack, which receive it together with the end of the nested range.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::ranges::injection;
use crate::ranges::label::Label;
use crate::ranges::listener::{Event, Kind, RangeId, is_calling, next_id, report, report_misuse};
use crate::ranges::misuse::Misuse;
use crate::ranges::state::{self, PerProcess};

struct Open {
    /// ID of the range; `None` if no listener or tool received its start.
    id: Option<RangeId>,
    parent: Option<RangeId>,
    label: Label,
    /// True if a pop ends the range; false if a guard does.
    pushed: bool,
    /// True if the range has ended, but a range above it on the stack has not.
    ended: bool,
    /// True if the tool has received the range.
    in_tool: bool,
}

type Ranges = Mutex<Vec<Open>>;
type Stacks = Mutex<Vec<(Weak<Ranges>, u64)>>;

/// Stack of a thread. Other threads read the stack only for diagnostics.
struct Stack {
    ranges: Arc<Ranges>,
    thread: u64,
    forks: u32,
}

/// Stacks of all threads, each with the thread's ID.
static STACKS: PerProcess<Stacks> = PerProcess::new();

thread_local! {
    static STACK: RefCell<Option<Stack>> = const { RefCell::new(None) };
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns the thread's stack; `None` if the thread is exiting.
fn stack() -> Option<Arc<Ranges>> {
    STACK
        .try_with(|stack| {
            let mut stack = stack.try_borrow_mut().ok()?;
            match &*stack {
                Some(stack) if stack.forks == state::forks() => Some(Arc::clone(&stack.ranges)),
                _ => {
                    let new =
                        Stack { ranges: Arc::default(), thread: state::thread(), forks: state::forks() };
                    let ranges = Arc::clone(&new.ranges);
                    let mut stacks = lock(STACKS.get());
                    stacks.retain(|(ranges, _)| ranges.strong_count() > 0);
                    stacks.push((Arc::downgrade(&ranges), new.thread));
                    drop(stacks);
                    // The stack of the parent process is leaked, because its lock may be held forever.
                    std::mem::forget(stack.replace(new));
                    Some(ranges)
                }
            }
        })
        .ok()
        .flatten()
}

/// Returns the innermost range of a stack that has not ended.
fn innermost(ranges: &[Open]) -> Option<&Open> {
    ranges.iter().rfind(|open| !open.ended)
}

/// Returns the innermost open range on this thread that was started with [`range!`](crate::range) or
/// [`nvtx::range_push`](crate::nvtx::range_push), if a listener or a tool received its start.
///
/// ```
/// use warpsmith_runtime::ranges::current;
///
/// assert_eq!(current(), None);
/// ```
pub fn current() -> Option<RangeId> {
    let stack = stack()?;
    let ranges = lock(&stack);
    ranges.iter().rev().filter(|open| !open.ended).find_map(|open| open.id)
}

/// Starts a range if a listener or a tool receives it. Returns the range's ID.
fn push(label: impl FnOnce() -> Label, pushed: bool) -> Option<RangeId> {
    let heard = state::may_be_heard() && !is_calling() && injection::is_heard();
    if !heard && !pushed {
        return None;
    }
    let stack = stack()?;
    let (id, parent, label, in_tool) = if heard {
        let label = label();
        let (id, parent) = (next_id(), current());
        let in_tool = injection::push(&label);
        report(&Event { kind: Kind::Push, id, parent, thread: state::thread(), label: &label });
        (Some(id), parent, label, in_tool)
    } else {
        (None, None, label(), false)
    };
    lock(&stack).push(Open { id, parent, label, pushed, ended: false, in_tool });
    id
}

/// Ends the range at `index`, which must not have ended.
fn end(stack: &Ranges, index: usize) {
    let mut ranges = lock(stack);
    let thread = state::thread();
    let misuse = innermost(&ranges[index + 1..]).map(|open| Misuse::OutOfOrder {
        ended: Box::new(ranges[index].label.clone()),
        open: Box::new(open.label.clone()),
        thread,
    });
    let ended = &mut ranges[index];
    ended.ended = true;
    let (id, parent, label) = (ended.id, ended.parent, ended.label.clone());
    let mut pops = 0;
    while ranges.last().is_some_and(|open| open.ended) {
        pops += usize::from(ranges.pop().is_some_and(|open| open.in_tool));
    }
    drop(ranges);
    if let Some(id) = id {
        report(&Event { kind: Kind::Pop, id, parent, thread, label: &label });
    }
    (0..pops).for_each(|_| injection::pop());
    if let Some(misuse) = misuse {
        report_misuse(&misuse);
    }
}

/// A range started with [`range!`](crate::range). It ends when this value is dropped, and cannot be moved to another
/// thread.
///
/// ```compile_fail,E0277
/// let range = warpsmith_runtime::ranges::range!("step");
/// std::thread::spawn(move || drop(range));
/// ```
#[must_use = "the range ends when this is dropped"]
#[derive(Debug)]
pub struct Range {
    id: Option<RangeId>,
    /// Makes the value `!Send`, because the range must end on its own thread.
    thread: PhantomData<*const ()>,
}

impl Range {
    /// Starts a range. `label` is called only if a listener or a tool receives the range.
    ///
    /// ```
    /// use warpsmith_runtime::ranges::{Label, Range};
    ///
    /// let _range = Range::new(|| Label::new("step").category("training").payload(3));
    /// ```
    #[inline(always)]
    pub fn new(label: impl FnOnce() -> Label) -> Self {
        let id = if state::may_be_heard() { begin(label) } else { None };
        Self { id, thread: PhantomData }
    }

    /// Returns the ID of the range; `None` if no listener or tool received its start.
    pub fn id(&self) -> Option<RangeId> {
        self.id
    }

    /// Returns the ID and leaves the range open; [`end_guarded`] ends it.
    #[cfg(feature = "tracing")]
    pub(crate) fn leave_open(mut self) -> Option<RangeId> {
        self.id.take()
    }
}

#[cold]
#[inline(never)]
fn begin(label: impl FnOnce() -> Label) -> Option<RangeId> {
    push(label, false)
}

impl Drop for Range {
    #[inline(always)]
    fn drop(&mut self) {
        if let Some(id) = self.id {
            end_guarded(id);
        }
    }
}

/// Ends the range of a guard, unless it no longer exists because the process was forked or the thread is exiting.
#[cold]
#[inline(never)]
pub(crate) fn end_guarded(id: RangeId) {
    let Some(stack) = stack() else { return };
    let index = lock(&stack).iter().rposition(|open| open.id == Some(id) && !open.ended);
    if let Some(index) = index {
        end(&stack, index);
    }
}

/// Starts a range that [`pop`] ends. Returns the number of enclosing ranges.
pub(crate) fn push_depth(label: impl FnOnce() -> Label) -> usize {
    push(label, true);
    stack().map_or(0, |stack| lock(&stack).iter().filter(|open| !open.ended).count().saturating_sub(1))
}

/// Ends the innermost pushed range. Returns the number of enclosing ranges.
pub(crate) fn pop() -> Option<usize> {
    let stack = stack()?;
    let ranges = lock(&stack);
    let Some(index) = ranges.iter().rposition(|open| open.pushed && !open.ended) else {
        drop(ranges);
        report_misuse(&Misuse::NothingPushed { thread: state::thread(), open: pushed_elsewhere(&stack) });
        return None;
    };
    let depth = ranges[..index].iter().filter(|open| !open.ended).count();
    drop(ranges);
    end(&stack, index);
    Some(depth)
}

/// Returns the last range that another thread has pushed and not popped, with the thread's ID.
fn pushed_elsewhere(own: &Arc<Ranges>) -> Option<Box<(Label, u64)>> {
    let stacks: Vec<_> =
        lock(STACKS.get()).iter().filter_map(|(ranges, thread)| Some((ranges.upgrade()?, *thread))).collect();
    let pushed =
        stacks.iter().filter(|(ranges, _)| !Arc::ptr_eq(ranges, own)).filter_map(|(ranges, thread)| {
            let ranges = lock(ranges);
            let open = ranges.iter().rfind(|open| open.pushed && !open.ended)?;
            Some((open.id, open.label.clone(), *thread))
        });
    let (_, label, thread) = pushed.max_by_key(|(id, ..)| *id)?;
    Some(Box::new((label, thread)))
}

impl Drop for Stack {
    fn drop(&mut self) {
        if self.forks != state::forks() {
            return;
        }
        let open = innermost(&lock(&self.ranges)).map(|open| open.label.clone());
        if let Some(open) = open {
            // Listeners are not called, because the thread-local variables that they use may already be destroyed.
            tracing::warn!("{}", Misuse::ThreadEnded { open: Box::new(open), thread: self.thread });
        }
    }
}
