//! Collective operations, in which threads of a kernel wait for each other.
//!
//! Each operation suspends the calling thread until the awaited threads have arrived. An operation that can never
//! complete causes a [`Fault`](crate::Fault) with the caller's location, so functions that wrap these operations should
//! also be `#[track_caller]`. In a thread that is unwinding, and therefore running destructors after its block has
//! failed, the operations return immediately. All operations panic outside of a kernel.

use std::panic::Location;

pub use crate::arrays::ARRAY_BARRIERS;
pub use crate::barrier::BarrierResult;
pub use crate::warp::WarpValues;

use crate::check;
use crate::registers::{registers, running};
use crate::thread::lanes_of_warp;
use crate::warp::Call;

/// Waits until every thread of the block that has not exited has arrived.
#[track_caller]
pub fn barrier(predicate: bool) -> BarrierResult {
    let location = Location::caller();
    let registers = running("sync_threads");
    let (block, set) = (registers.block(), registers.set());
    if set.is_unwinding() {
        return BarrierResult { count: predicate.into(), and: predicate, or: predicate };
    }
    block.barrier.arrive(predicate);
    if block.barrier.is_complete(block.alive()) {
        registers.with_checker(|checker| checker.block_barrier(block.number));
        block.barrier.release(&set.queue);
        set.progress();
        if !set.queue.draws(2) {
            set.check_time("sync_threads", location);
            return block.barrier.result();
        }
        set.queue.push_ready(registers.runner.get());
    } else {
        block.barrier.wait(registers.waiter(location));
    }
    set.suspend(block, registers);
    block.barrier.result()
}

/// Waits until every thread of the block has arrived at barrier `number` of a shared array, from 1 to
/// [`ARRAY_BARRIERS`]. A fault occurs if threads arrive from different source locations, or if a thread has exited.
/// `operation` names the operation in messages.
///
/// # Panics
/// Panics outside of a kernel, in an unwinding thread, and if the number is out of range.
#[track_caller]
pub fn array_barrier(number: u32, operation: &'static str) {
    let location = Location::caller();
    let registers = running(operation);
    let (block, set) = (registers.block(), registers.set());
    assert!(!set.is_unwinding(), "{operation} was called in a thread that is unwinding");
    let fail = |message: String| -> ! {
        set.fail_here(set.misuse(block, registers.linear.get(), message, location))
    };
    if let Some(message) = block.exited_from(set.grid, operation) {
        fail(message);
    }
    let barrier = block.arrays.barrier(number);
    match barrier.arrive(operation, location, registers.linear.get(), set.grid.threads) {
        Err(other) => fail(format!(
            "the threads of the block diverge: this one is in {operation}, {other}; all threads must make the same \
             call"
        )),
        Ok(true) => {
            registers.with_checker(|checker| checker.block_barrier(block.number));
            barrier.release(&set.queue);
            set.progress();
            if !set.queue.draws(2) {
                set.check_time(operation, location);
                return;
            }
            set.queue.push_ready(registers.runner.get());
        }
        Ok(false) => {
            set.watch_exits();
            barrier.wait(registers.waiter(location));
        }
    }
    set.suspend(block, registers);
}

/// Waits until `threads` threads of the block have arrived at barrier `number`, from 1 to 15. A fault occurs if threads
/// specify different counts.
#[track_caller]
pub fn part_barrier(number: u32, threads: u32) {
    const OPERATION: &str = "warpgroup::sync";
    let location = Location::caller();
    let registers = running(OPERATION);
    let (block, set) = (registers.block(), registers.set());
    if set.is_unwinding() {
        return;
    }
    match block.parts.arrive(number, threads, registers.waiter(location), &set.queue) {
        Err(message) => set.fail_here(set.misuse(block, registers.linear.get(), message, location)),
        Ok(is_last) => end_of_part(is_last, OPERATION, location),
    }
}

/// Waits until the 128 threads of the calling thread's warpgroup have arrived, for a warpgroup matrix multiply
/// (`wgmma`).
#[track_caller]
pub fn group_barrier() {
    const OPERATION: &str = "wgmma";
    let location = Location::caller();
    let registers = running(OPERATION);
    let (block, set) = (registers.block(), registers.set());
    if set.is_unwinding() {
        return;
    }
    end_of_part(block.parts.arrive_of_group(registers.waiter(location), &set.queue), OPERATION, location);
}

