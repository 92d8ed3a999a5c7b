//! Requests for large pages for new host memory.
//!
//! The first write to each page of new memory causes a page fault. With 4 KiB pages, these faults take several times as
//! long as copying the data. The system may ignore the request.

/// Requests large pages for memory that was just allocated and has not been written yet.
#[cfg(target_os = "linux")]
pub(super) fn advise(start: *mut u8, bytes: usize) {
    // Smaller allocations benefit little.
    if bytes < 8 << 20 {
        return;
    }
    // A multiple of the page sizes of x86-64 (4 KiB) and aarch64 (4, 16 or 64 KiB).
    let page = 64 << 10;
    let skipped = start.addr().next_multiple_of(page) - start.addr();
    // SAFETY: the range is within the allocation, and the call does not change its contents. Failure is harmless.
    let _ = unsafe {
        libc::madvise(start.add(skipped).cast(), (bytes - skipped) / page * page, libc::MADV_HUGEPAGE)
    };
}

#[cfg(not(target_os = "linux"))]
pub(super) fn advise(_start: *mut u8, _bytes: usize) {}
