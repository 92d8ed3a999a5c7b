//! Transaction barriers (`mbarrier`), the TMA copies that they track, and `cp.async`.
//!
//! A copy completes as late as possible. A load completes when no thread can continue without it. A store and
//! `cp.async` complete when their thread waits for them. Until then, the destination of a load or of `cp.async` is
//! poisoned. A kernel that does not wait, or that reuses memory too early, therefore produces incorrect results on the
//! emulated device, whereas its results on a GPU may be correct by chance. All functions panic outside of a kernel.

use std::panic::Location;

use gpu_spec::{TensorMapData, TensorMapSpec};

use crate::in_flight::{Copy, MAX_ARRIVALS, MAX_BYTES, State, Store, ThreadCopies, ThreadCopy};
use crate::registers::{Registers, running};
use crate::set::{BlockSet, note_copy};
use crate::shared::POISON;

/// The calling thread, the operation that it calls, and the location of the call.
struct Caller {
    registers: &'static Registers,
    operation: &'static str,
    location: &'static Location<'static>,
}

impl Caller {
    #[track_caller]
    fn new(operation: &'static str) -> Self {
        let (registers, location) = (running(operation), Location::caller());
        let caller = Self { registers, operation, location };
        caller.set().copies.is_used.set(true);
        caller.set().check_time(operation, location);
        caller
    }

    fn set(&self) -> &BlockSet<'static> {
        self.registers.set()
    }

    fn fail(&self, message: &str) -> ! {
        let (set, block) = (self.set(), self.registers.block());
        let message = format!("{}: {message}", self.operation);
        set.fail_here(set.misuse(block, self.registers.linear.get(), message, self.location))
    }

    /// Returns the state of a barrier.
    ///
    /// # Safety
    /// The barrier must be in shared memory.
    unsafe fn state(&self, barrier: *mut u64) -> State {
        // SAFETY: guaranteed by the caller.
        State::decode(unsafe { barrier.read() }).unwrap_or_else(|| {
            self.fail("the barrier is not initialized: call Barrier::init and sync_threads first")
        })
    }

    fn load_of(
        &self,
        map: &TensorMapData,
        at: &[u32],
        shared: *mut u8,
        bytes: u32,
        barrier: *mut u64,
    ) -> Copy {
        let Some(map) = TensorMapSpec::decode(map) else {
            self.fail("the tensor map was not created for this device")
        };
        if map.rank != at.len() {
            self.fail(&format!("the tensor map has {} dimensions, but the copy has {}", map.rank, at.len()));
        }
        if map.tile_bytes() != bytes {
            self.fail(&format!(
                "the box of the tensor map has {} bytes, but the tile has {bytes}",
                map.tile_bytes()
            ));
        }
        if !shared.addr().is_multiple_of(map.swizzle.align()) {
            self.fail(&format!("the tile is not aligned to {} bytes", map.swizzle.align()));
        }
        let mut place = [0; 5];
        for (place, at) in place.iter_mut().zip(at) {
            *place = i64::from(*at as i32);
        }
        Copy { map, at: place, shared, barrier }
    }
}

/// Initializes the 64 bits at `barrier` as a barrier with `arrivals` arrivals per phase.
///
/// # Safety
/// The 64 bits must be in shared memory of the calling block.
#[track_caller]
pub unsafe fn init(barrier: *mut u64, arrivals: u32) {
    let caller = Caller::new("Barrier::init");
    if !(1..=MAX_ARRIVALS).contains(&arrivals) {
        caller.fail(&format!(
            "the barrier has {arrivals} arrivals per phase, but must have 1 to {MAX_ARRIVALS}"
        ));
    }
    let state = State { arrivals, missing: arrivals, bytes: 0, parity: 0 };
    // SAFETY: guaranteed by the caller.
    unsafe { barrier.write(state.encode()) };
}

/// Arrives at a barrier and adds `bytes` to the expected transaction bytes of its phase.
///
/// # Safety
/// The barrier must be in the shared memory of a block in the cluster.
#[track_caller]
pub unsafe fn arrive(barrier: *mut u64, bytes: u32) {
    let caller = Caller::new("Barrier::arrive");
    if caller.set().is_unwinding() {
        return;
    }
    // SAFETY: guaranteed by the caller.
    let mut state = unsafe { caller.state(barrier) };
    state.bytes += i64::from(bytes);
    if state.bytes > MAX_BYTES {
        caller.fail(&format!("a phase waits for {} bytes, but the maximum is {MAX_BYTES}", state.bytes));
    }
    let Some(missing) = state.missing.checked_sub(1) else {
        caller.fail(&format!(
            "more threads than the expected {} arrived in a phase, which still waits for {} bytes",
            state.arrivals, state.bytes
        ))
    };
    state.missing = missing;
    if caller.set().copies.update(&caller.set().queue, barrier, state) {
        caller.set().phase_is_complete();
    }
    caller.set().progress();
}

