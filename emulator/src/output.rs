//! Text printed by kernels.
//!
//! The output of one call is never split. The output of a block is buffered until all blocks that run concurrently have
//! finished or have printed a large amount of text. The buffered text is then written as a whole, either to standard
//! output or to a capture.

use std::cell::RefCell;
use std::io::Write;
use std::panic::Location;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::registers::running;

/// Number of buffered bytes at which text is flushed, even if the blocks that run concurrently have not finished.
const FLUSH_BYTES: usize = 64 * 1024;

/// Text of one [`print()`] call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Printed {
    /// Name of the kernel.
    pub kernel: &'static str,
    /// Block index.
    pub block: [u32; 3],
    /// Thread index in the block.
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

/// Runs `body` and returns its result, together with all text that kernels in this process printed during that time.
/// The text is not written to standard output. Use this function in tests. A second capture waits until the first one
/// ends. The captured text includes output of launches that other threads run concurrently; use [`Printed::kernel`] to
/// distinguish them.
pub fn capture<R>(body: impl FnOnce() -> R) -> (R, Vec<Printed>) {
    /// Guard that ends the capture, even if `body` panics.
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

    /// Flushes all output. Errors while writing to standard output are ignored, because a closed pipe is not an error
    /// in the kernel.
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
