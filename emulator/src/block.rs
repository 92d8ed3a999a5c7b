//! What the threads of a running block share, and how they start, suspend and end.
//!
//! All of it is used by one host thread. Kernel code and the scheduler both hold shared references; every
//! borrow of a cell ends before control passes from one to the other.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{self, AssertUnwindSafe, Location};

use crate::barrier::Barrier;
use crate::fault::{Fault, Places, Waiting};
use crate::launch::Grid;
use crate::order::Random;
use crate::output::Output;
use crate::panics::{self, Stopped};
use crate::registers::Registers;
use crate::runner::Progress;
use crate::shared::Shared;
use crate::warp::{Mismatch, Warps};

/// Calls of `spin_hint` after which a thread lets others run.
const SPIN_QUOTA: u32 = 32;

/// A thread that waits.
#[derive(Clone, Copy)]
pub(crate) struct Waiter {
    pub thread: u32,
    pub runner: u32,
    pub location: &'static Location<'static>,
}

/// Runners whose threads can go on.
#[derive(Default)]
pub(crate) struct Queue {
    ready: RefCell<VecDeque<u32>>,
    /// Threads that wait for memory to change: they go on when nobody else can.
    spinning: RefCell<VecDeque<Waiter>>,
}

impl Queue {
    pub fn push_ready(&self, runner: u32) {
        self.ready.borrow_mut().push_back(runner);
    }

    fn has_any(&self) -> bool {
        !self.ready.borrow().is_empty() || !self.spinning.borrow().is_empty()
    }

    fn clear(&self) {
        self.ready.borrow_mut().clear();
        self.spinning.borrow_mut().clear();
    }
}

/// The scheduler's next step.
pub(crate) enum Next {
    /// Let a suspended thread go on.
    Resume(u32),
    /// The same, but it only looks again whether memory has changed.
    Respin(u32),
    /// Start another thread on an idle runner.
    Start,
    /// Every thread has exited.
    Done,
    /// Every thread that has not exited waits.
    Stuck,
}

/// A running block. One is used for all blocks that a worker runs in a launch.
pub(crate) struct Block<'g> {
    pub grid: &'g Grid,
    pub barrier: Barrier,
    pub warps: Warps,
    pub queue: Queue,
    pub shared: Shared,
    pub output: Output,
    index: Cell<[u32; 3]>,
    /// Threads started so far.
    started: Cell<u32>,
    /// Index of the next thread to start, in sequential order.
    next_index: Cell<[u32; 3]>,
    /// The order in which threads start, when it is seeded.
    order: RefCell<Vec<u16>>,
    random: Random,
    /// Threads that have not exited, started or not.
    alive: Cell<u32>,
    /// Set while suspended threads are being unwound.
    stopping: Cell<bool>,
    fault: RefCell<Option<Fault>>,
    /// Calls of `spin_hint`, roughly, since a thread of the block got anywhere.
    spins: Cell<u64>,
    /// Whether they have exceeded the limit, and the grid counts this block as stuck.
    stuck: Cell<bool>,
}

impl<'g> Block<'g> {
    pub fn new(grid: &'g Grid) -> Self {
        Self {
            grid,
            barrier: Barrier::default(),
            warps: Warps::default(),
            queue: Queue::default(),
            shared: Shared::default(),
            output: Output::default(),
            index: Cell::new([0; 3]),
            started: Cell::new(0),
            next_index: Cell::new([0; 3]),
            order: RefCell::default(),
            random: Random::new(0),
            alive: Cell::new(0),
            stopping: Cell::new(false),
            fault: RefCell::new(None),
            spins: Cell::new(0),
            stuck: Cell::new(false),
        }
    }

    /// Prepares for block `index`, number `linear` of the grid.
    pub fn begin(&self, index: [u32; 3], linear: u64) {
        self.index.set(index);
        self.started.set(0);
        self.next_index.set([0; 3]);
        self.alive.set(self.grid.threads);
        self.stopping.set(false);
        self.progress();
        self.barrier.begin_block();
        self.warps.begin_block(self.grid.threads);
        self.queue.clear();
        self.shared.begin_block();
        if let Some(seed) = self.grid.seed {
            self.random.reseed(seed ^ linear.wrapping_mul(0xd6e8_feb8_6659_fd93));
            self.random.shuffle(&mut self.order.borrow_mut(), self.grid.threads);
        }
    }

