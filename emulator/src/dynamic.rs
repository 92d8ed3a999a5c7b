//! Kernels that are launched by kernels (dynamic parallelism).
//!
//! A running grid collects the launches of its threads. When the grid has finished, its children run one after another,
//! each followed by its own children. Children run in the order of their launching block and thread, so that runs are
//! reproducible; with a seed, their order is shuffled. Tail launches run last, in launch order.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::panic::Location;
use std::sync::{Mutex, PoisonError};

use gpu_spec::{KernelSpec, PtxParam};

use crate::fault::Fault;
use crate::launch::{Launch, MAX_BLOCK_THREADS, run_grid};
use crate::order::Order;
use crate::order::Permutation;
use crate::registers::running;

/// Maximum number of pending launches.
pub const MAX_PENDING: u32 = 2048;

/// Maximum nesting depth of launches; a launch by the host has depth 0.
pub const MAX_DEPTH: u32 = 24;

/// Maximum size of a child's dynamic shared memory, in bytes.
const MAX_SHARED_BYTES: u32 = 48 * 1024;

/// Reason why a launch from a kernel failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// [`MAX_PENDING`] launches are already pending.
    TooManyPending,
    /// The depth of the child would exceed [`MAX_DEPTH`].
    TooDeep,
    /// Invalid grid, block or shared memory size, or a cooperative kernel.
    InvalidConfiguration,
}

/// Records a launch by the running thread. The launch runs after the grid has finished. If `tail` is true, it runs
/// after all children of the grid that are not tail launches.
///
/// `parameters` contains the kernel parameters (PTX `.param`), one after another, each at the next multiple of its
/// alignment. The parameters are copied.
///
/// # Errors
/// Returns [`Refused`] if a limit is exceeded or the configuration is invalid.
///
/// # Panics
/// Panics outside of a kernel, or if the size of the parameters does not match the kernel.
///
/// # Safety
/// The requirements of [`run`](crate::run) must be met when the child runs.
#[track_caller]
pub unsafe fn launch(
    kernel: &'static KernelSpec,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    parameters: &[MaybeUninit<u8>],
    tail: bool,
) -> Result<(), Refused> {
    let registers = running("launch");
    registers.set().check_time("a launch of a kernel", Location::caller());
    let children = &registers.set().grid.children;
    if children.depth >= MAX_DEPTH {
        return Err(Refused::TooDeep);
    }
    if !is_possible(kernel, grid, block, shared_bytes) {
        return Err(Refused::InvalidConfiguration);
    }
    let bytes = layout(kernel).last().map_or(0, |(offset, size)| offset + size);
    let [x, y, z] = registers.block_index.get().map(u64::from);
    let [width, height, _] = registers.grid_dim.get().map(u64::from);
    let child = Child {
        kernel,
        grid,
        block,
        shared_bytes,
        parameters: parameters[..bytes].to_vec(),
        launched_by: (x + width * (y + height * z), registers.linear.get()),
        tail,
    };
    children.add(child)
}

fn is_possible(kernel: &KernelSpec, grid: [u32; 3], block: [u32; 3], shared_bytes: u32) -> bool {
    let most = kernel.launch_bounds.map_or(MAX_BLOCK_THREADS, |bounds| bounds.max_threads);
    !grid.contains(&0)
        && !block.contains(&0)
        && block.iter().all(|&n| n <= MAX_BLOCK_THREADS)
        && block.iter().product::<u32>() <= most.min(MAX_BLOCK_THREADS)
        && grid[0] <= i32::MAX as u32
        && grid[1..].iter().all(|&n| n <= u16::MAX.into())
        && shared_bytes <= MAX_SHARED_BYTES
        && kernel.block.is_none_or(|required| required == block)
        && kernel.cluster.is_none_or(|cluster| cluster == [1; 3])
        && kernel.claims.allow(grid, block)
        && !kernel.cooperative
}

/// Returns the offset and size of each kernel parameter.
fn layout(kernel: &KernelSpec) -> Vec<(usize, usize)> {
    let mut end = 0;
    let mut places = Vec::new();
    for param in kernel.params {
        for PtxParam { size, align } in param.lower() {
            let offset = usize::next_multiple_of(end, align);
            places.push((offset, size));
            end = offset + size;
        }
    }
    places
}

/// Launches made by the threads of a grid.
#[derive(Default)]
pub(crate) struct Children {
    /// Depth of the grid.
    depth: u32,
    /// Number of pending launches of other grids.
    pending: u32,
    launched: Mutex<Vec<Child>>,
}

impl Children {
    fn add(&self, child: Child) -> Result<(), Refused> {
        let mut launched = self.launched.lock().unwrap_or_else(PoisonError::into_inner);
        if self.pending as usize + launched.len() >= MAX_PENDING as usize {
            return Err(Refused::TooManyPending);
        }
        launched.push(child);
        Ok(())
    }
}

struct Child {
    kernel: &'static KernelSpec,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    parameters: Vec<MaybeUninit<u8>>,
    /// Block and thread that launched the child.
    launched_by: (u64, u32),
    tail: bool,
}

/// Runs a kernel and all kernels that it launches.
///
/// # Safety
/// The caller must uphold the safety contract of [`run`](crate::run).
pub(crate) unsafe fn run_all(launch: &Launch<'_>) -> Result<(), Fault> {
    // SAFETY: guaranteed by the caller.
    unsafe { run_tree(launch, 0, &mut 0) }
}

/// Runs a grid and its children. `pending` counts pending launches of other grids.
///
/// # Safety
/// The caller must uphold the safety contract of [`run`](crate::run).
unsafe fn run_tree(launch: &Launch<'_>, depth: u32, pending: &mut u32) -> Result<(), Fault> {
    let children = Children { depth, pending: *pending, launched: Mutex::default() };
    // SAFETY: guaranteed by the caller.
    let children = unsafe { run_grid(launch, children) }?;
    let mut launched = children.launched.into_inner().unwrap_or_else(PoisonError::into_inner);
    if launched.is_empty() {
        return Ok(());
    }
    // The launches of each thread are already in order.
    launched.sort_by_key(|child| child.launched_by);
    *pending += launched.len() as u32;
    let (tail, now): (Vec<_>, Vec<_>) = launched.into_iter().partition(|child| child.tail);
    let order = match launch.order {
        Order::Sequential => Permutation::identity(now.len() as u64),
        Order::Seeded(seed) | Order::Varied(seed) => {
            Permutation::seeded(now.len().max(1) as u64, seed ^ u64::from(depth))
        }
    };
    let now = (0..now.len() as u64).map(|position| &now[order.at(position) as usize]);
    for child in now.chain(&tail) {
        *pending -= 1;
        let places = layout(child.kernel);
        let args: Vec<*const c_void> =
            places.iter().map(|(offset, _)| child.parameters[*offset..].as_ptr().cast()).collect();
        let launch = Launch {
            kernel: child.kernel,
            grid: child.grid,
            block: child.block,
            shared_bytes: child.shared_bytes,
            cluster: [1; 3],
            cooperative: false,
            args: &args,
            order: launch.order,
        };
        // SAFETY: the launching thread has guaranteed that the arguments match the kernel's parameters and meet its
        // safety conditions.
        unsafe { run_tree(&launch, depth + 1, pending) }?;
    }
    Ok(())
}
