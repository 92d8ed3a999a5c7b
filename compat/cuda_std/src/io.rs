//! Text output from kernels.
//!
//! [`print!`](crate::print!) and [`println!`](crate::println!) format like those of the standard library, into 256
//! bytes on the stack of the thread. The text is printed in one operation, so lines of different threads are not mixed;
//! longer text is truncated. Formatting takes about a thousand instructions. Formatting a float requires more stack
//! than the default of 1 KiB per thread. Set the context limit `StackSize` to 16 KiB, or use `gpu_std::printf!`, which
//! has neither cost.

use core::fmt::{self, Write};

/// Maximum length of the text that one call prints, in bytes.
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
            // A NUL character would terminate the text.
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

/// Like [`print!`](crate::print!), but also prints a newline at the end.
#[macro_export]
macro_rules! println {
    () => {
        $crate::print!("\n")
    };
    ($($argument:tt)*) => {
        $crate::io::_print(::core::format_args!("{}\n", ::core::format_args!($($argument)*)))
    };
}
