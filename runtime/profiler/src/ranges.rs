//! Ranges and marks of the program, from what makes them to the log of their thread.

use std::sync::atomic::{AtomicU64, Ordering};

use warpsmith_trace::{Name, Payload};

use crate::log::with_local;
use crate::profiler::current;
use crate::raw::{Push, Raw};
use crate::recording::Recording;

/// Ranges of the profiler's own have larger ids than those of the program.
static NEXT: AtomicU64 = AtomicU64::new(1 << 62);

/// Begins a range of the profiler's own on this thread, if something is recorded, and returns its id.
pub(crate) fn push(name: &str) -> Option<u64> {
    let recording = current()?;
    let id = match recording.is_simulated() {
        // Equal programs make equal traces.
        true => (1 << 62) + recording.next_range(),
        false => NEXT.fetch_add(1, Ordering::Relaxed),
    };
    let push = Push {
        at: recording.now(),
        id,
        name: recording.intern(name),
        category: Name::NONE,
        colour: 0,
        payload: Payload::None,
        line: Name::NONE,
    };
    add(&recording, Raw::Push(push));
    Some(id)
}

/// Ends it.
pub(crate) fn pop(id: u64) {
    if let Some(recording) = current() {
        add(&recording, Raw::Pop { id, at: recording.now() });
    }
}

fn add(recording: &Recording, raw: Raw) {
    with_local(recording, |local| local.push(recording, raw));
}
