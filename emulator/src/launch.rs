//! Description and validation of a launch, and distribution of its blocks over the cores.
//!
//! The unit of distribution is a set of concurrently running blocks: a single block, the blocks of a cluster, or the
//! entire grid of a cooperative launch. Small launches run on the calling thread only. For larger launches, the threads
//! of rayon's current pool help, and each thread takes sets in order from a shared counter. The calling thread always
//! takes part, so a launch makes progress even if the pool is busy. A seeded launch runs on the calling thread only, so
//! that the same seed produces the same run.
//!
//! After a fault, no set that comes after the failed set is started. Earlier sets continue, so that the reported fault
//! is always the fault of the first set that fails, regardless of timing.

use std::cell::Cell;
use std::ffi::c_void;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gpu_spec::KernelSpec;

use crate::block::Shape;
use crate::check::{Checker, Subject};
use crate::fault::{Fault, FaultKind};
use crate::order::{Order, Permutation};
use crate::panics;
use crate::registers::{Registers, registers};
use crate::runner::{MAX_STACKS, Runners, stacks_left};
use crate::scheduler::run_set;
use crate::set::BlockSet;
use crate::settings::{Settings, settings};

/// Maximum number of threads per block.
pub const MAX_BLOCK_THREADS: u32 = 1024;

/// Maximum number of threads in blocks that run concurrently, that is, in a cluster or a cooperative launch.
pub const MAX_RESIDENT_THREADS: u32 = MAX_STACKS;

/// Maximum number of blocks per cluster.
pub const MAX_CLUSTER_BLOCKS: u32 = 16;

/// Maximum number of threads in a launch that runs only on the calling core.
const SMALL_LAUNCH: u64 = 2048;
/// Maximum number of sets that a thread takes from the counter at once.
const MAX_CHUNK: u64 = 64;

/// A kernel launch.
#[derive(Debug, Clone, Copy)]
pub struct Launch<'a> {
    /// Kernel to run.
    pub kernel: &'static KernelSpec,
    /// Grid size in blocks: x, y and z.
    pub grid: [u32; 3],
    /// Block size in threads: x, y and z.
    pub block: [u32; 3],
    /// Dynamic shared memory per block in bytes.
    pub shared_bytes: u32,
    /// Cluster size in blocks: x, y and z; `[1; 3]` if the launch does not use clusters. The blocks of a cluster run
    /// concurrently.
    pub cluster: [u32; 3],
    /// True for a cooperative launch, whose blocks all run concurrently.
    pub cooperative: bool,
    /// Pointers to the values of the kernel parameters (PTX `.param`), one per parameter.
    pub args: &'a [*const c_void],
    /// Order of execution.
    pub order: Order,
}

