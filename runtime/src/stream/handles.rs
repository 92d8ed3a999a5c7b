//! [`HandleCount`]: counts the handles to an object that belongs to an owner.
//!
//! The first handle acquires a reference to the owner, and the last one releases it. The owner therefore stays alive
//! while handles exist, but further handles do not change the owner's reference count. The object remains in place when
//! it has no handles.
//!
//! Uses `super::sync`, so that `loom` can check it (`runtime/tests/emulated/loom_streams.rs`).

use super::sync::{AtomicUsize, Ordering};

/// Count of handles; see the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct HandleCount(AtomicUsize);

impl HandleCount {
    pub(crate) fn new(handles: usize) -> Self {
        Self(AtomicUsize::new(handles))
    }

    /// Adds a handle, even if no handle exists. Returns true if it is the first handle, in which case the caller must
    /// acquire a reference to the owner on behalf of the handles.
    pub(crate) fn add_first(&self) -> bool {
        self.0.fetch_add(1, Ordering::AcqRel) == 0
    }

    /// Adds a handle; the caller already owns one.
    #[inline]
    pub(crate) fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds a handle if at least one exists. Returns true if it was added.
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

    /// Removes a handle. Returns true if it was the last handle, in which case the caller must release the reference to
    /// the owner and must not access the object afterwards.
    #[inline]
    pub(crate) fn remove(&self) -> bool {
        let last = self.0.fetch_sub(1, Ordering::Release) == 1;
        if last {
            // Orders all uses through other handles before the code that follows. A fence would have the same effect,
            // but ThreadSanitizer does not support fences.
            self.0.load(Ordering::Acquire);
        }
        last
    }
}
