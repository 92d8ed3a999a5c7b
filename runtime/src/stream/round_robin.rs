//! [`RoundRobin`]: a fixed number of items that are selected round-robin and created on first selection.
//!
//! Uses `super::sync`, so that `loom` can check it (`runtime/tests/emulated/loom_streams.rs`).

use std::sync::OnceLock;

use super::sync::{AtomicUsize, Mutex, Ordering};

/// Items that are selected round-robin; see the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct RoundRobin<T, const N: usize> {
    slots: [OnceLock<T>; N],
    next: AtomicUsize,
    /// Held while an item is created, so that no item is created twice.
    making: Mutex<()>,
}

impl<T, const N: usize> RoundRobin<T, N> {
    pub(crate) fn new() -> Self {
        Self { slots: [const { OnceLock::new() }; N], next: AtomicUsize::new(0), making: Mutex::new(()) }
    }

    /// Returns the next item. If `make` fails, the slot stays empty until its next turn.
    #[inline]
    pub(crate) fn next<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        let slot = &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % N];
        match slot.get() {
            Some(made) => Ok(made),
            None => self.make(slot, make),
        }
    }

    #[cold]
    fn make<'a, E>(&self, slot: &'a OnceLock<T>, make: impl FnOnce() -> Result<T, E>) -> Result<&'a T, E> {
        let _making = self.making.lock();
        if let Some(made) = slot.get() {
            return Ok(made);
        }
        let made = make()?;
        Ok(slot.get_or_init(|| made))
    }

    pub(crate) fn take(&mut self) -> impl Iterator<Item = T> {
        self.slots.iter_mut().filter_map(OnceLock::take)
    }
}
