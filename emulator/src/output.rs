//! Text printed by kernels.
//!
//! The output of one call is never split. The output of a block is buffered until it and the concurrently running
//! blocks have finished or have printed a lot. It is then written as a whole, to standard output or to a capture.

use std::cell::RefCell;
use std::io::Write;
use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::registers::running;

/// Bytes after which text is flushed before the concurrently running blocks have finished.
const FLUSH_BYTES: usize = 64 * 1024;

/// Text of one [`print()`] call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    /// Name of the kernel.
    pub kernel: &'static str,
    /// Block index.
    pub block: [u32; 3],
    /// Thread index in its block.
    pub thread: [u32; 3],
    /// Printed text.
    pub text: String,
}

/// Prints `text` unchanged, without adding a newline.
///
/// # Panics
/// Panics outside of a kernel.
#[track_caller]
pub fn print(text: &str) {
    let registers = running("print");
    let set = registers.set();
    set.check_time("print", Location::caller());
    set.output.add(Printed {
        kernel: set.grid.kernel.name,
        block: registers.block_index.get(),
        thread: registers.thread.get(),
        text: text.to_owned(),
    });
}

/// Runs `body` and returns its result together with all text that kernels of this process printed meanwhile, instead of
/// writing the text to standard output. Use it in tests; a second capture waits for the first to end. The text includes
/// that of concurrent launches of other threads ([`Printed::kernel`] distinguishes them).
pub fn capture<R>(body: impl FnOnce() -> R) -> (R, Vec<Printed>) {
    /// Ends the capture, even if `body` panics.
    struct Capturing<'a>(#[expect(dead_code, reason = "held until the capture ends")] MutexGuard<'a, ()>);
    impl Drop for Capturing<'_> {
        fn drop(&mut self) {
            *lock(&CAPTURED) = None;
        }
    }

    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let capturing = Capturing(lock(&ONE_AT_A_TIME));
    *lock(&CAPTURED) = Some(Vec::new());
    let result = body();
    let printed = lock(&CAPTURED).take().unwrap_or_default();
    drop(capturing);
    (result, printed)
}

static CAPTURED: Mutex<Option<Vec<Printed>>> = Mutex::new(None);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Output of the running blocks that has not been flushed yet.
#[derive(Default)]
pub(crate) struct Output {
    printed: RefCell<Vec<Printed>>,
    bytes: std::cell::Cell<usize>,
}

impl Output {
    fn add(&self, printed: Printed) {
        self.bytes.set(self.bytes.get() + printed.text.len() + size_of::<Printed>());
        self.printed.borrow_mut().push(printed);
        if self.bytes.get() > FLUSH_BYTES {
            self.flush();
        }
    }

    /// Flushes all output. Errors of standard output are ignored, because a closed pipe is not the kernel's fault.
    pub fn flush(&self) {
        if self.bytes.replace(0) == 0 {
            return;
        }
        let mut printed = self.printed.borrow_mut();
        match lock(&CAPTURED).as_mut() {
            Some(captured) => captured.append(&mut printed),
            None => {
                let mut out = std::io::stdout().lock();
                for printed in printed.drain(..) {
                    let _ = out.write_all(printed.text.as_bytes());
                }
                let _ = out.flush();
            }
        }
    }
}
