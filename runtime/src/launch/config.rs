//! [`Launch`]: how many threads a kernel is to have, and how that becomes a checked [`LaunchConfig`].

use gpu_spec::KernelSpec;

use super::Function;
use crate::device::Device;
use crate::driver::{DeviceProperties, FunctionAttributes, LaunchConfig};
use crate::error::{BlockLimit, Error, Result};

/// The block of [`Launch::auto`], if kernel and device allow it.
const AUTO_BLOCK: u32 = 256;

/// Sizes in x, y and z: from `n`, `(x, y)`, `(x, y, z)` or `[x, y, z]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dim(pub [u32; 3]);

impl From<u32> for Dim {
    fn from(x: u32) -> Self {
        Self([x, 1, 1])
    }
}

impl From<(u32, u32)> for Dim {
    fn from((x, y): (u32, u32)) -> Self {
        Self([x, y, 1])
    }
}

impl From<(u32, u32, u32)> for Dim {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self([x, y, z])
    }
}

impl From<[u32; 3]> for Dim {
    fn from(sizes: [u32; 3]) -> Self {
        Self(sizes)
    }
}

/// The shape of a launch.
///
/// ```
/// use warpsmith_runtime::Launch;
///
/// Launch::auto(1000); // at least 1000 threads, in blocks that suit the kernel
/// Launch::auto(1000).waves(4); // the same, but no more than the device holds at once, four times over
/// Launch::linear(1000, 128); // at least 1000 threads, in blocks of 128
/// Launch::grid_block((10, 2), 64).shared(1024); // 10 × 2 blocks of 64 threads with 1 KiB each
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a launch does nothing until a kernel is launched with it"]
pub struct Launch {
    shape: Shape,
    waves: Option<u32>,
    shared_bytes: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Linear { threads: usize, block: Option<u32> },
    Explicit { grid: [u32; 3], block: [u32; 3] },
}

impl Launch {
    /// At least `threads` threads in one dimension, in blocks that suit the kernel. 0 threads: nothing is
    /// launched.
    pub fn auto(threads: usize) -> Self {
        Self { shape: Shape::Linear { threads, block: None }, waves: None, shared_bytes: 0 }
    }

    /// At least `threads` threads in one dimension, in blocks of `block`. 0 threads: nothing is launched.
    pub fn linear(threads: usize, block: u32) -> Self {
        Self { shape: Shape::Linear { threads, block: Some(block) }, waves: None, shared_bytes: 0 }
    }

    /// Exactly this grid of blocks of exactly this many threads.
    pub fn grid_block(grid: impl Into<Dim>, block: impl Into<Dim>) -> Self {
        let shape = Shape::Explicit { grid: grid.into().0, block: block.into().0 };
        Self { shape, waves: None, shared_bytes: 0 }
    }

    /// Launches no more blocks than the device holds at once, `waves` times over (at least once).
    ///
    /// Only for kernels that loop until all elements are done (a grid stride): others would leave the rest
    /// undone. No effect on [`Launch::grid_block`].
    pub fn waves(mut self, waves: u32) -> Self {
        self.waves = Some(waves.max(1));
        self
    }

    /// Gives every block this many bytes of dynamic shared memory.
    pub fn shared(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// The configuration for a kernel, within all limits; `None` when there is nothing to launch.
    pub(super) fn resolve(&self, function: &Function) -> Result<Option<LaunchConfig>> {
        let limits = Limits::of(function);
        let shared_bytes = self.shared_bytes;
        let config = match self.shape {
            Shape::Explicit { grid, block } => LaunchConfig { grid, block, shared_bytes },
            Shape::Linear { threads: 0, .. } => return Ok(None),
            Shape::Linear { threads, block } => {
                let block = block.unwrap_or_else(|| limits.auto_block());
                let shape = [block, 1, 1];
                limits.check(LaunchConfig { grid: [1; 3], block: shape, shared_bytes })?;
                let mut blocks = threads.div_ceil(block as usize) as u64;
                if let Some(waves) = self.waves {
                    let resident = function.occupancy(block, shared_bytes)?.max(1);
                    let multiprocessors = limits.device.multiprocessors.max(1);
                    blocks = blocks.min(u64::from(waves) * u64::from(resident) * u64::from(multiprocessors));
                }
                let grid = u32::try_from(blocks).map_err(|_| limits.grid_error([blocks, 1, 1]))?;
                LaunchConfig { grid: [grid, 1, 1], block: shape, shared_bytes }
            }
        };
        limits.check(config)?;
        Ok(Some(config))
    }
}

/// What a kernel's launches may not exceed on its device.
pub(super) struct Limits<'a> {
    kernel: &'static KernelSpec,
    device: &'a DeviceProperties,
    attributes: &'a FunctionAttributes,
}

