//! Addresses for emulated device memory, which are either host addresses or plain numbers without memory.
//!
//! Accesses to reserved host addresses fault; only [`Reserved::commit`] and [`Reserved::map`] map memory to them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::shared_pages::SharedPages;

/// Granularity of mapped memory, in bytes.
pub(super) const GRANULARITY: usize = 2 << 20;

/// Alignment of every block, as on a GPU.
pub(super) const ALIGN: usize = 512;

/// If addresses are plain numbers, blocks of at least this size in bytes are aligned to [`GRANULARITY`].
const LARGE: usize = 1 << 20;

/// Backing of a driver's addresses.
#[derive(Debug, Clone)]
pub(super) enum Backing {
    /// Memory of the process.
    Host,
    /// No memory. Only addresses are allocated.
    Numbers(Arc<Numbers>),
}

impl Backing {
    /// Reserves `bytes` addresses that are aligned to the granularity; `bytes` must be a multiple of the granularity.
    /// Returns `None` if the system cannot reserve them.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Reserved> {
        match self {
            Backing::Host => host::reserve(bytes).map(|address| Reserved { address, bytes, host: true }),
            Backing::Numbers(numbers) => {
                numbers.take(bytes).map(|address| Reserved { address, bytes, host: false })
            }
        }
    }
}

/// Allocator of addresses. It returns addresses in ascending order and does not reuse them.
#[derive(Debug)]
pub(super) struct Numbers(AtomicU64);

impl Numbers {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(1 << 44))
    }

    /// Returns the first of `bytes` unused addresses; `None` if there are not enough addresses left.
    pub(super) fn take(&self, bytes: usize) -> Option<u64> {
        let align = if bytes >= LARGE { GRANULARITY } else { ALIGN } as u64;
        let start = |at: u64| at.checked_next_multiple_of(align);
        let end = |at: u64| start(at)?.checked_add(bytes as u64);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end).ok().and_then(start)
    }
}

/// Reserved addresses, which are released when this value is dropped.
#[derive(Debug)]
pub(super) struct Reserved {
    address: u64,
    bytes: usize,
    host: bool,
}

impl Reserved {
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns true if a range is within the reservation.
    pub(super) fn contains(&self, address: u64, bytes: usize) -> bool {
        let end = self.address + self.bytes as u64;
        self.address <= address && address.checked_add(bytes as u64).is_some_and(|last| last <= end)
    }

    /// Commits memory for a range and fills it with `0xFF`. Returns false if the range is not in this reservation or if
    /// the system call fails.
    ///
    /// # Safety
    /// No code may use the range.
    pub(super) unsafe fn commit(&self, address: u64, bytes: usize) -> bool {
        // SAFETY: the range is within a reservation of the host, and the caller guarantees that it is not used.
        self.contains(address, bytes) && (!self.host || unsafe { host::commit(address, bytes) })
    }

    /// Maps memory, possibly of another process, to a range. Returns false if the range is not in this reservation or
    /// if the system call fails.
    ///
    /// # Safety
    /// No code may use the range, and the memory must have at least `bytes` bytes.
    pub(super) unsafe fn map(&self, address: u64, bytes: usize, memory: &SharedPages) -> bool {
        // SAFETY: the range is within a reservation of the host, and the caller guarantees the rest.
        self.host && self.contains(address, bytes) && unsafe { memory.map(address, bytes) }
    }

    /// Removes the memory that is mapped to a range. Returns false if the range is not in this reservation or if the
    /// system call fails.
    ///
    /// # Safety
    /// No code may use the range.
    pub(super) unsafe fn decommit(&self, address: u64, bytes: usize) -> bool {
        // SAFETY: as above.
        self.contains(address, bytes) && (!self.host || unsafe { host::decommit(address, bytes) })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.host {
            // SAFETY: the range was reserved by `host::reserve` with this size and is not used after the drop.
            unsafe { host::release(self.address, self.bytes) };
        }
    }
}

#[cfg(unix)]
mod host {
    use std::ffi::c_void;

    use super::GRANULARITY;

    /// Mapping flag that makes memory count against limits only after it was written, on systems that support this.
    #[cfg(target_os = "linux")]
    const NO_RESERVE: i32 = libc::MAP_NORESERVE;
    #[cfg(not(target_os = "linux"))]
    const NO_RESERVE: i32 = 0;

    const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANON | NO_RESERVE;

