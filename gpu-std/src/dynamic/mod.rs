//! Dynamic parallelism: kernels that launch kernels.
//!
//! The launching thread continues immediately. The launched kernel, called the *child*, runs when resources are
//! available. For the host, the launching kernel is complete only when all of its children and their descendants are
//! complete. A kernel cannot wait for its child. The launch function determines when the child starts:
//!
//! | function | the child starts | use |
//! | --- | --- | --- |
//! | [`launch`] | at any time after the call, in any order relative to other children | work discovered during the kernel |
//! | [`launch_tail`] | after the launching grid and all children started with [`launch`] are complete, in launch order | work that uses their results |
//!
//! The child sees the writes that the launching thread performed before the launch. The child also sees writes of other
//! threads of the block if a barrier precedes the launch.
//!
//! # On the GPU
//!
//! Launches use NVIDIA's device runtime (`libcudadevrt`), which requires a driver for CUDA 12 or later. The builder
//! places kernels that launch, and their children, in a separate module, so that the code of other kernels does not
//! change. This module is linked with the device runtime when its first kernel is loaded. About [`MAX_PENDING`]
//! launches can be pending at a time. Further launches fail with [`LaunchError::TOO_MANY_PENDING`] or
//! [`LaunchError::OUT_OF_RESOURCES`].
//!
//! # On the emulated device
//!
//! Children run sequentially after the grid that launched them, in the order of the launching blocks and threads, or in
//! an order that the seed of a seeded launch determines. The limits [`MAX_PENDING`] and [`MAX_DEPTH`] are exact. A
//! fault in a child is reported as a fault of the host's launch, and the report names the child.
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

/// Maximum number of pending launches. The limit is exact on the emulated device and approximate on a GPU.
pub const MAX_PENDING: u32 = 2048;

/// Maximum nesting depth of children. A kernel launched by the host has depth 0, and its child has depth 1. The limit
/// is exact on the emulated device. On a GPU, it is the depth that CUDA guarantees.
pub const MAX_DEPTH: u32 = 24;

/// Sizes along x, y and z, converted from `n`, `(x, y)`, `(x, y, z)` or `[x, y, z]`.
///
/// ```
/// use gpu_std::dynamic::Dim;
///
/// assert_eq!(Dim::from((4, 2)), Dim { x: 4, y: 2, z: 1 });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Dim {
    /// Size along x.
    pub x: u32,
    /// Size along y.
    pub y: u32,
    /// Size along z.
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

/// Reason why a launch from a kernel failed: a CUDA `cudaError` code. No part of the child runs in this case.
///
/// ```
/// use gpu_std::dynamic::LaunchError;
///
/// // A kernel stores `error.code()`; the host reads it.
/// assert_eq!(LaunchError::from_code(65), Some(LaunchError::TOO_DEEP));
/// assert_eq!(LaunchError::from_code(0), None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchError(NonZeroU32);

impl LaunchError {
    /// The grid or block size is 0, or the grid, block or shared memory exceeds a limit of the device or kernel
    /// (`cudaErrorInvalidConfiguration`).
    pub const INVALID_CONFIGURATION: Self = Self::numbered(9);
    /// The nesting depth of children exceeds the limit (`cudaErrorLaunchMaxDepthExceeded`).
    pub const TOO_DEEP: Self = Self::numbered(65);
    /// Too many launches are pending (`cudaErrorLaunchPendingCountExceeded`). Launch fewer or larger children.
    pub const TOO_MANY_PENDING: Self = Self::numbered(69);
    /// The GPU lacks resources for the launch: too many launches are pending, or a block needs more registers than are
    /// available (`cudaErrorLaunchOutOfResources`).
    pub const OUT_OF_RESOURCES: Self = Self::numbered(701);

    const fn numbered(code: u32) -> Self {
        match NonZeroU32::new(code) {
            Some(code) => Self(code),
            None => panic!("0 is not an error"),
        }
    }

    /// Returns the error with this code, or `None` if the code is 0, which means success.
    #[inline(always)]
    pub const fn from_code(code: u32) -> Option<Self> {
        match NonZeroU32::new(code) {
            Some(code) => Some(Self(code)),
            None => None,
        }
    }

    /// Returns the code, which is never 0. A kernel can store the code where the host can read it.
    #[inline(always)]
    pub const fn code(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for LaunchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::INVALID_CONFIGURATION => f.write_str(
                "the grid, block or shared memory size exceeds a limit of the device or the kernel",
            ),
            Self::TOO_DEEP => f.write_str("dynamic launches are nested too deeply"),
            Self::TOO_MANY_PENDING => {
                f.write_str("too many dynamic launches are pending: launch fewer or larger kernels")
            }
            Self::OUT_OF_RESOURCES => f.write_str(
                "the device has no resources for the launch: launch fewer kernels, or use smaller blocks",
            ),
            Self(code) => write!(f, "NVIDIA's device runtime failed with cudaError {code}"),
        }
    }
}

impl core::error::Error for LaunchError {}

/// Start time of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum When {
    /// The child starts at any time.
    Now,
    /// The child starts after the launching grid and its other children.
    Tail,
}

