//! [`HandleCount`]: how many handles there are of something that an owner keeps.
//!
//! The first handle takes a count of the owner, the last one releases it, so the owner lives while there are any,
//! and handles need not each touch the owner's count. The thing stays where it is between the last handle and the
//! next first one.
//!
//! Written against `super::sync`, so that the same code is checked by `loom` (`runtime/tests/core/loom_streams.rs`).

use super::sync::{AtomicUsize, Ordering};

/// See the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct HandleCount(AtomicUsize);

impl HandleCount {
    pub(crate) fn new(handles: usize) -> Self {
        Self(AtomicUsize::new(handles))
    }

    /// Adds a handle where there may be none. True if it is the first: the caller, which has the owner, takes
    /// a count of it for the handles.
    pub(crate) fn add_first(&self) -> bool {
        self.0.fetch_add(1, Ordering::AcqRel) == 0
    }

    /// Adds a handle, with one in hand.
    #[inline]
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a handle unless there is none.
    pub(crate) fn add_unless_none(&self) -> bool {
        let mut handles = self.0.load(Ordering::Relaxed);
        while handles > 0 {
            match self.0.compare_exchange(handles, handles + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(now) => handles = now,
            }
        }
        false
    }

    /// Takes a handle away. True if it was the last: the caller releases the owner's count, and does not touch the
    /// thing afterwards.
    #[inline]
    pub(crate) fn remove(&self) -> bool {
        let last = self.0.fetch_sub(1, Ordering::Release) == 1;
        if last {
            // Orders all that was done with other handles before what follows. A fence would too, but ThreadSanitizer
            // knows none.
            self.0.load(Ordering::Acquire);
        }
        last
    }
}
