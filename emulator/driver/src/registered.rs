//! Process memory that devices can use: registered memory, which is page-locked, and exposed memory, which is not.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::Call;
use super::control::driver_error;
use warpsmith_driver::error::{Result, code};

/// Lengths of the registered ranges in bytes, keyed by start address. The ranges are disjoint.
#[derive(Debug, Default)]
pub(super) struct Registered(Mutex<BTreeMap<u64, usize>>);

impl Registered {
    fn ranges(&self) -> MutexGuard<'_, BTreeMap<u64, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the number of ranges.
    pub(super) fn live(&self) -> usize {
        self.ranges().len()
    }

    pub(super) fn add(&self, address: u64, bytes: usize) -> Result<()> {
        let call = Call::HostRegister.name();
        let invalid = |text: &str| Err(driver_error(call, code::INVALID_VALUE, text));
        if address == 0 || bytes == 0 {
            return invalid("no memory");
        }
        let Some(end) = address.checked_add(bytes as u64) else {
            return invalid("the range ends beyond the last address");
        };
        let mut ranges = self.ranges();
        let before = ranges.range(..end).next_back();
        if before.is_some_and(|(start, bytes)| start + *bytes as u64 > address) {
            let text = format!("part of the {bytes} bytes at {address:#x} is already registered");
            return Err(driver_error(call, code::HOST_MEMORY_ALREADY_REGISTERED, text));
        }
        ranges.insert(address, bytes);
        Ok(())
    }

    /// Unregisters a range. `busy` returns true if pending work uses a range of addresses.
    pub(super) fn remove(&self, address: u64, busy: impl FnOnce(u64, u64) -> bool) -> Result<()> {
        let call = Call::HostUnregister.name();
        let mut ranges = self.ranges();
        let Some(bytes) = ranges.get(&address).copied() else {
            let text = format!("no registered memory starts at {address:#x}");
            return Err(driver_error(call, code::HOST_MEMORY_NOT_REGISTERED, text));
        };
        if busy(address, address + bytes as u64) {
            let text = format!("{address:#x} is still used by enqueued work");
            return Err(driver_error(call, code::INVALID_VALUE, text));
        }
        ranges.remove(&address);
        Ok(())
    }

    /// Returns true if a range is within one registered range.
    pub(super) fn holds(&self, address: u64, bytes: usize) -> bool {
        let ranges = self.ranges();
        let Some((start, len)) = ranges.range(..=address).next_back() else { return false };
        address.checked_add(bytes as u64).is_some_and(|end| end <= start + *len as u64)
    }
}

/// Exposed ranges of addresses, which may overlap and occur several times.
#[derive(Debug, Default)]
pub(super) struct Exposed(Mutex<Vec<Range<u64>>>);

impl Exposed {
    fn ranges(&self) -> MutexGuard<'_, Vec<Range<u64>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of ranges.
    pub(super) fn live(&self) -> usize {
        self.ranges().len()
    }

    pub(super) fn add(&self, address: u64, bytes: usize) -> Result<()> {
        let end = address.checked_add(bytes as u64).filter(|end| address != 0 && *end > address);
        let Some(end) = end else {
            let text = format!("{bytes} bytes at {address:#x} are not valid memory");
            return Err(driver_error(Call::HostExpose.name(), code::INVALID_VALUE, text));
        };
        self.ranges().push(address..end);
        Ok(())
    }

    /// Removes a range once. `busy` returns true if pending work uses a range of addresses; it is not called while
    /// another exposed range overlaps.
    pub(super) fn remove(
        &self,
        address: u64,
        bytes: usize,
        busy: impl FnOnce(u64, u64) -> bool,
    ) -> Result<()> {
        let invalid = |text| Err(driver_error(Call::HostConceal.name(), code::INVALID_VALUE, text));
        let mut ranges = self.ranges();
        let removed = address..address.saturating_add(bytes as u64);
        let Some(found) = ranges.iter().position(|range| *range == removed) else {
            return invalid(format!("{bytes} bytes at {address:#x} are not exposed"));
        };
        let overlaps = |(other, range): (usize, &Range<u64>)| {
            other != found && range.start < removed.end && removed.start < range.end
        };
        if !ranges.iter().enumerate().any(overlaps) && busy(removed.start, removed.end) {
            return invalid(format!("{address:#x} is still used by enqueued work"));
        }
        ranges.swap_remove(found);
        Ok(())
    }

    /// Returns true if a range lies in one exposed range.
    pub(super) fn holds(&self, address: u64, bytes: usize) -> bool {
        let end = address.saturating_add(bytes as u64);
        self.ranges().iter().any(|range| range.start <= address && end <= range.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exposed_ranges_overlap_and_count() {
        let exposed = Exposed::default();
        for (address, bytes) in [(1000, 100), (1000, 100), (1050, 100)] {
            exposed.add(address, bytes).unwrap();
        }
        for (address, bytes) in [(0, 1), (5000, 0), (u64::MAX, 2)] {
            assert_eq!(exposed.add(address, bytes).unwrap_err().code(), Some(code::INVALID_VALUE));
        }
        assert!(exposed.holds(1000, 100) && exposed.holds(1100, 50) && !exposed.holds(1000, 101));
        exposed.remove(1000, 100, |_, _| panic!("another range overlaps")).unwrap();
        assert!(exposed.holds(1000, 100));
        exposed.remove(1000, 100, |_, _| panic!("another range overlaps")).unwrap();
        exposed.remove(1000, 100, |_, _| false).unwrap_err();
        assert!(!exposed.holds(1000, 1) && exposed.holds(1050, 100));
        exposed.remove(1050, 100, |start, end| (start, end) == (1050, 1150)).unwrap_err();
        exposed.remove(1050, 100, |_, _| false).unwrap();
        assert_eq!(exposed.live(), 0);
    }

    #[test]
    fn ranges_neither_overlap_nor_go_while_used() {
        let registered = Registered::default();
        registered.add(1000, 100).unwrap();
        registered.add(1100, 1).unwrap();
        for (address, bytes) in [(1000, 100), (999, 2), (1099, 1), (1100, 5), (900, 1000)] {
            let error = registered.add(address, bytes).unwrap_err();
            assert_eq!(
                error.code(),
                Some(code::HOST_MEMORY_ALREADY_REGISTERED),
                "{bytes} bytes at {address}"
            );
        }
        for (address, bytes) in [(0, 1), (5000, 0), (u64::MAX, 2)] {
            assert_eq!(registered.add(address, bytes).unwrap_err().code(), Some(code::INVALID_VALUE));
        }
        assert!(registered.holds(1050, 50) && !registered.holds(1050, 51) && !registered.holds(999, 1));
        assert_eq!(
            registered.remove(1001, |_, _| false).unwrap_err().code(),
            Some(code::HOST_MEMORY_NOT_REGISTERED)
        );
        registered.remove(1000, |start, end| (start, end) == (1000, 1100)).unwrap_err();
        registered.remove(1000, |_, _| false).unwrap();
        assert_eq!((registered.live(), registered.holds(1000, 1)), (1, false));
    }
}
