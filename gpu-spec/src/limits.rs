//! Launch limits of a kernel, declared with `#[kernel(launch_bounds(…), block(…), cluster(…))]`.

use crate::extents::Claims;

/// The limits that `launch_bounds(max_threads, min_blocks)` promises to the compiler (CUDA `__launch_bounds__`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LaunchBounds {
    /// Maximum number of threads per block.
    pub max_threads: u32,
    /// Minimum number of blocks that should fit on a multiprocessor (SM), or 0 if not specified.
    pub min_blocks: u32,
}

/// Launch bounds, required block size and required cluster size of a kernel. Limits that are not declared are zero.
///
/// For a kernel with limits and symbol `S`, the GPU code contains a constant of this type with symbol
/// `__warpsmith_launch.S`. The builder reads this constant and removes it from the PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct LaunchLimits {
    max_threads: u32,
    min_blocks: u32,
    block: [u32; 3],
    cluster: [u32; 3],
}

impl LaunchLimits {
    /// Symbol prefix of the record. The kernel's symbol follows the prefix.
    pub const PREFIX: &str = "__warpsmith_launch.";

    /// Creates the limits. `bounded` is true if launch bounds are declared.
    ///
    /// # Panics
    /// Panics if no launch can satisfy one of the numbers. `#[kernel]` calls this function in constants, where a panic
    /// is a compile-time error.
    pub const fn new(
        bounded: bool,
        max_threads: u64,
        min_blocks: u64,
        block: [u64; 3],
        cluster: [u64; 3],
    ) -> Self {
        assert!(!bounded || (max_threads >= 1 && max_threads <= 1024), "a block must have 1 to 1024 threads");
        assert!(min_blocks <= 32, "an SM can hold at most 32 blocks");
        let threads = volume(block);
        let is_open = block[0] == 0 && block[1] == 0 && block[2] == 0;
        assert!(is_open || (threads >= 1 && threads <= 1024), "a block must have 1 to 1024 threads");
        assert!(is_open || block[2] <= 64, "a block can have at most 64 threads along z");
        assert!(
            is_open || !bounded || threads <= max_threads,
            "the block has more threads than the kernel's launch bounds allow"
        );
        let blocks = volume(cluster);
        let is_free = cluster[0] == 0 && cluster[1] == 0 && cluster[2] == 0;
        assert!(is_free || (blocks >= 1 && blocks <= 16), "a cluster must have 1 to 16 blocks");
        Self {
            max_threads: if is_open { max_threads as u32 } else { threads as u32 },
            min_blocks: min_blocks as u32,
            block: narrow(block),
            cluster: narrow(cluster),
        }
    }

    /// Decodes the limits from the little-endian bytes of a record.
    pub fn from_bytes(bytes: &[u8; 32]) -> Self {
        let number = |index: usize| {
            let mut number = [0; 4];
            number.copy_from_slice(&bytes[4 * index..4 * index + 4]);
            u32::from_le_bytes(number)
        };
        Self {
            max_threads: number(0),
            min_blocks: number(1),
            block: [number(2), number(3), number(4)],
            cluster: [number(5), number(6), number(7)],
        }
    }

    /// Returns the launch bounds, if they are declared. If the block size is fixed, `max_threads` is at most its number
    /// of threads.
    pub const fn launch_bounds(self) -> Option<LaunchBounds> {
        match self {
            Self { max_threads: 0, .. } => None,
            Self { max_threads, min_blocks, .. } => Some(LaunchBounds { max_threads, min_blocks }),
        }
    }

    /// Returns the required block size, if any.
    pub const fn block(self) -> Option<[u32; 3]> {
        if self.block[0] == 0 { None } else { Some(self.block) }
    }

    /// Returns the required cluster size, if any.
    pub const fn cluster(self) -> Option<[u32; 3]> {
        if self.cluster[0] == 0 { None } else { Some(self.cluster) }
    }

    /// Compares the required block size with the requirements of the kernel's views.
    ///
    /// # Panics
    /// Panics if no launch of the kernel could satisfy both requirements. `#[kernel]` calls this function in constants,
    /// where a panic is a compile-time error.
    pub const fn check(self, claims: Claims) {
        if let Some(block) = self.block() {
            let is_line = block[1] == 1 && block[2] == 1;
            assert!(
                is_line || !matches!(claims, Claims::Linear),
                "the block has several dimensions, but the kernel's views have only one: take `DisjointMut2<T>` or \
                 `DisjointMut3<T>`"
            );
            assert!(
                block[2] == 1 || !matches!(claims, Claims::Plane),
                "the block has three dimensions, but a view has only two: take `DisjointMut3<T>`"
            );
        }
    }
}

const fn volume([x, y, z]: [u64; 3]) -> u64 {
    x.saturating_mul(y).saturating_mul(z)
}

const fn narrow([x, y, z]: [u64; 3]) -> [u32; 3] {
    [x as u32, y as u32, z as u32]
}
