//! Dynamic parallelism: a kernel launches kernels.
//!
//! A thread that launches continues at once; the launched kernel, its *child*, runs when there is room for it. The
//! host sees the launching kernel as done when all that it launched is done too, and everything these launched.
//! A kernel cannot wait for its child, so there are two times at which a child can start:
//!
//! | function | the child starts | for |
//! | --- | --- | --- |
//! | [`launch`] | at any time from now on, in any order with other children | work that was found on the way |
//! | [`launch_tail`] | when the launching grid and all children of [`launch`] are done; in the order of the launches | what uses their results |
//!
//! The child sees the writes of the launching thread before the launch, and those of other threads of its block
//! if a barrier lies between.
//!
//! # On the GPU
//!
//! Launches go through NVIDIA's device runtime (`libcudadevrt`), for which a driver of CUDA 12 or later is needed.
//! The builder puts the kernels that launch, and those that they launch, into a module of their own, so that the code of
//! the others does not change. That module is linked with the device runtime when its first kernel is loaded. About
//! [`MAX_PENDING`] launches can wait at once; one more fails with [`LaunchError::TOO_MANY_PENDING`] or
//! [`LaunchError::OUT_OF_RESOURCES`].
//!
//! # On the emulated device
//!
//! Children run after the grid that launched them, one after the other: in the order of blocks and threads, or in
//! one that the seed of a seeded launch decides. [`MAX_PENDING`] and [`MAX_DEPTH`] hold exactly. A fault of a child
//! is that of the launch, and names the child.
//!
//! ```
//! use gpu_std::dynamic;
//! use gpu_std::prelude::*;
//!
//! /// Adds 1 to a row.
//! ///
//! /// # Safety
//! /// `row` is valid for `len` elements that nothing else uses.
//! #[kernel]
//! pub unsafe fn refine(row: *mut f32, len: usize) {
//!     for i in thread::grid_stride(len) {
//!         // SAFETY: the index is in range, and no other thread has it.
//!         unsafe { *row.add(i.get()) += 1.0 };
//!     }
//! }
//!
//! /// Refines the rows that begin with a negative number: one thread a row.
//! ///
//! /// # Safety
//! /// `rows` is valid for `count` rows of `len` elements that nothing else uses.
//! #[kernel]
//! pub unsafe fn refine_some(rows: *mut f32, len: usize, count: usize) {
//!     for i in thread::grid_stride(count) {
//!         // SAFETY: the row is in range.
//!         let row = unsafe { rows.add(i.get() * len) };
//!         // SAFETY: only this thread reads the row before its child starts.
//!         if unsafe { *row } < 0.0 {
//!             // SAFETY: every row has one child at most, and nothing else uses it from here on.
//!             let launched = unsafe { dynamic::launch::<refine>(1, 128, 0, (row, len)) };
//!             assert!(launched.is_ok(), "too many launches wait");
//!         }
//!     }
//! }
//! ```

mod arguments;
#[cfg(target_arch = "nvptx64")]
#[path = "gpu.rs"]
mod backend;
#[cfg(not(target_arch = "nvptx64"))]
#[path = "host.rs"]
mod backend;

use core::fmt;
use core::num::NonZeroU32;

use gpu_spec::Kernel;

pub use arguments::{Argument, Arguments, MAX_PARAMETER_BYTES, Parameters};

/// Launches that can wait at once: exactly on the emulated device, about so on a GPU.
pub const MAX_PENDING: u32 = 2048;

/// How deep children of children can go: a kernel that the host launched has depth 0, its child depth 1. That is
/// exact on the emulated device, and what CUDA promises for a GPU.
pub const MAX_DEPTH: u32 = 24;

/// Sizes in x, y and z: from `n`, `(x, y)`, `(x, y, z)` or `[x, y, z]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Dim {
    /// Along x.
    pub x: u32,
    /// Along y.
    pub y: u32,
    /// Along z.
    pub z: u32,
}

impl From<u32> for Dim {
    #[inline(always)]
    fn from(x: u32) -> Self {
        Self { x, y: 1, z: 1 }
    }
}

impl From<(u32, u32)> for Dim {
    #[inline(always)]
    fn from((x, y): (u32, u32)) -> Self {
        Self { x, y, z: 1 }
    }
}

impl From<(u32, u32, u32)> for Dim {
    #[inline(always)]
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self { x, y, z }
    }
}

impl From<[u32; 3]> for Dim {
    #[inline(always)]
    fn from([x, y, z]: [u32; 3]) -> Self {
        Self { x, y, z }
    }
}

/// Why a kernel was not launched from a kernel: a number of CUDA's `cudaError`. Nothing of it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchError(NonZeroU32);

impl LaunchError {
    /// Grid, block or shared memory is 0 where it must not be, or over a limit of device or kernel
    /// (`cudaErrorInvalidConfiguration`).
    pub const INVALID_CONFIGURATION: Self = Self::numbered(9);
    /// Children of children go too deep (`cudaErrorLaunchMaxDepthExceeded`).
    pub const TOO_DEEP: Self = Self::numbered(65);
    /// Too many launches are pending: launch fewer or larger ones (`cudaErrorLaunchPendingCountExceeded`).
    pub const TOO_MANY_PENDING: Self = Self::numbered(69);
    /// A GPU has no room for the launch: too many are pending, or a block needs more registers than there are
    /// (`cudaErrorLaunchOutOfResources`).
    pub const OUT_OF_RESOURCES: Self = Self::numbered(701);

