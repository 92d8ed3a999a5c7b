//! [`HandleCount`]: count of the handles of an object that an owner keeps.
//!
//! The first handle takes a reference count of the owner, and the last one releases it. So the owner lives while there
//! are handles, and not every handle touches the owner's count. The object stays in place between the last handle and
//! the next first one.
//!
//! Written against `super::sync`, so that the same code is checked by `loom` (`runtime/tests/core/loom_streams.rs`).

use super::sync::{AtomicUsize, Ordering};

/// Count of handles: see the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct HandleCount(AtomicUsize);

impl HandleCount {
    pub(crate) fn new(handles: usize) -> Self {
        Self(AtomicUsize::new(handles))
    }

    /// Adds a handle if there may be none. Returns true if it is the first: then the caller, which has the owner, takes
    /// a reference count of it for the handles.
    pub(crate) fn add_first(&self) -> bool {
        self.0.fetch_add(1, Ordering::AcqRel) == 0
    }

    /// Adds a handle; the caller already has one.
    #[inline]
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a handle unless there is none. Returns whether it was added.
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

    /// Removes a handle. Returns true if it was the last: then the caller releases the owner's reference count, and
    /// does not touch the object afterwards.
    #[inline]
    pub(crate) fn remove(&self) -> bool {
        let last = self.0.fetch_sub(1, Ordering::Release) == 1;
        if last {
            // Orders all uses through other handles before what follows. A fence would too, but ThreadSanitizer does
            // not support fences.
            self.0.load(Ordering::Acquire);
        }
        last
    }
}
