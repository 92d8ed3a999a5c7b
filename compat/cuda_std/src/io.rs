//! Text from a kernel.
//!
//! [`print!`](crate::print!) and [`println!`](crate::println!) format as Rust does, into 256 bytes of the thread's stack,
//! and print that at once, so that the lines of threads do not mix; what is longer is cut off. Formatting takes a thousand
//! instructions. A float takes more stack than a thread has by default (1 KiB): set the context's limit `StackSize` to
//! 16 KiB, or use `gpu_std::printf!`, which needs neither.

use core::fmt::{self, Write};

/// The longest text of one call, in bytes.
const CAPACITY: usize = 256;

/// Text with a NUL at its end.
struct Text {
    bytes: [u8; CAPACITY],
    len: usize,
}

impl Write for Text {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for &byte in text.as_bytes() {
            if self.len == CAPACITY - 1 {
                break;
            }
            // A NUL would end the text.
            self.bytes[self.len] = if byte == 0 { b' ' } else { byte };
            self.len += 1;
        }
        Ok(())
    }
}

#[doc(hidden)]
#[inline(never)]
pub fn _print(arguments: fmt::Arguments<'_>) {
    let mut text = Text { bytes: [0; CAPACITY], len: 0 };
    let _ = text.write_fmt(arguments);
    if let Ok(text) = core::ffi::CStr::from_bytes_until_nul(&text.bytes) {
        gpu_std::printf!("%s", text);
    }
}

/// Prints from a kernel, see [`io`](self).
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => {
        $crate::io::_print(::core::format_args!($($argument)*))
    };
}

/// [`print!`](crate::print!) with a newline at the end.
#[macro_export]
macro_rules! println {
    () => {
        $crate::print!("\n")
    };
    ($($argument:tt)*) => {
        $crate::io::_print(::core::format_args!("{}\n", ::core::format_args!($($argument)*)))
    };
}
