//! Words: 32 bits of elements beside the epoch that they are of, in one access.
//!
//! A rank pushes words into the segments of the others. Who has found the epoch in a word has the elements that are beside it: there
//! is no flag to wait for after the elements, and no order between accesses. Epochs are never zero, so memory that was never
//! written has no valid word.
//!
//! A side of a segment has a *slot* for each rank, which that rank alone writes. The words of 16 bytes of elements, a
//! vector, are two pairs. Slots have the first pairs of all vectors, then the second, so that a warp's accesses are of memory
//! without gaps.

#[cfg(not(target_arch = "nvptx64"))]
use gpu_std::atomic::{Atomic, Ordering, scope};

use crate::meeting::{Epoch, FLAG_BYTES};

/// Bytes of the words of an epoch in a segment.
pub(crate) const SIDE_BYTES: usize = 4 << 20;
/// Bytes of a pair of words.
const PAIR: usize = 16;

/// The bytes of elements that there is room for, by the number of ranks that a kernel is for.
pub const fn room(world: usize) -> usize {
    SIDE_BYTES / world / 2
}

/// Where a rank's words are, in its own segment or in another's.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    first: usize,
    /// From the first pairs to the second, in bytes.
    stride: usize,
}

impl Slot {
    /// The slot in the segment of `of` to which `from` pushes `vectors` vectors.
    #[inline(always)]
    pub fn new<const WORLD: usize>(epoch: &Epoch, of: usize, from: usize, vectors: usize) -> Self {
        let side = epoch.meeting.segment(of) + FLAG_BYTES + epoch.side() * SIDE_BYTES;
        Self { first: side + from * (SIDE_BYTES / WORLD), stride: vectors * PAIR }
    }

    /// Pushes a vector.
    ///
    /// # Safety
    /// The slot has the vector, and is this rank's.
    #[inline(always)]
    pub unsafe fn push(self, vector: usize, elements: [u32; 4], epoch: u32) {
        let [a, b, c, d] = elements.map(|element| (epoch as u64) << 32 | element as u64);
        let first = self.first + vector * PAIR;
        // SAFETY: passed on from the caller.
        unsafe {
            store(first as *mut u64, [a, b]);
            store((first + self.stride) as *mut u64, [c, d]);
        }
    }

    /// The words of a vector, as they are now.
    ///
    /// # Safety
    /// The slot has the vector, and is in this rank's segment.
    #[inline(always)]
    pub unsafe fn look(self, vector: usize) -> [u64; 4] {
        let first = self.first + vector * PAIR;
        // SAFETY: passed on from the caller.
        let ([a, b], [c, d]) = unsafe { (load(first as *mut u64), load((first + self.stride) as *mut u64)) };
        [a, b, c, d]
    }
}

/// Whether all words are of this epoch.
#[inline(always)]
pub(crate) fn are_of(words: [u64; 4], epoch: u32) -> bool {
    let [a, b, c, d] = words.map(|word| (word >> 32) as u32 ^ epoch);
    a | b | c | d == 0
}

/// Writes two words, each at once.
///
/// # Safety
/// They are valid global memory, aligned to 16 bytes, which is used as words alone while the kernel runs.
#[inline(always)]
unsafe fn store(to: *mut u64, [a, b]: [u64; 2]) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: the caller's promise. Under the default options LLVM assumes that memory changes.
    unsafe {
        core::arch::asm!(
            "{{ .reg .b64 global; cvta.to.global.u64 global, {to}; st.relaxed.sys.global.v2.b64 [global], {{{a}, {b}}}; }}",
            to = in(reg64) to, a = in(reg64) a, b = in(reg64) b, options(nostack)
        );
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: the caller's promise.
    unsafe {
        Atomic::<u64, scope::System>::from_ptr(to).store(a, Ordering::Relaxed);
        Atomic::<u64, scope::System>::from_ptr(to.add(1)).store(b, Ordering::Relaxed);
    }
}

/// Reads two words, each at once.
///
/// # Safety
/// As for [`store`].
#[inline(always)]
unsafe fn load(from: *mut u64) -> [u64; 2] {
    #[cfg(target_arch = "nvptx64")]
    {
        let (a, b): (u64, u64);
        // SAFETY: the caller's promise. Under the default options LLVM assumes that memory may change.
        unsafe {
            core::arch::asm!(
                "{{ .reg .b64 global; cvta.to.global.u64 global, {from}; ld.relaxed.sys.global.v2.b64 {{{a}, {b}}}, [global]; }}",
                from = in(reg64) from, a = out(reg64) a, b = out(reg64) b, options(nostack)
            );
        }
        [a, b]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: the caller's promise.
    unsafe {
        [
            Atomic::<u64, scope::System>::from_ptr(from).load(Ordering::Relaxed),
            Atomic::<u64, scope::System>::from_ptr(from.add(1)).load(Ordering::Relaxed),
        ]
    }
}
