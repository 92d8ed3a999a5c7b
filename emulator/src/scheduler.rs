//! Scheduler of blocks that run concurrently. It selects the thread that continues, and stops all of the blocks when
//! one of them has failed.
//!
//! Ready threads take precedence over threads that have not started, which take precedence over spinning threads.
//! Therefore, a warp finishes before the next one starts if possible, few stacks are in use, and a spinning thread
//! yields to the thread for which it waits. If there are several blocks, each block starts all of its threads before
//! the next block does. A seeded order varies which threads and blocks start first, and the order in which threads that
//! were released together continue.

use crate::fault::Fault;
use crate::registers::Registers;
use crate::runner::Runners;
use crate::set::{BlockSet, Next};

/// Number of rounds of unsuccessful polling after which the host thread yields to other host threads, one of which may
/// be running the awaited block.
const ROUNDS_TO_YIELD: u32 = 16;

/// Runs the set's blocks to completion, or to the first fault. Afterwards, every runner is idle.
///
/// The set is at `position` in the launch's order. It stops if an earlier set has failed or, when all of its threads
/// spin, if any set has failed.
pub(crate) fn run_set(
    set: &BlockSet<'_>,
    runners: &mut Runners,
    registers: &Registers,
    position: u64,
) -> Result<(), Fault> {
    let mut rounds = 0u32;
    let mut was_late = false;
    loop {
        let runner = match set.next() {
            Next::Resume(runner) => runner,
            Next::Respin(runner) => {
                rounds = rounds.wrapping_add(1);
                if rounds.is_multiple_of(ROUNDS_TO_YIELD) {
                    std::thread::yield_now();
                }
                if set.grid.has_failed() {
                    break;
                }
                runner
            }
            Next::Start(block) => {
                registers.enter(&set.blocks[block]);
                match runners.idle(set.grid.stack_bytes) {
                    Ok(runner) => runner,
                    Err(error) => {
                        set.fail(set.out_of_stacks(&set.blocks[block], &error));
                        break;
                    }
                }
            }
            Next::Again => continue,
            Next::Done => return set.copies_left().and_then(|()| set.red_zones()),
            Next::Stuck => {
                set.fail(set.deadlock());
                break;
            }
        };
        runners.resume(registers, runner);
        if set.has_failed() || set.grid.is_over(position) {
            break;
        }
        if set.is_late() {
            // Immediately after a barrier, no thread is waiting. In that case, the next thread runs first, so that the
            // fault can report what the kernel is doing.
            if was_late || !set.all_are_ready(registers) {
                break;
            }
            was_late = true;
        }
    }
    unwind(set, runners, registers);
    set.take_fault().map_or(Ok(()), Err)
}

/// Unwinds every suspended thread, so that the values on its stack are dropped.
#[cold]
#[inline(never)]
fn unwind(set: &BlockSet<'_>, runners: &mut Runners, registers: &Registers) {
    if set.is_late() {
        set.fail(set.endless_at(registers));
    }
    set.stop();
    let mut next = 0;
    while let Some(runner) = runners.suspended_from(next) {
        // Collectives have no effect in an unwinding thread, so it cannot suspend itself again.
        runners.resume(registers, runner);
        next = runner + 1;
    }
}
