//! Threads that wait, and the queue of those that can continue.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::Location;

/// A thread that waits.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    /// Number of its block in the set.
    pub block: u32,
    pub thread: u32,
    pub runner: u32,
    pub location: &'static Location<'static>,
}

/// Runners whose threads can continue.
#[derive(Default)]
pub(crate) struct Queue {
    pub ready: RefCell<VecDeque<u32>>,
    /// Threads that wait for memory to change: they continue when no other can.
    pub spinning: RefCell<VecDeque<Waiter>>,
}

impl Queue {
    pub fn push_ready(&self, runner: u32) {
        self.ready.borrow_mut().push_back(runner);
    }

    pub fn for_each_spinning(&self, visit: impl FnMut(&Waiter)) {
        self.spinning.borrow().iter().for_each(visit);
    }

    pub fn has_any(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.spinning.borrow().is_empty()
    }

    pub fn clear(&self) {
        self.ready.borrow_mut().clear();
        self.spinning.borrow_mut().clear();
    }
}
