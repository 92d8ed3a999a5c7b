//! Panics on the GPU. The panicking thread writes the message to the host's mailbox and then stops the context.
//!
//! The builder replaces the bodies of core's panic functions with calls to the `__warpsmith_panic_*` functions of this
//! module, so that `core::fmt` is not part of the image. A panic costs one call at its call site. All other code for
//! panics exists once per image, in this module. Numbers are written digit by digit, without a buffer, so kernels need
//! no stack for panics.

use core::panic::{Location, PanicInfo};
use core::ptr;

use gpu_spec::mailbox::{EMPTY, FILE_BYTES, MESSAGE_BYTES, Mailbox, READY, WRITING};

use crate::atomic::scope::System;
use crate::atomic::{Atomic, Ordering};
use crate::{nvvm, thread};

/// Pointer to the host's mailbox. The pointer is null until the runtime sets it. The symbol is
/// `gpu_spec::mailbox::MAILBOX_SYMBOL`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
static mut __warpsmith_mailbox: *mut Mailbox = ptr::null_mut();

/// Number of times that a thread polls for the end of another thread's message before it stops the context. The polls
/// take about a second.
const PATIENCE: u32 = 1 << 20;

/// A message that is being written. The mailbox pointer is null if this thread is not the first to panic, or if the
/// runtime set no mailbox.
struct Message {
    mailbox: *mut Mailbox,
    len: usize,
}

impl Message {
    /// Claims the mailbox, unless another thread has claimed it, and records the thread and the source location.
    #[inline(always)]
    fn begin(location: &'static Location<'static>) -> Self {
        // SAFETY: the runtime writes the pointer before it launches any kernel of the module. The read is volatile
        // because nothing in the module writes the pointer.
        let mailbox = unsafe { ptr::read_volatile(&raw const __warpsmith_mailbox) };
        if mailbox.is_null() {
            return Self { mailbox, len: 0 };
        }
        // SAFETY: the runtime's mailbox outlives the module; its state is only accessed atomically.
        let state = unsafe { Atomic::<u32, System>::from_ptr(&raw mut (*mailbox).state) };
        if state.compare_exchange(EMPTY, WRITING, Ordering::Acquire, Ordering::Acquire).is_err() {
            let mut patience = PATIENCE;
            while patience > 0 && state.load(Ordering::Acquire) != READY {
                patience -= 1;
            }
            return Self { mailbox: ptr::null_mut(), len: 0 };
        }
        let [block_x, block_y, block_z] = thread::block_idx();
        let [thread_x, thread_y, thread_z] = thread::thread_idx();
        let file = location.file();
        let kept = if file.len() < FILE_BYTES { file.len() } else { FILE_BYTES };
        let cut = file.len() - kept;
        // SAFETY: only this thread owns the mailbox between WRITING and READY. All indices are within the mailbox's
        // arrays and the kernel's name.
        unsafe {
            (&raw mut (*mailbox).line).write_volatile(location.line());
            (&raw mut (*mailbox).column).write_volatile(location.column());
            let block = (&raw mut (*mailbox).block).cast::<u32>();
            block.write_volatile(block_x);
            block.add(1).write_volatile(block_y);
            block.add(2).write_volatile(block_z);
            let thread = (&raw mut (*mailbox).thread).cast::<u32>();
            thread.write_volatile(thread_x);
            thread.add(1).write_volatile(thread_y);
            thread.add(2).write_volatile(thread_z);
            let name = (&raw mut (*mailbox).file).cast::<u8>();
            let mut i = 0;
            while i < kept {
                name.add(i).write_volatile(file.as_ptr().add(cut + i).read());
                i += 1;
            }
            (&raw mut (*mailbox).file_len).write_volatile(kept as u32);
        }
        Self { mailbox, len: 0 }
    }

