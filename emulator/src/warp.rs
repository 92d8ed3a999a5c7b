//! Warps: exited lanes, exchanges between lanes, and active masks.
//!
//! An exchange is complete when every existing lane of its mask waits with the same mask and operation. If two lanes
//! name each other in their masks but do not agree on the mask and the operation, their exchanges can never complete.
//! This disagreement is reported when all lanes of a mask wait, or when the block is stuck. If only one lane names the
//! other, both may still be correct, because the named lane may complete another exchange first.

use std::cell::{Cell, RefCell};
use std::panic::Location;

use crate::wait::Queue;
use crate::wait::Waiter;

/// Result of an exchange for every participating lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WarpValues {
    /// Mask of the participating lanes, that is, the lanes of the requested mask that exist.
    pub mask: u32,
    /// Values per lane; 0 for other lanes.
    pub values: [u64; 32],
}

const WARPS: usize = 32;

#[derive(Default)]
pub(crate) struct Warps {
    exited: [Cell<u32>; WARPS],
    /// Masks of the lanes that wait in an exchange.
    waiting: [Cell<u32>; WARPS],
    /// Calls, with one entry per thread of the block. The list is allocated on the first exchange.
    calls: RefCell<Vec<Call>>,
    /// Complete exchanges whose results at least one lane has not read yet.
    done: RefCell<Vec<Done>>,
    /// Threads that have queried the active lanes. The next field contains the result for each thread.
    converging: RefCell<Vec<Waiter>>,
    active: RefCell<Vec<u32>>,
}

/// A lane's call of an exchange.
#[derive(Clone, Copy)]
pub(crate) struct Call {
    pub mask: u32,
    pub operation: &'static str,
    pub value: u64,
    pub location: &'static Location<'static>,
    pub runner: u32,
    /// Index into `done`, valid after the exchange is complete.
    done: u32,
}

impl Call {
    pub fn new(
        mask: u32,
        operation: &'static str,
        value: u64,
        location: &'static Location<'static>,
        runner: u32,
    ) -> Self {
        Self { mask, operation, value, location, runner, done: 0 }
    }

    fn agrees(&self, other: &Call) -> bool {
        self.mask == other.mask && self.operation == other.operation
    }
}

#[derive(Clone, Copy)]
struct Done {
    values: WarpValues,
    /// Lanes that have not read the result yet. The entry of an exchange without readers can be reused.
    readers: u32,
}

/// Two threads that wait for each other but do not agree on the exchange.
pub(crate) struct Mismatch {
    pub thread: u32,
    pub call: Call,
    pub other_thread: u32,
    pub other: Call,
}

impl Warps {
    pub fn begin_block(&self, threads: u32) {
        for warp in 0..threads.div_ceil(32) as usize {
            self.exited[warp].set(0);
            self.waiting[warp].set(0);
        }
        if !self.calls.borrow().is_empty() {
            self.done.borrow_mut().clear();
        }
        self.converging.borrow_mut().clear();
    }

    pub fn exited(&self, warp: u32) -> u32 {
        self.exited[warp as usize].get()
    }

    /// Records that a thread has exited. Returns true if lanes of its warp wait in an exchange.
    #[inline(always)]
    pub fn exit(&self, linear: u32) -> bool {
        let warp = (linear / 32) as usize % WARPS;
        self.exited[warp].set(self.exited[warp].get() | 1 << (linear % 32));
        self.waiting[warp].get() != 0
    }

    /// Returns a thread of the warp that waits in an exchange for this thread.
    pub fn waits_for(&self, linear: u32) -> Option<(u32, Call)> {
        let (warp, bit) = (linear / 32, 1 << (linear % 32));
        let waiting = self.waiting[warp as usize].get();
        let calls = self.calls.borrow();
        lanes(waiting)
            .map(|lane| (warp * 32 + lane, calls[(warp * 32 + lane) as usize]))
            .find(|(_, call)| call.mask & bit != 0)
    }

