//! Diagnosis of blocks that run concurrently. It produces faults with source locations.

use std::panic::Location;

use crate::block::Block;
use crate::check::interrupted_frames;
use gpu_spec::finding::Index;

use crate::fault::{Fault, FaultKind, Places, Waiting};
use crate::registers::{Registers, registers};
use crate::set::BlockSet;
use crate::warp::Mismatch;

impl BlockSet<'_> {
    /// Returns the fault of a block.
    fn fault(&self, block: &Block, kind: FaultKind) -> Fault {
        Fault { kernel: self.grid.kernel.name, block: Some(block.index()), thread: None, kind }
    }

    /// Returns the fault of a thread that misused a collective operation.
    pub fn misuse(&self, block: &Block, thread: u32, message: String, location: &Location<'_>) -> Fault {
        let kind = FaultKind::Collective { message, location: location.to_string() };
        Fault { thread: Some(block.thread_index(self.grid, thread)), ..self.fault(block, kind) }
    }

    /// Returns the fault of two lanes that wait for each other but do not agree on the operation.
    pub fn disagreement(&self, block: &Block, mismatch: &Mismatch) -> Fault {
        let Mismatch { thread, call, other_thread, other } = mismatch;
        self.misuse(
            block,
            *thread,
            format!(
                "the lanes of warp {} diverge: lane {} calls {} with mask {:#010x}, lane {} calls {} with mask \
                 {:#010x} at {}",
                thread / 32, thread % 32, call.operation, call.mask,
                other_thread % 32, other.operation, other.mask, other.location,
            ),
            call.location,
        )
    }

    /// Returns the fault of a lane that waits for an exited lane.
    pub fn exited_lane(
        &self,
        block: &Block,
        thread: u32,
        operation: &str,
        mask: u32,
        lane: u32,
        location: &Location<'_>,
    ) -> Fault {
        let message =
            format!("{operation} with mask {mask:#010x} includes lane {lane}, whose thread has exited");
        self.misuse(block, thread, message, location)
    }

    /// Returns the fault for a deadlock, in which every thread waits forever, including the reason.
    pub fn deadlock(&self) -> Fault {
        for block in &self.blocks {
            if let Some(mismatch) = block.warps.mismatch(self.grid.threads) {
                return self.disagreement(block, &mismatch);
            }
        }
        let first = self.blocks.iter().find(|block| block.alive() != 0).unwrap_or(&self.blocks[0]);
        self.fault(first, FaultKind::Deadlock { waiting: self.waiting(), note: self.exited_from_grid() })
    }

    /// Returns the fault for a livelock, in which threads of the set spin without progress.
    pub fn livelock(&self, block: &Block, spins: u64) -> Fault {
        self.fault(block, FaultKind::Livelock { spins, waiting: self.waiting() })
    }

    /// Returns an error if copies are in flight after the blocks have finished, because these copies would use memory
    /// that no longer exists.
    #[inline(always)]
    pub fn copies_left(&self) -> Result<(), Fault> {
        match self.copies.left() {
            None => Ok(()),
            Some(message) => Err(self.fault(&self.blocks[0], FaultKind::Copies(message))),
        }
    }

    /// Checks the red zones of the set's shared memory after its blocks have finished. Writes to a red zone are a
    /// fault.
    #[inline(always)]
    pub fn red_zones(&self) -> Result<(), Fault> {
        if self.blocks.iter().any(|block| block.shared.is_used()) { self.compare_red_zones() } else { Ok(()) }
    }

    fn compare_red_zones(&self) -> Result<(), Fault> {
        let found = self.blocks.iter().find_map(|block| Some((block, block.shared.damage()?)));
        let Some((block, damage)) = found else { return Ok(()) };
        // If the checker has findings, the write is among them, unless it was made by a crate that is not instrumented.
        if registers().with_checker(|checker| checker.has_findings()) == Some(true) {
            return Ok(());
        }
        let message = format!("{damage}; run under `warpsmith check` to find the line");
        Err(self.fault(block, FaultKind::RedZone(message)))
    }

    /// Returns the fault of a set that has run for too long; `at` is the operation of its running thread, if known.
    pub fn endless(&self, at: Option<String>) -> Fault {
        let registers = registers();
        let thread = at.is_some().then(|| registers.thread.get());
        let seconds = self.grid.time_limit.map_or(0, |limit| limit.as_secs());
        let kind = FaultKind::Endless { seconds, at, waiting: self.waiting() };
        Fault { thread, ..self.fault(registers.block(), kind) }
    }

    /// Returns the fault of a set that has run for too long, if the scheduler detects this. The last running thread
    /// either was interrupted or is waiting like the others.
    pub fn endless_at(&self, registers: &Registers) -> Fault {
        let interrupted = registers.interrupted.replace(std::ptr::null_mut());
        if interrupted.is_null() {
            return self.endless(None);
        }
        // SAFETY: the pointer came from a box, in `abandon`.
        let stack = unsafe { Box::from_raw(interrupted) };
        let place = interrupted_frames(&stack).into_iter().next();
        self.endless(Some(place.map_or_else(|| "an unknown place".to_owned(), |frame| frame.to_string())))
    }

    /// Returns true if every thread that has started can continue, that is, if no thread is waiting and no thread was
    /// interrupted.
    #[cold]
    pub fn all_are_ready(&self, registers: &Registers) -> bool {
        registers.interrupted.get().is_null()
            && !self.queue.ready.borrow().is_empty()
            && self.waiting().is_empty()
    }

    /// Returns the fault for a stack that could not be allocated because the operating system is out of memory.
    pub fn out_of_stacks(&self, block: &Block, error: &std::io::Error) -> Fault {
        self.fault(block, FaultKind::OutOfStacks(error.to_string()))
    }

    /// Returns a description of the threads that can no longer reach the grid barrier, if other threads wait at that
    /// barrier.
    fn exited_from_grid(&self) -> Option<String> {
        let exited = |block: &Block| self.grid.threads - block.alive();
        let first = self.blocks.iter().find(|block| exited(block) != 0)?;
        let count: u32 = self.blocks.iter().map(exited).sum();
        self.grid_barrier.has_waiters().then(|| {
            format!(
                "grid::sync waits for every thread of the grid, but {count} exited without it, the first of them in block {}",
                Index(&first.index())
            )
        })
    }

    fn waiting(&self) -> Vec<Waiting> {
        let mut places = Places::new(self.blocks.len() > 1);
        for block in &self.blocks {
            places.begin_block(self.grid.linear_index(block.index()));
            let own = |number: u32| number == block.number;
            block.add_waiting(self.grid, &mut places);
            self.cluster_barrier(block).for_each_waiter(|w, operation| {
                if own(w.block) {
                    places.add(operation, None, w.location, w.thread);
                }
            });
            self.grid_barrier.for_each_waiter(|w| {
                if own(w.block) {
                    places.add("grid::sync", None, w.location, w.thread);
                }
            });
            self.copies.for_each_waiter(|w| {
                if own(w.block) {
                    places.add("Barrier::wait", None, w.location, w.thread);
                }
            });
            self.queue.for_each_spinning(|w| {
                if own(w.block) {
                    places.add("a loop that reads an atomic", None, w.location, w.thread);
                }
            });
        }
        places.finish()
    }
}