impl<'a> Limits<'a> {
    pub(super) fn of(function: &'a Function) -> Self {
        let device: &Device = function.device();
        Self { kernel: function.spec(), device: device.properties(), attributes: function.attributes() }
    }

    /// The largest number of threads a block may have, and whose limit that is.
    fn block_limit(&self) -> (u32, BlockLimit) {
        let bounds = self.kernel.launch_bounds.map_or(u32::MAX, |bounds| bounds.max_threads);
        let device = self.device.max_threads_per_block;
        let kernel = self.attributes.max_threads_per_block;
        if device <= bounds && device <= kernel {
            (device, BlockLimit::Device)
        } else if bounds <= kernel {
            (bounds, BlockLimit::LaunchBounds)
        } else {
            (kernel, BlockLimit::Registers)
        }
    }

    /// A block of whole warps that device and kernel allow.
    fn auto_block(&self) -> u32 {
        let (limit, _) = self.block_limit();
        let warp = self.device.warp_size.max(1);
        let block = AUTO_BLOCK.min(limit);
        if block > warp { block / warp * warp } else { block.max(1) }
    }

    fn name(&self) -> String {
        self.kernel.symbol.to_owned()
    }

    fn grid_error(&self, grid: [u64; 3]) -> Error {
        Error::GridTooLarge { kernel: self.name(), grid, limit: self.device.max_grid }
    }

    /// Fails when a configuration exceeds a limit of the device or the kernel.
    pub(super) fn check(&self, config: LaunchConfig) -> Result<()> {
        let LaunchConfig { grid, block, shared_bytes } = config;
        for (what, dimensions) in [("grid", grid), ("block", block)] {
            if dimensions.contains(&0) {
                return Err(Error::EmptyLaunch { kernel: self.name(), what, dimensions });
            }
        }
        let exceeds =
            |sizes: [u32; 3], limit: [u32; 3]| sizes.iter().zip(limit).any(|(size, limit)| *size > limit);
        let threads = block.iter().map(|size| u64::from(*size)).fold(1u64, u64::saturating_mul);
        let (limit, by) = self.block_limit();
        if threads > u64::from(limit) {
            return Err(Error::BlockTooLarge { kernel: self.name(), threads, limit, by });
        }
        if exceeds(block, self.device.max_block) {
            return Err(Error::BlockShape { kernel: self.name(), block, limit: self.device.max_block });
        }
        if exceeds(grid, self.device.max_grid) {
            return Err(self.grid_error(grid.map(u64::from)));
        }
        let static_bytes = self.attributes.static_shared;
        let limit = self.device.shared_memory_per_block_optin.max(self.device.shared_memory_per_block);
        if u64::from(shared_bytes) + u64::from(static_bytes) > u64::from(limit) {
            return Err(Error::SharedMemoryTooLarge {
                kernel: self.name(),
                dynamic_bytes: shared_bytes,
                static_bytes,
                limit,
            });
        }
        Ok(())
    }

    /// Whether the kernel has to be allowed this much dynamic shared memory before the launch.
    pub(super) fn needs_opt_in(&self, shared_bytes: u32) -> bool {
        u64::from(shared_bytes) + u64::from(self.attributes.static_shared)
            > u64::from(self.device.shared_memory_per_block)
    }
}
