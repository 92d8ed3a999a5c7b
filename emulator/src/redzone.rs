//! Red zones, which are bytes on both sides of memory that kernels access through raw pointers. The zones contain a
//! pattern, so an out-of-bounds write is detected when they are next compared with the pattern.
//!
//! A write is not detected if it is beyond the zones, stores the same value as the pattern, or is reverted before the
//! comparison. Reads are never detected. In instrumented programs, [`check`](crate::check) detects all of these
//! accesses.

use std::alloc::Layout;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Size of the zone on each side, in bytes.
pub const BYTES: usize = 128;

const WORD: usize = size_of::<u64>();

/// Value of each aligned word of a zone. Its bytes differ from each other, from 0 and 0xFF, and from the poison value
/// of shared memory.
const PATTERN: u64 = u64::from_ne_bytes([0x9d, 0x3b, 0xe7, 0x51, 0xc6, 0x2f, 0x8a, 0x74]);

/// Returns the layout of an allocation that contains memory of layout `layout` between two red zones, and the offset of
/// that memory in the allocation. Returns `None` for a size that cannot be allocated.
pub fn around(layout: Layout) -> Option<(Layout, usize)> {
    let align = layout.align().max(WORD);
    let before = BYTES.next_multiple_of(align);
    let bytes = layout.size().checked_next_multiple_of(WORD)?.checked_add(before + BYTES)?;
    Some((Layout::from_size_align(bytes, align).ok()?, before))
}

/// Overwritten bytes next to a piece of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Damage {
    /// Offset of the first overwritten byte from the start of the memory. Negative if the byte is before the memory,
    /// and at least the size of the memory if the byte is after it.
    pub first: isize,
    /// Number of bytes from the first to the last overwritten byte on that side.
    pub bytes: usize,
}

impl Damage {
    /// Returns a description of the damage; `what` names the memory, for example `a shared array of 64 bytes`.
    pub fn of(self, what: impl fmt::Display) -> String {
        let Damage { first, bytes } = self;
        let noun = if bytes == 1 { "byte" } else { "bytes" };
        let verb = if bytes == 1 { "was" } else { "were" };
        match first < 0 {
            true => {
                format!(
                    "{bytes} {noun} before the start of {what} {verb} overwritten, starting at byte {first}"
                )
            }
            false => {
                format!(
                    "{bytes} {noun} beyond the end of {what} {verb} overwritten, starting at byte {first}"
                )
            }
        }
    }
}

/// Writes the pattern around memory of `bytes` bytes at `start`.
///
/// # Safety
/// The memory must be in an allocation as described by [`around`], and no other code may access its red zones.
pub unsafe fn paint(start: *mut u8, bytes: usize) {
    // SAFETY: the zones are within the allocation.
    unsafe {
        for at in (0..BYTES).step_by(WORD) {
            start.sub(BYTES).add(at).cast::<u64>().write(PATTERN);
        }
        let words = bytes.next_multiple_of(WORD);
        for at in bytes..words {
            start.add(at).write(PATTERN.to_ne_bytes()[at % WORD]);
        }
        for at in (0..BYTES).step_by(WORD) {
            start.add(words).add(at).cast::<u64>().write(PATTERN);
        }
    }
}

/// Finds overwritten bytes around memory of `bytes` bytes at `start`. If both sides are damaged, the damage after the
/// end is reported.
///
/// # Safety
/// The memory must be in an allocation as described by [`around`], whose zones were [painted](paint).
#[inline]
pub unsafe fn damage(start: *mut u8, bytes: usize) -> Option<Damage> {
    // A kernel may write out of bounds concurrently on another host thread, so the zones are read as atomics. SAFETY:
    // the zones are within the allocation and aligned.
    let word =
        |offset: isize| unsafe { AtomicU64::from_ptr(start.offset(offset).cast()) }.load(Relaxed) ^ PATTERN;
    let (end, words) = (bytes as isize, bytes.next_multiple_of(WORD) as isize);
    let mut different = 0;
    for at in (0..BYTES as isize).step_by(WORD) {
        different |= word(at - BYTES as isize) | word(words + at);
    }
    // SAFETY: the byte is between the end of the memory and the next word, within the allocation.
    let byte = |offset: isize| unsafe { AtomicU8::from_ptr(start.offset(offset)) }.load(Relaxed);
    let is_painted =
        |offset: isize| byte(offset) == PATTERN.to_ne_bytes()[offset.rem_euclid(WORD as isize) as usize];
    if different == 0 && (end..words).all(is_painted) {
        return None;
    }
    let within = |mut offsets: std::ops::Range<isize>| {
        let first = offsets.find(|&offset| !is_painted(offset))?;
        let last = offsets.rfind(|&offset| !is_painted(offset)).unwrap_or(first);
        Some(Damage { first, bytes: (last - first) as usize + 1 })
    };
    within(end..words + BYTES as isize).or_else(|| within(-(BYTES as isize)..0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::alloc::{alloc, dealloc};

    /// Returns the damage found around memory of `bytes` bytes after writing one byte at each offset.
    fn found(bytes: usize, align: usize, writes: &[isize]) -> Option<Damage> {
        let (whole, before) = around(Layout::from_size_align(bytes, align).unwrap()).unwrap();
        // SAFETY: the layout has a size; all writes are within it.
        unsafe {
            let start = alloc(whole).add(before);
            assert!(start.addr().is_multiple_of(align));
            paint(start, bytes);
            start.write_bytes(0, bytes);
            writes.iter().for_each(|&offset| *start.offset(offset) ^= 1);
            let found = damage(start, bytes);
            dealloc(start.sub(before), whole);
            found
        }
    }

    #[test]
    fn every_byte_around_memory_is_watched() {
        for (bytes, align) in [(0, 1), (1, 1), (7, 2), (8, 8), (13, 16), (100, 4), (512, 512)] {
            assert_eq!(found(bytes, align, &[]), None);
            let end = bytes as isize;
            for offset in (-(BYTES as isize)..0).chain(end..end + BYTES as isize) {
                assert_eq!(
                    found(bytes, align, &[offset]),
                    Some(Damage { first: offset, bytes: 1 }),
                    "{bytes}"
                );
            }
            let both = found(bytes, align, &[-4, end + 4, end + 11]);
            assert_eq!(both, Some(Damage { first: end + 4, bytes: 8 }));
        }
    }

    #[test]
    fn damage_is_described() {
        let text = Damage { first: 64, bytes: 4 }.of("a shared array of 64 bytes");
        assert_eq!(
            text,
            "4 bytes beyond the end of a shared array of 64 bytes were overwritten, starting at byte 64"
        );
        let text = Damage { first: -1, bytes: 1 }.of("memory");
        assert_eq!(text, "1 byte before the start of memory was overwritten, starting at byte -1");
    }

    #[test]
    fn a_size_beyond_memory_has_no_layout() {
        let layout = Layout::from_size_align(isize::MAX as usize - 8, 8).unwrap();
        assert_eq!(around(layout), None);
    }
}
