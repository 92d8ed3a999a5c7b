//! [`LaunchError`]: errors of launches, and the recent launches that may have caused a fault.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use super::DeviceId;
use super::Error;
use gpu_spec::WrongLength;

use crate::driver::LaunchConfig;

/// A launch that violates a limit of the device or a requirement of the kernel. Nothing was launched.
///
/// ```
/// use gpu_std::prelude::*;
/// use warpsmith_runtime::{Device, Error, GpuImage, Launch, LaunchError};
///
/// #[kernel(launch_bounds(128))]
/// fn nothing() {}
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # fn main() -> Result<(), Error> {
/// let device = Device::emulated(0)?;
/// let kernel = device.load(&IMAGE)?.kernel::<nothing>()?;
/// let error = kernel.launch(&device.default_stream(), Launch::linear(1000, 256), ()).unwrap_err();
/// assert!(matches!(error, Error::Launch(LaunchError::BlockTooLarge { threads: 256, limit: 128, .. })));
/// assert_eq!(
///     error.to_string(),
///     "kernel `nothing`: a block of 256 threads exceeds the limit of 128 (the kernel's launch bounds)",
/// );
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// A block has too many threads.
    #[error("kernel `{kernel}`: a block of {threads} threads exceeds the limit of {limit} ({by})")]
    BlockTooLarge {
        /// The instance's symbol.
        kernel: String,
        /// Number of threads in the requested block.
        threads: u64,
        /// Maximum number of threads.
        limit: u32,
        /// The origin of the limit.
        by: BlockLimit,
    },

    /// A block exceeds the device's limit in one dimension.
    #[error("kernel `{kernel}`: block {block:?} exceeds the device's maximum, {limit:?}")]
    BlockShape {
        /// The instance's symbol.
        kernel: String,
        /// The requested block.
        block: [u32; 3],
        /// The largest block in x, y and z.
        limit: [u32; 3],
    },

    /// Slice or view lengths that violate the kernel's requirements.
    #[error("kernel `{kernel}`: {wrong}")]
    WrongLengths {
        /// The instance's symbol.
        kernel: String,
        /// The violated requirement.
        wrong: Box<WrongLength>,
    },

    /// A block that differs from the block that the kernel requires.
    #[error(
        "kernel `{kernel}` requires blocks of {} threads, but the launch {}; let the kernel determine the block, as \
         `Launch::cover((width, height))` does",
        sides(required),
        found.as_ref().map_or("specifies only a number of threads".to_owned(), |block| format!("has blocks of {}", sides(block)))
    )]
    RequiredBlock {
        /// The instance's symbol.
        kernel: String,
        /// The kernel's block, as declared by `#[kernel(block(…))]`.
        required: [u32; 3],
        /// The requested block; `None` for a launch that specifies only a number of threads.
        found: Option<[u32; 3]>,
    },

    /// A cluster that differs from the cluster that the kernel requires.
    #[error(
        "kernel `{kernel}` requires clusters of {} blocks, but the launch has {}; omit `cluster`, or use the \
         kernel's",
        sides(required),
        sides(found)
    )]
    RequiredCluster {
        /// The instance's symbol.
        kernel: String,
        /// The kernel's cluster, as declared by `#[kernel(cluster(…))]`.
        required: [u32; 3],
        /// The requested cluster.
        found: [u32; 3],
    },

    /// A launch that has more dimensions than the kernel's mutable views.
    #[error(
        "kernel `{kernel}`: grid {} of blocks {} has more dimensions than the view `{view}`, which assigns {}",
        sides(grid), sides(block),
        if *dimensions == 1 {
            "elements to each thread by its linear index; launch it in one dimension, or use `DisjointMut2<T>` for rows and \
             columns"
        } else {
            "each thread the element at its x and y; launch it in two dimensions, or use `DisjointMut3<T>`"
        }
    )]
    TooManyDimensions {
        /// The instance's symbol.
        kernel: String,
        /// The requested grid.
        grid: [u32; 3],
        /// The requested block.
        block: [u32; 3],
        /// The view, as written in the source.
        view: String,
        /// Maximum number of dimensions that the launch may have.
        dimensions: usize,
    },

    /// A launch with more than 2^32 threads along one dimension of a view with two or three dimensions.
    #[error(
        "kernel `{kernel}`: grid {} of blocks {} has more than 2^32 threads in one dimension; launch fewer threads \
         and let them loop",
        sides(grid),
        sides(block)
    )]
    SideTooLong {
        /// The instance's symbol.
        kernel: String,
        /// The requested grid.
        grid: [u32; 3],
        /// The requested block.
        block: [u32; 3],
    },

    /// An extent to cover with a dimension that is too large.
    #[error(
        "kernel `{kernel}`: a dimension to cover has 2^32 - 1 or more elements; cover a part, or use `Launch::linear`"
    )]
    ExtentTooLarge {
        /// The instance's symbol.
        kernel: String,
    },

    /// A block or a grid with a zero dimension.
    #[error("kernel `{kernel}`: {what} {dimensions:?} has a zero; every dimension must be at least 1")]
    EmptyLaunch {
        /// The instance's symbol.
        kernel: String,
        /// `"grid"` or `"block"`.
        what: &'static str,
        /// The requested value.
        dimensions: [u32; 3],
    },

    /// A grid that exceeds the device's limit in one dimension.
    #[error("kernel `{kernel}`: grid {grid:?} exceeds the device's maximum, {limit:?}")]
    GridTooLarge {
        /// The instance's symbol.
        kernel: String,
        /// The requested grid.
        grid: [u64; 3],
        /// The largest grid in x, y and z.
        limit: [u32; 3],
    },

    /// A launch that requests more shared memory than the device supports per block.
    #[error(
        "kernel `{kernel}`: {dynamic_bytes} bytes of dynamic and {static_bytes} bytes of static shared memory per \
         block exceed the device's limit of {limit} bytes; pass a smaller `SharedLen` or `Launch::shared`"
    )]
    SharedMemoryTooLarge {
        /// The instance's symbol.
        kernel: String,
        /// Requested dynamic shared memory, in bytes.
        dynamic_bytes: u32,
        /// The kernel's static shared memory, in bytes.
        static_bytes: u32,
        /// Maximum shared memory per block, in bytes.
        limit: u32,
    },

    /// A raw launch with too many or too few arguments.
    #[error(
        "kernel `{kernel}` takes {expected} kernel parameters, but the launch passes {got}; pass one argument per \
         parameter"
    )]
    ArgumentCount {
        /// The instance's symbol.
        kernel: String,
        /// Number of parameters; a slice or view counts as two.
        expected: usize,
        /// The number of arguments passed.
        got: usize,
    },

    /// A cluster launch on a device that does not support clusters.
    #[error(
        "kernel `{kernel}`: {device} has compute capability {}.{}, but clusters require 9.0; launch without \
         `cluster`",
        capability.0, capability.1
    )]
    NoClusters {
        /// The instance's symbol.
        kernel: String,
        /// The device.
        device: DeviceId,
        /// Compute capability of the device.
        capability: (u32, u32),
    },

    /// A cluster that does not fit on the device.
    #[error(
        "kernel `{kernel}`: the cluster {cluster:?} has {} blocks, but at most {limit} fit with this block size and \
         shared memory; use a smaller cluster, smaller blocks or less shared memory",
        cluster.iter().map(|size| u64::from(*size)).fold(1, u64::saturating_mul)
    )]
    ClusterTooLarge {
        /// The instance's symbol.
        kernel: String,
        /// The requested cluster.
        cluster: [u32; 3],
        /// Number of blocks in the largest possible cluster.
        limit: u32,
    },

    /// A grid that is not a multiple of the cluster.
    #[error(
        "kernel `{kernel}`: grid {grid:?} is not a multiple of the cluster {cluster:?}; round every dimension of the grid up to a multiple"
    )]
    ClusterGrid {
        /// The instance's symbol.
        kernel: String,
        /// The requested grid.
        grid: [u32; 3],
        /// The requested cluster.
        cluster: [u32; 3],
    },

    /// A launch with more threads than a kernel can index.
    #[error(
        "kernel `{kernel}`: grid {grid:?} of blocks {block:?} has 2^63 threads or more; launch fewer threads and let them loop"
    )]
    TooManyThreads {
        /// The instance's symbol.
        kernel: String,
        /// The requested grid.
        grid: [u32; 3],
        /// The requested block.
        block: [u32; 3],
    },

    /// A cooperative launch on a device that does not support it.
    #[error(
        "kernel `{kernel}`: {device} does not support cooperative launches; use a kernel whose blocks do not wait \
         for each other"
    )]
    NoCooperativeLaunch {
        /// The instance's symbol.
        kernel: String,
        /// The device.
        device: DeviceId,
    },

    /// A cooperative grid whose blocks cannot all be resident concurrently.
    #[error(
        "kernel `{kernel}`: a cooperative grid of {blocks} blocks exceeds the maximum of {limit} blocks that can be resident \
         with this block size and shared memory; launch at most {limit} and let them loop (`waves(1)` does that)"
    )]
    CooperativeGridTooLarge {
        /// The instance's symbol.
        kernel: String,
        /// Number of blocks in the requested grid.
        blocks: u64,
        /// Maximum number of blocks that can be resident concurrently.
        limit: u64,
    },

    /// Unchecked arguments that exceed the size limit of a launch.
    #[error(
        "kernel `{kernel}`: {bytes} bytes of arguments exceed the limit of {limit}; pass a pointer to a buffer that contains them"
    )]
    ArgumentBytes {
        /// The instance's symbol.
        kernel: String,
        /// Total size of the arguments, in bytes.
        bytes: usize,
        /// Maximum size, in bytes.
        limit: usize,
    },

    /// An unchecked argument whose size differs from the size of its parameter.
    #[error(
        "kernel `{kernel}`: argument {argument} has {got} bytes, but the parameter has {expected}; pass a value of \
         the parameter's type"
    )]
    ArgumentSize {
        /// The instance's symbol.
        kernel: String,
        /// Index of the argument, starting at 1.
        argument: usize,
        /// Size of the parameter, in bytes.
        expected: usize,
        /// Size of the argument, in bytes.
        got: usize,
    },

    /// A programmatic dependent launch of a kernel that never waits for the preceding kernel.
    #[error(
        "kernel `{kernel}` is not declared as dependent, so it would start early without waiting for the preceding kernel; \
         launch it without `dependent`, or declare it as dependent and let it wait"
    )]
    NotDependent {
        /// The instance's symbol.
        kernel: String,
    },
}

