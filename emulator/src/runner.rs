//! Coroutines on which GPU threads run.
//!
//! A runner runs threads of one block, one after another, until a thread is suspended or all threads have started.
//! Runners outlive blocks and launches, because a host thread keeps its runners and their stacks. The stack of an idle
//! runner contains no kernel data. Each stream has a host thread. When that thread exits, a process-wide pool keeps its
//! stacks for other host threads, because mapping and unmapping memory is slow.

use std::io;
use std::mem::ManuallyDrop;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::fiber::Fiber;
use crate::registers::{Registers, registers};
use crate::watch::Watched;

/// Yielder with which a runner suspends itself.
pub(crate) type RunnerYielder = Yielder<Command, Progress>;

/// Reason for resuming a runner.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// Run threads of the block in the registers.
    Run,
    /// Return, so that the stack can be freed. Only valid for idle runners.
    Quit,
}

/// Reason why a runner suspended itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Its GPU thread waits or yields to others.
    Suspended,
    /// Its GPU thread must not continue, and the thread's data must not be used or dropped again.
    Abandoned,
    /// All threads of the block have started.
    Idle,
}

/// If all host threads together have more stacks than this, a host thread returns most of its stacks to the pool after
/// a launch.
const MANY_STACKS: u32 = 12 * 1024;
/// Number of stacks that a host thread keeps if there are more than [`MANY_STACKS`].
const KEPT_STACKS: usize = 64;
/// Maximum number of stacks. Linux permits 65530 mappings per process, and a stack with its guard page uses two of
/// them. The pool's stacks do not increase the number, because no stack is mapped while the pool contains one.
pub(crate) const MAX_STACKS: u32 = 28 * 1024;
/// Maximum number of stacks in the pool. It is sufficient for two clusters of eight blocks of maximum size.
const MAX_SPARE: usize = 16 * 1024;
/// Number of stacks that belong to runners.
static STACKS: AtomicU32 = AtomicU32::new(0);
/// Pool of stacks that do not belong to a runner. All stacks have the same size. No stack is mapped while the pool
/// contains one.
static SPARE: Mutex<Vec<DefaultStack>> = Mutex::new(Vec::new());

/// Returns the number of stacks that may still be mapped.
pub(crate) fn stacks_left() -> u32 {
    MAX_STACKS.saturating_sub(STACKS.load(Ordering::Relaxed))
}

fn spare() -> MutexGuard<'static, Vec<DefaultStack>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a stack from the pool, or maps a new one.
fn stack(bytes: usize) -> io::Result<DefaultStack> {
    let left = spare().pop();
    left.map_or_else(|| DefaultStack::new(bytes), Ok)
}

/// Returns stacks to the pool and unmaps those that exceed its capacity.
fn keep(mut stacks: Vec<DefaultStack>) {
    let mut spare = spare();
    let room = MAX_SPARE.saturating_sub(spare.len());
    spare.extend(stacks.drain(..room.min(stacks.len())));
}

/// Runners of a host thread.
#[derive(Default)]
pub(crate) struct Runners {
    runners: Vec<Runner>,
    idle: Vec<u32>,
    /// State of the host thread for the watcher.
    pub watched: Watched,
}

struct Runner {
    /// The coroutine, which only [`quit`] drops.
    coroutine: ManuallyDrop<Coroutine<Command, Progress, (), DefaultStack>>,
    suspended: bool,
    abandoned: bool,
    fiber: Fiber,
}

impl Runners {
    /// Returns an idle runner; fails if no memory is available for another stack.
    pub fn idle(&mut self, stack_bytes: usize) -> io::Result<u32> {
        if let Some(id) = self.idle.pop() {
            return Ok(id);
        }
        let id = self.runners.len() as u32;
        let stack = stack(stack_bytes)?;
        STACKS.fetch_add(1, Ordering::Relaxed);
        let coroutine = Coroutine::with_stack(stack, move |yielder, command| run(id, yielder, command));
        let coroutine = ManuallyDrop::new(coroutine);
        self.runners.push(Runner { coroutine, suspended: false, abandoned: false, fiber: Fiber::new() });
        Ok(id)
    }

    /// Resumes runner `id` until it suspends itself or is idle again.
    #[inline(always)]
    pub fn resume(&mut self, registers: &Registers, id: u32) {
        let runner = &mut self.runners[id as usize];
        let result = runner.fiber.run(|| runner.coroutine.resume(Command::Run));
        registers.yielder.set(std::ptr::null());
        match result {
            CoroutineResult::Yield(Progress::Suspended) => runner.suspended = true,
            CoroutineResult::Yield(Progress::Abandoned) => {
                runner.suspended = false;
                runner.abandoned = true;
            }
            CoroutineResult::Yield(Progress::Idle) => {
                runner.suspended = false;
                self.idle.push(id);
            }
            CoroutineResult::Return(()) => unreachable!("a runner returns only when it is resumed to quit"),
        }
    }

    /// Returns the next runner with a suspended thread, starting at `start`.
    pub fn suspended_from(&self, start: u32) -> Option<u32> {
        (start..self.runners.len() as u32).find(|&id| self.runners[id as usize].suspended)
    }

    /// Returns stacks to the pool if the host threads have more than [`MANY_STACKS`]. All runners must be idle.
    pub fn trim(&mut self) {
        if self.runners.len() > KEPT_STACKS && STACKS.load(Ordering::Relaxed) > MANY_STACKS {
            keep(self.runners.drain(KEPT_STACKS..).filter_map(quit).collect());
            self.idle.clear();
            let is_idle = |id: &u32| !self.runners[*id as usize].abandoned;
            self.idle.extend((0..KEPT_STACKS as u32).rev().filter(is_idle));
        }
    }
}

impl Drop for Runners {
    fn drop(&mut self) {
        keep(self.runners.drain(..).filter_map(quit).collect());
    }
}

/// Ends a runner and returns its stack, if the stack contains no data.
fn quit(runner: Runner) -> Option<DefaultStack> {
    let Runner { mut coroutine, suspended, abandoned, fiber } = runner;
    if abandoned {
        // The stack is leaked with its contents.
        return None;
    }
    let stack = fiber.run(|| {
        // A coroutine that a panic has ended cannot be resumed; a suspended coroutine unwinds its thread when it is
        // dropped.
        if !coroutine.done() && !suspended {
            coroutine.resume(Command::Quit);
        }
        let coroutine = ManuallyDrop::into_inner(coroutine);
        coroutine.done().then(|| coroutine.into_stack())
    });
    STACKS.fetch_sub(1, Ordering::Relaxed);
    stack
}

/// Body of runner `id`.
fn run(id: u32, yielder: &RunnerYielder, mut command: Command) {
    while command == Command::Run {
        let registers = registers();
        registers.runner.set(id);
        registers.yielder.set(yielder);
        // The scheduler that resumed this runner has set the block and keeps it until every runner is idle again.
        registers.set().run_threads(registers.block(), registers);
        command = yielder.suspend(Progress::Idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_keeps_the_stacks_of_a_thread_that_ends() {
        // This is more than other tests in this program use at the same time.
        const COUNT: usize = 3000;
        let fill = || {
            let mut runners = Runners::default();
            for _ in 0..COUNT {
                runners.idle(256 * 1024).unwrap();
            }
        };
        std::thread::spawn(fill).join().unwrap();
        assert!((1..=MAX_SPARE).contains(&spare().len()));
        for _ in 0..2 {
            std::thread::spawn(fill).join().unwrap();
        }
        assert!(spare().len() <= MAX_SPARE);
    }
}
