//! Page-locked memory that the process has registered.

use std::collections::BTreeMap;
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
            let text = format!("a part of the {bytes} bytes at {address:#x} is registered already");
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
            let text = format!("no registered memory begins at {address:#x}");
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

#[cfg(test)]
mod tests {
    use super::*;

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
