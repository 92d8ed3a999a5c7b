//! Queries about a [`Function`]: its occupancy, and the configuration of a launch.

use super::explain::Explanation;
use super::kernel::Function;
use super::limits::Limits;
use super::occupancy::Occupancy;
use super::resolve::volume;
use super::shape::Launch;
use crate::driver::LaunchConfig;
use crate::error::{Result, code};

/// The block size with the highest occupancy for a kernel, and the smallest grid of such blocks that fills the device.
///
/// [`Function::potential_block`] returns it and has an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PotentialBlock {
    /// Number of threads per block.
    pub block: u32,
    /// Dynamic shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Number of blocks that can be resident on the device concurrently.
    pub grid: u32,
}

impl Function {
    /// Returns the number of resident blocks per SM, as computed by the driver, for blocks of `block_threads` threads
    /// with `shared_bytes` bytes of dynamic shared memory. [`Self::theoretical_occupancy`] also reports the limiting
    /// resource and makes no driver call.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    pub fn occupancy(&self, block_threads: u32, shared_bytes: u32) -> Result<u32> {
        self.allow_shared(shared_bytes)?;
        let handle = self.handle();
        self.device()
            .call(|driver, context| driver.function_occupancy(context, handle, block_threads, shared_bytes))
    }

    /// Returns the theoretical occupancy and the limiting resource, for blocks of `block_threads` threads with
    /// `shared_bytes` bytes of dynamic shared memory.
    pub fn theoretical_occupancy(&self, block_threads: u32, shared_bytes: u32) -> Occupancy {
        Occupancy::theoretical(self.device().properties(), self.attributes(), block_threads, shared_bytes)
    }

    /// Returns the number of blocks that can be resident on the device concurrently, for blocks of `block_threads`
    /// threads with `shared_bytes` bytes of dynamic shared memory. It limits the grid of a cooperative launch.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver).
    pub fn max_blocks(&self, block_threads: u32, shared_bytes: u32) -> Result<u64> {
        self.capacity(&LaunchConfig::new([1; 3], [block_threads, 1, 1], shared_bytes))
    }

    /// Returns the largest of the block sizes with the highest occupancy for this kernel. `shared(n)` is the dynamic
    /// shared memory of a block of `n` threads, in bytes.
    ///
    /// The grid is the smallest one that fills the device, regardless of the amount of work, so the kernel must loop
    /// until all elements are processed. The highest occupancy is not always the fastest; [`Launch::auto`] and
    /// [`Launch::for_bandwidth`] also consider the work.
    ///
    /// ```
    /// # use gpu_std::prelude::*;
    /// # use warpsmith_runtime::{Device, GpuImage};
    /// # #[kernel]
    /// # fn nothing() {}
    /// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// # let device = Device::emulated(0)?;
    /// # let kernel = device.load(&IMAGE)?.kernel::<nothing>()?.function().clone();
    /// // 8 bytes per thread.
    /// let best = kernel.potential_block(|block| 8 * block)?;
    /// assert_eq!(best.shared_bytes, 8 * best.block);
    /// assert!(u64::from(best.grid) == kernel.max_blocks(best.block, best.shared_bytes)?);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// Returns [`LaunchError::SharedMemoryTooLarge`](crate::LaunchError::SharedMemoryTooLarge) if even the smallest
    /// block does not fit, or any [driver error](crate::Error::Driver).
    pub fn potential_block(&self, shared: impl Fn(u32) -> u32) -> Result<PotentialBlock> {
        let limits = Limits::of(self);
        let warp = limits.device.warp_size.max(1);
        let smallest = limits.clamp_block(warp);
        let blocks = (1..=limits.block_limit().0 / warp).map(|warps| warps * warp).filter(|b| *b > smallest);
        let mut best = (smallest, shared(smallest), 0);
        for block in std::iter::once(smallest).chain(blocks) {
            let bytes = shared(block);
            let warps = self.theoretical_occupancy(block, bytes).warps;
            if warps > 0 && warps >= best.2 {
                best = (block, bytes, warps);
            }
        }
        let (block, shared_bytes, _) = best;
        limits.check(&LaunchConfig::new([1; 3], [block, 1, 1], shared_bytes))?;
        let grid = self.max_blocks(block, shared_bytes)?;
        Ok(PotentialBlock { block, shared_bytes, grid: u32::try_from(grid).unwrap_or(u32::MAX) })
    }

    /// Returns the resolved configuration of a launch for this kernel, and the reasons for it.
    ///
    /// # Errors
    /// Returns the same configuration errors as [`TypedKernel::launch`](super::TypedKernel::launch).
    pub fn explain(&self, launch: Launch) -> Result<Explanation> {
        Explanation::of(self, &launch)
    }

    /// Returns the number of blocks of this configuration that can be resident on the device concurrently.
    pub(super) fn capacity(&self, config: &LaunchConfig) -> Result<u64> {
        if config.cluster != [1; 3] {
            self.allow(config)?;
            self.allow_cluster(config)?;
            let (handle, config) = (self.handle(), *config);
            let clusters = self
                .device()
                .call(|driver, context| driver.function_resident_clusters(context, handle, config))?;
            return Ok(u64::from(clusters) * volume(config.cluster));
        }
        let threads = u32::try_from(volume(config.block)).unwrap_or(u32::MAX);
        let of_one = self.occupancy(threads, config.shared_bytes)?;
        Ok(u64::from(of_one) * u64::from(self.device().properties().multiprocessors))
    }

    /// Returns the number of blocks in the largest cluster with this block size and this amount of shared memory.
    pub(super) fn max_cluster(&self, config: &LaunchConfig) -> Result<u32> {
        self.allow(config)?;
        self.allow_cluster(config)?;
        let (handle, config) = (self.handle(), *config);
        self.device().call(|driver, context| driver.function_max_cluster(context, handle, config))
    }

    /// Enables clusters above the portable size in the driver if the configuration requires them.
    fn allow_cluster(&self, config: &LaunchConfig) -> Result<()> {
        if volume(config.cluster) <= u64::from(self.device().properties().max_cluster) {
            return Ok(());
        }
        match self.allow_large_clusters() {
            // The portable size is the device's maximum.
            Err(error) if error.driver_code() == Some(code::NOT_SUPPORTED) => Ok(()),
            result => result,
        }
    }
}
