//! Ranges that one thread can start and another can end, and marks.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::ranges::injection;
use crate::ranges::label::Label;
use crate::ranges::listener::{Event, Kind, RangeId, is_calling, next_id, report, report_misuse};
use crate::ranges::misuse::Misuse;
use crate::ranges::stack::current;
use crate::ranges::state::{self, PerProcess};

struct Started {
    parent: Option<RangeId>,
    label: Label,
    /// The tool's ID of the range.
    in_tool: Option<u64>,
}

static STARTED: PerProcess<Mutex<HashMap<RangeId, Started>>> = PerProcess::new();

fn started() -> MutexGuard<'static, HashMap<RangeId, Started>> {
    STARTED.get().lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a range that any thread may [end](end). Calls `label` only if a listener or a tool receives the range;
/// otherwise returns `None`.
///
/// ```
/// use warpsmith_runtime::ranges::{Label, end, start};
///
/// let request = start(|| Label::new("request").category("server"));
/// std::thread::spawn(move || end(request)).join().unwrap();
/// ```
#[inline]
pub fn start(label: impl FnOnce() -> Label) -> Option<RangeId> {
    if state::may_be_heard() { start_heard(label) } else { None }
}

#[cold]
#[inline(never)]
fn start_heard(label: impl FnOnce() -> Label) -> Option<RangeId> {
    if is_calling() || !injection::is_heard() {
        return None;
    }
    let (id, parent, label) = (next_id(), current(), label());
    report(&Event { kind: Kind::Start, id, parent, thread: state::thread(), label: &label });
    let in_tool = injection::start(&label);
    started().insert(id, Started { parent, label, in_tool });
    Some(id)
}

/// Ends a range [started](start) on any thread. `None` stands for a range that no listener or tool received. Ending a
/// range that is not open is reported as a [`Misuse`].
pub fn end(id: Option<RangeId>) {
    let Some(id) = id else { return };
    let thread = state::thread();
    let found = started().remove(&id);
    match found {
        Some(Started { parent, label, in_tool }) => {
            report(&Event { kind: Kind::End, id, parent, thread, label: &label });
            if let Some(id) = in_tool {
                injection::end(id);
            }
        }
        // Ranges started before a fork belong to the parent process.
        None if state::forks() > 0 => {}
        None => report_misuse(&Misuse::NotStarted { id: id.get(), thread }),
    }
}

/// Marks a point in time, like [`mark!`](crate::mark!). `label` is called only if a listener or a tool receives the
/// mark.
#[inline(always)]
pub fn mark(label: impl FnOnce() -> Label) {
    if state::may_be_heard() {
        mark_heard(label);
    }
}

#[cold]
#[inline(never)]
fn mark_heard(label: impl FnOnce() -> Label) {
    if is_calling() || !injection::is_heard() {
        return;
    }
    let (id, label) = (next_id(), label());
    report(&Event { kind: Kind::Mark, id, parent: current(), thread: state::thread(), label: &label });
    injection::mark(&label);
}