    /// The body of a runner: runs threads until none is left to start. Panics end here.
    pub fn run_threads(&self, registers: &Registers) {
        let result = panic::catch_unwind(AssertUnwindSafe(|| {
            while self.start(registers) {
                // SAFETY: `launch::run`'s caller promises that the arguments fit the kernel and that its safety
                // conditions hold.
                unsafe { (self.grid.kernel.entry)(self.grid.args) };
                self.exit(registers.linear.get());
                // In a seeded order the scheduler chooses whether a thread starts or another goes on.
                if self.grid.seed.is_some() && self.queue.has_any() {
                    break;
                }
            }
        }));
        if let Err(payload) = result
            && let Some((message, location)) = panics::take(payload)
        {
            self.fail(Fault::Panic {
                kernel: self.grid.kernel.name,
                message,
                location,
                block: self.index.get(),
                thread: registers.thread.get(),
            });
        }
    }

    /// Makes the registers those of the next thread; `false` when all have started.
    #[inline]
    fn start(&self, registers: &Registers) -> bool {
        let started = self.started.get();
        if started >= self.grid.threads {
            return false;
        }
        if self.grid.seed.is_some() {
            self.start_seeded(registers, started);
            return true;
        }
        self.started.set(started + 1);
        let index = self.next_index.get();
        registers.thread.set(index);
        registers.linear.set(started);
        registers.spins.set(SPIN_QUOTA);
        let [width, height, _] = self.grid.block;
        let [mut x, mut y, mut z] = index;
        x += 1;
        if x == width {
            x = 0;
            y += 1;
            if y == height {
                y = 0;
                z += 1;
            }
        }
        self.next_index.set([x, y, z]);
        true
    }

    fn start_seeded(&self, registers: &Registers, started: u32) {
        self.started.set(started + 1);
        let linear = u32::from(self.order.borrow()[started as usize]);
        registers.thread.set(self.thread_index(linear));
        registers.linear.set(linear);
        registers.spins.set(self.spin_quota());
    }

    /// Counts the thread out; what waited for it alone goes on, or fails.
    #[inline]
    fn exit(&self, linear: u32) {
        let alive = self.alive.get() - 1;
        self.alive.set(alive);
        self.progress();
        if let Some((waiter, call)) = self.warps.exit(linear) {
            self.fail(self.exited_lane(waiter, call.operation, call.mask, linear % 32, call.location));
        }
        if self.barrier.is_complete(alive) {
            self.barrier.release(&self.queue);
        }
    }

    /// Suspends the calling thread until the scheduler lets it go on. Unwinds it when the block has failed.
    #[inline(always)]
    pub fn suspend(&self, registers: &Registers) {
        let saved = registers.save();
        // SAFETY: the yielder lives on the stack of the running coroutine, which is this one.
        unsafe { &*saved.yielder() }.suspend(Progress::Suspended);
        registers.restore(saved);
        registers.spins.set(self.spin_quota());
        if self.stopping.get() {
            panic::resume_unwind(Box::new(Stopped));
        }
    }

    /// Whether the calling thread only cleans up: collectives then do nothing.
    pub fn is_unwinding(&self) -> bool {
        self.stopping.get() || std::thread::panicking()
    }

    /// The calling thread, as one that waits at `location`.
    pub fn waiter(&self, registers: &Registers, location: &'static Location<'static>) -> Waiter {
        Waiter { thread: registers.linear.get(), runner: registers.runner.get(), location }
    }

    /// Notes that a thread got somewhere.
    #[inline]
    pub fn progress(&self) {
        self.spins.set(0);
        if self.stuck.get() {
            self.stuck.set(false);
            self.grid.leave_stuck();
        }
    }

    /// Threads that have not exited.
    pub fn alive(&self) -> u32 {
        self.alive.get()
    }

    /// Lets others run while the thread spins, and fails when it has spun for too long.
    pub fn spin(&self, registers: &Registers, location: &'static Location<'static>) {
        registers.spins.set(self.spin_quota());
        if self.is_unwinding() {
            return;
        }
        let spins = self.spins.get() + u64::from(SPIN_QUOTA);
        self.spins.set(spins);
        self.queue.spinning.borrow_mut().push_back(self.waiter(registers, location));
        if spins > self.grid.spin_limit {
            self.spins.set(0);
            if !self.stuck.replace(true) {
                self.grid.enter_stuck();
            }
            // A block that another host thread runs may still end the wait, unless it spins as well.
            if self.grid.is_stuck() {
                self.fail(Fault::Livelock {
                    kernel: self.grid.kernel.name,
                    block: self.index.get(),
                    spins,
                    waiting: self.waiting(),
                });
            }
        }
        self.suspend(registers);
    }

    fn spin_quota(&self) -> u32 {
        match self.grid.seed {
            None => SPIN_QUOTA,
            Some(_) => 1 + self.random.below(u64::from(2 * SPIN_QUOTA)) as u32,
        }
    }