/// Formats a block or grid, for example `16 x 8` for `[16, 8, 1]`.
fn sides([x, y, z]: &[u32; 3]) -> String {
    match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x} x {y}"),
        _ => format!("{x} x {y} x {z}"),
    }
}

/// A launch that may have been running when a device was lost.
///
/// See the example of [`RecentLaunches`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecentLaunch {
    /// The instance's symbol.
    pub kernel: &'static str,
    /// Complete launch configuration: grid, block and the other settings.
    pub config: LaunchConfig,
    /// ID of the stream ([`Stream::id`](crate::Stream::id)).
    pub stream: u64,
}

impl fmt::Display for RecentLaunch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "on stream {}, {}", self.stream, self.config)
    }
}

/// Launches that may have been running when a device was lost.
///
/// ```
/// use warpsmith_runtime::LaunchConfig;
/// use warpsmith_runtime::error::{RecentLaunch, RecentLaunches};
///
/// let config = LaunchConfig::new([4, 1, 1], [256, 1, 1], 0);
/// let launches = RecentLaunches::from(vec![RecentLaunch { kernel: "axpy__f32", config, stream: 3 }]);
/// assert_eq!(launches[0].to_string(), "on stream 3, grid [4, 1, 1], block [256, 1, 1]");
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecentLaunches(Arc<Vec<RecentLaunch>>);

