//! Synchronization types of the standard library that `handles` and `round_robin` use.

pub(super) use std::sync::Mutex;
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
