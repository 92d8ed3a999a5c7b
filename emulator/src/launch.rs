//! Describes a launch, checks it, and spreads its blocks over the cores.
//!
//! Small launches run on the calling thread alone. For larger ones the threads of rayon's current pool help,
//! each taking blocks in order from a common counter; the calling thread always takes part, so a launch goes
//! on even when the pool is busy. A seeded launch runs on the calling thread alone, so that the same seed gives
//! the same run.
//!
//! After a fault no block behind the failed one starts. Those before it run on, so that the fault reported is
//! that of the first block that fails, whatever the cores did meanwhile.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use gpu_spec::KernelSpec;

use crate::block::Block;
use crate::fault::Fault;
use crate::order::Permutation;
use crate::panics;
use crate::registers::{Registers, registers};
use crate::runner::{Runners, stacks_left};
use crate::scheduler::run_block;
use crate::settings::{Settings, settings};

/// Most threads in a block.
pub const MAX_BLOCK_THREADS: u32 = 1024;

/// Threads of a launch up to which no other core is asked to help.
const SMALL_LAUNCH: u64 = 2048;
/// Most blocks taken from the counter at once.
const MAX_CHUNK: u64 = 64;

/// The order in which blocks and threads run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Order {
    /// Blocks and threads start in ascending order; blocks run on several cores.
    #[default]
    Sequential,
    /// Blocks and threads start, and threads go on, in an order that the number decides, on one core: the same
    /// number gives the same run. For finding kernels that depend on an order that a GPU does not promise.
    Seeded(u64),
}

/// A kernel to run, and how.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// The kernel.
    pub kernel: &'static KernelSpec,
    /// Blocks in x, y and z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory of a block in bytes.
    pub shared_bytes: u32,
    /// One pointer for each machine parameter, to its value.
    pub args: &'a [*const c_void],
    /// The order of execution.
    pub order: Order,
}

/// Runs a kernel and returns when all its blocks are done, or when one has failed and the others have stopped.
///
/// Several host threads may call it at once.
///
/// # Errors
/// [`Fault::InvalidLaunch`] when the launch is impossible and nothing ran; else what the kernel did wrong.
///
/// # Safety
/// `args` points to values that fit the kernel's machine parameters, as [`gpu_spec::HostEntry`] lists them, and
/// the conditions under which the kernel may be called hold: what pointers among the arguments point to is valid
/// until the call returns, and, for an unsafe kernel, what its documentation asks for.
pub unsafe fn run(launch: &Launch<'_>) -> Result<(), Fault> {
    let grid =
        Grid::new(launch).map_err(|message| Fault::InvalidLaunch { kernel: launch.kernel.name, message })?;
    panics::install();
    let helpers = grid.helpers();
    if helpers == 0 {
        grid.work();
    } else {
        rayon::in_place_scope(|scope| {
            for _ in 0..helpers {
                scope.spawn(|_| grid.work());
            }
            grid.work();
        });
    }
    grid.result()
}

/// A checked launch and its state, shared by the host threads that run it.
pub(crate) struct Grid {
    pub kernel: &'static KernelSpec,
    pub args: *const *const c_void,
    /// Threads of a block in x, y and z, and in all.
    pub block: [u32; 3],
    pub threads: u32,
    pub seed: Option<u64>,
    pub spin_limit: u64,
    pub stack_bytes: usize,
    size: [u32; 3],
    blocks: u64,
    shared_bytes: u32,
    order: Permutation,
    /// Blocks that a host thread takes at once.
    chunk: u64,
    /// The next position in the order that nobody has taken.
    next: AtomicU64,
    /// Host threads that run blocks.
    working: AtomicU32,
    /// How many of them run a block that has exceeded the spin limit.
    stuck: AtomicU32,
    /// The lowest position whose block has failed; `u64::MAX` while none has.
    failed_at: AtomicU64,
    /// The fault of that block.
    fault: Mutex<Option<(u64, Fault)>>,
}

// SAFETY: the arguments behind `args` are only read while the launch runs, and `run`'s caller promises that the
// kernel may run with them; everything else is `Sync`.
unsafe impl Sync for Grid {}

impl Grid {
    fn new(launch: &Launch<'_>) -> Result<Self, String> {
        let Settings { stack_bytes, spin_limit } = settings()?;
        let threads = check(launch)?;
        let blocks = launch.grid.iter().map(|&n| u64::from(n)).try_fold(1, u64::checked_mul);
        let blocks = blocks.ok_or_else(|| format!("the grid {:?} has too many blocks", launch.grid))?;
        let seed = match launch.order {
            Order::Sequential => None,
            Order::Seeded(seed) => Some(seed),
        };
        let cores = rayon::current_num_threads() as u64;
        Ok(Self {
            kernel: launch.kernel,
            args: launch.args.as_ptr(),
            block: launch.block,
            threads,
            seed,
            spin_limit,
            stack_bytes,
            size: launch.grid,
            blocks,
            shared_bytes: launch.shared_bytes,
            order: seed
                .map_or_else(|| Permutation::identity(blocks), |seed| Permutation::seeded(blocks, seed)),
            chunk: (blocks / (cores * 8)).clamp(1, MAX_CHUNK),
            next: AtomicU64::new(0),
            working: AtomicU32::new(0),
            stuck: AtomicU32::new(0),
            failed_at: AtomicU64::new(u64::MAX),
            fault: Mutex::new(None),
        })
    }