    /// What the scheduler should do next.
    #[inline(always)]
    pub fn next(&self) -> Next {
        let unstarted = (self.grid.threads - self.started.get()) as usize;
        let mut ready = self.queue.ready.borrow_mut();
        let mut spinning = self.queue.spinning.borrow_mut();
        if ready.is_empty() && unstarted == 0 {
            drop(ready);
            if self.warps.answer(self.grid.threads, &self.queue) {
                drop(spinning);
                return self.next();
            }
            return match spinning.pop_front() {
                Some(waiter) => Next::Respin(waiter.runner),
                None if self.alive.get() == 0 => Next::Done,
                None => Next::Stuck,
            };
        }
        let choice = match self.grid.seed {
            Some(_) => self.random.below((ready.len() + unstarted + spinning.len()) as u64) as usize,
            None => 0,
        };
        if choice < ready.len() {
            let runner = match self.grid.seed {
                Some(_) => ready.swap_remove_back(choice),
                None => ready.pop_front(),
            };
            Next::Resume(runner.expect("the queue is longer"))
        } else if choice < ready.len() + unstarted {
            Next::Start
        } else {
            Next::Resume(spinning.pop_front().expect("the queue is not empty").runner)
        }
    }

    /// Makes every suspended thread unwind when it is resumed, and no other start.
    pub fn stop(&self) {
        self.stopping.set(true);
        self.started.set(self.grid.threads);
    }

    /// Records what went wrong, if nothing has before; no further thread starts.
    pub fn fail(&self, fault: Fault) {
        self.started.set(self.grid.threads);
        self.fault.borrow_mut().get_or_insert(fault);
    }

    /// Records what a thread did wrong and unwinds it.
    pub fn fail_here(&self, fault: Fault) -> ! {
        self.fail(fault);
        panic::resume_unwind(Box::new(Stopped));
    }

    pub fn has_failed(&self) -> bool {
        self.fault.borrow().is_some()
    }

    pub fn take_fault(&self) -> Option<Fault> {
        self.fault.take()
    }

    /// A thread used a collective wrongly.
    pub fn misuse(&self, thread: u32, message: String, location: &Location<'_>) -> Fault {
        Fault::Collective {
            kernel: self.grid.kernel.name,
            message,
            location: location.to_string(),
            block: self.index.get(),
            thread: self.thread_index(thread),
        }
    }

    /// Two lanes wait for each other and disagree.
    pub fn disagreement(&self, mismatch: &Mismatch) -> Fault {
        let Mismatch { thread, call, other_thread, other } = mismatch;
        self.misuse(
            *thread,
            format!(
                "the lanes of warp {} disagree: lane {} calls {} with mask {:#010x}, lane {} calls {} with mask {:#010x} at {}",
                thread / 32, thread % 32, call.operation, call.mask,
                other_thread % 32, other.operation, other.mask, other.location,
            ),
            call.location,
        )
    }

    /// A lane waits for one that has exited.
    pub fn exited_lane(
        &self,
        thread: u32,
        operation: &str,
        mask: u32,
        lane: u32,
        location: &Location<'_>,
    ) -> Fault {
        let message =
            format!("{operation} with mask {mask:#010x} names lane {lane}, whose thread has exited");
        self.misuse(thread, message, location)
    }

    /// Every thread of the block waits for ever: why.
    pub fn stuck(&self) -> Fault {
        match self.warps.mismatch(self.grid.threads) {
            Some(mismatch) => self.disagreement(&mismatch),
            None => Fault::Deadlock {
                kernel: self.grid.kernel.name,
                block: self.index.get(),
                waiting: self.waiting(),
            },
        }
    }

    /// The fault for a stack that the operating system does not give.
    pub fn out_of_stacks(&self, error: &std::io::Error) -> Fault {
        Fault::OutOfStacks {
            kernel: self.grid.kernel.name,
            block: self.index.get(),
            message: error.to_string(),
        }
    }

    fn waiting(&self) -> Vec<Waiting> {
        let mut places = Places::default();
        self.barrier.for_each_waiter(|w| places.add("sync_threads".to_owned(), w.location, w.thread));
        self.warps.for_each_waiter(self.grid.threads, |thread, call| {
            places.add(format!("{}, mask {:#010x}", call.operation, call.mask), call.location, thread);
        });
        for waiter in self.queue.spinning.borrow().iter() {
            places.add("a loop that reads an atomic".to_owned(), waiter.location, waiter.thread);
        }
        places.finish()
    }

    /// The index of thread `linear` of the block.
    fn thread_index(&self, linear: u32) -> [u32; 3] {
        let [width, height, _] = self.grid.block;
        [linear % width, linear / width % height, linear / (width * height)]
    }
}
