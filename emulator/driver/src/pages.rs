//! Addresses for emulated device memory: host addresses, or numbers without memory.
//!
//! Reserved host addresses fault when touched; only [`Reserved::commit`] maps memory there.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::shared_pages::SharedPages;

/// Granularity in bytes of mapped memory.
pub(super) const GRANULARITY: usize = 2 << 20;

/// Alignment of every block, as on a GPU.
pub(super) const ALIGN: usize = 512;

/// Minimum size in bytes of blocks that are aligned to [`GRANULARITY`] when addresses are numbers.
const LARGE: usize = 1 << 20;

/// Backing of a driver's addresses.
#[derive(Debug, Clone)]
pub(super) enum Backing {
    /// Memory of the process.
    Host,
    /// No memory: only addresses are allocated.
    Numbers(Arc<Numbers>),
}

impl Backing {
    /// Returns true if addresses can be reserved.
    pub(super) fn can_reserve(&self) -> bool {
        match self {
            Backing::Host => host::SUPPORTED,
            Backing::Numbers(_) => true,
        }
    }

    /// Reserves `bytes`, a multiple of the granularity and aligned to it. `None` when the system refuses.
    pub(super) fn reserve(&self, bytes: usize) -> Option<Reserved> {
        match self {
            Backing::Host => host::reserve(bytes).map(|address| Reserved { address, bytes, host: true }),
            Backing::Numbers(numbers) => {
                numbers.take(bytes).map(|address| Reserved { address, bytes, host: false })
            }
        }
    }
}

/// Allocates addresses in ascending order, none of them twice.
#[derive(Debug)]
pub(super) struct Numbers(AtomicU64);

impl Numbers {
    pub(super) fn new() -> Self {
        Self(AtomicU64::new(1 << 44))
    }

    /// Address followed by `bytes` addresses; `None` when they are exhausted.
    pub(super) fn take(&self, bytes: usize) -> Option<u64> {
        let align = if bytes >= LARGE { GRANULARITY } else { ALIGN } as u64;
        let start = |at: u64| at.checked_next_multiple_of(align);
        let end = |at: u64| start(at)?.checked_add(bytes as u64);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, end).ok().and_then(start)
    }
}

/// Reserved addresses, released when dropped.
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

    /// Returns true if a range lies in the reservation.
    pub(super) fn contains(&self, address: u64, bytes: usize) -> bool {
        let end = self.address + self.bytes as u64;
        self.address <= address && address.checked_add(bytes as u64).is_some_and(|last| last <= end)
    }

    /// Commits memory for a range, filled with `0xFF`. Returns false if the range is not in this reservation or the
    /// system refuses.
    ///
    /// # Safety
    /// Nothing uses the range.
    pub(super) unsafe fn commit(&self, address: u64, bytes: usize) -> bool {
        // SAFETY: the range is within a reservation of the host, and the caller promises that it is not used.
        self.contains(address, bytes) && (!self.host || unsafe { host::commit(address, bytes) })
    }

    /// Maps memory, possibly of another process, to a range. Returns false if the range is not in this reservation or
    /// the system refuses.
    ///
    /// # Safety
    /// Nothing uses the range, and the memory has at least that many bytes.
    pub(super) unsafe fn map(&self, address: u64, bytes: usize, memory: &SharedPages) -> bool {
        // SAFETY: the range is within a reservation of the host, and the caller promises the rest.
        self.host && self.contains(address, bytes) && unsafe { memory.map(address, bytes) }
    }

    /// Removes the memory of a range. Returns false if the range is not in this reservation or the system refuses.
    ///
    /// # Safety
    /// Nothing uses the range.
    pub(super) unsafe fn decommit(&self, address: u64, bytes: usize) -> bool {
        // SAFETY: as above.
        self.contains(address, bytes) && (!self.host || unsafe { host::decommit(address, bytes) })
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        if self.host {
            // SAFETY: reserved by `host::reserve` with this size; it is not used after the drop.
            unsafe { host::release(self.address, self.bytes) };
        }
    }
}

#[cfg(unix)]
mod host {
    use std::ffi::c_void;

    use super::GRANULARITY;

    pub(super) const SUPPORTED: bool = true;

    /// Mapped memory counts only after it is written, where the system supports that.
    #[cfg(target_os = "linux")]
    const NO_RESERVE: i32 = libc::MAP_NORESERVE;
    #[cfg(not(target_os = "linux"))]
    const NO_RESERVE: i32 = 0;

    const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANON | NO_RESERVE;

    fn pointer(address: u64) -> *mut c_void {
        std::ptr::with_exposed_provenance_mut(address as usize)
    }

    pub(super) fn reserve(bytes: usize) -> Option<u64> {
        // The system aligns only to its pages, which are smaller; the excess before and after is released.
        let wanted = bytes.checked_add(GRANULARITY)?;
        // SAFETY: new addresses of the system's choice; nothing existing is touched.
        let raw = unsafe { libc::mmap(std::ptr::null_mut(), wanted, libc::PROT_NONE, FLAGS, -1, 0) };
        if raw == libc::MAP_FAILED {
            return None;
        }
        let raw = raw.expose_provenance() as u64;
        let address = raw.next_multiple_of(GRANULARITY as u64);
        let before = (address - raw) as usize;
        // SAFETY: both ranges are parts of the mapping above, outside the returned range.
        unsafe {
            if before > 0 {
                release(raw, before);
            }
            release(address + bytes as u64, GRANULARITY - before);
        }
        Some(address)
    }

    /// # Safety
    /// The range is reserved and nothing uses it.
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
    /// The range is reserved and nothing uses it.
    pub(super) unsafe fn decommit(address: u64, bytes: usize) -> bool {
        let flags = FLAGS | libc::MAP_FIXED;
        // SAFETY: replaces a range of this reservation by a fresh one without memory or access.
        unsafe { libc::mmap(pointer(address), bytes, libc::PROT_NONE, flags, -1, 0) != libc::MAP_FAILED }
    }

    /// # Safety
    /// The range is reserved and nothing uses it, now or later.
    pub(super) unsafe fn release(address: u64, bytes: usize) {
        // SAFETY: guaranteed by the caller. It fails only when the system cannot split any more mappings; the
        // addresses then stay reserved.
        unsafe { libc::munmap(pointer(address), bytes) };
    }
}

#[cfg(not(unix))]
mod host {
    pub(super) const SUPPORTED: bool = false;

    pub(super) fn reserve(_bytes: usize) -> Option<u64> {
        None
    }

    /// # Safety
    /// None: there are no reservations.
    pub(super) unsafe fn commit(_address: u64, _bytes: usize) -> bool {
        false
    }

    /// # Safety
    /// None: there are no reservations.
    pub(super) unsafe fn decommit(_address: u64, _bytes: usize) -> bool {
        false
    }

    /// # Safety
    /// None: there are no reservations.
    pub(super) unsafe fn release(_address: u64, _bytes: usize) {}
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