    /// Records a thread's call; `needed` is the mask of existing lanes. Returns true if this completes the exchange. If
    /// it does not, the thread must wait.
    pub fn arrive(&self, linear: u32, needed: u32, threads: u32, call: Call) -> Result<bool, Mismatch> {
        let (warp, bit) = (linear / 32, 1 << (linear % 32));
        let mut calls = self.calls.borrow_mut();
        if calls.is_empty() {
            calls.resize(threads as usize, call);
        }
        calls[linear as usize] = call;
        let waiting = self.waiting[warp as usize].get() | bit;
        self.waiting[warp as usize].set(waiting);
        if needed & !waiting != 0 {
            return Ok(false);
        }
        for lane in lanes(needed) {
            let other_thread = warp * 32 + lane;
            let other = calls[other_thread as usize];
            if !other.agrees(&call) {
                if other.mask & bit != 0 {
                    return Err(Mismatch { thread: linear, call, other_thread, other });
                }
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Completes the exchange between the lanes `needed` in the warp of thread `linear`, and makes the other lanes
    /// ready. All of these lanes must have called it.
    pub fn complete(&self, linear: u32, needed: u32, queue: &Queue) {
        let warp = linear / 32;
        let waiting = &self.waiting[warp as usize];
        waiting.set(waiting.get() & !needed);
        let mut values = WarpValues { mask: needed, values: [0; 32] };
        let mut calls = self.calls.borrow_mut();
        let mut done = self.done.borrow_mut();
        let index = done.iter().position(|done| done.readers == 0).unwrap_or(done.len());
        for lane in lanes(needed) {
            let thread = warp * 32 + lane;
            let call = &mut calls[thread as usize];
            values.values[lane as usize] = call.value;
            call.done = index as u32;
        }
        let others = needed & !(1 << (linear % 32));
        let others = (0..32).filter(|lane| others >> lane & 1 == 1);
        queue.release(others.map(|lane| calls[(warp * 32 + lane) as usize].runner));
        let entry = Done { values, readers: needed };
        if index == done.len() { done.push(entry) } else { done[index] = entry }
    }

    /// Reads the result of a thread's completed exchange, once per thread.
    pub fn read<R>(&self, linear: u32, read: impl FnOnce(&WarpValues) -> R) -> R {
        let index = self.calls.borrow()[linear as usize].done as usize;
        let done = &mut self.done.borrow_mut()[index];
        done.readers &= !(1 << (linear % 32));
        read(&done.values)
    }

    /// Returns two lanes of the block that wait for each other but do not agree on the exchange.
    pub fn mismatch(&self, threads: u32) -> Option<Mismatch> {
        let calls = self.calls.borrow();
        for warp in 0..threads.div_ceil(32) {
            let waiting = self.waiting[warp as usize].get();
            for lane in lanes(waiting) {
                let call = calls[(warp * 32 + lane) as usize];
                let disagrees =
                    lanes(waiting & call.mask).map(|l| (warp * 32 + l, calls[(warp * 32 + l) as usize]));
                for (other_thread, other) in disagrees {
                    if other.mask & (1 << lane) != 0 && !other.agrees(&call) {
                        return Some(Mismatch { thread: warp * 32 + lane, call, other_thread, other });
                    }
                }
            }
        }
        None
    }

    pub fn for_each_waiter(&self, threads: u32, mut visit: impl FnMut(u32, &Call)) {
        let calls = self.calls.borrow();
        for warp in 0..threads.div_ceil(32) {
            for lane in lanes(self.waiting[warp as usize].get()) {
                let thread = warp * 32 + lane;
                visit(thread, &calls[thread as usize]);
            }
        }
    }

    /// Records a thread that queries the active lanes.
    pub fn converge(&self, waiter: Waiter) {
        self.converging.borrow_mut().push(waiter);
    }

    /// Completes all queries. Called when no other thread can run. Lanes of a warp that made their query at the same
    /// location are considered active together. Returns true if there were any queries.
    pub fn answer(&self, threads: u32, queue: &Queue) -> bool {
        let mut converging = self.converging.borrow_mut();
        let mut active = self.active.borrow_mut();
        active.resize(threads as usize, 0);
        for asker in converging.iter() {
            active[asker.thread as usize] = converging
                .iter()
                .filter(|w| w.thread / 32 == asker.thread / 32 && w.location == asker.location)
                .fold(0, |mask, w| mask | 1 << (w.thread % 32));
        }
        let any = !converging.is_empty();
        for asker in converging.drain(..) {
            queue.push_ready(asker.runner);
        }
        any
    }

    /// Returns the result of a thread's query.
    pub fn active(&self, linear: u32) -> u32 {
        self.active.borrow()[linear as usize]
    }
}

/// Returns the lanes of a mask in ascending order.
fn lanes(mut mask: u32) -> impl Iterator<Item = u32> {
    std::iter::from_fn(move || {
        let lane = (mask != 0).then(|| mask.trailing_zeros());
        mask &= mask.wrapping_sub(1);
        lane
    })
}
