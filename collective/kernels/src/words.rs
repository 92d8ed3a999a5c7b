//! Words of the LL protocol. A word contains 32 bits of elements together with their epoch and is written in one
//! access.
//!
//! A rank pushes words to the segments of other ranks. A receiver that finds the current epoch in a word has also
//! received the elements in that word. It therefore needs neither a separate flag nor an ordering between accesses.
//! Epochs are never zero, so memory that has never been written contains no valid word.
//!
//! A side of a segment contains one *slot* per rank, which only that rank writes. A vector (16 bytes of elements) is
//! stored as two pairs of words. In a slot, the first pairs of all vectors precede the second pairs, so that the
//! accesses of a warp are contiguous.

#[cfg(not(target_arch = "nvptx64"))]
use gpu_std::atomic::{Atomic, Ordering, scope};

use crate::device_comm::{Epoch, FLAG_BYTES};

/// Size of the words that an epoch uses in a segment, in bytes.
pub(crate) const SIDE_BYTES: usize = 4 << 20;
/// Size of a pair of words, in bytes.
const PAIR: usize = 16;

/// Returns the maximum total size of the elements, in bytes, for kernels that support `world` ranks.
pub const fn room(world: usize) -> usize {
    SIDE_BYTES / world / 2
}

/// Location of the words of a rank, in its own segment or in that of another rank.
#[derive(Clone, Copy)]
pub(crate) struct Slot {
    first: usize,
    /// Distance between the first and the second pair of a vector, in bytes.
    stride: usize,
}

impl Slot {
    /// Returns the slot in the segment of rank `of` to which rank `from` pushes `vectors` vectors.
    #[inline(always)]
    pub fn new<const WORLD: usize>(epoch: &Epoch, of: usize, from: usize, vectors: usize) -> Self {
        let side = epoch.comm.segment(of) + FLAG_BYTES + epoch.side() * SIDE_BYTES;
        Self { first: side + from * (SIDE_BYTES / WORLD), stride: vectors * PAIR }
    }

    /// Pushes a vector.
    ///
    /// # Safety
    /// The slot must contain the vector and belong to this rank.
    #[inline(always)]
    pub unsafe fn push(self, vector: usize, elements: [u32; 4], epoch: u32) {
        let [a, b, c, d] = elements.map(|element| (epoch as u64) << 32 | element as u64);
        let first = self.first + vector * PAIR;
        // SAFETY: guaranteed by the caller.
        unsafe {
            store(first as *mut u64, [a, b]);
            store((first + self.stride) as *mut u64, [c, d]);
        }
    }

    /// Reads the current words of a vector.
    ///
    /// # Safety
    /// The slot must contain the vector and be in this rank's segment.
    #[inline(always)]
    pub unsafe fn look(self, vector: usize) -> [u64; 4] {
        let first = self.first + vector * PAIR;
        // SAFETY: guaranteed by the caller.
        let ([a, b], [c, d]) = unsafe { (load(first as *mut u64), load((first + self.stride) as *mut u64)) };
        [a, b, c, d]
    }
}

/// Returns whether all words contain this epoch.
#[inline(always)]
pub(crate) fn are_of(words: [u64; 4], epoch: u32) -> bool {
    let [a, b, c, d] = words.map(|word| (word >> 32) as u32 ^ epoch);
    a | b | c | d == 0
}

/// Writes two words, each atomically.
///
/// # Safety
/// The words must be valid global memory that is aligned to 16 bytes and is used only for words while the kernel runs.
#[inline(always)]
unsafe fn store(to: *mut u64, [a, b]: [u64; 2]) {
    #[cfg(target_arch = "nvptx64")]
    // SAFETY: guaranteed by the caller. With the default options of `asm!`, LLVM assumes that the assembly writes
    // memory.
    unsafe {
        core::arch::asm!(
            "{{ .reg .b64 global; cvta.to.global.u64 global, {to}; st.relaxed.sys.global.v2.b64 [global], {{{a}, {b}}}; }}",
            to = in(reg64) to, a = in(reg64) a, b = in(reg64) b, options(nostack)
        );
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: guaranteed by the caller.
    unsafe {
        Atomic::<u64, scope::System>::from_ptr(to).store(a, Ordering::Relaxed);
        Atomic::<u64, scope::System>::from_ptr(to.add(1)).store(b, Ordering::Relaxed);
    }
}

/// Reads two words, each atomically.
///
/// # Safety
/// The caller must uphold the safety contract of [`store`].
#[inline(always)]
unsafe fn load(from: *mut u64) -> [u64; 2] {
    #[cfg(target_arch = "nvptx64")]
    {
        let (a, b): (u64, u64);
        // SAFETY: guaranteed by the caller. With the default options of `asm!`, LLVM assumes that the memory may have
        // changed.
        unsafe {
            core::arch::asm!(
                "{{ .reg .b64 global; cvta.to.global.u64 global, {from}; ld.relaxed.sys.global.v2.b64 {{{a}, {b}}}, [global]; }}",
                from = in(reg64) from, a = out(reg64) a, b = out(reg64) b, options(nostack)
            );
        }
        [a, b]
    }
    #[cfg(not(target_arch = "nvptx64"))]
    // SAFETY: guaranteed by the caller.
    unsafe {
        [
            Atomic::<u64, scope::System>::from_ptr(from).load(Ordering::Relaxed),
            Atomic::<u64, scope::System>::from_ptr(from.add(1)).load(Ordering::Relaxed),
        ]
    }
}