impl From<Vec<RecentLaunch>> for RecentLaunches {
    fn from(launches: Vec<RecentLaunch>) -> Self {
        Self(Arc::new(launches))
    }
}

impl Deref for RecentLaunches {
    type Target = [RecentLaunch];

    fn deref(&self) -> &[RecentLaunch] {
        &self.0
    }
}

/// Maximum number of launches that are described individually.
const DESCRIBED: usize = 4;

/// Returns `; it was launched on stream 3, grid …`, or the list of candidates if there are several.
pub(super) fn launched(launches: &[RecentLaunch]) -> String {
    match launches {
        [] => String::new(),
        [one] => format!("; it was launched {one}"),
        several => {
            let (older, last) = several.split_at(several.len().saturating_sub(DESCRIBED));
            let mut text = "; the failed launch is one of: ".to_owned();
            for (index, launch) in last.iter().rev().enumerate() {
                let separator = if index == 0 { "" } else { "; " };
                text += &format!("{separator}`{}` {launch}", launch.kernel);
            }
            match older.len() {
                0 => text,
                more => text + &format!("; or one of {more} earlier launches"),
            }
        }
    }
}

/// The source of a block-size limit.
///
/// See the example of [`LaunchError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockLimit {
    /// The device's largest block.
    #[error("the device's maximum block size")]
    Device,
    /// The kernel's `launch_bounds`.
    #[error("the kernel's launch bounds")]
    LaunchBounds,
    /// The registers and other resources that the kernel uses.
    #[error("the kernel's register usage")]
    Registers,
}

impl From<LaunchError> for Error {
    fn from(error: LaunchError) -> Self {
        Error::Launch(error)
    }
}
