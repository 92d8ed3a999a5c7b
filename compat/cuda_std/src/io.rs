//! Text output from kernels.
//!
//! [`print!`](crate::print!) and [`println!`](crate::println!) format as in standard Rust, into 256 bytes on the
//! thread's stack. The text is printed in one operation, so that lines of different threads do not mix; longer text is
//! truncated. Formatting takes about a thousand instructions. Formatting a float needs more stack than the default of 1
//! KiB per thread. Set the context's limit `StackSize` to 16 KiB, or use `gpu_std::printf!`, which has neither cost.

use core::fmt::{self, Write};

/// Maximum length of the text in one call, in bytes.
const CAPACITY: usize = 256;

/// NUL-terminated text.
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
            // A NUL character would end the text.
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

/// Prints from a kernel; see [`io`](self).
#[macro_export]
macro_rules! print {
    ($($argument:tt)*) => {
        $crate::io::_print(::core::format_args!($($argument)*))
    };
}

/// Prints from a kernel, with a newline at the end; see [`print!`](crate::print!).
#[macro_export]
macro_rules! println {
    () => {
        $crate::print!("\n")
    };
    ($($argument:tt)*) => {
        $crate::io::_print(::core::format_args!("{}\n", ::core::format_args!($($argument)*)))
    };
}