/// Launches kernel `K` as a child of the running grid, with `grid` blocks of `block` threads each. Each block receives
/// `shared_bytes` of dynamic shared memory, in addition to the memory for its `Shared<[T]>` arrays (at most 48 KiB in
/// total). Each calling thread launches its own child.
///
/// `arguments` is a tuple with one [`Argument`] for each parameter of `K`.
///
/// See the [example](self).
///
/// # Errors
///
/// Returns a [`LaunchError`] if the launch fails, in which case no part of the child runs.
///
/// # Safety
///
/// - If `K` is an `unsafe fn`, its documented safety requirements must hold. `K` must not be a cooperative kernel.
/// - Memory passed in the arguments must be device memory, not shared memory or local variables. It must stay valid
///   until the child is complete, which is before the host's launch completes.
/// - The child may run at the same time as the launching grid and other children. After the launch, neither the grid
///   nor the other children may read or write memory that the child writes, or write memory that it reads, except with
///   atomics.
/// - Nothing else may access the memory of a [`DisjointMut`](crate::DisjointMut) parameter of `K`. The launch must have
///   a shape that the mutable views of `K` allow: for example, at most two dimensions for a
///   [`DisjointMut2`](crate::DisjointMut2). The emulated device rejects other shapes with
///   [`LaunchError::INVALID_CONFIGURATION`].
#[inline(always)]
pub unsafe fn launch<K: Kernel>(
    grid: impl Into<Dim>,
    block: impl Into<Dim>,
    shared_bytes: u32,
    arguments: impl Arguments<K::Params>,
) -> Result<(), LaunchError> {
    // SAFETY: guaranteed by the caller.
    unsafe { enqueue::<K, _>(grid.into(), block.into(), shared_bytes, arguments, When::Now) }
}

/// Launches a child like [`launch`], but starts it after the launching grid and its other children are complete. The
/// child sees all writes of that grid and those children. Several tail launches of one thread run one after another, in
/// launch order. The order of tail launches from different threads is unspecified.
///
/// A tail launch also counts as a nesting level, so a kernel that repeatedly tail-launches itself reaches
/// [`MAX_DEPTH`].
///
/// ```
/// use gpu_std::dynamic;
/// use gpu_std::prelude::*;
/// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
///
/// /// # Safety
/// /// `x` must point to `n` numbers that nothing else uses during the launch.
/// #[kernel]
/// unsafe fn double(x: *mut u32, n: usize) {
///     for i in thread::grid_stride(n) {
///         // SAFETY: the index is in range, and no other thread has it.
///         unsafe { *x.add(i.get()) *= 2 };
///     }
/// }
///
/// /// Adds 1 to each number, and doubles all of them after that.
/// ///
/// /// # Safety
/// /// As for [`double`].
/// #[kernel]
/// unsafe fn add_and_double(x: *mut u32, n: usize) {
///     for i in thread::grid_stride(n) {
///         // SAFETY: as above.
///         unsafe { *x.add(i.get()) += 1 };
///     }
///     if grid::rank() == 0 {
///         // SAFETY: the child starts when no thread of this grid uses the numbers any more.
///         let launched = unsafe { dynamic::launch_tail::<double>(1, 32, 0, (x, n)) };
///         assert!(launched.is_ok());
///     }
/// }
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # let stream = Device::emulated(0)?.default_stream();
/// # let module = stream.device().load(&IMAGE)?;
/// let mut x = DeviceBuffer::from_host(&stream, &[1_u32, 2, 3])?;
/// // SAFETY: the buffer has 3 numbers.
/// unsafe { module.kernel::<add_and_double>()?.launch_unsafe(&stream, Launch::auto(3), (&mut x, 3_usize))? };
/// assert_eq!(x.to_host()?, [4, 6, 8]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Errors
///
/// Returns the same errors as [`launch`].
///
/// # Safety
///
/// The caller must uphold the safety contract of [`launch`], except that the child never runs at the same time as the
/// launching grid and its other children.
#[inline(always)]
pub unsafe fn launch_tail<K: Kernel>(
    grid: impl Into<Dim>,
    block: impl Into<Dim>,
    shared_bytes: u32,
    arguments: impl Arguments<K::Params>,
) -> Result<(), LaunchError> {
    // SAFETY: guaranteed by the caller.
    unsafe { enqueue::<K, _>(grid.into(), block.into(), shared_bytes, arguments, When::Tail) }
}

/// # Safety
///
/// The caller must uphold the safety contract of [`launch`] or [`launch_tail`].
#[inline(always)]
unsafe fn enqueue<K: Kernel, A: Arguments<K::Params>>(
    grid: Dim,
    block: Dim,
    shared_bytes: u32,
    arguments: A,
    when: When,
) -> Result<(), LaunchError> {
    const { assert!(A::BYTES <= MAX_PARAMETER_BYTES, "the arguments have more than 4096 bytes") };
    if !is_countable(grid, block) {
        return Err(LaunchError::INVALID_CONFIGURATION);
    }
    let shared_bytes = shared_bytes.saturating_add(arguments.shared_bytes());
    // SAFETY: guaranteed by the caller; the arguments match the parameters of `K`, and take at most
    // `MAX_PARAMETER_BYTES`.
    unsafe { backend::enqueue::<K, A>(grid, block, shared_bytes, arguments, when) }
}

/// Returns whether the child has few enough threads that each of them has a unique index. With 2^63 threads or more,
/// indices would wrap, so an index would belong to several threads.
#[inline(always)]
fn is_countable(grid: Dim, block: Dim) -> bool {
    let rest = [grid.z, block.x, block.y, block.z];
    let plane = u64::from(grid.x) * u64::from(grid.y);
    let threads = rest.into_iter().try_fold(plane, |product, size| product.checked_mul(u64::from(size)));
    threads.is_some_and(|threads| threads <= isize::MAX as u64)
}
