//! A set of blocks that run concurrently on one host thread. It contains one block of an ordinary launch, the blocks of
//! a cluster, or all blocks of a cooperative launch. This module also starts, suspends and exits their threads.
//!
//! A single host thread uses this state. Kernel code and the scheduler both hold shared references to it, so every
//! borrow of a cell must end before control passes from one to the other.

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe, Location};

use crate::block::Block;
use crate::cluster::{ClusterBarrier, GridBarrier};
use crate::fault::{Fault, FaultKind};
use crate::in_flight::Copies;
use crate::launch::Grid;
use crate::order::Random;
use crate::output::Output;
use crate::panics::{self, Stopped};
use crate::registers::{Registers, registers};
use crate::runner::Progress;
use crate::wait::{Queue, Waiter};
use crate::watch::{Interrupted, SetClock};

/// Number of `spin_hint` calls after which a thread yields to others.
const SPIN_QUOTA: u32 = 32;

/// Next step of the scheduler.
pub(crate) enum Next {
    /// Resume a suspended thread.
    Resume(u32),
    /// Resume a suspended thread that waits by polling memory.
    Respin(u32),
    /// Start another thread of this block on an idle runner.
    Start(usize),
    /// Select the next step again, because a copy has completed.
    Again,
    /// Every thread has exited.
    Done,
    /// Every thread that has not exited waits.
    Stuck,
}

/// A set of blocks that run concurrently. A worker reuses the value for all sets that it runs in a launch.
pub(crate) struct BlockSet<'g> {
    pub grid: &'g Grid,
    clock: SetClock,
    /// Blocks, ordered by cluster and then by rank.
    pub blocks: Vec<Block>,
    pub queue: Queue,
    pub output: Output,
    pub grid_barrier: GridBarrier,
    pub copies: Copies,
    /// Cluster barriers, one per cluster of the set.
    pub cluster_barriers: Vec<ClusterBarrier>,
    /// True if a thread of the set has used a cluster barrier.
    clusters_meet: Cell<bool>,
    /// Block whose threads start next, in sequential order.
    starting: Cell<usize>,
    /// Block whose threads start first.
    first: Cell<usize>,
    /// Number of threads that have queried the active lanes and have not received a result yet.
    askers: Cell<u32>,
    /// True while suspended threads are being unwound.
    stopping: Cell<bool>,
    fault: RefCell<Option<Fault>>,
    /// Approximate number of `spin_hint` calls since a thread of the set made progress.
    spins: Cell<u64>,
    /// True if `spins` has exceeded the limit, so that the grid counts this set as stuck.
    stuck: Cell<bool>,
    /// True if `stuck` or `clusters_meet` is set, or a thread has waited at the barrier of an array. A thread that
    /// exits checks only this flag.
    unusual: Cell<bool>,
}

impl<'g> BlockSet<'g> {
    pub fn new(grid: &'g Grid, clock: SetClock) -> Self {
        Self {
            grid,
            clock,
            blocks: (0..grid.set_blocks).map(Block::new).collect(),
            queue: Queue::default(),
            output: Output::default(),
            grid_barrier: GridBarrier::default(),
            copies: Copies::default(),
            cluster_barriers: (0..grid.set_blocks / grid.cluster_blocks)
                .map(|_| Default::default())
                .collect(),
            clusters_meet: Cell::new(false),
            starting: Cell::new(0),
            first: Cell::new(0),
            askers: Cell::new(0),
            stopping: Cell::new(false),
            fault: RefCell::new(None),
            spins: Cell::new(0),
            stuck: Cell::new(false),
            unusual: Cell::new(false),
        }
    }

    /// Prepares for set `linear` of the grid.
    pub fn begin(&self, linear: u64) {
        self.clock.begin();
        self.stopping.set(false);
        self.starting.set(0);
        self.askers.set(0);
        self.progress();
        self.unusual.set(false);
        self.queue.clear();
        let random =
            self.grid.seed.map(|seed| Random::new(seed ^ linear.wrapping_mul(0xd6e8_feb8_6659_fd93)));
        self.queue.random.set(random);
        if self.blocks.len() > 1 {
            self.first.set(self.queue.below(self.blocks.len() as u64) as usize);
        }
        if self.clusters_meet.replace(false) {
            self.cluster_barriers.iter().for_each(ClusterBarrier::begin);
        }
        self.grid_barrier.begin();
        self.copies.begin();
        for block in &self.blocks {
            let index = self.grid.block_index(linear, block.number);
            // The generator is derived from the queue's, so that the two produce different random numbers.
            let random = random.map(|_| Random::new(self.queue.below(u64::MAX)));
            block.begin(self.grid, index, random);
            registers().with_checker(|checker| {
                checker.begin_block(block.number, self.grid.linear_index(index), index, self.grid.threads);
            });
        }
    }

