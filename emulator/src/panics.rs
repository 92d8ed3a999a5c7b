//! Keeps panics of kernels silent and remembers where they happened.
//!
//! The process's panic hook is replaced once, by one that calls the previous hook for every panic outside
//! kernels and then says how to repeat the run. A program that sets a hook of its own later loses the place of kernel
//! panics, not their text, and that note.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

use crate::registers::registers;
use crate::settings;

thread_local! {
    /// Where the kernel on this host thread panicked, until [`describe`] fetches it.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Unwinds a thread that has nothing to report because its block already failed.
pub(crate) struct Stopped;

/// Replaces the hook; later calls do nothing.
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

/// After a panic of the program, a test's for example, says how to repeat the order in which kernels ran: once on each host
/// thread.
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

/// Takes the panic over if a kernel caused it and it will be caught.
fn remember(info: &PanicHookInfo<'_>) -> bool {
    if !registers().in_kernel() {
        return false;
    }
    PLACE.with_borrow_mut(|place| {
        // A place that has not been fetched yet: this is a panic during a panic, which ends the process.
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

/// Whether the standard library ends the process after this panic: then its text must be seen.
fn aborts(info: &PanicHookInfo<'_>) -> bool {
    let text = info.payload_as_str().unwrap_or_default();
    text.starts_with("unsafe precondition(s) violated")
        || text == "panic in a function that cannot unwind"
        || text == "panic in a destructor during cleanup"
}

/// Text and place of a caught panic; `None` for [`Stopped`]. The payload is to be [discarded](discard).
pub(crate) fn describe(payload: &(dyn Any + Send)) -> Option<(String, Option<String>)> {
    let place = PLACE.take().filter(|place| !place.is_empty());
    if payload.is::<Stopped>() {
        return None;
    }
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&'static str>().copied());
    Some((text.unwrap_or("a panic without text").to_owned(), place))
}

/// Drops the payload of a panic. Its type is the kernel's: when its drop panics, that panic ends here.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // The drop of this one may panic too, and so on: it is leaked.
        std::mem::forget(second);
        PLACE.take();
    }
}