/// Runs a kernel and all kernels that it launches. Returns when all have finished, or when a block has failed and the
/// others have stopped.
///
/// Several host threads may call this function concurrently.
///
/// # Errors
/// Returns [`FaultKind::InvalidLaunch`] if the launch is invalid, in which case no thread was run, or the fault of the
/// kernel.
///
/// # Safety
/// `args` must point to values that match the kernel parameters, as [`gpu_spec::HostEntry`] lists them. The conditions
/// for calling the kernel must hold: memory to which pointers among the arguments point must be valid until the call
/// returns, and the documented requirements of an unsafe kernel must be met.
pub unsafe fn run(launch: &Launch<'_>) -> Result<(), Fault> {
    let invalid = |message| Fault {
        kernel: launch.kernel.name,
        block: None,
        thread: None,
        kind: FaultKind::InvalidLaunch(message),
    };
    let mut grid = Grid::new(launch).map_err(invalid)?;
    panics::install();
    let Launch { kernel, grid: size, block, args, .. } = *launch;
    let checker =
        Checker::begin_launch(&Subject { kernel, grid: size, block, args, stack_bytes: grid.stack_bytes })
            .map_err(invalid)?;
    grid.is_checked = checker.is_some();
    if let Some(checker) = checker {
        return run_checked(grid, checker);
    }
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

/// Runs one grid on this host thread. The checker determines the result.
fn run_checked(grid: Grid, checker: Box<Checker>) -> Result<(), Fault> {
    let registers = registers();
    let checker = Box::into_raw(checker);
    registers.checker.set(checker);
    grid.work();
    registers.checker.set(std::ptr::null_mut());
    // SAFETY: the pointer comes from the box above, and no reference to it is left, because the grid has finished.
    let checker = unsafe { Box::from_raw(checker) };
    checker.end_launch(grid.result())
}

/// A valid launch and its state, shared by the host threads that run it.
pub(crate) struct Grid {
    pub kernel: &'static KernelSpec,
    pub args: *const *const c_void,
    /// Block size in threads: x, y and z. The next field is the total number of threads.
    pub block: [u32; 3],
    pub threads: u32,
    pub shape: Shape,
    pub seed: Option<u64>,
    /// True if the launch is checked.
    pub is_checked: bool,
    /// True if the calling thread runs all sets.
    is_alone: bool,
    pub spin_limit: u64,
    pub stack_bytes: usize,
    pub time_limit: Option<Duration>,
    /// True if the launch is cooperative.
    pub cooperative: bool,
    /// Number of blocks per cluster.
    pub cluster_blocks: u32,
    /// Number of blocks in a set. The blocks of a set run concurrently.
    pub set_blocks: u32,
    size: [u32; 3],
    /// Cluster size in blocks: x, y and z.
    cluster: [u32; 3],
    sets: u64,
    shared_bytes: u32,
    order: Permutation,
    /// Number of sets that a host thread takes at a time.
    chunk: u64,
    /// Next position in the order of sets that no thread has taken.
    next: AtomicU64,
    /// Number of host threads that run sets.
    working: AtomicU32,
    /// Number of host threads whose current set has exceeded the spin limit.
    stuck: AtomicU32,
    /// Lowest position whose set has failed; `u64::MAX` if no set has failed.
    failed_at: AtomicU64,
    /// Fault of the set at that position.
    fault: Mutex<Option<(u64, Fault)>>,
}

// SAFETY: the arguments to which `args` points are only read while the launch runs, and the caller of `run` guarantees
// that the kernel may run with them. All other fields are `Sync`.
unsafe impl Sync for Grid {}

impl Grid {
    fn new(launch: &Launch<'_>) -> Result<Self, String> {
        let Settings { stack_bytes, spin_limit, time_limit } = settings()?;
        let threads = check(launch)?;
        let blocks = launch.grid.iter().map(|&n| u64::from(n)).try_fold(1, u64::checked_mul);
        let blocks = blocks.ok_or_else(|| format!("the grid {:?} has too many blocks", launch.grid))?;
        let cluster_blocks = check_cluster(launch)?;
        let set_blocks = if launch.cooperative { blocks } else { cluster_blocks.into() };
        let set_blocks = check_resident(launch, threads, set_blocks)?;
        let sets = blocks / u64::from(set_blocks);
        let seed = match launch.order {
            Order::Sequential => None,
            Order::Seeded(seed) | Order::Varied(seed) => Some(seed),
        };
        let cores = rayon::current_num_threads() as u64;
        Ok(Self {
            kernel: launch.kernel,
            args: launch.args.as_ptr(),
            block: launch.block,
            threads,
            shape: Shape::new(launch.block),
            seed,
            is_checked: false,
            is_alone: matches!(launch.order, Order::Seeded(_)),
            spin_limit,
            stack_bytes,
            time_limit,
            cooperative: launch.cooperative,
            cluster_blocks,
            set_blocks,
            size: launch.grid,
            cluster: launch.cluster,
            sets,
            shared_bytes: launch.shared_bytes,
            order: seed.map_or_else(|| Permutation::identity(sets), |seed| Permutation::seeded(sets, seed)),
            chunk: (sets / (cores * 8)).clamp(1, MAX_CHUNK),
            next: AtomicU64::new(0),
            working: AtomicU32::new(0),
            stuck: AtomicU32::new(0),
            failed_at: AtomicU64::new(u64::MAX),
            fault: Mutex::new(None),
        })
    }

    /// Returns the number of pool threads that should help the calling thread.
    fn helpers(&self) -> u64 {
        let threads = self.threads * self.set_blocks;
        if self.is_alone || self.sets.saturating_mul(threads.into()) <= SMALL_LAUNCH {
            return 0;
        }
        let wanted = (self.sets - 1).min(u64::from(stacks_left() / threads));
        wanted.min(rayon::current_num_threads() as u64 - 1)
    }

    /// Runs sets of blocks until no set is left.
    fn work(&self) {
        let registers = registers();
        registers.block_dim.set(self.block);
        registers.grid_dim.set(self.size);
        registers.cluster_dim.set(self.cluster);
        registers.shared_bytes.set(self.shared_bytes);
        let mut runners = RUNNERS.try_with(Cell::take).ok().flatten().unwrap_or_default();
        let clock = runners.watched.clock();
        let set = BlockSet::new(self, clock);
        self.working.fetch_add(1, Ordering::Relaxed);
        self.run_sets(&set, &mut runners, registers);
        clock.end();
        self.working.fetch_sub(1, Ordering::Relaxed);
        set.progress();
        runners.trim();
        // A host thread that is exiting cannot store the runners, so they are dropped.
        let _ = RUNNERS.try_with(|kept| kept.set(Some(runners)));
    }

    fn run_sets(&self, set: &BlockSet<'_>, runners: &mut Runners, registers: &Registers) {
        registers.set.set(std::ptr::from_ref(set).cast());
        loop {
            let first = self.next.fetch_add(self.chunk, Ordering::Relaxed);
            if first >= self.sets {
                return;
            }
            for position in first..self.sets.min(first + self.chunk) {
                if self.is_over(position) {
                    return;
                }
                set.begin(self.order.at(position));
                let result = run_set(set, runners, registers, position);
                set.output.flush();
                if let Err(fault) = result {
                    self.fail(position, fault);
                }
            }
        }
    }

    /// Returns the grid index of block `number` of set `set`.
    pub fn block_index(&self, set: u64, number: u32) -> [u32; 3] {
        let (size, number) = (self.size.map(u64::from), u64::from(number));
        if self.cluster_blocks == 1 {
            return place(set * u64::from(self.set_blocks) + number, size);
        }
        let blocks = u64::from(self.cluster_blocks);
        let clusters = u64::from(self.set_blocks) / blocks;
        let shape = self.cluster.map(u64::from);
        let cluster = place(set * clusters + number / blocks, [0, 1, 2].map(|i| size[i] / shape[i]));
        let within = place(number % blocks, shape);
        [0, 1, 2].map(|i| cluster[i] * self.cluster[i] + within[i])
    }

    /// Returns the linear index of a block in the grid.
    pub fn linear_index(&self, block: [u32; 3]) -> u64 {
        let ([x, y, z], [width, height, _]) = (block.map(u64::from), self.size.map(u64::from));
        x + width * (y + height * z)
    }

    /// Returns true if all blocks of the grid run concurrently.
    pub fn is_one_set(&self) -> bool {
        self.sets == 1
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

    /// Returns true if a set at a lower position has failed.
    pub fn is_over(&self, position: u64) -> bool {
        self.failed_at.load(Ordering::Relaxed) < position
    }

    /// Returns true if any set has failed.
    pub fn has_failed(&self) -> bool {
        self.failed_at.load(Ordering::Relaxed) != u64::MAX
    }

    /// Counts a set as stuck after it has exceeded the spin limit. `leave_stuck` reverts this after the set has made
    /// progress.
    pub fn enter_stuck(&self) {
        self.stuck.fetch_add(1, Ordering::Relaxed);
    }

    pub fn leave_stuck(&self) {
        self.stuck.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns true if every running set has exceeded the spin limit.
    pub fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed) >= self.working.load(Ordering::Relaxed)
    }
}

/// Returns the coordinates of the linear index `linear` in a box of this size. The x coordinate varies fastest.
fn place(linear: u64, [width, height, _]: [u64; 3]) -> [u32; 3] {
    [linear % width, linear / width % height, linear / (width * height)].map(|i| i as u32)
}

thread_local! {
    /// Runners that this host thread keeps between launches.
    static RUNNERS: Cell<Option<Runners>> = const { Cell::new(None) };
}

/// Checks all properties that do not depend on the device, and returns the number of threads per block.
fn check(launch: &Launch<'_>) -> Result<u32, String> {
    if registers().in_kernel() {
        return Err("a kernel on the emulated device cannot launch kernels in this way".to_owned());
    }
    if std::thread::panicking() {
        return Err("the calling thread is unwinding from a panic".to_owned());
    }
    let [x, y, z] = launch.block;
    if launch.grid.contains(&0) || launch.block.contains(&0) {
        return Err(format!(
            "grid {:?} of blocks {:?}: every dimension must be at least 1",
            launch.grid, launch.block
        ));
    }
    let threads = u128::from(x) * u128::from(y) * u128::from(z);
    if threads > MAX_BLOCK_THREADS.into() {
        return Err(format!(
            "the block of {x} x {y} x {z} threads exceeds the maximum of {MAX_BLOCK_THREADS} threads"
        ));
    }
    let threads = threads as u32;
    if let Some(bounds) = launch.kernel.launch_bounds
        && bounds.max_threads != 0
        && threads > bounds.max_threads
    {
        return Err(format!(
            "the block of {threads} threads exceeds the kernel's launch bounds of {} threads",
            bounds.max_threads
        ));
    }
    if let Some(required) = launch.kernel.block
        && required != launch.block
    {
        return Err(format!(
            "the launch has blocks of {:?} threads, but the kernel requires {required:?}",
            launch.block
        ));
    }
    if let Some(required) = launch.kernel.cluster
        && required != launch.cluster
    {
        return Err(format!(
            "the launch has clusters of {:?} blocks, but the kernel requires {required:?}",
            launch.cluster
        ));
    }
    let params: usize = launch.kernel.params.iter().map(|param| param.kind.ptx_param_count()).sum();
    if launch.args.len() != params {
        return Err(format!(
            "the launch has {} kernel arguments, but the kernel has {params} parameters",
            launch.args.len()
        ));
    }
    Ok(threads)
}

/// Checks the cluster and returns its number of blocks.
fn check_cluster(launch: &Launch<'_>) -> Result<u32, String> {
    let (cluster, grid) = (launch.cluster, launch.grid);
    let blocks: u64 = cluster.iter().map(|&n| u64::from(n)).fold(1, u64::saturating_mul);
    if blocks == 0 || blocks > MAX_CLUSTER_BLOCKS.into() {
        return Err(format!("the cluster {cluster:?} must have 1 to {MAX_CLUSTER_BLOCKS} blocks"));
    }
    if cluster.iter().zip(grid).any(|(&cluster, grid)| grid % cluster != 0) {
        return Err(format!(
            "the grid {grid:?} is not a multiple of the cluster {cluster:?} in every dimension"
        ));
    }
    Ok(blocks as u32)
}

/// Checks that `blocks` blocks can run concurrently and returns their number.
fn check_resident(launch: &Launch<'_>, threads: u32, blocks: u64) -> Result<u32, String> {
    let most = MAX_RESIDENT_THREADS / threads;
    if blocks <= most.into() {
        return Ok(blocks as u32);
    }
    let what = if launch.cooperative { "a cooperative grid" } else { "a cluster" };
    Err(format!(
        "{what} of {blocks} blocks of {threads} threads exceeds the maximum of {most} concurrent blocks of this size"
    ))
}
