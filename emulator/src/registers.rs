//! The identity of the running GPU thread.
//!
//! One set of registers for each host thread, in thread-local storage without destructor, so that a kernel
//! reads its index with one load. All coroutines of blocks that run at once run on one host thread; what
//! belongs to one GPU thread is saved and restored around every switch.
//!
//! `yielder` is not null exactly while kernel code runs: that is how a call from outside a kernel is noticed.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::panic::Location;
use std::ptr;

use crate::block::Block;
use crate::check::Checker;
use crate::runner::RunnerYielder;
use crate::set::BlockSet;
use crate::wait::Waiter;

/// The registers of a host thread.
pub(crate) struct Registers {
    /// Index of the GPU thread in its block.
    pub thread: Cell<[u32; 3]>,
    /// The same as one number, x fastest.
    pub linear: Cell<u32>,
    /// Calls of `spin_hint` left until the thread lets others run.
    pub spins: Cell<u32>,
    /// The coroutine the thread runs on.
    pub runner: Cell<u32>,
    /// How that coroutine suspends itself; null outside kernels.
    pub yielder: Cell<*const RunnerYielder>,
    /// The running block and the set it belongs to; valid while `yielder` is not null.
    pub block: Cell<*const Block>,
    pub set: Cell<*const BlockSet<'static>>,
    /// Index of the block in the grid.
    pub block_index: Cell<[u32; 3]>,
    /// Threads of a block.
    pub block_dim: Cell<[u32; 3]>,
    /// Blocks of the grid.
    pub grid_dim: Cell<[u32; 3]>,
    /// Blocks of a cluster.
    pub cluster_dim: Cell<[u32; 3]>,
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: Cell<u32>,
    /// What checks the launch that runs; null when it is not checked, and while [`Registers::with_checker`] runs.
    pub checker: Cell<*mut Checker>,
    /// Where the thread was that has been [abandoned](BlockSet::abandon), from a box; null when none has.
    pub interrupted: Cell<*mut Backtrace>,
}

thread_local! {
    pub(crate) static REGISTERS: Registers = const {
        Registers {
            thread: Cell::new([0; 3]),
            linear: Cell::new(0),
            spins: Cell::new(0),
            runner: Cell::new(0),
            yielder: Cell::new(ptr::null()),
            block: Cell::new(ptr::null()),
            set: Cell::new(ptr::null()),
            block_index: Cell::new([0; 3]),
            block_dim: Cell::new([0; 3]),
            grid_dim: Cell::new([0; 3]),
            cluster_dim: Cell::new([1; 3]),
            shared_bytes: Cell::new(0),
            checker: Cell::new(ptr::null_mut()),
            interrupted: Cell::new(ptr::null_mut()),
        }
    };
}

/// The state of one GPU thread while it is suspended.
#[derive(Clone, Copy)]
pub(crate) struct Saved {
    thread: [u32; 3],
    linear: u32,
    runner: u32,
    yielder: *const RunnerYielder,
}

impl Saved {
    /// The coroutine's own way to suspend itself.
    pub fn yielder(&self) -> *const RunnerYielder {
        self.yielder
    }
}

impl Registers {
    pub fn save(&self) -> Saved {
        Saved {
            thread: self.thread.get(),
            linear: self.linear.get(),
            runner: self.runner.get(),
            yielder: self.yielder.get(),
        }
    }

    pub fn restore(&self, saved: Saved) {
        self.thread.set(saved.thread);
        self.linear.set(saved.linear);
        self.runner.set(saved.runner);
        self.yielder.set(saved.yielder);
    }

    /// Makes this the running block.
    #[inline(always)]
    pub fn enter(&self, block: &Block) {
        self.block.set(ptr::from_ref(block));
        self.block_index.set(block.index());
    }

    /// The lane of the thread in its warp.
    #[inline]
    pub fn lane(&self) -> u32 {
        self.linear.get() % 32
    }

    /// Whether kernel code runs on this host thread.
    #[inline]
    pub fn in_kernel(&self) -> bool {
        !self.yielder.get().is_null()
    }
}

impl Registers {
    /// Calls `f` with what checks the launch that runs on this host thread, if it is checked.
    #[inline(always)]
    pub fn with_checker<R>(&self, f: impl FnOnce(&mut Checker) -> R) -> Option<R> {
        let checker = self.checker.get();
        if checker.is_null() {
            return None;
        }
        // Whatever `f` calls, an allocator of the program for example, finds none.
        self.checker.set(ptr::null_mut());
        // SAFETY: `launch::run_grid` owns it, sets the pointer while the grid runs, and refers to it in no other way
        // meanwhile; the pointer is gone while this reference is used.
        let result = f(unsafe { &mut *checker });
        self.checker.set(checker);
        Some(result)
    }
}

/// The registers of this host thread, also outside kernels.
#[inline(always)]
pub(crate) fn registers() -> &'static Registers {
    let registers = REGISTERS.with(ptr::from_ref);
    // SAFETY: registers have no destructor, so they are there as long as the host thread runs any code; as they
    // are not `Sync`, no other host thread can get the reference.
    unsafe { &*registers }
}

/// The registers of the running GPU thread; panics with `name` when no kernel runs.
#[inline(always)]
pub(crate) fn running(name: &'static str) -> &'static Registers {
    let registers = registers();
    if !registers.in_kernel() {
        outside(name);
    }
    registers
}

impl Registers {
    /// The block of the running GPU thread. Only with registers from [`running`], and only until the kernel's call
    /// into the emulator returns.
    #[inline(always)]
    pub fn block(&self) -> &Block {
        // SAFETY: kernel code runs (checked by `running`), and the scheduler keeps the block alive and in place
        // while any of its threads runs or is suspended.
        unsafe { &*self.block.get() }
    }

    /// The blocks that run at once with that of the running GPU thread. On the same conditions.
    #[inline(always)]
    pub fn set(&self) -> &BlockSet<'static> {
        // SAFETY: as for the block, which is one of the set's.
        unsafe { &*self.set.get() }
    }

    /// The running GPU thread, as one that waits at `location`. On the same conditions.
    pub fn waiter(&self, location: &'static Location<'static>) -> Waiter {
        let block = self.block().number;
        Waiter { block, thread: self.linear.get(), runner: self.runner.get(), location }
    }
}

#[cold]
#[inline(never)]
fn outside(name: &'static str) -> ! {
    panic!("{name} called outside a kernel: launch it on a device")
}