    /// Body of a runner, which runs threads of the block until all have started. Panics are caught in this function.
    pub fn run_threads(&self, block: &Block, registers: &Registers) {
        // These fields are read once, because the compiler must assume that the kernel's code changes them.
        let Grid { kernel, args, shape, .. } = *self.grid;
        let entry = kernel.entry;
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            while block.start(shape, registers) {
                registers.spins.set(SPIN_QUOTA);
                // SAFETY: the caller of `launch::run` guarantees that the arguments match the kernel and that the
                // kernel's safety conditions hold.
                unsafe { entry(args) };
                self.exit(block, registers.linear.get());
            }
        }));
        if let Err(payload) = result {
            if let Some((message, location)) = panics::describe(&*payload) {
                self.fail(Fault {
                    kernel: self.grid.kernel.name,
                    block: Some(block.index()),
                    thread: Some(registers.thread.get()),
                    kind: FaultKind::Panic { message, location },
                });
            }
            panics::discard(payload);
        }
    }

    /// Counts an exiting thread. Threads that waited only for this thread continue or fail.
    #[inline(always)]
    fn exit(&self, block: &Block, linear: u32) {
        let alive = block.leave();
        self.spins.set(0);
        let waits = block.warps.exit(linear);
        if waits || block.barrier.is_complete(alive) || self.unusual.get() {
            self.exit_for_others(block, linear, alive);
        }
    }

    /// Handles the threads that wait for an exiting thread.
    #[inline(never)]
    fn exit_for_others(&self, block: &Block, linear: u32, alive: u32) {
        if let Some((waiter, call)) = block.warps.waits_for(linear) {
            self.fail(self.exited_lane(block, waiter, call.operation, call.mask, linear % 32, call.location));
        }
        if block.barrier.is_complete(alive) {
            registers().with_checker(|checker| checker.block_barrier(block.number));
            block.barrier.release(&self.queue);
        }
        if self.unusual.get() {
            self.progress();
            if self.clusters_meet.get() {
                self.leave_cluster(block, linear);
            }
            if let Some((waiter, operation)) = block.arrays.any_waiter()
                && let Some(message) = block.exited_from(self.grid, operation)
            {
                self.fail(self.misuse(block, waiter.thread, message, waiter.location));
            }
        }
    }

    /// Records that a thread waits for every thread of its block and must be notified of exits.
    pub fn watch_exits(&self) {
        self.unusual.set(true);
    }

    #[cold]
    fn leave_cluster(&self, block: &Block, linear: u32) {
        let barrier = self.cluster_barrier(block);
        if block.arrival(linear) == barrier.token() {
            barrier.withdraw();
        }
        if barrier.complete(self.alive_in_cluster(block), &self.queue) {
            self.check_cluster(block);
        }
    }

    /// Reports the completed barrier of the block's cluster to the checker.
    fn check_cluster(&self, block: &Block) {
        let first = self.first_of_cluster(block);
        registers().with_checker(|checker| checker.cluster_barrier(first..first + self.grid.cluster_blocks));
    }

    /// Returns the index of the first block of this block's cluster among the running blocks.
    pub fn first_of_cluster(&self, block: &Block) -> u32 {
        block.number / self.grid.cluster_blocks * self.grid.cluster_blocks
    }

    /// Returns the blocks of this block's cluster, ordered by rank.
    pub fn cluster(&self, block: &Block) -> &[Block] {
        let size = self.grid.cluster_blocks as usize;
        let first = block.number as usize / size * size;
        &self.blocks[first..first + size]
    }

    /// Returns the barrier of this block's cluster.
    pub fn cluster_barrier(&self, block: &Block) -> &ClusterBarrier {
        &self.cluster_barriers[(block.number / self.grid.cluster_blocks) as usize]
    }

    fn alive_in_cluster(&self, block: &Block) -> u32 {
        self.cluster(block).iter().map(Block::alive).sum()
    }

    /// Counts a thread's arrival at its cluster barrier. Returns true for the last arrival.
    pub fn arrive_at_cluster(&self, block: &Block, thread: u32) -> bool {
        self.clusters_meet.set(true);
        self.unusual.set(true);
        let barrier = self.cluster_barrier(block);
        block.set_arrival(self.grid, thread, barrier.token());
        barrier.arrive();
        let complete = barrier.complete(self.alive_in_cluster(block), &self.queue);
        if complete {
            self.check_cluster(block);
        }
        complete
    }

    /// Suspends the calling thread of this block until the scheduler resumes it. If the set has failed, the thread is
    /// unwound instead.
    #[inline(always)]
    pub fn suspend(&self, block: &Block, registers: &Registers) {
        let saved = registers.save();
        // SAFETY: the yielder is on the stack of the running coroutine, which is this one.
        unsafe { &*saved.yielder() }.suspend(Progress::Suspended);
        registers.restore(saved);
        registers.enter(block);
        registers.spins.set(SPIN_QUOTA);
        if self.stopping.get() {
            panic::resume_unwind(Box::new(Stopped));
        }
    }

    /// Returns true if the set has run for too long.
    #[inline(always)]
    pub fn is_late(&self) -> bool {
        self.clock.is_late()
    }

    /// Fails the calling thread if the set has run for too long. Called in operations that do not wait.
    #[inline(always)]
    pub fn check_time(&self, operation: &'static str, location: &'static Location<'static>) {
        if self.is_late() {
            self.end_late(operation, location);
        }
    }

    #[cold]
    #[inline(never)]
    fn end_late(&self, operation: &'static str, location: &'static Location<'static>) {
        if !self.is_unwinding() {
            self.fail_here(self.endless(Some(format!("{operation} at {location}"))));
        }
    }

    /// Abandons the calling thread, which never continues. Called in code that cannot be unwound.
    #[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only Linux interrupts threads"))]
    pub fn abandon(&self, registers: &Registers, at: Interrupted) -> ! {
        registers.interrupted.set(Box::into_raw(at));
        // SAFETY: as for `suspend`.
        unsafe { &*registers.yielder.get() }.suspend(Progress::Abandoned);
        // The thread is never resumed.
        std::process::abort()
    }

    /// Returns true if the calling thread is unwinding, in which case collectives have no effect.
    pub fn is_unwinding(&self) -> bool {
        self.stopping.get() || std::thread::panicking()
    }

    /// Records that a thread made progress.
    #[inline]
    pub fn progress(&self) {
        self.spins.set(0);
        if self.stuck.get() {
            self.stuck.set(false);
            self.grid.leave_stuck();
        }
    }

    /// Records a thread that queries the active lanes.
    pub fn ask(&self, block: &Block, waiter: Waiter) {
        self.askers.set(self.askers.get() + 1);
        block.warps.converge(waiter);
    }

    /// Yields to other threads while the thread spins. Fails the thread if it has spun for too long.
    pub fn spin(&self, block: &Block, registers: &Registers, location: &'static Location<'static>) {
        registers.spins.set(SPIN_QUOTA);
        if self.is_unwinding() {
            return;
        }
        let spins = self.spins.get() + u64::from(SPIN_QUOTA);
        self.spins.set(spins);
        self.queue.spinning.borrow_mut().push_back(registers.waiter(location));
        if spins > self.grid.spin_limit {
            self.spins.set(0);
            self.unusual.set(true);
            if !self.stuck.replace(true) {
                self.grid.enter_stuck();
            }
            // A set on another host thread may still end the wait, unless that set spins as well.
            if self.grid.is_stuck() {
                self.fail(self.livelock(block, spins));
            }
        }
        self.suspend(block, registers);
        if self.grid.seed.is_some() {
            registers.spins.set(1 + self.queue.below(u64::from(2 * SPIN_QUOTA)) as u32);
        }
    }

    /// Returns the next step of the scheduler.
    #[inline(always)]
    pub fn next(&self) -> Next {
        if let Some(runner) = self.queue.ready.borrow_mut().pop_front() {
            return Next::Resume(runner);
        }
        loop {
            let (at, first) = (self.starting.get(), self.first.get());
            if at == self.blocks.len() {
                return self.next_of_waiting();
            }
            let number =
                if at + first >= self.blocks.len() { at + first - self.blocks.len() } else { at + first };
            if self.blocks[number].has_unstarted() {
                return Next::Start(number);
            }
            self.starting.set(at + 1);
        }
    }

    /// Returns the next step if no thread is ready and all threads have started.
    fn next_of_waiting(&self) -> Next {
        if self.askers.replace(0) != 0 {
            for block in &self.blocks {
                block.warps.answer(self.grid.threads, &self.queue);
            }
            return self.next();
        }
        if self.blocks.iter().any(|block| block.alive() != 0)
            && let Some(is_complete) = self.copies.deliver(&self.queue, note_copy)
        {
            if is_complete {
                self.phase_is_complete();
            }
            self.progress();
            return Next::Again;
        }
        match self.queue.spinning.borrow_mut().pop_front() {
            Some(waiter) => Next::Respin(waiter.runner),
            None if self.blocks.iter().all(|block| block.alive() == 0) => Next::Done,
            None => Next::Stuck,
        }
    }

    /// Informs the checker of a completed phase of a transaction barrier. The checker orders more than the phase itself
    /// does, because it orders all accesses of a block's threads before the phase and all accesses after it.
    pub fn phase_is_complete(&self) {
        for block in &self.blocks {
            registers().with_checker(|checker| checker.block_barrier(block.number));
        }
    }

    /// Makes every suspended thread unwind when it is resumed, and prevents further threads from starting.
    pub fn stop(&self) {
        self.stopping.set(true);
        self.close();
    }

    fn close(&self) {
        self.blocks.iter().for_each(Block::close);
    }

    /// Records a fault, unless one is already recorded. No further thread starts.
    pub fn fail(&self, fault: Fault) {
        self.close();
        self.fault.borrow_mut().get_or_insert(fault);
    }

    /// Records a fault of the calling thread and unwinds the thread.
    pub fn fail_here(&self, fault: Fault) -> ! {
        self.fail(fault);
        panic::resume_unwind(Box::new(Stopped));
    }

    pub fn has_failed(&self) -> bool {
        self.fault.borrow().is_some()
    }

    pub fn take_fault(&self) -> Option<Fault> {
        self.fault.take()
    }
}

/// Marks bytes as written by a copy that is not performed by a thread of the kernel.
pub(crate) fn note_copy(start: usize, bytes: usize) {
    registers().with_checker(|checker| checker.copied_to(start, bytes));
}
