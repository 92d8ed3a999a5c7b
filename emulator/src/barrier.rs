//! Barrier of a block. The barrier is complete when every thread that has not exited has arrived.

use std::cell::{Cell, RefCell};

use crate::wait::Queue;
use crate::wait::Waiter;

/// Result of a barrier, which combines the predicates of the threads that have arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct BarrierResult {
    /// Number of true predicates.
    pub count: u32,
    /// True if all predicates are true.
    pub and: bool,
    /// True if any predicate is true.
    pub or: bool,
}

#[derive(Default)]
pub(crate) struct Barrier {
    arrived: Cell<u32>,
    /// Number of arrived threads whose predicate is true.
    holds: Cell<u32>,
    waiters: RefCell<Vec<Waiter>>,
    /// Result of the last complete barrier. The next barrier cannot complete before every thread has read this result,
    /// because a thread that has not read it yet has not arrived again.
    result: Cell<BarrierResult>,
}

impl Barrier {
    pub fn begin_block(&self) {
        self.arrived.set(0);
        self.holds.set(0);
        self.waiters.borrow_mut().clear();
    }

    /// Counts an arrival.
    pub fn arrive(&self, predicate: bool) {
        self.arrived.set(self.arrived.get() + 1);
        self.holds.set(self.holds.get() + u32::from(predicate));
    }

    /// Records a waiting thread that has arrived.
    pub fn wait(&self, waiter: Waiter) {
        self.waiters.borrow_mut().push(waiter);
    }

    /// Returns true if at least one thread has arrived and all `alive` threads have arrived.
    #[inline]
    pub fn is_complete(&self, alive: u32) -> bool {
        let arrived = self.arrived.get();
        arrived == alive && arrived != 0
    }

    /// Releases all waiting threads.
    pub fn release(&self, queue: &Queue) {
        let arrived = self.arrived.replace(0);
        let holds = self.holds.replace(0);
        self.result.set(BarrierResult { count: holds, and: holds == arrived, or: holds != 0 });
        queue.release(self.waiters.borrow_mut().drain(..).map(|waiter| waiter.runner));
    }

    pub fn result(&self) -> BarrierResult {
        self.result.get()
    }

    pub fn for_each_waiter(&self, mut visit: impl FnMut(&Waiter)) {
        self.waiters.borrow().iter().for_each(&mut visit);
    }
}
