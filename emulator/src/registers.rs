//! Identity of the running GPU thread.
//!
//! Each host thread has one set of registers, in thread-local storage without a destructor, so that a kernel reads its
//! index with one load. Blocks that run concurrently run all of their coroutines on one host thread. The state of a GPU
//! thread is saved and restored around every switch.
//!
//! `yielder` is non-null exactly while kernel code runs, so that calls from outside of a kernel are detected.

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::panic::Location;
use std::ptr;

use crate::block::Block;
use crate::check::Checker;
use crate::runner::RunnerYielder;
use crate::set::BlockSet;
use crate::wait::Waiter;

/// Registers of a host thread.
pub(crate) struct Registers {
    /// Index of the GPU thread in the block.
    pub thread: Cell<[u32; 3]>,
    /// Linear index of the GPU thread in the block. The x coordinate varies fastest.
    pub linear: Cell<u32>,
    /// Remaining calls of `spin_hint` before the thread yields to others.
    pub spins: Cell<u32>,
    /// Coroutine on which the thread runs.
    pub runner: Cell<u32>,
    /// Yielder with which that coroutine suspends itself; null outside of kernels.
    pub yielder: Cell<*const RunnerYielder>,
    /// The running block. The next field is the set to which the block belongs. Both pointers are valid while `yielder`
    /// is not null.
    pub block: Cell<*const Block>,
    pub set: Cell<*const BlockSet<'static>>,
    /// Index of the block in the grid.
    pub block_index: Cell<[u32; 3]>,
    /// Block size in threads.
    pub block_dim: Cell<[u32; 3]>,
    /// Grid size in blocks.
    pub grid_dim: Cell<[u32; 3]>,
    /// Cluster size in blocks.
    pub cluster_dim: Cell<[u32; 3]>,
    /// Dynamic shared memory per block in bytes.
    pub shared_bytes: Cell<u32>,
    /// Checker of the running launch; null if the launch is not checked or while [`Registers::with_checker`] runs.
    pub checker: Cell<*mut Checker>,
    /// Boxed backtrace of an [abandoned](BlockSet::abandon) thread; null if no thread was abandoned.
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

/// State of one GPU thread while it is suspended.
#[derive(Clone, Copy)]
pub(crate) struct Saved {
    thread: [u32; 3],
    linear: u32,
    runner: u32,
    yielder: *const RunnerYielder,
}

impl Saved {
    /// Returns the yielder of the coroutine.
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

    /// Makes this block the running block.
    #[inline(always)]
    pub fn enter(&self, block: &Block) {
        self.block.set(ptr::from_ref(block));
        self.block_index.set(block.index());
    }

    /// Returns the lane of the thread in its warp.
    #[inline]
    pub fn lane(&self) -> u32 {
        self.linear.get() % 32
    }

    /// Returns true if kernel code runs on this host thread.
    #[inline]
    pub fn in_kernel(&self) -> bool {
        !self.yielder.get().is_null()
    }
}

impl Registers {
    /// Calls `f` with the checker of the launch on this host thread, if the launch is checked.
    #[inline(always)]
    pub fn with_checker<R>(&self, f: impl FnOnce(&mut Checker) -> R) -> Option<R> {
        let checker = self.checker.get();
        if checker.is_null() {
            return None;
        }
        // Code that `f` calls, for example the program's allocator, must not use the checker at the same time.
        self.checker.set(ptr::null_mut());
        // SAFETY: `launch::run_grid` owns the checker, sets the pointer while the grid runs, and holds no other
        // reference during that time. The pointer is null while this reference is used.
        let result = f(unsafe { &mut *checker });
        self.checker.set(checker);
        Some(result)
    }
}

/// Returns the registers of this host thread, even outside of kernels.
#[inline(always)]
pub(crate) fn registers() -> &'static Registers {
    let registers = REGISTERS.with(ptr::from_ref);
    // SAFETY: registers have no destructor, so they exist as long as the host thread runs any code. They are not
    // `Sync`, so no other host thread can obtain the reference.
    unsafe { &*registers }
}

/// Returns the registers of the running GPU thread. If no kernel is running, panics with a message that contains
/// `name`.
#[inline(always)]
pub(crate) fn running(name: &'static str) -> &'static Registers {
    let registers = registers();
    if !registers.in_kernel() {
        outside(name);
    }
    registers
}

impl Registers {
    /// Returns the block of the running GPU thread. May be called only on registers from [`running`]. The block is
    /// valid until the kernel's call into the emulator returns.
    #[inline(always)]
    pub fn block(&self) -> &Block {
        // SAFETY: kernel code runs (checked by `running`), and the scheduler keeps the block alive and in place
        // while any of its threads runs or is suspended.
        unsafe { &*self.block.get() }
    }

    /// Returns the set of blocks to which the running GPU thread belongs, under the same conditions as [`Self::block`].
    #[inline(always)]
    pub fn set(&self) -> &BlockSet<'static> {
        // SAFETY: as for the block, which belongs to the set.
        unsafe { &*self.set.get() }
    }

    /// Returns a waiter entry for the running GPU thread, which waits at `location`. The conditions of [`Self::block`]
    /// apply.
    pub fn waiter(&self, location: &'static Location<'static>) -> Waiter {
        let block = self.block().number;
        Waiter { block, thread: self.linear.get(), runner: self.runner.get(), location }
    }
}

#[cold]
#[inline(never)]
fn outside(name: &'static str) -> ! {
    panic!("{name} was called outside a kernel: call it from a kernel that is launched on a device")
}
