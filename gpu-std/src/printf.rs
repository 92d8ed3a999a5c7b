//! Implementation of [`printf!`](crate::printf!): text output from a kernel.
//!
//! On the GPU, the implementation uses `vprintf`, which writes to a buffer of the context. The driver prints the buffer
//! when the host waits for the stream. On the emulated device, the C library formats the output, so that both devices
//! print the same characters. The items are public only because the macro's expansion uses them.

use half::{bf16, f16};

use crate::sealed::Sealed;

pub use core::ffi::CStr;

#[cfg(target_arch = "nvptx64")]
pub use crate::nvvm::vprintf;

/// An integer that a conversion such as `%d` or `%x` prints.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an integer, but this conversion prints integers",
    note = "`%d` and `%i` print signed integers, `%u`, `%x`, `%X` and `%o` unsigned ones; use `%f`, `%e` or `%g` for floats"
)]
pub trait CInteger: Sealed {
    /// Returns the value as a signed integer, for `%d`.
    fn signed(self) -> i64;
    /// Returns the bits as an unsigned integer of the same size, for `%u` and `%x`.
    fn unsigned(self) -> u64;
}

macro_rules! integers {
    ($($t:ty as $unsigned:ty),*) => { $(
        impl CInteger for $t {
            #[inline(always)]
            fn signed(self) -> i64 {
                self as i64
            }
            #[inline(always)]
            fn unsigned(self) -> u64 {
                self as $unsigned as u64
            }
        }
    )* };
}
integers!(i8 as u8, u8 as u8, i16 as u16, u16 as u16, i32 as u32, u32 as u32, i64 as u64, u64 as u64);
integers!(isize as usize, usize as usize, bool as u8);

/// A float that a conversion such as `%f` prints.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a float, but this conversion prints floats",
    note = "`%f`, `%e`, `%g` and `%a` print f32, f64, f16 and bf16; use `%d` or `%u` for integers"
)]
pub trait CFloat: Sealed {
    /// Returns the value as an `f64`.
    fn float(self) -> f64;
}

impl CFloat for f32 {
    #[inline(always)]
    fn float(self) -> f64 {
        self as f64
    }
}

impl CFloat for f64 {
    #[inline(always)]
    fn float(self) -> f64 {
        self
    }
}

impl CFloat for f16 {
    #[inline(always)]
    fn float(self) -> f64 {
        self.to_f32() as f64
    }
}

impl CFloat for bf16 {
    #[inline(always)]
    fn float(self) -> f64 {
        self.to_f32() as f64
    }
}

/// A character that `%c` prints.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a character, but this conversion prints characters",
    note = "`%c` prints a `char` or a `u8`"
)]
pub trait CChar: Sealed {
    /// Returns the character as one byte, or `?` for a non-ASCII character.
    fn byte(self) -> u32;
}

impl CChar for u8 {
    #[inline(always)]
    fn byte(self) -> u32 {
        self as u32
    }
}

impl CChar for char {
    #[inline(always)]
    fn byte(self) -> u32 {
        if self.is_ascii() { self as u32 } else { '?' as u32 }
    }
}

/// Converts an argument for `%d`.
#[inline(always)]
pub fn c_signed(value: impl CInteger) -> i64 {
    value.signed()
}

/// Converts an argument for `%u`.
#[inline(always)]
pub fn c_unsigned(value: impl CInteger) -> u64 {
    value.unsigned()
}

/// Converts an argument for `%f`.
#[inline(always)]
pub fn c_float(value: impl CFloat) -> f64 {
    value.float()
}

/// Converts an argument for `%c`.
#[inline(always)]
pub fn c_char(value: impl CChar) -> u32 {
    value.byte()
}

/// Converts an argument for `%s`.
#[inline(always)]
pub fn c_string(value: &CStr) -> *const core::ffi::c_char {
    value.as_ptr()
}

/// Converts an argument for `%p`.
#[inline(always)]
pub fn c_pointer<T: ?Sized>(value: *const T) -> *const core::ffi::c_void {
    value.cast()
}

#[cfg(not(target_arch = "nvptx64"))]
pub use host::{Argument, print};

#[cfg(not(target_arch = "nvptx64"))]
mod host {
    use core::ffi::{CStr, c_char, c_int, c_void};
    use std::ffi::CString;

    unsafe extern "C" {
        fn snprintf(buffer: *mut c_char, size: usize, format: *const c_char, ...) -> c_int;
    }

    /// A printf argument, converted to a C variadic type.
    #[derive(Debug, Clone, Copy)]
    pub enum Argument {
        /// `long long`.
        Signed(i64),
        /// `unsigned long long`.
        Unsigned(u64),
        /// `double`.
        Float(f64),
        /// `int`.
        Char(u32),
        /// `char *`.
        String(*const c_char),
        /// `void *`.
        Pointer(*const c_void),
    }

    /// Formats and prints text on the emulated device.
    ///
    /// # Safety
    /// The conversions in `format` must match `arguments` in order, and all strings must be valid.
    pub unsafe fn print(format: &CStr, arguments: &[Argument]) {
        // SAFETY: guaranteed by the caller.
        crate::host::check::unchecked(|| unsafe { print_unchecked(format, arguments) });
    }

    /// # Safety
    /// The caller must uphold the safety contract of [`print`].
    unsafe fn print_unchecked(format: &CStr, arguments: &[Argument]) {
        let mut text = Vec::new();
        let mut rest = format.to_bytes();
        let mut arguments = arguments.iter();
        while let Some(start) = rest.iter().position(|&byte| byte == b'%') {
            text.extend_from_slice(&rest[..start]);
            rest = &rest[start..];
            let end = 1 + rest[1..]
                .iter()
                .position(|byte| b"diouxXcsfFeEgGaAp%".contains(byte))
                .expect("the macro accepts only complete conversions");
            let conversion = &rest[..=end];
            rest = &rest[end + 1..];
            if conversion == b"%%" {
                text.push(b'%');
            } else {
                let &argument = arguments.next().expect("the macro counts the arguments");
                // SAFETY: guaranteed by the caller.
                unsafe { append(&mut text, conversion, argument) };
            }
        }
        text.extend_from_slice(rest);
        crate::host::output::print(&String::from_utf8_lossy(&text));
    }

    /// Appends one argument.
    ///
    /// # Safety
    /// `conversion` must match the argument's type, and a string argument must be valid.
    unsafe fn append(text: &mut Vec<u8>, conversion: &[u8], argument: Argument) {
        let conversion = CString::new(conversion).expect("a part of a C string has no NUL");
        let mut size = 64;
        loop {
            let mut buffer = vec![0_u8; size];
            let (out, format) = (buffer.as_mut_ptr().cast(), conversion.as_ptr());
            // SAFETY: the buffer has `size` bytes, and the conversion matches the argument's type.
            let written = unsafe {
                match argument {
                    Argument::Signed(value) => snprintf(out, size, format, value),
                    Argument::Unsigned(value) => snprintf(out, size, format, value),
                    Argument::Float(value) => snprintf(out, size, format, value),
                    Argument::Char(value) => snprintf(out, size, format, value),
                    Argument::String(value) => snprintf(out, size, format, value),
                    Argument::Pointer(value) => snprintf(out, size, format, value),
                }
            };
            let Ok(written) = usize::try_from(written) else { return };
            if written < size {
                text.extend_from_slice(&buffer[..written]);
                return;
            }
            size = written + 1;
        }
    }
}
