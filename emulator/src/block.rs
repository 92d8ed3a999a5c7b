//! State that a running block's threads share, including which threads have started and exited.
//!
//! A single host thread uses this state. Kernel code and the scheduler both hold shared references to it, so every
//! borrow of a cell must end before control passes from one to the other.

use std::cell::{Cell, RefCell};

use crate::arrays::ArrayBarriers;
use crate::barrier::Barrier;
use crate::fault::Places;
use crate::launch::Grid;
use crate::order::{Random, Unstarted};
use crate::parts::PartBarriers;
use crate::registers::Registers;
use crate::shared::Shared;
use crate::warp::Warps;

/// A running block. A worker runs the blocks of a launch in sets and reuses this value for all blocks at the same
/// position in their set.
pub(crate) struct Block {
    /// Index of the block among the blocks that run concurrently.
    pub number: u32,
    pub barrier: Barrier,
    pub arrays: ArrayBarriers,
    pub parts: PartBarriers,
    pub warps: Warps,
    pub shared: Shared,
    index: Cell<[u32; 3]>,
    /// Threads that have not started.
    unstarted: Unstarted,
    /// Number of threads that have not exited, whether or not they have started.
    alive: Cell<u32>,
    /// Cluster barrier arrivals per thread: 1 + the phase in which the thread has arrived, or 0 if it has not arrived
    /// or has already waited. The vector is allocated on the first arrival.
    arrivals: RefCell<Vec<u32>>,
}

impl Block {
    pub fn new(number: u32) -> Self {
        Self {
            number,
            barrier: Barrier::default(),
            arrays: ArrayBarriers::default(),
            parts: PartBarriers::default(),
            warps: Warps::default(),
            shared: Shared::default(),
            index: Cell::new([0; 3]),
            unstarted: Unstarted::default(),
            alive: Cell::new(0),
            arrivals: RefCell::default(),
        }
    }

    /// Prepares the value for the block with index `index` in the grid.
    pub fn begin(&self, grid: &Grid, index: [u32; 3], random: Option<Random>) {
        self.index.set(index);
        self.unstarted.begin(grid.threads, random);
        self.alive.set(grid.threads);
        self.barrier.begin_block();
        self.arrays.begin_block();
        self.parts.begin_block();
        self.warps.begin_block(grid.threads);
        self.shared.begin_block();
        self.arrivals.borrow_mut().clear();
    }

    /// Returns the index of the block in the grid.
    pub fn index(&self) -> [u32; 3] {
        self.index.get()
    }

    /// Loads the next thread into the registers. Returns false if all threads have started.
    #[inline(always)]
    pub fn start(&self, shape: Shape, registers: &Registers) -> bool {
        let Some(linear) = self.unstarted.next() else { return false };
        registers.linear.set(linear);
        registers.thread.set(shape.index(linear));
        true
    }

    /// Returns true if some threads have not started yet.
    #[inline]
    pub fn has_unstarted(&self) -> bool {
        !self.unstarted.is_empty()
    }

    /// Prevents further threads from starting.
    pub fn close(&self) {
        self.unstarted.clear();
    }

    /// Returns the number of threads that have not exited.
    #[inline]
    pub fn alive(&self) -> u32 {
        self.alive.get()
    }

    /// Counts an exiting thread and returns the number of threads left.
    #[inline]
    pub fn leave(&self) -> u32 {
        let alive = self.alive.get() - 1;
        self.alive.set(alive);
        alive
    }

    /// Returns the error message for an operation that waits for every thread of the block, if some threads have
    /// exited.
    pub fn exited_from(&self, grid: &Grid, operation: &str) -> Option<String> {
        let exited = grid.threads - self.alive();
        let have = if exited == 1 { "thread of the block has" } else { "threads of the block have" };
        (exited != 0).then(|| {
            format!("{operation} waits for every thread of the block, but {exited} {have} exited without it")
        })
    }

    /// Returns the last value of [`Self::set_arrival`] for a thread.
    pub fn arrival(&self, thread: u32) -> u32 {
        self.arrivals.borrow().get(thread as usize).copied().unwrap_or(0)
    }

    /// Records a thread's arrival at the cluster barrier, encoded as in `arrivals`.
    pub fn set_arrival(&self, grid: &Grid, thread: u32, arrival: u32) {
        let mut arrivals = self.arrivals.borrow_mut();
        if arrivals.is_empty() {
            arrivals.resize(grid.threads as usize, 0);
        }
        arrivals[thread as usize] = arrival;
    }

    /// Adds the threads that wait for other threads of their block.
    pub fn add_waiting(&self, grid: &Grid, places: &mut Places) {
        self.barrier.for_each_waiter(|w| places.add("sync_threads", None, w.location, w.thread));
        self.arrays.for_each_waiter(|w, operation| places.add(operation, None, w.location, w.thread));
        self.parts.for_each_waiter(|w, operation| places.add(operation, None, w.location, w.thread));
        self.warps.for_each_waiter(grid.threads, |thread, call| {
            places.add(call.operation, Some(call.mask), call.location, thread);
        });
    }

    /// Returns the index of thread `linear` in the block.
    pub fn thread_index(&self, grid: &Grid, linear: u32) -> [u32; 3] {
        grid.shape.index(linear)
    }
}

/// Block size in x and y, prepared for computing indices without divisions.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    width: u32,
    height: u32,
    /// Reciprocals 2^32 / `width` and 2^32 / `height`, rounded up. Multiplication by a reciprocal divides exactly for
    /// numbers below 2^16, and indices in a block are smaller.
    of_width: u64,
    of_height: u64,
    is_row: bool,
}

impl Shape {
    pub fn new([width, height, depth]: [u32; 3]) -> Self {
        let over = |n: u32| (1u64 << 32).div_ceil(n.into());
        Self {
            width,
            height,
            of_width: over(width),
            of_height: over(height),
            is_row: height == 1 && depth == 1,
        }
    }

    /// Returns the index of thread `linear`.
    #[inline(always)]
    pub fn index(self, linear: u32) -> [u32; 3] {
        if self.is_row {
            return [linear, 0, 0];
        }
        let row = ((u64::from(linear) * self.of_width) >> 32) as u32;
        let plane = ((u64::from(row) * self.of_height) >> 32) as u32;
        [linear - row * self.width, row - plane * self.height, plane]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_are_exact_in_every_shape() {
        for width in 1..=1024u32 {
            for height in 1..=1024 / width {
                let depth = 1024 / (width * height);
                let shape = Shape::new([width, height, depth]);
                for linear in 0..width * height * depth {
                    let expected = [linear % width, linear / width % height, linear / (width * height)];
                    assert_eq!(shape.index(linear), expected, "{width} x {height} x {depth}");
                }
            }
        }
    }
}