/// Waits until the phase with parity `parity` is complete.
///
/// # Safety
/// The barrier must be in shared memory of the calling block.
#[track_caller]
pub unsafe fn wait(barrier: *mut u64, parity: u32) {
    let caller = Caller::new("Barrier::wait");
    let (registers, set) = (caller.registers, caller.set());
    if set.is_unwinding() {
        return;
    }
    let block = registers.block();
    loop {
        // SAFETY: guaranteed by the caller.
        let state = unsafe { caller.state(barrier) };
        if state.parity != parity & 1 {
            return;
        }
        let waiter = registers.waiter(caller.location);
        set.copies.waiters.borrow_mut().push((waiter, barrier));
        set.suspend(block, registers);
    }
}

/// Starts a TMA load to `shared`. The source is the box of `map` at coordinates `at`; the box has `bytes` bytes. The
/// bytes count as transaction bytes of `barrier`.
///
/// # Safety
/// `shared` and `barrier` must be in shared memory of the cluster, and the tensor's memory must be valid, until the
/// copy has finished.
#[track_caller]
pub unsafe fn load(map: &TensorMapData, at: &[u32], shared: *mut u8, bytes: u32, barrier: *mut u64) {
    let caller = Caller::new("TensorMap::load");
    let copy = caller.load_of(map, at, shared, bytes, barrier);
    // SAFETY: guaranteed by the caller.
    unsafe {
        caller.state(barrier);
        shared.write_bytes(POISON, bytes as usize);
    }
    caller.set().copies.loads.borrow_mut().push(copy);
}

/// Starts a TMA store of `bytes` bytes at `shared` to the box of `map` at coordinates `at`.
///
/// # Safety
/// The caller must uphold the safety contract of [`load`], except that there is no barrier.
#[track_caller]
pub unsafe fn store(map: &TensorMapData, at: &[u32], shared: *mut u8, bytes: u32) {
    let caller = Caller::new("TensorMap::store");
    let copy = caller.load_of(map, at, shared, bytes, std::ptr::null_mut());
    let (block, thread) = (caller.registers.block().number, caller.registers.linear.get());
    caller.set().copies.stores.borrow_mut().push(Store { block, thread, is_committed: false, copy });
}

/// Commits the stores that the calling thread has started, as a bulk group.
#[track_caller]
pub fn commit_stores() {
    let caller = Caller::new("commit_stores");
    let (block, thread) = (caller.registers.block().number, caller.registers.linear.get());
    let mut stores = caller.set().copies.stores.borrow_mut();
    let own = stores.iter_mut().filter(|store| (store.block, store.thread) == (block, thread));
    own.for_each(|store| store.is_committed = true);
}

/// Performs the committed stores of the calling thread.
#[track_caller]
pub fn wait_stores() {
    let caller = Caller::new("wait_stores");
    let (block, thread) = (caller.registers.block().number, caller.registers.linear.get());
    let mut stores = caller.set().copies.stores.borrow_mut();
    let is_ready = |store: &Store| (store.block, store.thread) == (block, thread) && store.is_committed;
    let (ready, rest): (Vec<_>, Vec<_>) = stores.drain(..).partition(is_ready);
    *stores = rest;
    ready.into_iter().for_each(|store| store.copy.transfer(false, note_copy));
}

/// Delays a copy (`cp.async`) of up to 16 bytes, which the calling thread has just written to `shared`, until the
/// thread waits for it.
///
/// # Safety
/// There must be `bytes` bytes at `shared`, which nothing else uses until the copy is complete.
pub unsafe fn delay(shared: *mut u8, bytes: u32) {
    assert!(bytes as usize <= ThreadCopy::MAX, "a copy has up to {} bytes", ThreadCopy::MAX);
    // SAFETY: guaranteed by the caller.
    let copy = unsafe { ThreadCopy::of(shared, bytes as usize) };
    // SAFETY: as above.
    unsafe { shared.write_bytes(POISON, bytes as usize) };
    of_thread("copy_async", |copies| copies.copies.push(copy));
}

/// Commits the delayed copies that the calling thread has started since its last commit, as a group.
pub fn commit_copies() {
    of_thread("commit_copies", ThreadCopies::commit);
}

/// Completes the delayed copies of the calling thread: those of all groups except for the latest `leaving` groups, or
/// all copies.
pub fn wait_copies(leaving: Option<usize>) {
    of_thread("wait_copies", |copies| copies.complete(leaving));
}

/// Calls a function with the copies of the calling thread.
fn of_thread(operation: &'static str, f: impl FnOnce(&mut ThreadCopies)) {
    let registers = running(operation);
    let copies = &registers.set().copies;
    copies.is_used.set(true);
    let key = (registers.block().number, registers.linear.get());
    f(copies.by_thread.borrow_mut().entry(key).or_default());
}
