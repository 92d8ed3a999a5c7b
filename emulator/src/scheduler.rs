//! Runs one block: decides which of its threads goes on, and stops them all when one has failed.
//!
//! Threads that can go on come before threads not yet started, and these before threads that spin: so a warp
//! is done before the next begins where it can be, few stacks are in use, and a thread that spins gives way to
//! the one it waits for. A seeded order chooses among all of them at random instead.

use crate::block::{Block, Next};
use crate::fault::Fault;
use crate::registers::Registers;
use crate::runner::Runners;

/// Rounds of fruitless looks at memory after which the host thread yields to others, which may be running the
/// block that is waited for.
const ROUNDS_TO_YIELD: u32 = 16;

/// Runs the block to its end, or to its first fault. Afterwards every runner is idle.
///
/// The block that stands at `position` in the launch's order gives up when an earlier one has failed, and, as
/// soon as all its threads spin, when any has.
pub(crate) fn run_block(
    block: &Block<'_>,
    runners: &mut Runners,
    registers: &Registers,
    position: u64,
) -> Result<(), Fault> {
    let mut rounds = 0u32;
    loop {
        let runner = match block.next() {
            Next::Resume(runner) => runner,
            Next::Respin(runner) => {
                rounds = rounds.wrapping_add(1);
                if rounds.is_multiple_of(ROUNDS_TO_YIELD) {
                    std::thread::yield_now();
                }
                if block.grid.has_failed() {
                    break;
                }
                runner
            }
            Next::Start => match runners.idle(block.grid.stack_bytes) {
                Ok(runner) => runner,
                Err(error) => {
                    block.fail(block.out_of_stacks(&error));
                    break;
                }
            },
            Next::Done => return Ok(()),
            Next::Stuck => {
                block.fail(block.stuck());
                break;
            }
        };
        runners.resume(registers, runner);
        if block.has_failed() || block.grid.is_over(position) {
            break;
        }
    }
    unwind(block, runners, registers);
    block.take_fault().map_or(Ok(()), Err)
}

/// Unwinds every suspended thread, so that the values on its stack are dropped.
fn unwind(block: &Block<'_>, runners: &mut Runners, registers: &Registers) {
    block.stop();
    let mut next = 0;
    while let Some(runner) = runners.suspended_from(next) {
        // Collectives do nothing in a thread that unwinds, so it cannot suspend itself again.
        runners.resume(registers, runner);
        next = runner + 1;
    }
}
