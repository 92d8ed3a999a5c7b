//! The coroutines that GPU threads run on.
//!
//! A runner runs threads of one block, one after the other, until one suspends or none is left to start. It
//! outlives blocks and launches: a host thread keeps its runners, and with them their stacks. While a runner is
//! idle nothing of a kernel is on its stack. Each stream has a host thread. When one ends, a pool of the process keeps its
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

/// How a runner suspends itself.
pub(crate) type RunnerYielder = Yielder<Command, Progress>;

/// Why a runner is resumed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Command {
    /// Run threads of the block in the registers.
    Run,
    /// Return, so that the stack can be freed. Only for idle runners.
    Quit,
}

/// Why a runner suspended itself.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// Its thread waits or lets others run.
    Suspended,
    /// Its thread must not run on: nothing of it is used or dropped again.
    Abandoned,
    /// No thread of the block is left to start.
    Idle,
}

/// Stacks of all host threads above which a host thread gives most of its own to the pool after a launch.
const MANY_STACKS: u32 = 12 * 1024;
/// The number that it then keeps.
const KEPT_STACKS: usize = 64;
/// Stacks that there should be at most. Linux allows a process 65530 mappings, and a stack and its guard page are
/// two of them. The stacks of the pool are not more, because no stack is mapped while the pool has one.
pub(crate) const MOST_STACKS: u32 = 28 * 1024;
/// The most stacks that the pool keeps: two clusters of eight of the largest blocks.
const MOST_SPARE: usize = 16 * 1024;
/// The stacks of runners.
static STACKS: AtomicU32 = AtomicU32::new(0);
/// The pool: stacks without a runner. All have the same size. No stack is mapped while the pool has one.
static SPARE: Mutex<Vec<DefaultStack>> = Mutex::new(Vec::new());

/// The number of stacks that may be added now.
pub(crate) fn stacks_left() -> u32 {
    MOST_STACKS.saturating_sub(STACKS.load(Ordering::Relaxed))
}

fn spare() -> MutexGuard<'static, Vec<DefaultStack>> {
    SPARE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stack of the pool, or a new one.
fn stack(bytes: usize) -> io::Result<DefaultStack> {
    let left = spare().pop();
    left.map_or_else(|| DefaultStack::new(bytes), Ok)
}

/// Gives stacks to the pool, and unmaps those that it has no room for.
fn keep(mut stacks: Vec<DefaultStack>) {
    let mut spare = spare();
    let room = MOST_SPARE.saturating_sub(spare.len());
    spare.extend(stacks.drain(..room.min(stacks.len())));
}

/// The runners of a host thread.
#[derive(Default)]
pub(crate) struct Runners {
    runners: Vec<Runner>,
    idle: Vec<u32>,
    /// The host thread, as the watcher sees it.
    pub watched: Watched,
}

struct Runner {
    /// Dropped by [`quit`] alone.
    coroutine: ManuallyDrop<Coroutine<Command, Progress, (), DefaultStack>>,
    suspended: bool,
    abandoned: bool,
    fiber: Fiber,
}

impl Runners {
    /// An idle runner; `Err` when there is no memory for another stack.
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

    /// The next runner whose thread is suspended, from `start` on.
    pub fn suspended_from(&self, start: u32) -> Option<u32> {
        (start..self.runners.len() as u32).find(|&id| self.runners[id as usize].suspended)
    }

    /// Gives stacks to the pool if the host threads have many. All runners are idle.
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

/// Ends a runner. Returns its stack, if nothing is on it.
fn quit(runner: Runner) -> Option<DefaultStack> {
    let Runner { mut coroutine, suspended, abandoned, fiber } = runner;
    if abandoned {
        // The stack stays, with what is on it.
        return None;
    }
    let stack = fiber.run(|| {
        // One that a panic ended cannot be resumed; one that is suspended unwinds its thread when it is dropped.
        if !coroutine.done() && !suspended {
            coroutine.resume(Command::Quit);
        }
        let coroutine = ManuallyDrop::into_inner(coroutine);
        coroutine.done().then(|| coroutine.into_stack())
    });
    STACKS.fetch_sub(1, Ordering::Relaxed);
    stack
}

/// The body of runner `id`.
fn run(id: u32, yielder: &RunnerYielder, mut command: Command) {
    while command == Command::Run {
        let registers = registers();
        registers.runner.set(id);
        registers.yielder.set(yielder);
        // The scheduler that resumed this runner set the block, and keeps it until every runner is idle again.
        registers.set().run_threads(registers.block(), registers);
        command = yielder.suspend(Progress::Idle);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_keeps_the_stacks_of_a_thread_that_ends() {
        // More than the other tests of this program take meanwhile.
        const COUNT: usize = 3000;
        let fill = || {
            let mut runners = Runners::default();
            for _ in 0..COUNT {
                runners.idle(256 * 1024).unwrap();
            }
        };
        std::thread::spawn(fill).join().unwrap();
        assert!((1..=MOST_SPARE).contains(&spare().len()));
        for _ in 0..2 {
            std::thread::spawn(fill).join().unwrap();
        }
        assert!(spare().len() <= MOST_SPARE);
    }
}