/// Completes the arrival at a partial barrier of the block. This function waits until the last thread to arrive
/// releases the others.
fn end_of_part(is_last: bool, operation: &'static str, location: &'static Location<'static>) {
    let registers = running(operation);
    let (block, set) = (registers.block(), registers.set());
    if is_last {
        // The checker orders more than the barrier does, because it also orders accesses of threads that do not take
        // part.
        registers.with_checker(|checker| checker.block_barrier(block.number));
        set.progress();
        if !set.queue.draws(2) {
            set.check_time(operation, location);
            return;
        }
        set.queue.push_ready(registers.runner.get());
    }
    set.suspend(block, registers);
}

/// Waits until every thread of the grid has arrived, in a cooperative launch or a launch of a single block. A thread
/// that has exited never arrives, which causes a fault.
///
/// # Panics
/// Panics outside of a kernel, and in a non-cooperative launch of several blocks.
#[track_caller]
pub fn grid_barrier() {
    let location = Location::caller();
    let registers = running("grid::sync");
    let (block, set) = (registers.block(), registers.set());
    if set.is_unwinding() {
        return;
    }
    assert!(
        set.grid.is_one_set(),
        "grid::sync was called in a launch of several blocks that is not cooperative: launch the kernel cooperatively"
    );
    if set.grid_barrier.arrive(set.grid.threads * set.grid.set_blocks, &set.queue) {
        registers.with_checker(check::Checker::grid_barrier);
        set.progress();
        if !set.queue.draws(2) {
            set.check_time("grid::sync", location);
            return;
        }
        set.queue.push_ready(registers.runner.get());
    } else {
        set.grid_barrier.wait(registers.waiter(location));
    }
    set.suspend(block, registers);
}

/// Calls [`cluster_arrive`] and [`cluster_wait`].
#[track_caller]
pub fn cluster_sync(operation: &'static str) {
    arrive_at_cluster(operation, true);
    cluster_wait(operation);
}

/// Arrives at the cluster's barrier without waiting. A fault occurs if the thread arrives again without calling
/// [`cluster_wait`] first. `operation` names the operation in messages.
#[track_caller]
pub fn cluster_arrive(operation: &'static str) {
    arrive_at_cluster(operation, false);
}

/// Arrives at the cluster barrier. `waits` is true if the thread waits immediately.
#[track_caller]
fn arrive_at_cluster(operation: &'static str, waits: bool) {
    let location = Location::caller();
    let registers = running(operation);
    let (block, set) = (registers.block(), registers.set());
    if set.is_unwinding() {
        return;
    }
    let thread = registers.linear.get();
    if block.arrival(thread) != 0 {
        let message = format!(
            "{operation} was called by a thread that has already arrived: call cluster::wait in between"
        );
        set.fail_here(set.misuse(block, thread, message, location));
    }
    set.check_time(operation, location);
    registers.with_checker(|checker| {
        checker.cluster_arrive(set.first_of_cluster(block), block.number, thread, waits)
    });
    if set.arrive_at_cluster(block, thread) {
        set.progress();
    }
}

/// Waits until every thread of the cluster that has not exited has arrived with [`cluster_arrive`]. The calling thread
/// must have arrived as well.
#[track_caller]
pub fn cluster_wait(operation: &'static str) {
    let location = Location::caller();
    let registers = running(operation);
    let (block, set) = (registers.block(), registers.set());
    if set.is_unwinding() {
        return;
    }
    let thread = registers.linear.get();
    let arrival = block.arrival(thread);
    if arrival == 0 {
        let message =
            format!("{operation} was called by a thread that has not arrived: call cluster::arrive first");
        set.fail_here(set.misuse(block, thread, message, location));
    }
    let barrier = set.cluster_barrier(block);
    if barrier.token() == arrival {
        barrier.wait(registers.waiter(location), operation);
        set.suspend(block, registers);
    } else if set.queue.draws(2) {
        set.queue.push_ready(registers.runner.get());
        set.suspend(block, registers);
    }
    block.set_arrival(set.grid, thread, 0);
    registers.with_checker(|checker| checker.cluster_wait(set.first_of_cluster(block), block.number, thread));
}