    const fn numbered(code: u32) -> Self {
        match NonZeroU32::new(code) {
            Some(code) => Self(code),
            None => panic!("0 is no error"),
        }
    }

    /// The error with this number; `None` for 0, which is success.
    #[inline(always)]
    pub const fn from_code(code: u32) -> Option<Self> {
        match NonZeroU32::new(code) {
            Some(code) => Some(Self(code)),
            None => None,
        }
    }

    /// Its number, for a kernel to leave where the host can read it; never 0.
    #[inline(always)]
    pub const fn code(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::INVALID_CONFIGURATION => {
                f.write_str("grid, block or shared memory is outside the limits of device or kernel")
            }
            Self::TOO_DEEP => f.write_str("kernels launched by kernels go too deep"),
            Self::TOO_MANY_PENDING => {
                f.write_str("too many launches by kernels are pending: launch fewer or larger ones")
            }
            Self::OUT_OF_RESOURCES => {
                f.write_str("there is no room for the launch: launch fewer, or with smaller blocks")
            }
            Self(code) => write!(f, "NVIDIA's device runtime failed with cudaError {code}"),
        }
    }
}

impl core::error::Error for LaunchError {}

/// When a child starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// At any time.
    Now,
    /// After the launching grid and its other children.
    Tail,
}

/// Launches kernel `K` as a child of the running grid: `grid` blocks of `block` threads, each block with
/// `shared_bytes` of dynamic shared memory besides that of its arrays `Shared<[T]>` (at most 48 KiB in all). Each calling thread launches its own child.
///
/// `arguments` is a tuple with one [`Argument`] for each parameter.
///
/// # Errors
///
/// [`LaunchError`]; nothing is launched then.
///
/// # Safety
///
/// - The requirements in the documentation of `K` hold, if it is an `unsafe fn`. It is not a cooperative kernel.
/// - Memory that the arguments name is device memory, not shared memory or a local variable, and is valid until
///   the child is done: for as long as the host's launch, of which it becomes a part.
/// - The child runs at the same time as the launching grid and as other children. What it writes, none of these
///   reads or writes after the launch, and what it reads they do not write; but with atomics.
/// - Nothing else uses the memory of a [`DisjointMut`](crate::DisjointMut) parameter of `K`, and the launch has a shape that
///   its mutable views allow: of up to two dimensions for a [`DisjointMut2`](crate::DisjointMut2). The emulated device
///   refuses others with [`LaunchError::INVALID_CONFIGURATION`].
#[inline(always)]
pub unsafe fn launch<K: Kernel>(
    grid: impl Into<Dim>,
    block: impl Into<Dim>,
    shared_bytes: u32,
    arguments: impl Arguments<K::Params>,
) -> Result<(), LaunchError> {
    // SAFETY: passed on from the caller.
    unsafe { enqueue::<K, _>(grid.into(), block.into(), shared_bytes, arguments, When::Now) }
}

/// As [`launch`], but the child starts when the launching grid and its other children are done, and sees what they
/// wrote. Several run one after the other, in the order in which a thread launched them; that of different threads
/// is not defined.
///
/// Such a child is one deeper too: a kernel that launches itself so again and again ends at [`MAX_DEPTH`].
///
/// # Errors
///
/// As [`launch`].
///
/// # Safety
///
/// As [`launch`], except that the child does not run at the same time as the launching grid and what it launched.
#[inline(always)]
pub unsafe fn launch_tail<K: Kernel>(
    grid: impl Into<Dim>,
    block: impl Into<Dim>,
    shared_bytes: u32,
    arguments: impl Arguments<K::Params>,
) -> Result<(), LaunchError> {
    // SAFETY: passed on from the caller.
    unsafe { enqueue::<K, _>(grid.into(), block.into(), shared_bytes, arguments, When::Tail) }
}

/// # Safety
///
/// As [`launch`] or [`launch_tail`].
#[inline(always)]
unsafe fn enqueue<K: Kernel, A: Arguments<K::Params>>(
    grid: Dim,
    block: Dim,
    shared_bytes: u32,
    arguments: A,
    when: When,
) -> Result<(), LaunchError> {
    const { assert!(A::BYTES <= MAX_PARAMETER_BYTES, "the arguments take more than 4096 bytes") };
    if !is_countable(grid, block) {
        return Err(LaunchError::INVALID_CONFIGURATION);
    }
    let shared_bytes = shared_bytes.saturating_add(arguments.shared_bytes());
    // SAFETY: passed on from the caller; the arguments are those of `K`, and fit.
    unsafe { backend::enqueue::<K, A>(grid, block, shared_bytes, arguments, when) }
}

/// Whether the child can count its threads: with 2^63 of them or more, indices would wrap and belong to several threads.
#[inline(always)]
fn is_countable(grid: Dim, block: Dim) -> bool {
    let rest = [grid.z, block.x, block.y, block.z];
    let plane = u64::from(grid.x) * u64::from(grid.y);
    let threads = rest.into_iter().try_fold(plane, |product, size| product.checked_mul(u64::from(size)));
    threads.is_some_and(|threads| threads <= isize::MAX as u64)
}
