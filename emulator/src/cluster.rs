//! Barriers of more than one block: the cluster barrier, which has two halves, and the grid barrier.
//!
//! Each barrier counts threads of blocks that run concurrently on one host thread.

use std::cell::{Cell, RefCell};

use crate::wait::Queue;
use crate::wait::Waiter;

/// Barrier of a cluster. A phase is complete when every thread of the cluster that has not exited has arrived.
#[derive(Default)]
pub(crate) struct ClusterBarrier {
    phase: Cell<u32>,
    /// Number of threads that have arrived in this phase and have not exited.
    arrived: Cell<u32>,
    /// Waiting threads, each with the operation in which it waits.
    waiters: RefCell<Vec<(Waiter, &'static str)>>,
}

impl ClusterBarrier {
    pub fn begin(&self) {
        self.phase.set(0);
        self.arrived.set(0);
        self.waiters.borrow_mut().clear();
    }

    /// Returns the token that identifies an arrival in the current phase.
    pub fn token(&self) -> u32 {
        self.phase.get().wrapping_add(1)
    }

    /// Counts an arrival.
    pub fn arrive(&self) {
        self.arrived.set(self.arrived.get() + 1);
    }

    /// Withdraws the arrival of a thread.
    pub fn withdraw(&self) {
        self.arrived.set(self.arrived.get() - 1);
    }

    /// Ends the phase and returns true if all `alive` threads have arrived.
    pub fn complete(&self, alive: u32, queue: &Queue) -> bool {
        if self.arrived.get() != alive || alive == 0 {
            return false;
        }
        self.arrived.set(0);
        self.phase.set(self.phase.get().wrapping_add(1));
        queue.release(self.waiters.borrow_mut().drain(..).map(|(waiter, _)| waiter.runner));
        true
    }

    /// Records a waiting thread.
    pub fn wait(&self, waiter: Waiter, operation: &'static str) {
        self.waiters.borrow_mut().push((waiter, operation));
    }

    pub fn for_each_waiter(&self, mut visit: impl FnMut(&Waiter, &'static str)) {
        self.waiters.borrow().iter().for_each(|(waiter, operation)| visit(waiter, operation));
    }
}

/// Barrier of the grid, which is complete when every thread of the grid has arrived. An exited thread never arrives.
#[derive(Default)]
pub(crate) struct GridBarrier {
    arrived: Cell<u32>,
    waiters: RefCell<Vec<Waiter>>,
}

impl GridBarrier {
    pub fn begin(&self) {
        self.arrived.set(0);
        self.waiters.borrow_mut().clear();
    }

    /// Counts an arrival. The last of `threads` threads releases all others, in which case the call returns true.
    pub fn arrive(&self, threads: u32, queue: &Queue) -> bool {
        let arrived = self.arrived.get() + 1;
        self.arrived.set(arrived % threads);
        if arrived < threads {
            return false;
        }
        queue.release(self.waiters.borrow_mut().drain(..).map(|waiter| waiter.runner));
        true
    }

    /// Records a waiting thread that has arrived.
    pub fn wait(&self, waiter: Waiter) {
        self.waiters.borrow_mut().push(waiter);
    }

    pub fn for_each_waiter(&self, visit: impl FnMut(&Waiter)) {
        self.waiters.borrow().iter().for_each(visit);
    }

    pub fn has_waiters(&self) -> bool {
        !self.waiters.borrow().is_empty()
    }
}
