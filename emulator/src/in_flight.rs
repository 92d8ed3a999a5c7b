//! In-flight copies of blocks that run concurrently, and the state of the barriers that track them.
//!
//! The state of a barrier is stored in its own 64 bits:
//!
//! - bits 0 to 19: arrivals per phase
//! - bits 20 to 39: arrivals that are still missing in this phase
//! - bits 40 to 60: transaction bytes that are still missing in this phase (signed)
//! - bit 61: parity of the phase
//! - bits 62 and 63: mark of an initialized barrier

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::mem::MaybeUninit;

use gpu_spec::TensorMapSpec;

use crate::wait::{Queue, Waiter};

/// Maximum number of arrivals per phase.
pub(crate) const MAX_ARRIVALS: u32 = (1 << 20) - 1;
/// Maximum number of missing bytes in a phase.
pub(crate) const MAX_BYTES: i64 = (1 << 20) - 1;
const MARK: u64 = 1;

/// State of a transaction barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct State {
    pub arrivals: u32,
    pub missing: u32,
    pub bytes: i64,
    pub parity: u32,
}

impl State {
    pub fn decode(word: u64) -> Option<Self> {
        let count = |shift: u32| (word >> shift) as u32 & MAX_ARRIVALS;
        (word >> 62 == MARK).then(|| Self {
            arrivals: count(0),
            missing: count(20),
            bytes: ((word << 3) as i64) >> 43,
            parity: (word >> 61) as u32 & 1,
        })
    }

    pub fn encode(self) -> u64 {
        u64::from(self.arrivals)
            | u64::from(self.missing) << 20
            | ((self.bytes as u64) & ((1 << 21) - 1)) << 40
            | u64::from(self.parity) << 61
            | MARK << 62
    }

    /// Starts the next phase and returns true if the current phase is complete.
    fn complete(&mut self) -> bool {
        let is_complete = self.missing == 0 && self.bytes == 0;
        if is_complete {
            self.missing = self.arrivals;
            self.parity ^= 1;
        }
        is_complete
    }
}

/// In-flight copies of blocks that run concurrently, and the threads that wait for barriers.
#[derive(Default)]
pub(crate) struct Copies {
    pub loads: RefCell<Vec<Copy>>,
    pub stores: RefCell<Vec<Store>>,
    pub waiters: RefCell<Vec<(Waiter, *mut u64)>>,
    /// Copies without barriers (`cp.async`) of each thread, by block number and linear thread index.
    pub by_thread: RefCell<HashMap<(u32, u32), ThreadCopies>>,
    /// True if a copy or a barrier has been used since `begin` was called.
    pub is_used: Cell<bool>,
}

/// In-flight copies of a thread, in the order in which they were started.
#[derive(Default)]
pub(crate) struct ThreadCopies {
    pub copies: Vec<ThreadCopy>,
    /// Number of copies in each committed group that has copies in flight or is followed by such a group.
    groups: VecDeque<usize>,
}

/// An in-flight copy of up to 16 bytes.
pub(crate) struct ThreadCopy {
    shared: *mut u8,
    len: usize,
    bytes: [MaybeUninit<u8>; ThreadCopy::MAX],
}

impl ThreadCopy {
    /// Maximum number of bytes.
    pub const MAX: usize = 16;

    /// Takes the bytes at `shared`.
    ///
    /// # Safety
    /// There must be `len` bytes, at most [`Self::MAX`].
    pub unsafe fn of(shared: *mut u8, len: usize) -> Self {
        let mut bytes = [MaybeUninit::uninit(); Self::MAX];
        // SAFETY: guaranteed by the caller.
        unsafe { shared.cast::<MaybeUninit<u8>>().copy_to_nonoverlapping(bytes.as_mut_ptr(), len) };
        Self { shared, len, bytes }
    }
}

impl ThreadCopies {
    /// Commits the copies since the last commit as a group.
    pub fn commit(&mut self) {
        let committed: usize = self.groups.iter().sum();
        self.groups.push_back(self.copies.len() - committed);
    }

    /// Completes the copies of all groups except for the latest `leaving` groups, or all copies.
    pub fn complete(&mut self, leaving: Option<usize>) {
        let count = match leaving {
            None => {
                self.groups.clear();
                self.copies.len()
            }
            Some(leaving) => {
                let ready = self.groups.len().saturating_sub(leaving);
                self.groups.drain(..ready).sum()
            }
        };
        for copy in self.copies.drain(..count) {
            let shared = copy.shared.cast::<MaybeUninit<u8>>();
            // SAFETY: the kernel guarantees that nothing else uses the shared memory until the copy is complete.
            unsafe { shared.copy_from_nonoverlapping(copy.bytes.as_ptr(), copy.len) };
        }
    }
}

/// An in-flight copy of a box.
#[derive(Clone)]
pub(crate) struct Copy {
    pub map: TensorMapSpec,
    pub at: [i64; 5],
    pub shared: *mut u8,
    /// Barrier of a load.
    pub barrier: *mut u64,
}

pub(crate) struct Store {
    pub block: u32,
    pub thread: u32,
    pub is_committed: bool,
    pub copy: Copy,
}

impl Copies {
    pub fn begin(&self) {
        if self.is_used.replace(false) {
            self.loads.borrow_mut().clear();
            self.stores.borrow_mut().clear();
            self.waiters.borrow_mut().clear();
            self.by_thread.borrow_mut().clear();
        }
    }