/// Exchanges values between the lanes of `mask`. Each lane receives the values of all lanes. Every existing lane of the
/// mask must call the function with the same mask and the same `operation`, which is the name that messages contain,
/// such as `shuffle_down`. The caller must be one of these lanes. Lanes beyond the end of a block whose size is not a
/// multiple of 32 are ignored; exited lanes cause a fault.
#[track_caller]
pub fn warp_exchange(mask: u32, operation: &'static str, value: u64) -> WarpValues {
    exchange(mask, operation, value, Location::caller(), |values| *values)
}

/// Like [`warp_exchange`], but returns only the value of `lane`, or 0 if that lane does not take part.
#[track_caller]
pub fn warp_lane(mask: u32, operation: &'static str, value: u64, lane: u32) -> u64 {
    exchange(mask, operation, value, Location::caller(), |values| values.values[lane as usize % 32])
}

#[inline(always)]
fn exchange<R>(
    mask: u32,
    operation: &'static str,
    value: u64,
    location: &'static Location<'static>,
    read: impl FnOnce(&WarpValues) -> R,
) -> R {
    let registers = running(operation);
    let (block, set) = (registers.block(), registers.set());
    let linear = registers.linear.get();
    let own = 1 << registers.lane();
    let needed = mask & lanes_of_warp(set.grid.threads, linear / 32);
    if needed == own || set.is_unwinding() {
        let mut values = WarpValues { mask: own, values: [0; 32] };
        values.values[registers.lane() as usize] = value;
        set.check_time(operation, location);
        return read(&values);
    }
    if needed & own == 0 {
        let lane = registers.lane();
        let message =
            format!("{operation} with mask {mask:#010x} was called by lane {lane}, which is not in the mask");
        set.fail_here(set.misuse(block, linear, message, location));
    }
    let exited = needed & block.warps.exited(linear / 32);
    if exited != 0 {
        set.fail_here(set.exited_lane(block, linear, operation, mask, exited.trailing_zeros(), location));
    }
    let call = Call::new(mask, operation, value, location, registers.runner.get());
    match block.warps.arrive(linear, needed, set.grid.threads, call) {
        Ok(true) => {
            block.warps.complete(linear, needed, &set.queue);
            // The other exchanges do not order memory accesses.
            if operation == "sync_warp" {
                registers.with_checker(|checker| checker.warp_barrier(block.number, linear / 32, needed));
            }
            set.progress();
            set.check_time(operation, location);
            if set.queue.draws(8) {
                set.queue.push_ready(registers.runner.get());
                set.suspend(block, registers);
            }
        }
        Ok(false) => set.suspend(block, registers),
        Err(mismatch) => set.fail_here(set.disagreement(block, &mismatch)),
    }
    block.warps.read(linear, read)
}

/// Returns the mask of the warp's lanes that are active together at this source location. The mask always includes the
/// caller.
///
/// The thread waits until no other thread of the block can continue. The lanes of its warp that are then waiting at the
/// same location are considered active together. A GPU may return fewer lanes.
#[track_caller]
pub fn active_mask() -> u32 {
    let location = Location::caller();
    let registers = running("active_mask");
    let (block, set) = (registers.block(), registers.set());
    if set.is_unwinding() {
        return 1 << registers.lane();
    }
    set.ask(block, registers.waiter(location));
    set.suspend(block, registers);
    set.progress();
    block.warps.active(registers.linear.get())
}

/// Signals that the thread reads memory and may be waiting for other threads to change it. After a certain number of
/// these reads, the thread yields to other threads. A block whose threads spin for too long without progress causes a
/// fault, as described in [`crate::settings`].
///
/// Outside of a kernel, the call has no effect, so that atomics can also be used in host code.
#[cfg_attr(not(warpsmith_check), inline)]
#[cfg_attr(warpsmith_check, inline(never))]
#[track_caller]
pub fn spin_hint() {
    let registers = registers();
    if !registers.in_kernel() {
        return;
    }
    let spins = registers.spins.get() - 1;
    registers.spins.set(spins);
    if spins == 0 {
        let_others_run(Location::caller());
    }
}

#[cold]
#[inline(never)]
fn let_others_run(location: &'static Location<'static>) {
    let registers = running("spin_hint");
    registers.set().spin(registers.block(), registers, location);
}
