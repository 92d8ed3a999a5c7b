//! Kernels launched by kernels.
//!
//! A running grid collects what its threads launch; when it is done its children run, one after the other, each
//! followed by its own. The order among children is that of blocks and threads, so that a run can be repeated; a
//! seed shuffles them. Children of the tail come last, in order.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use gpu_spec::{KernelSpec, MachineParam};

use crate::fault::Fault;
use crate::launch::{Launch, MAX_BLOCK_THREADS, Order, run_grid};
use crate::order::Permutation;
use crate::registers::running;

/// Launches that can wait at once.
pub const MAX_PENDING: u32 = 2048;

/// How deep children of children can go; a launch by the host has depth 0.
pub const MAX_DEPTH: u32 = 24;

/// Most dynamic shared memory of a child, in bytes.
const MAX_SHARED_BYTES: u32 = 48 * 1024;

/// Why a kernel was not launched from a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// [`MAX_PENDING`] launches wait already.
    TooManyPending,
    /// The child would be deeper than [`MAX_DEPTH`].
    TooDeep,
    /// Grid, block or shared memory is not possible, or the kernel is a cooperative one.
    InvalidConfiguration,
}

/// Records a launch by the running thread. It runs when the grid is done; if `tail`, after all children of the grid
/// that are not.
///
/// `parameters` are the kernel's machine parameters, one after the other, each at the next multiple of its
/// alignment; they are copied.
///
/// # Errors
/// [`Refused`], by the limits.
///
/// # Panics
/// Outside a kernel; when the parameters do not have the bytes that the kernel's take.
///
/// # Safety
/// As for [`run`](crate::run), when the child runs.
pub unsafe fn launch(
    kernel: &'static KernelSpec,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    parameters: &[MaybeUninit<u8>],
    tail: bool,
) -> Result<(), Refused> {
    let registers = running("launch");
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

/// Offset and size of each machine parameter.
fn layout(kernel: &KernelSpec) -> Vec<(usize, usize)> {
    let mut end = 0;
    let mut places = Vec::new();
    for param in kernel.params {
        for MachineParam { size, align } in param.machine() {
            let offset = usize::next_multiple_of(end, align);
            places.push((offset, size));
            end = offset + size;
        }
    }
    places
}

/// The launches of a grid's threads.
#[derive(Default)]
pub(crate) struct Children {
    /// The grid's own depth.
    depth: u32,
    /// Launches of other grids that wait.
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

/// A launch that waits.
struct Child {
    kernel: &'static KernelSpec,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    parameters: Vec<MaybeUninit<u8>>,
    /// Block and thread that launched it.
    launched_by: (u64, u32),
    tail: bool,
}

/// Runs a kernel and everything that it launches.
///
/// # Safety
/// As for [`run`](crate::run).
pub(crate) unsafe fn run_all(launch: &Launch<'_>) -> Result<(), Fault> {
    // SAFETY: passed on from the caller.
    unsafe { run_tree(launch, 0, &mut 0) }
}

/// `pending` are the launches that wait, outside the grid's own.
///
/// # Safety
/// As for [`run`](crate::run).
unsafe fn run_tree(launch: &Launch<'_>, depth: u32, pending: &mut u32) -> Result<(), Fault> {
    let children = Children { depth, pending: *pending, launched: Mutex::default() };
    // SAFETY: passed on from the caller.
    let children = unsafe { run_grid(launch, children) }?;
    let mut launched = children.launched.into_inner().unwrap_or_else(PoisonError::into_inner);
    if launched.is_empty() {
        return Ok(());
    }
    // Each thread's launches are in order already.
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
        // SAFETY: the arguments are the kernel's parameters, which was the launching thread's promise, as was
        // that the kernel may run with them.
        unsafe { run_tree(&launch, depth + 1, pending) }?;
    }
    Ok(())
}
