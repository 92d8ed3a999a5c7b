//! Threads that wait, and the queue of those that can continue.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::Location;

use crate::order::Random;

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
    /// What varies the order; `None` in the sequential one.
    pub random: Cell<Option<Random>>,
}

impl Queue {
    pub fn push_ready(&self, runner: u32) {
        self.ready.borrow_mut().push_back(runner);
    }

    /// Makes threads ready that waited together: in the order in which they came, or in the opposite one.
    pub fn release(&self, runners: impl DoubleEndedIterator<Item = u32>) {
        let mut ready = self.ready.borrow_mut();
        if self.draws(2) { ready.extend(runners.rev()) } else { ready.extend(runners) }
    }

    /// Draws whether to deviate from the sequential order, which happens once in `times`, a power of two.
    #[inline]
    pub fn draws(&self, times: u64) -> bool {
        let Some(mut random) = self.random.get() else { return false };
        let drawn = random.next();
        self.random.set(Some(random));
        drawn & (times - 1) == 0
    }

    /// A number below `bound`; 0 in the sequential order.
    pub fn below(&self, bound: u64) -> u64 {
        let Some(mut random) = self.random.get() else { return 0 };
        let drawn = random.below(bound);
        self.random.set(Some(random));
        drawn
    }

    pub fn for_each_spinning(&self, visit: impl FnMut(&Waiter)) {
        self.spinning.borrow().iter().for_each(visit);
    }

    pub fn clear(&self) {
        self.ready.borrow_mut().clear();
        self.spinning.borrow_mut().clear();
    }
}
