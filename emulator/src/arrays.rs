//! Barriers of shared arrays. Each array has one barrier, which every thread of the block must reach at the same source
//! location.

use std::cell::{Cell, OnceCell, RefCell};
use std::panic::Location;

use crate::wait::{Queue, Waiter};

/// Maximum number of shared arrays per kernel, because a GPU block has 16 barriers, one of which `sync_threads` uses.
pub const ARRAY_BARRIERS: u32 = 15;

/// Barriers of a block's shared arrays, created on first use.
#[derive(Default)]
pub(crate) struct ArrayBarriers(OnceCell<Box<[ArrayBarrier; ARRAY_BARRIERS as usize]>>);

/// Barrier of one array, which is complete when every thread of the block has arrived.
#[derive(Default)]
pub(crate) struct ArrayBarrier {
    /// Operation, location and thread of the first arrival.
    first: Cell<Option<(&'static str, &'static Location<'static>, u32)>>,
    arrived: Cell<u32>,
    waiters: RefCell<Vec<Waiter>>,
}

impl ArrayBarriers {
    pub fn begin_block(&self) {
        for barrier in self.0.get().into_iter().flat_map(|barriers| barriers.iter()) {
            barrier.first.set(None);
            barrier.arrived.set(0);
            barrier.waiters.borrow_mut().clear();
        }
    }

    /// Returns barrier `number`, from 1 to [`ARRAY_BARRIERS`].
    pub fn barrier(&self, number: u32) -> &ArrayBarrier {
        assert!(
            (1..=ARRAY_BARRIERS).contains(&number),
            "array barrier {number} does not exist: the barriers are 1 to 15"
        );
        &self.0.get_or_init(Box::default)[number as usize - 1]
    }

    /// Visits the waiting threads, each with its operation.
    pub fn for_each_waiter(&self, mut visit: impl FnMut(&Waiter, &'static str)) {
        for barrier in self.0.get().into_iter().flat_map(|barriers| barriers.iter()) {
            if let Some((operation, ..)) = barrier.first.get() {
                barrier.waiters.borrow().iter().for_each(|waiter| visit(waiter, operation));
            }
        }
    }

    /// Returns a waiting thread and its operation, if any thread waits.
    pub fn any_waiter(&self) -> Option<(Waiter, &'static str)> {
        let mut any = None;
        self.for_each_waiter(|waiter, operation| any = any.or(Some((*waiter, operation))));
        any
    }
}

impl ArrayBarrier {
    /// Counts an arrival. Returns true for the last of `threads` threads. If the thread is at a different source
    /// location than the first thread that arrived, returns the location of that first thread as the error.
    pub fn arrive(
        &self,
        operation: &'static str,
        location: &'static Location<'static>,
        thread: u32,
        threads: u32,
    ) -> Result<bool, String> {
        match self.first.get() {
            None => self.first.set(Some((operation, location, thread))),
            Some((other, place, first)) if other != operation || place != location => {
                return Err(format!("thread {first} in {other} at {place}"));
            }
            Some(_) => {}
        }
        self.arrived.set(self.arrived.get() + 1);
        Ok(self.arrived.get() == threads)
    }

    /// Records a waiting thread that has arrived.
    pub fn wait(&self, waiter: Waiter) {
        self.waiters.borrow_mut().push(waiter);
    }

    /// Releases all waiting threads.
    pub fn release(&self, queue: &Queue) {
        self.first.set(None);
        self.arrived.set(0);
        queue.release(self.waiters.borrow_mut().drain(..).map(|waiter| waiter.runner));
    }
}
