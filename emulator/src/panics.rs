//! Silences panics of kernels and stores their locations.
//!
//! The process's panic hook is replaced once. The new hook calls the previous one for every panic outside of kernels,
//! and then prints how to repeat the run. A program that sets its own hook later loses that note and the locations of
//! kernel panics, but not their text.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

use crate::registers::registers;
use crate::settings;

thread_local! {
    /// Location of the kernel panic on this host thread, until [`describe`] fetches it.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Payload that unwinds a thread without a report, because its block has already failed.
pub(crate) struct Stopped;

/// Replaces the hook; later calls have no effect.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if !remember(info) {
                previous(info);
                note_seed();
            }
        }));
    });
}

/// After a panic of the program, for example in a test, prints how to repeat the order in which kernels ran, once per
/// host thread.
fn note_seed() {
    thread_local! {
        static NOTED: Cell<bool> = const { Cell::new(false) };
    }
    if let Some(note) = settings::seed_note()
        && NOTED.try_with(|noted| !noted.replace(true)).unwrap_or(false)
    {
        eprintln!("note: the emulated device ran kernels in an order drawn at random; {note}");
    }
}

/// Handles a panic that a kernel caused and that will be caught.
fn remember(info: &PanicHookInfo<'_>) -> bool {
    if !registers().in_kernel() {
        return false;
    }
    PLACE.with_borrow_mut(|place| {
        // The location has not been fetched yet, so this is a panic during a panic, which terminates the process.
        if let Some(first) = place {
            eprintln!("a kernel panicked at {first}; then:");
            return false;
        }
        if aborts(info) {
            return false;
        }
        *place = Some(info.location().map(ToString::to_string).unwrap_or_default());
        true
    })
}

/// Returns true if the standard library terminates the process after this panic, in which case its text must be
/// visible.
fn aborts(info: &PanicHookInfo<'_>) -> bool {
    let text = info.payload_as_str().unwrap_or_default();
    text.starts_with("unsafe precondition(s) violated")
        || text == "panic in a function that cannot unwind"
        || text == "panic in a destructor during cleanup"
}

/// Returns text and location of a caught panic; `None` for [`Stopped`]. The payload must be [discarded](discard).
pub(crate) fn describe(payload: &(dyn Any + Send)) -> Option<(String, Option<String>)> {
    let place = PLACE.take().filter(|place| !place.is_empty());
    if payload.is::<Stopped>() {
        return None;
    }
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&'static str>().copied());
    Some((text.unwrap_or("a panic without text").to_owned(), place))
}

/// Drops a panic payload. Its type belongs to the kernel, so a panic of its drop is caught here.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // The drop of this payload may panic too, and so on, so it is leaked.
        std::mem::forget(second);
        PLACE.take();
    }
}