    /// How many threads of the pool should help the calling one.
    fn helpers(&self) -> u64 {
        if self.seed.is_some() || self.blocks.saturating_mul(self.threads.into()) <= SMALL_LAUNCH {
            return 0;
        }
        let wanted = (self.blocks - 1).min(u64::from(stacks_left() / self.threads));
        wanted.min(rayon::current_num_threads() as u64 - 1)
    }

    /// Runs blocks until none is left.
    fn work(&self) {
        let registers = registers();
        registers.block_dim.set(self.block);
        registers.grid_dim.set(self.size);
        registers.shared_bytes.set(self.shared_bytes);
        let block = Block::new(self);
        let mut runners = RUNNERS.try_with(Cell::take).unwrap_or_default();
        self.working.fetch_add(1, Ordering::Relaxed);
        self.run_blocks(&block, &mut runners, registers);
        self.working.fetch_sub(1, Ordering::Relaxed);
        block.progress();
        runners.trim();
        // A host thread that is ending has no place for them: they are dropped.
        let _ = RUNNERS.try_with(|kept| kept.set(runners));
    }

    fn run_blocks(&self, block: &Block<'_>, runners: &mut Runners, registers: &Registers) {
        registers.block.set(std::ptr::from_ref(block).cast());
        loop {
            let first = self.next.fetch_add(self.chunk, Ordering::Relaxed);
            if first >= self.blocks {
                return;
            }
            for position in first..self.blocks.min(first + self.chunk) {
                if self.is_over(position) {
                    return;
                }
                let linear = self.order.at(position);
                let [width, height, _] = self.size.map(u64::from);
                let index = [linear % width, linear / width % height, linear / (width * height)];
                let index = index.map(|i| i as u32);
                registers.block_index.set(index);
                block.begin(index, linear);
                let result = run_block(block, runners, registers, position);
                block.output.flush();
                if let Err(fault) = result {
                    self.fail(position, fault);
                }
            }
        }
    }

    fn fail(&self, position: u64, fault: Fault) {
        let mut first = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(at, _)| position < *at) {
            *first = Some((position, fault));
            self.failed_at.store(position, Ordering::Relaxed);
        }
    }

    fn result(self) -> Result<(), Fault> {
        match self.fault.into_inner().unwrap_or_else(PoisonError::into_inner) {
            Some((_, fault)) => Err(fault),
            None => Ok(()),
        }
    }

    /// Whether a block before `position` has failed.
    pub fn is_over(&self, position: u64) -> bool {
        self.failed_at.load(Ordering::Relaxed) < position
    }

    /// Whether any block has failed.
    pub fn has_failed(&self) -> bool {
        self.failed_at.load(Ordering::Relaxed) != u64::MAX
    }

    /// Counts a block that has exceeded the spin limit in, and out when it got on after all.
    pub fn enter_stuck(&self) {
        self.stuck.fetch_add(1, Ordering::Relaxed);
    }

    pub fn leave_stuck(&self) {
        self.stuck.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether every block that runs has exceeded the spin limit.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed) >= self.working.load(Ordering::Relaxed)
    }
}

thread_local! {
    /// The runners of this host thread between launches.
    static RUNNERS: Cell<Runners> = Cell::new(Runners::default());
}

/// Checks what does not depend on a device; returns the threads of a block.
fn check(launch: &Launch<'_>) -> Result<u32, String> {
    if registers().in_kernel() {
        return Err("kernels cannot launch kernels here".to_owned());
    }
    if std::thread::panicking() {
        return Err("the calling thread is unwinding from a panic".to_owned());
    }
    let [x, y, z] = launch.block;
    if launch.grid.contains(&0) || launch.block.contains(&0) {
        return Err(format!(
            "grid {:?} of blocks {:?}: every dimension has to be at least 1",
            launch.grid, launch.block
        ));
    }
    let threads = u128::from(x) * u128::from(y) * u128::from(z);
    if threads > MAX_BLOCK_THREADS.into() {
        return Err(format!("a block of {x} x {y} x {z} threads: at most {MAX_BLOCK_THREADS} in all"));
    }
    let threads = threads as u32;
    if let Some(bounds) = launch.kernel.launch_bounds
        && bounds.max_threads != 0
        && threads > bounds.max_threads
    {
        return Err(format!(
            "a block of {threads} threads: its launch bounds allow {} at most",
            bounds.max_threads
        ));
    }
    let params: usize = launch.kernel.params.iter().map(|param| param.kind.machine_params()).sum();
    if launch.args.len() != params {
        return Err(format!("{} machine arguments for {params} machine parameters", launch.args.len()));
    }
    Ok(threads)
}
