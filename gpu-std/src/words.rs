//! Conversions of values to and from 32-bit words, the unit in which threads exchange them.
//!
//! The values must not contain padding, because padding bytes are uninitialized and reading them as a number is
//! undefined behavior.

use core::mem::MaybeUninit;
use core::ptr::copy_nonoverlapping;

use crate::element::KernelType;

/// Does not compile for types whose bytes are not all initialized.
const fn check<T: KernelType>() {
    assert!(
        !T::HAS_PADDING,
        "a value with padding cannot be exchanged between threads: derive `KernelType` for your own struct, and use \
         Vec3 or Vec4 instead of glam's Vec3A"
    );
}

/// Applies `f` to each 32-bit word of `value`, in order. In the last word, bytes past the value's end are 0 in the
/// argument and ignored in the result.
#[inline(always)]
pub(crate) fn map<T: KernelType>(value: T, mut f: impl FnMut(u32) -> u32) -> T {
    const { check::<T>() };
    // These special cases are equivalent to the code below, but LLVM can simplify them in fewer steps.
    if size_of::<T>() == 8 {
        let bits = bits(value);
        let low = f(bits as u32) as u64;
        return of_bits((f((bits >> 32) as u32) as u64) << 32 | low);
    }
    let (whole, rest) = (size_of::<T>() / 4, size_of::<T>() % 4);
    let source = (&raw const value).cast::<u8>();
    let mut result = MaybeUninit::<T>::uninit();
    let target = result.as_mut_ptr().cast::<u8>();
    let mut i = 0;
    while i < whole {
        // SAFETY: `i` is below the number of whole words in both values; without padding, all bytes are initialized.
        unsafe {
            let word = source.add(4 * i).cast::<u32>().read_unaligned();
            target.add(4 * i).cast::<u32>().write_unaligned(f(word));
        }
        i += 1;
    }
    if rest > 0 {
        let mut word = 0_u32;
        // SAFETY: `rest` bytes, fewer than a word, follow the whole words in both values.
        unsafe {
            copy_nonoverlapping(source.add(4 * whole), (&raw mut word).cast(), rest);
            word = f(word);
            copy_nonoverlapping((&raw const word).cast(), target.add(4 * whole), rest);
        }
    }
    // SAFETY: all bytes have been written, and every bit pattern is valid.
    unsafe { result.assume_init() }
}

/// Returns the bits of a value that has at most 8 bytes. Unused high bits are 0.
#[inline(always)]
pub(crate) fn bits<T: KernelType>(value: T) -> u64 {
    const { check::<T>() };
    let mut bits = 0_u64;
    let len = if size_of::<T>() < 8 { size_of::<T>() } else { 8 };
    // SAFETY: both have `len` bytes, and without padding, all bytes of the value are initialized.
    unsafe { copy_nonoverlapping((&raw const value).cast::<u8>(), (&raw mut bits).cast::<u8>(), len) };
    bits
}

/// Creates a value from its lowest bits. Bytes past the first 8 are 0.
#[inline(always)]
pub(crate) fn of_bits<T: KernelType>(bits: u64) -> T {
    let mut value = MaybeUninit::<T>::zeroed();
    let len = if size_of::<T>() < 8 { size_of::<T>() } else { 8 };
    // SAFETY: both have `len` bytes, and every bit pattern is valid.
    unsafe {
        copy_nonoverlapping((&raw const bits).cast::<u8>(), value.as_mut_ptr().cast::<u8>(), len);
        value.assume_init()
    }
}

/// Creates a value in which every byte is `byte`.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn filled<T: KernelType>(byte: u8) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    // SAFETY: the bytes belong to the value, and every bit pattern is valid.
    unsafe {
        value.as_mut_ptr().cast::<u8>().write_bytes(byte, size_of::<T>());
        value.assume_init()
    }
}

/// Returns the 8 bytes of `value` at offset `8 * part`. Bytes past the value's end are 0.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn part<T: KernelType>(value: T, part: usize) -> u64 {
    const { check::<T>() };
    let (start, mut bits) = (8 * part, 0_u64);
    let len = size_of::<T>().saturating_sub(start).min(8);
    let source = (&raw const value).cast::<u8>().wrapping_add(start);
    // SAFETY: `len` bytes of the value exist, and without padding, they are initialized.
    unsafe { copy_nonoverlapping(source, (&raw mut bits).cast(), len) };
    bits
}

/// Replaces the bytes that [`part`] returns.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn set_part<T: KernelType>(value: &mut T, part: usize, bits: u64) {
    let start = 8 * part;
    let len = size_of::<T>().saturating_sub(start).min(8);
    let target = (&raw mut *value).cast::<u8>().wrapping_add(start);
    // SAFETY: `len` bytes of the value exist, and every bit pattern is valid.
    unsafe { copy_nonoverlapping((&raw const bits).cast(), target, len) };
}

/// Returns true if two values have the same bits.
#[cfg(not(target_arch = "nvptx64"))]
pub(crate) fn same<T: KernelType>(a: T, b: T) -> bool {
    (0..size_of::<T>().div_ceil(8)).all(|i| part(a, i) == part(b, i))
}
