//! The parts of the standard library that `handles` and `round_robin` share state with.

pub(super) use std::sync::Mutex;
pub(super) use std::sync::atomic::{AtomicUsize, Ordering};
