//! Runs the blocks that run at once: decides which of their threads continues, and stops them all when one has
//! failed.
//!
//! Threads that can continue come before threads not yet started, and these before threads that spin: so a warp
//! is done before the next begins where it can be, few stacks are in use, and a thread that spins gives way to
//! the one it waits for. Of several blocks one starts all its threads before the next. A seeded order varies the threads
//! and blocks that come first, and in which order threads go on that were released together.

use crate::fault::Fault;
use crate::registers::Registers;
use crate::runner::Runners;
use crate::set::{BlockSet, Next};

/// Rounds of fruitless looks at memory after which the host thread yields to others, which may be running the
/// block that is waited for.
const ROUNDS_TO_YIELD: u32 = 16;

/// Runs the set's blocks to their end, or to the first fault. Afterwards every runner is idle.
///
/// The set that stands at `position` in the launch's order gives up when an earlier one has failed, and, as
/// soon as all its threads spin, when any has.
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
            // Just after a barrier no thread waits: the next one that runs says what the kernel does.
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
        // Collectives do nothing in a thread that unwinds, so it cannot suspend itself again.
        runners.resume(registers, runner);
        next = runner + 1;
    }
}
