//! Requesting large pages for new host memory.
//!
//! The first write to each page of new memory is a page fault, which with 4 KiB pages takes several times as long as
//! copying the data. The system may ignore the request.

/// Minimum size, in bytes. Smaller memory gains little.
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