    /// Appends one byte if there is space.
    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        if self.len < MESSAGE_BYTES {
            // SAFETY: this method is called only with a mailbox that this thread owns, and the index is within the
            // array.
            unsafe { (&raw mut (*self.mailbox).message).cast::<u8>().add(self.len).write_volatile(byte) };
            self.len += 1;
        }
    }

    /// Appends `len` bytes.
    #[inline(always)]
    fn text(&mut self, text: *const u8, len: usize) {
        if self.mailbox.is_null() {
            return;
        }
        let mut i = 0;
        while i < len {
            // SAFETY: the caller guarantees that `text` has `len` bytes.
            self.byte(unsafe { text.add(i).read() });
            i += 1;
        }
    }

    /// Appends a string.
    #[inline(always)]
    fn str(&mut self, text: &'static str) {
        self.text(text.as_ptr(), text.len());
    }

    /// Appends a decimal number, most significant digit first.
    #[inline(always)]
    fn number(&mut self, number: usize) {
        if self.mailbox.is_null() {
            return;
        }
        let mut power = 1;
        while number / power >= 10 {
            power *= 10;
        }
        while power > 0 {
            self.byte(b'0' + (number / power % 10) as u8);
            power /= 10;
        }
    }

    /// Publishes the message to the host and stops the context. The driver prints `summary`.
    #[inline(always)]
    fn end(self, summary: *const u8, location: &'static Location<'static>) -> ! {
        if !self.mailbox.is_null() {
            // SAFETY: this thread owns the mailbox and releases it by setting READY.
            unsafe {
                (&raw mut (*self.mailbox).message_len).write_volatile(self.len as u32);
                thread::system_fence();
                Atomic::<u32, System>::from_ptr(&raw mut (*self.mailbox).state)
                    .store(READY, Ordering::Release);
            }
        }
        // SAFETY: the builder NUL-terminates every constant string, and the file name of a location is always
        // NUL-terminated.
        unsafe {
            nvvm::__assertfail(
                summary,
                location.file().as_ptr(),
                location.line(),
                c"kernel".as_ptr().cast(),
                1,
            )
        }
    }
}

/// Panic for `slice[index]` with an index that is out of bounds.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[cold]
#[inline(never)]
extern "C" fn __warpsmith_panic_bounds_check(
    index: usize,
    len: usize,
    location: &'static Location<'static>,
) -> ! {
    let mut message = Message::begin(location);
    message.str("index out of bounds: the len is ");
    message.number(len);
    message.str(" but the index is ");
    message.number(index);
    message.end(c"index out of bounds".as_ptr().cast(), location)
}

/// Panic for `slice[start..end]` with an invalid range. The numbers show which bound is invalid.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[cold]
#[inline(never)]
extern "C" fn __warpsmith_panic_slice(
    _kind: u32,
    start: usize,
    end: usize,
    len: usize,
    location: &'static Location<'static>,
) -> ! {
    let mut message = Message::begin(location);
    if start <= len && end <= len && start > end {
        message.str("slice index starts at ");
        message.number(start);
        message.str(" but ends at ");
        message.number(end);
    } else {
        let at_start = start > len;
        message.str(if at_start { "range start index " } else { "range end index " });
        message.number(if at_start { start } else { end });
        message.str(" out of range for slice of length ");
        message.number(len);
    }
    message.end(c"slice range out of bounds".as_ptr().cast(), location)
}

/// Any other panic whose message is known at compile time. A NUL must follow the `len` bytes of `message`.
// SAFETY: no other symbol has this name.
#[unsafe(no_mangle)]
#[cold]
#[inline(never)]
extern "C" fn __warpsmith_panic_str(
    message: *const u8,
    len: usize,
    location: &'static Location<'static>,
) -> ! {
    let mut text = Message::begin(location);
    text.text(message, len);
    text.end(message, location)
}

/// Handles panics that the builder has not redirected.
#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    let text = info.message().as_str().unwrap_or("panic with a formatted message");
    let location = info.location().unwrap_or(Location::caller());
    // SAFETY: the location of a panic is a constant, although its type allows a shorter lifetime.
    let location = unsafe { core::mem::transmute::<&Location<'_>, &'static Location<'static>>(location) };
    __warpsmith_panic_str(text.as_ptr(), text.len(), location)
}
