//! Asking the system for large pages under new host memory.
//!
//! The first write to each page of new memory is an interrupt, which with pages of 4 KiB takes several times as long
//! as copying what goes there. The system may ignore the request.

/// Below this, there is little to gain.
const WORTH_BYTES: usize = 8 << 20;

/// Asks for large pages under memory that was just allocated and not yet written.
#[cfg(target_os = "linux")]
pub(super) fn advise(start: *mut u8, bytes: usize) {
    if bytes < WORTH_BYTES {
        return;
    }
    let page = 4096;
    let skipped = start.addr().next_multiple_of(page) - start.addr();
    // SAFETY: the range is within the allocation, and the advice changes no content. A refusal changes nothing.
    let _ = unsafe {
        libc::madvise(start.add(skipped).cast(), (bytes - skipped) / page * page, libc::MADV_HUGEPAGE)
    };
}

#[cfg(not(target_os = "linux"))]
pub(super) fn advise(_start: *mut u8, _bytes: usize) {}
