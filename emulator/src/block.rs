//! The shared state of the threads of a running block, and which of them have started and ended.
//!
//! All of it is used by one host thread. Kernel code and the scheduler both hold shared references; every
//! borrow of a cell ends before control passes from one to the other.

use std::cell::{Cell, RefCell};

use crate::arrays::ArrayBarriers;
use crate::barrier::Barrier;
use crate::fault::Places;
use crate::launch::Grid;
use crate::order::Random;
use crate::registers::Registers;
use crate::shared::Shared;
use crate::warp::Warps;

/// A running block. One is used for all blocks that stand at its place in the sets a worker runs in a launch.
pub(crate) struct Block {
    /// Its place among the blocks that run at once.
    pub number: u32,
    pub barrier: Barrier,
    pub arrays: ArrayBarriers,
    pub warps: Warps,
    pub shared: Shared,
    index: Cell<[u32; 3]>,
    /// Threads started so far.
    started: Cell<u32>,
    /// Index of the next thread to start, in sequential order.
    next_index: Cell<[u32; 3]>,
    /// The order in which threads start, when it is seeded.
    order: RefCell<Vec<u16>>,
    /// Threads that have not exited, started or not.
    alive: Cell<u32>,
    /// By thread: 1 + the phase of the cluster's barrier in which it has arrived; 0 when it has not, or has waited.
    /// Made at the first arrival.
    arrivals: RefCell<Vec<u32>>,
}

impl Block {
    pub fn new(number: u32) -> Self {
        Self {
            number,
            barrier: Barrier::default(),
            arrays: ArrayBarriers::default(),
            warps: Warps::default(),
            shared: Shared::default(),
            index: Cell::new([0; 3]),
            started: Cell::new(0),
            next_index: Cell::new([0; 3]),
            order: RefCell::default(),
            alive: Cell::new(0),
            arrivals: RefCell::default(),
        }
    }

    /// Prepares for block `index` of the grid.
    pub fn begin(&self, grid: &Grid, index: [u32; 3], random: &Random) {
        self.index.set(index);
        self.started.set(0);
        self.next_index.set([0; 3]);
        self.alive.set(grid.threads);
        self.barrier.begin_block();
        self.arrays.begin_block();
        self.warps.begin_block(grid.threads);
        self.shared.begin_block();
        self.arrivals.borrow_mut().clear();
        if grid.seed.is_some() {
            random.shuffle(&mut self.order.borrow_mut(), grid.threads);
        }
    }

    /// Index of the block in the grid.
    pub fn index(&self) -> [u32; 3] {
        self.index.get()
    }

    /// Makes the registers those of the next thread in ascending order; `false` when all have started.
    #[inline]
    pub fn start(&self, threads: u32, [width, height, _]: [u32; 3], registers: &Registers) -> bool {
        let started = self.started.get();
        if started >= threads {
            return false;
        }
        self.started.set(started + 1);
        let index = self.next_index.get();
        registers.thread.set(index);
        registers.linear.set(started);
        let [mut x, mut y, mut z] = index;
        x += 1;
        if x == width {
            x = 0;
            y += 1;
            if y == height {
                y = 0;
                z += 1;
            }
        }
        self.next_index.set([x, y, z]);
        true
    }

    /// The same in the block's random order.
    pub fn start_seeded(&self, grid: &Grid, registers: &Registers) -> bool {
        let started = self.started.get();
        if started >= grid.threads {
            return false;
        }
        self.started.set(started + 1);
        let linear = u32::from(self.order.borrow()[started as usize]);
        registers.thread.set(self.thread_index(grid, linear));
        registers.linear.set(linear);
        true
    }

    /// Whether threads are left to start.
    #[inline]
    pub fn has_unstarted(&self, grid: &Grid) -> bool {
        self.started.get() < grid.threads
    }

    /// Lets no other thread start.
    pub fn close(&self, grid: &Grid) {
        self.started.set(grid.threads);
    }

    /// Threads that have not exited.
    #[inline]
    pub fn alive(&self) -> u32 {
        self.alive.get()
    }

    /// Counts a thread out; returns the number left.
    #[inline]
    pub fn leave(&self) -> u32 {
        let alive = self.alive.get() - 1;
        self.alive.set(alive);
        alive
    }

    /// What is wrong with an operation that waits for every thread of the block, when some have exited.
    pub fn exited_from(&self, grid: &Grid, operation: &str) -> Option<String> {
        let exited = grid.threads - self.alive();
        let have = if exited == 1 { "thread of the block has" } else { "threads of the block have" };
        (exited != 0).then(|| {
            format!("{operation} waits for every thread of the block, but {exited} {have} exited without it")
        })
    }

    /// The last value of [`Self::set_arrival`] for a thread.
    pub fn arrival(&self, thread: u32) -> u32 {
        self.arrivals.borrow().get(thread as usize).copied().unwrap_or(0)
    }

    /// Notes in which phase of the cluster's barrier a thread has arrived.
    pub fn set_arrival(&self, grid: &Grid, thread: u32, arrival: u32) {
        let mut arrivals = self.arrivals.borrow_mut();
        if arrivals.is_empty() {
            arrivals.resize(grid.threads as usize, 0);
        }
        arrivals[thread as usize] = arrival;
    }

    /// Adds the threads that wait for others of their block.
    pub fn add_waiting(&self, grid: &Grid, places: &mut Places) {
        self.barrier.for_each_waiter(|w| places.add("sync_threads", None, w.location, w.thread));
        self.arrays.for_each_waiter(|w, operation| places.add(operation, None, w.location, w.thread));
        self.warps.for_each_waiter(grid.threads, |thread, call| {
            places.add(call.operation, Some(call.mask), call.location, thread);
        });
    }

    /// The index of thread `linear` of the block.
    pub fn thread_index(&self, grid: &Grid, linear: u32) -> [u32; 3] {
        let [width, height, _] = grid.block;
        [linear % width, linear / width % height, linear / (width * height)]
    }
}
