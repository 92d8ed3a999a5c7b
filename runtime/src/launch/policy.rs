//! [`LaunchPolicy`]: lookup of the fastest known block and grid size for open launches.
//!
//! The default policy is the user's [store](super::store), which contains the results of tuners.
//!
//! # Example
//! A policy that always chooses blocks of 128 threads:
//!
//! ```
//! use std::sync::Arc;
//! use std::sync::atomic::AtomicU64;
//! use warpsmith_runtime::launch::policy::{GridChoice, LaunchPolicy, OpenLaunch, Winner};
//! # use gpu_std::prelude::*;
//! # use warpsmith_runtime::{Device, GpuImage, Launch};
//!
//! struct Always128;
//!
//! impl LaunchPolicy for Always128 {
//!     fn find(&self, launch: &OpenLaunch<'_>) -> Option<Winner> {
//!         assert_eq!(launch.symbol, "nothing");
//!         Some(Winner { block: 128, grid: GridChoice::All })
//!     }
//!
//!     /// The answers never change.
//!     fn watch(&self, _: &Arc<AtomicU64>) {}
//! }
//!
//! # #[kernel]
//! # fn nothing() {}
//! # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
//! # fn main() -> Result<(), warpsmith_runtime::Error> {
//! # let device = Device::emulated(0)?;
//! # let function = device.load(&IMAGE)?.kernel::<nothing>()?.function().clone();
//! device.set_launch_policy(Arc::new(Always128));
//! let config = function.configure(Launch::auto(1000))?.expect("there are threads");
//! assert_eq!((config.grid, config.block), ([8, 1, 1], [128, 1, 1]));
//! # Ok(())
//! # }
//! ```

use std::any::Any;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use crate::driver::DeviceProperties;

/// Rule for the number of blocks that run a loop over items.
///
/// See the [example](self#example).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum GridChoice {
    /// One block per tile, where a tile is the set of items that one block processes at a time.
    All,
    /// At most as many blocks as can be resident concurrently, reduced to balance their work.
    Balanced,
    /// At most as many blocks as fit in this number of waves.
    Waves(u32),
    /// At most this number of blocks.
    Blocks(u32),
}

impl GridChoice {
    /// Returns the number of blocks for a loop over `tiles` tiles, on a device that can hold `capacity` resident
    /// blocks.
    pub(super) fn blocks(self, tiles: u64, capacity: u64) -> u64 {
        let capacity = capacity.max(1);
        match self {
            GridChoice::All => tiles,
            GridChoice::Balanced => tiles.div_ceil(tiles.div_ceil(capacity).max(1)),
            GridChoice::Waves(waves) => tiles.min(capacity.saturating_mul(u64::from(waves.max(1)))),
            GridChoice::Blocks(blocks) => tiles.min(u64::from(blocks.max(1))),
        }
    }
}

/// The fastest block size and the rule for the grid.
///
/// See the [example](self#example).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Winner {
    /// Number of threads per block, at least 1.
    pub block: u32,
    /// Rule for the number of blocks.
    pub grid: GridChoice,
}

/// A launch of a kernel instance that leaves the block and grid size open.
///
/// See the [example](self#example).
#[derive(Debug, Clone, Copy)]
pub struct OpenLaunch<'a> {
    /// The device.
    pub device: &'a DeviceProperties,
    /// The kernel's package, as in [`KernelInfo::package`](gpu_spec::KernelInfo::package).
    pub package: &'a str,
    /// The instance's symbol.
    pub symbol: &'a str,
    /// Hash of the kernel's code; 0 on an emulated device.
    pub image: u64,
    /// True if the kernel loops over the items.
    pub is_loop: bool,
    /// Number of threads, or of items for a loop.
    pub n: u64,
}

/// A source of the fastest block and grid size for open launches. The runtime queries it once per kernel and launch
/// request, and again after a change.
///
/// See the [example](self#example).
pub trait LaunchPolicy: Any + Send + Sync {
    /// Returns the fastest known block and grid size. The runtime ignores a result that exceeds the device's limits.
    fn find(&self, launch: &OpenLaunch<'_>) -> Option<Winner>;

    /// Registers a device's counter. The policy must increment the counter whenever [`Self::find`] may return a
    /// different result.
    fn watch(&self, changes: &Arc<AtomicU64>);
}

impl fmt::Debug for dyn LaunchPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LaunchPolicy")
    }
}

/// Returns the class of a size, two per power of two. Sizes in one class share measurements.
pub fn size_class(n: u64) -> u32 {
    let log = n.max(1).ilog2();
    2 * log + u32::from(log > 0 && n >> (log - 1) & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_share_a_class_within_half_a_power_of_two() {
        assert_eq!([0, 1, 2, 3, 4, 5, 6, 7, 8].map(size_class), [0, 0, 2, 3, 4, 4, 5, 5, 6]);
        let large = [1 << 20, (3 << 19) - 1, 3 << 19, u64::MAX];
        assert_eq!(large.map(size_class), [40, 40, 41, 127]);
    }
}
