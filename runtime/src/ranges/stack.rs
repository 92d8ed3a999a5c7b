//! Nested ranges: a stack per thread, which determines the parent of a range.
//!
//! Ending a range before a range nested in it is a [`Misuse`]. The end is reported immediately, except to tools that
//! support only a stack, which receive it together with the end of the nested range.

use std::cell::RefCell;
use std::marker::PhantomData;

use crate::ranges::injection;
use crate::ranges::label::Label;
use crate::ranges::listener::{Event, Kind, RangeId, is_calling, next_id, report, report_misuse};
use crate::ranges::misuse::Misuse;
use crate::ranges::state;

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

thread_local! {
    /// The thread's open ranges, outermost first, and the number of forks when they were started.
    static STACK: RefCell<(u32, Vec<Open>)> = const { RefCell::new((0, Vec::new())) };
}

/// Passes the thread's open ranges to `work`, which must not start or end a range. Returns `None` if the thread is
/// exiting.
fn with_stack<R>(work: impl FnOnce(&mut Vec<Open>) -> R) -> Option<R> {
    let with = |stack: &RefCell<(u32, Vec<Open>)>| {
        let mut stack = stack.try_borrow_mut().ok()?;
        let (forks, ranges) = &mut *stack;
        if *forks != state::forks() {
            // The open ranges belong to the parent process.
            ranges.clear();
            *forks = state::forks();
        }
        Some(work(ranges))
    };
    STACK.try_with(with).ok().flatten()
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
    with_stack(|ranges| ranges.iter().rev().filter(|open| !open.ended).find_map(|open| open.id)).flatten()
}

/// Starts a range if a listener or a tool receives it. Returns the range's ID.
fn push(label: impl FnOnce() -> Label, pushed: bool) -> Option<RangeId> {
    let heard = state::may_be_heard() && !is_calling() && injection::is_heard();
    if !heard && !pushed {
        return None;
    }
    with_stack(|_| ())?;
    let (id, parent, label, in_tool) = if heard {
        let label = label();
        let (id, parent) = (next_id(), current());
        let in_tool = injection::push(&label);
        report(&Event { kind: Kind::Push, id, parent, thread: state::thread(), label: &label });
        (Some(id), parent, label, in_tool)
    } else {
        (None, None, label(), false)
    };
    with_stack(|ranges| ranges.push(Open { id, parent, label, pushed, ended: false, in_tool }));
    id
}

/// Ends the innermost open range for which `is_wanted` returns true. Returns the number of enclosing ranges; `None` if
/// there is no such range.
fn end(is_wanted: impl Fn(&Open) -> bool) -> Option<usize> {
    let thread = state::thread();
    let (id, parent, label, pops, depth, misuse) = with_stack(|ranges| {
        let index = ranges.iter().rposition(|open| !open.ended && is_wanted(open))?;
        let misuse = ranges[index + 1..].iter().rfind(|open| !open.ended).map(|open| Misuse::OutOfOrder {
            ended: Box::new(ranges[index].label.clone()),
            open: Box::new(open.label.clone()),
            thread,
        });
        let depth = ranges[..index].iter().filter(|open| !open.ended).count();
        let open = &mut ranges[index];
        open.ended = true;
        let (id, parent, label) = (open.id, open.parent, open.label.clone());
        let mut pops = 0;
        while ranges.last().is_some_and(|open| open.ended) {
            pops += usize::from(ranges.pop().is_some_and(|open| open.in_tool));
        }
        Some((id, parent, label, pops, depth, misuse))
    })
    .flatten()?;
    if let Some(id) = id {
        report(&Event { kind: Kind::Pop, id, parent, thread, label: &label });
    }
    (0..pops).for_each(|_| injection::pop());
    if let Some(misuse) = misuse {
        report_misuse(&misuse);
    }
    Some(depth)
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
    end(|open| open.id == Some(id));
}

/// Starts a range that [`pop`] ends. Returns the number of enclosing ranges.
pub(crate) fn push_depth(label: impl FnOnce() -> Label) -> usize {
    push(label, true);
    let open = with_stack(|ranges| ranges.iter().filter(|open| !open.ended).count());
    open.unwrap_or(0).saturating_sub(1)
}

/// Ends the innermost pushed range. Returns the number of enclosing ranges.
pub(crate) fn pop() -> Option<usize> {
    with_stack(|_| ())?;
    let depth = end(|open| open.pushed);
    if depth.is_none() {
        report_misuse(&Misuse::NothingPushed { thread: state::thread() });
    }
    depth
}
