//! Partial barriers of a block. A partial barrier is complete when as many threads have arrived as each of these
//! threads specifies.

use std::cell::{Cell, RefCell};

use crate::wait::{Queue, Waiter};

/// Number of barriers per block. Barrier 0 belongs to `sync_threads`.
const BARRIERS: u32 = 16;
/// Number of threads per warpgroup.
const GROUP: u32 = 128;
const GROUPS: u32 = 8;

/// Partial barriers of a block.
#[derive(Default)]
pub(crate) struct PartBarriers([PartBarrier; (BARRIERS + GROUPS) as usize]);

/// A partial barrier.
#[derive(Default)]
struct PartBarrier {
    /// Thread count specified by the first arrival; 0 if no thread has arrived.
    threads: Cell<u32>,
    waiters: RefCell<Vec<Waiter>>,
}

impl PartBarriers {
    pub fn begin_block(&self) {
        for barrier in &self.0 {
            barrier.threads.set(0);
            barrier.waiters.borrow_mut().clear();
        }
    }

    /// Counts the arrival of `waiter` at barrier `number`, with `threads` participants. The last arrival releases the
    /// other threads, and the call returns true. For other arrivals, the call returns false, and the thread must wait.
    pub fn arrive(&self, number: u32, threads: u32, waiter: Waiter, queue: &Queue) -> Result<bool, String> {
        if !(1..BARRIERS).contains(&number) {
            return Err(format!(
                "barrier {number} does not exist: the barriers for parts of a block are 1 to 15"
            ));
        }
        if threads == 0 || !threads.is_multiple_of(32) {
            return Err(format!(
                "barrier {number} expects {threads} threads, but the count must be a multiple of 32"
            ));
        }
        self.arrive_at(number, threads, waiter, queue)
    }

    /// Counts an arrival at the barrier of `waiter`'s warpgroup, for warpgroup operations.
    pub fn arrive_of_group(&self, waiter: Waiter, queue: &Queue) -> bool {
        self.arrive_at(BARRIERS + waiter.thread / GROUP, GROUP, waiter, queue).unwrap_or(false)
    }

    fn arrive_at(&self, number: u32, threads: u32, waiter: Waiter, queue: &Queue) -> Result<bool, String> {
        let barrier = &self.0[number as usize];
        let stated = barrier.threads.get();
        if stated != 0 && stated != threads {
            return Err(format!(
                "the threads at barrier {number} diverge: this one waits for {threads} threads, another for {stated}"
            ));
        }
        barrier.threads.set(threads);
        let mut waiters = barrier.waiters.borrow_mut();
        waiters.push(waiter);
        if (waiters.len() as u32) < threads {
            return Ok(false);
        }
        barrier.threads.set(0);
        waiters.pop();
        queue.release(waiters.drain(..).map(|waiter| waiter.runner));
        Ok(true)
    }

    /// Visits the waiting threads, each with its operation.
    pub fn for_each_waiter(&self, mut visit: impl FnMut(&Waiter, &'static str)) {
        for (number, barrier) in self.0.iter().enumerate() {
            let operation = if number < BARRIERS as usize { "warpgroup::sync" } else { "wgmma" };
            barrier.waiters.borrow().iter().for_each(|waiter| visit(waiter, operation));
        }
    }
}