    fn pointer(address: u64) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(address as usize)
    }

    pub(super) fn reserve(bytes: usize) -> Option<u64> {
        // The system aligns only to its own pages, which are smaller. Therefore, more addresses are reserved, and the
        // excess before and after the range is released.
        let wanted = bytes.checked_add(GRANULARITY)?;
        // SAFETY: the system chooses new addresses, so existing memory is unaffected.
        let raw = unsafe { libc::mmap(std::ptr::null_mut(), wanted, libc::PROT_NONE, FLAGS, -1, 0) };
        if raw == libc::MAP_FAILED {
            return None;
        }
        let raw = raw.expose_provenance() as u64;
        let address = raw.next_multiple_of(GRANULARITY as u64);
        let before = (address - raw) as usize;
        // SAFETY: both ranges are parts of the mapping above, outside of the returned range.
        unsafe {
            if before > 0 {
                release(raw, before);
            }
            release(address + bytes as u64, GRANULARITY - before);
        }
        Some(address)
    }

    /// # Safety
    /// The range must be reserved, and no code may use it.
    pub(super) unsafe fn commit(address: u64, bytes: usize) -> bool {
        let pointer = pointer(address);
        // SAFETY: the range belongs to this reservation, and is made writable before it is written.
        unsafe {
            if libc::mprotect(pointer, bytes, libc::PROT_READ | libc::PROT_WRITE) != 0 {
                return false;
            }
            pointer.cast::<u8>().write_bytes(0xFF, bytes);
        }
        true
    }

    /// # Safety
    /// The range must be reserved, and no code may use it.
    pub(super) unsafe fn decommit(address: u64, bytes: usize) -> bool {
        let flags = FLAGS | libc::MAP_FIXED;
        // SAFETY: this replaces a range of this reservation by a new mapping without memory or access.
        unsafe { libc::mmap(pointer(address), bytes, libc::PROT_NONE, flags, -1, 0) != libc::MAP_FAILED }
    }

    /// # Safety
    /// The range must be reserved, and no code may use it now or later.
    pub(super) unsafe fn release(address: u64, bytes: usize) {
        // SAFETY: guaranteed by the caller. The call fails only if the system cannot split any more mappings, in which
        // case the addresses stay reserved.
        unsafe { libc::munmap(pointer(address), bytes) };
    }
}

#[cfg(windows)]
mod host {
    use std::ffi::c_void;

    use windows_sys::Win32::System::Memory::{
        MEM_COMMIT, MEM_DECOMMIT, MEM_RELEASE, MEM_RESERVE, MEMORY_BASIC_INFORMATION, PAGE_NOACCESS,
        PAGE_READWRITE, VirtualAlloc, VirtualFree, VirtualQuery,
    };

    use super::GRANULARITY;

    fn pointer(address: u64) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(address as usize)
    }

    pub(super) fn reserve(bytes: usize) -> Option<u64> {
        // The system aligns to 64 KiB only. A reservation cannot be split, so the excess stays reserved.
        let wanted = bytes.checked_add(GRANULARITY)?;
        // SAFETY: the system chooses new addresses, so existing memory is unaffected.
        let raw = unsafe { VirtualAlloc(std::ptr::null(), wanted, MEM_RESERVE, PAGE_NOACCESS) };
        (!raw.is_null()).then(|| (raw.expose_provenance() as u64).next_multiple_of(GRANULARITY as u64))
    }

    /// # Safety
    /// The range must be reserved, and no code may use it.
    pub(super) unsafe fn commit(address: u64, bytes: usize) -> bool {
        // SAFETY: the range belongs to this reservation, and is made writable before it is written.
        unsafe {
            if VirtualAlloc(pointer(address), bytes, MEM_COMMIT, PAGE_READWRITE).is_null() {
                return false;
            }
            pointer(address).cast::<u8>().write_bytes(0xFF, bytes);
        }
        true
    }

    /// # Safety
    /// The range must be reserved, and no code may use it.
    pub(super) unsafe fn decommit(address: u64, bytes: usize) -> bool {
        // SAFETY: guaranteed by the caller.
        unsafe { VirtualFree(pointer(address), bytes, MEM_DECOMMIT) != 0 }
    }

    /// # Safety
    /// The range must be reserved, and no code may use it now or later.
    pub(super) unsafe fn release(address: u64, _bytes: usize) {
        let mut about = MEMORY_BASIC_INFORMATION::default();
        // SAFETY: the first call fills a local variable with the start of the reservation, which the second call
        // releases. If a call fails, the addresses stay reserved.
        unsafe {
            if VirtualQuery(pointer(address), &mut about, size_of_val(&about)) != 0 {
                VirtualFree(about.AllocationBase, 0, MEM_RELEASE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_aligned_and_never_overlap() {
        let numbers = Numbers::new();
        let mut end = 1 << 44;
        for bytes in [1, 511, 513, LARGE, 1, LARGE - 1, 5 << 40, 700] {
            let address = numbers.take(bytes).unwrap();
            let align = if bytes >= LARGE { GRANULARITY } else { ALIGN } as u64;
            assert!(address >= end && address.is_multiple_of(align), "{address:#x} for {bytes}");
            end = address + bytes as u64;
        }
        assert_eq!(numbers.take(usize::MAX), None);
        assert!(numbers.take(1).is_some(), "a refusal takes nothing");
    }
}