    /// Completes one load. Called when no thread can continue. Returns true if the load completed a phase, or `None` if
    /// no load is in flight. `wrote` receives the range of bytes that were written.
    pub fn deliver(&self, queue: &Queue, wrote: impl FnMut(usize, usize)) -> Option<bool> {
        let mut loads = self.loads.borrow_mut();
        if loads.is_empty() {
            return None;
        }
        let number = queue.below(loads.len() as u64) as usize;
        let load = loads.remove(number);
        drop(loads);
        load.transfer(true, wrote);
        // SAFETY: the kernel guarantees that its barrier exists until the load has finished. An uninitialized barrier
        // was rejected at the start of the load.
        let word = unsafe { load.barrier.read() };
        Some(State::decode(word).is_some_and(|mut state| {
            state.bytes -= i64::from(load.map.tile_bytes());
            self.update(queue, load.barrier, state)
        }))
    }

    /// Returns a description of the copies that are in flight after all threads have exited.
    pub fn left(&self) -> Option<String> {
        if !self.is_used.get() {
            return None;
        }
        let (loads, stores) = (self.loads.borrow().len(), self.stores.borrow().len());
        match (loads, stores) {
            (0, 0) => None,
            (0, _) => Some(format!(
                "{stores} tile stores were not awaited: call wait_stores in the thread that started them"
            )),
            (_, _) => Some(format!("{loads} tile loads were not awaited: wait for their barriers")),
        }
    }

    pub fn for_each_waiter(&self, mut visit: impl FnMut(&Waiter)) {
        self.waiters.borrow().iter().for_each(|(waiter, _)| visit(waiter));
    }

    /// Stores the changed state of a barrier. If the phase is complete, wakes the waiting threads and returns true.
    pub fn update(&self, queue: &Queue, barrier: *mut u64, mut state: State) -> bool {
        let is_complete = state.complete();
        // SAFETY: as for the preceding read.
        unsafe { barrier.write(state.encode()) };
        if is_complete {
            let mut waiters = self.waiters.borrow_mut();
            let (met, rest): (Vec<_>, Vec<_>) = waiters.drain(..).partition(|(_, of)| *of == barrier);
            *waiters = rest;
            queue.release(met.into_iter().map(|(waiter, _)| waiter.runner));
        }
        is_complete
    }
}

impl Copy {
    /// Copies the box; `to_shared` determines the direction. `wrote` receives the ranges of bytes that were written.
    pub fn transfer(&self, to_shared: bool, mut wrote: impl FnMut(usize, usize)) {
        let TensorMapSpec { element_bytes, rank, tile, dims, strides, swizzle, .. } = self.map;
        let size = element_bytes as usize;
        let total: u32 = tile[..rank].iter().product();
        for linear in 0..total {
            let mut rest = linear;
            let (mut address, mut is_inside) = (self.map.address, true);
            for dimension in 0..rank {
                let index = self.at[dimension] + i64::from(rest % tile[dimension]);
                rest /= tile[dimension];
                is_inside &= u64::try_from(index).is_ok_and(|index| index < dims[dimension]);
                let stride = if dimension == 0 { size as u64 } else { strides[dimension - 1] };
                address = address.wrapping_add((index as u64).wrapping_mul(stride));
            }
            let shared = self.shared.wrapping_add(swizzle.apply(linear as usize * size));
            let global = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
            // SAFETY: the kernel guarantees that the tile has space for the box and that the tensor's memory is valid;
            // elements outside of the tensor are not accessed.
            unsafe {
                match (to_shared, is_inside) {
                    (true, true) => global.copy_to_nonoverlapping(shared, size),
                    (true, false) => shared.write_bytes(0, size),
                    (false, true) => shared.copy_to_nonoverlapping(global, size),
                    (false, false) => {}
                }
            }
            match to_shared {
                true => wrote(shared.addr(), size),
                false if is_inside => wrote(global.addr(), size),
                false => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{State, ThreadCopies, ThreadCopy};

    #[test]
    fn groups_of_a_thread_complete_in_order() {
        const X: u8 = 9;
        let mut memory = [1u8, 2, 3, 4];
        let base = memory.as_mut_ptr();
        let mut copies = ThreadCopies::default();
        let start = |copies: &mut ThreadCopies, i| {
            // SAFETY: the element exists, and is accessed only through this pointer.
            unsafe {
                copies.copies.push(ThreadCopy::of(base.add(i), 1));
                base.add(i).write(X);
            }
        };
        start(&mut copies, 0);
        start(&mut copies, 1);
        copies.commit();
        copies.commit();
        start(&mut copies, 2);
        copies.commit();
        start(&mut copies, 3);
        // SAFETY: as above.
        let seen = || [0, 1, 2, 3].map(|i| unsafe { base.add(i).read() });
        assert_eq!(seen(), [X; 4]);
        copies.complete(Some(3));
        assert_eq!(seen(), [X; 4]);
        copies.complete(Some(2));
        assert_eq!(seen(), [1, 2, X, X]);
        copies.complete(Some(0));
        assert_eq!(seen(), [1, 2, 3, X]);
        copies.complete(None);
        assert_eq!(seen(), [1, 2, 3, 4]);
    }

    #[test]
    fn states_survive_their_word() {
        for bytes in [0, 1, -1, (1 << 20) - 1, -(1 << 20)] {
            for parity in [0, 1] {
                let state = State { arrivals: 3, missing: 1, bytes, parity };
                assert_eq!(State::decode(state.encode()), Some(state));
            }
        }
        assert_eq!(State::decode(0xa5a5_a5a5_a5a5_a5a5), None, "poison");
    }

    #[test]
    fn a_phase_needs_arrivals_and_bytes() {
        let mut state = State { arrivals: 2, missing: 0, bytes: 4, parity: 0 };
        assert!(!state.complete());
        state.bytes = 0;
        assert!(state.complete());
        assert_eq!(state, State { arrivals: 2, missing: 2, bytes: 0, parity: 1 });
    }
}
