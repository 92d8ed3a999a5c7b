//! The barriers of parts of a block: complete when as many threads have arrived as each of them states.

use std::cell::{Cell, RefCell};

use crate::wait::{Queue, Waiter};

/// The numbers of a block's barriers; number 0 is that of `sync_threads`.
const BARRIERS: u32 = 16;
/// Threads of a warp group, and the most groups of a block.
const GROUP: u32 = 128;
const GROUPS: u32 = 8;

/// The barriers of a block.
#[derive(Default)]
pub(crate) struct PartBarriers([PartBarrier; (BARRIERS + GROUPS) as usize]);

/// One of them.
#[derive(Default)]
struct PartBarrier {
    /// The threads that the first to arrive has stated; 0 while none has arrived.
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

    /// Counts the thread `waiter` in at barrier `number`, where `threads` meet, and releases the others if it is the last of
    /// them; whether it is. Otherwise it waits.
    pub fn arrive(&self, number: u32, threads: u32, waiter: Waiter, queue: &Queue) -> Result<bool, String> {
        if !(1..BARRIERS).contains(&number) {
            return Err(format!("a block has barriers 1 to 15 for parts of it, not {number}"));
        }
        if threads == 0 || !threads.is_multiple_of(32) {
            return Err(format!("{threads} threads at barrier {number}: a multiple of 32 meet"));
        }
        self.arrive_at(number, threads, waiter, queue)
    }

    /// The same for the threads of the warp group of `waiter`, in what they do together.
    pub fn arrive_of_group(&self, waiter: Waiter, queue: &Queue) -> bool {
        self.arrive_at(BARRIERS + waiter.thread / GROUP, GROUP, waiter, queue).unwrap_or(false)
    }

    fn arrive_at(&self, number: u32, threads: u32, waiter: Waiter, queue: &Queue) -> Result<bool, String> {
        let barrier = &self.0[number as usize];
        let stated = barrier.threads.get();
        if stated != 0 && stated != threads {
            return Err(format!(
                "the threads at barrier {number} disagree: this one waits for {threads}, another for {stated}"
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

    /// Visits the threads that wait, with what they do.
    pub fn for_each_waiter(&self, mut visit: impl FnMut(&Waiter, &'static str)) {
        for (number, barrier) in self.0.iter().enumerate() {
            let operation = if number < BARRIERS as usize { "warp_group::sync" } else { "wgmma" };
            barrier.waiters.borrow().iter().for_each(|waiter| visit(waiter, operation));
        }
    }
}
