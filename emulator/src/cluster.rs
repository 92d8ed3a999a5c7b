//! The barriers that reach beyond a block: that of a cluster, in two halves, and that of the grid.
//!
//! Each counts threads of blocks that run at once, on one host thread.

use std::cell::{Cell, RefCell};

use crate::wait::Queue;
use crate::wait::Waiter;

/// A cluster's barrier: a phase is complete when every thread of the cluster that has not exited has arrived.
#[derive(Default)]
pub(crate) struct ClusterBarrier {
    phase: Cell<u32>,
    /// Threads that have arrived in this phase and have not exited.
    arrived: Cell<u32>,
    /// Threads that wait for the phase's end, and in what.
    waiters: RefCell<Vec<(Waiter, &'static str)>>,
}

impl ClusterBarrier {
    pub fn begin(&self) {
        self.phase.set(0);
        self.arrived.set(0);
        self.waiters.borrow_mut().clear();
    }

    /// The token of an arrival in the running phase.
    pub fn token(&self) -> u32 {
        self.phase.get().wrapping_add(1)
    }

    /// Counts a thread in.
    pub fn arrive(&self) {
        self.arrived.set(self.arrived.get() + 1);
    }

    /// Counts a thread out that had arrived.
    pub fn withdraw(&self) {
        self.arrived.set(self.arrived.get() - 1);
    }

    /// Ends the phase if all that are `alive` have arrived; whether it did.
    pub fn complete(&self, alive: u32, queue: &Queue) -> bool {
        if self.arrived.get() != alive || alive == 0 {
            return false;
        }
        self.arrived.set(0);
        self.phase.set(self.phase.get().wrapping_add(1));
        queue.release(self.waiters.borrow_mut().drain(..).map(|(waiter, _)| waiter.runner));
        true
    }

    /// Records where a thread waits.
    pub fn wait(&self, waiter: Waiter, operation: &'static str) {
        self.waiters.borrow_mut().push((waiter, operation));
    }

    pub fn for_each_waiter(&self, mut visit: impl FnMut(&Waiter, &'static str)) {
        self.waiters.borrow().iter().for_each(|(waiter, operation)| visit(waiter, operation));
    }
}

/// The grid's barrier: complete when every thread of the grid has arrived. One that has exited never does.
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

    /// Counts a thread in. The last of `threads` releases all; the call returns true for it.
    pub fn arrive(&self, threads: u32, queue: &Queue) -> bool {
        let arrived = self.arrived.get() + 1;
        self.arrived.set(arrived % threads);
        if arrived < threads {
            return false;
        }
        queue.release(self.waiters.borrow_mut().drain(..).map(|waiter| waiter.runner));
        true
    }

    /// Records where a thread that has arrived waits.
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
