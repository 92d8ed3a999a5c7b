//! Text that kernels print.
//!
//! The output of one call stays whole. The output of a block is kept until it and those that run with it are
//! done (or have printed much) and then goes out at once, to standard output or to a capture.

use std::cell::RefCell;
use std::io::Write;
use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::registers::running;

/// Bytes after which text goes out before the blocks that run at once are done.
const FLUSH_BYTES: usize = 64 * 1024;

/// The text of one [`print()`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    /// The kernel's name.
    pub kernel: &'static str,
    /// The block.
    pub block: [u32; 3],
    /// The thread in its block.
    pub thread: [u32; 3],
    /// The text, as printed.
    pub text: String,
}

/// Prints `text` as it is, without a newline of its own.
///
/// # Panics
/// Outside a kernel.
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

/// Runs `body` and returns, with its result, everything that kernels of this process printed meanwhile, instead
/// of sending it to standard output. For tests: a second capture waits for the first to end, and launches
/// of other threads at the same time are in it too ([`Printed::kernel`] distinguishes them).
pub fn capture<R>(body: impl FnOnce() -> R) -> (R, Vec<Printed>) {
    /// Ends the capture, also when `body` panics.
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

    /// Sends everything out. Errors of standard output are ignored, as a closed pipe is no fault of the kernel.
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
