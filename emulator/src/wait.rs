//! Waiting threads, and the queue of ready threads.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::Location;

use crate::order::Random;

/// A waiting thread.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    /// Index of the thread's block in the set.
    pub block: u32,
    pub thread: u32,
    pub runner: u32,
    pub location: &'static Location<'static>,
}

/// Runners whose threads can continue.
#[derive(Default)]
pub(crate) struct Queue {
    pub ready: RefCell<VecDeque<u32>>,
    /// Threads that wait for memory to change. They continue when no other thread can continue.
    pub spinning: RefCell<VecDeque<Waiter>>,
    /// Random number generator of a seeded order; `None` in the sequential order.
    pub random: Cell<Option<Random>>,
}

impl Queue {
    pub fn push_ready(&self, runner: u32) {
        self.ready.borrow_mut().push_back(runner);
    }

    /// Makes threads that waited together ready, in the order of their arrival or in reverse order.
    pub fn release(&self, runners: impl DoubleEndedIterator<Item = u32>) {
        let mut ready = self.ready.borrow_mut();
        if self.draws(2) { ready.extend(runners.rev()) } else { ready.extend(runners) }
    }

    /// Returns true if the order should deviate from the sequential order. In a seeded order, this happens at random,
    /// on average in one of `times` calls. `times` must be a power of two.
    #[inline]
    pub fn draws(&self, times: u64) -> bool {
        let Some(mut random) = self.random.get() else { return false };
        let drawn = random.next();
        self.random.set(Some(random));
        drawn & (times - 1) == 0
    }

    /// Returns a random number less than `bound`, or 0 in the sequential order.
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
