//! Synchronization types used by `handles` and `round_robin`; `loom` tests replace them.

pub(super) use std::sync::Mutex;
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
