//! Suppresses the output of panics in kernels and stores their locations.
//!
//! The process's panic hook is replaced once. For every panic outside of kernels, the new hook calls the previous hook
//! and then prints how to repeat the run. If a program sets its own hook later, this note and the locations of kernel
//! panics are lost, but the panic messages are not.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, PanicHookInfo};
use std::sync::Once;

use crate::registers::registers;
use crate::settings;

thread_local! {
    /// Location of the kernel panic on this host thread, until [`describe`] retrieves it.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Panic payload that unwinds a thread silently, because its block has already failed.
pub(crate) struct Stopped;

/// Replaces the panic hook. Later calls have no effect.
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

/// After a panic in the program, for example in a test, prints how to repeat the order in which kernels ran. The note
/// is printed once per host thread.
fn note_seed() {
    thread_local! {
        static NOTED: Cell<bool> = const { Cell::new(false) };
    }
    if let Some(note) = settings::seed_note()
        && NOTED.try_with(|noted| !noted.replace(true)).unwrap_or(false)
    {
        eprintln!("note: the emulated device ran threads in a random order; {note}");
    }
}

/// Records a panic that a kernel has caused and that will be caught. Returns true for such a panic.
fn remember(info: &PanicHookInfo<'_>) -> bool {
    if !registers().in_kernel() {
        return false;
    }
    PLACE.with_borrow_mut(|place| {
        // If a location is still stored, this is a panic during a panic, which terminates the process.
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

/// Returns true if the standard library terminates the process after this panic, in which case the message must be
/// visible.
fn aborts(info: &PanicHookInfo<'_>) -> bool {
    let text = info.payload_as_str().unwrap_or_default();
    text.starts_with("unsafe precondition(s) violated")
        || text == "panic in a function that cannot unwind"
        || text == "panic in a destructor during cleanup"
}

/// Returns the message and the location of a caught panic; `None` for [`Stopped`]. The payload must be
/// [discarded](discard).
pub(crate) fn describe(payload: &(dyn Any + Send)) -> Option<(String, Option<String>)> {
    let place = PLACE.take().filter(|place| !place.is_empty());
    if payload.is::<Stopped>() {
        return None;
    }
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&'static str>().copied());
    Some((text.unwrap_or("a panic without text").to_owned(), place))
}

/// Drops a panic payload. The payload's type belongs to the kernel, so a panic in its drop is caught.
pub(crate) fn discard(payload: Box<dyn Any + Send>) {
    if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // The second payload is leaked, because dropping it could panic as well.
        std::mem::forget(second);
        PLACE.take();
    }
}
