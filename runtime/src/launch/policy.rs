//! Open launches, which leave the block and grid size to the [store](super::store), and the store's answer.

use crate::driver::DeviceProperties;

/// Rule for the number of blocks that run a loop over items.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Winner {
    /// Number of threads per block, at least 1.
    pub block: u32,
    /// Rule for the number of blocks.
    pub grid: GridChoice,
}

/// A launch of a kernel instance that leaves the block and grid size open.
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
