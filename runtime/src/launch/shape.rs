//! [`Launch`]: a launch request, independent of the kernel and the device.

use crate::driver::LaunchConfig;

/// Sizes in x, y and z, converted from `n`, `(x, y)`, `(x, y, z)` or an array of these, as `u32`, `usize` or `i32`.
///
/// Negative sizes become 0, and sizes above `u32::MAX` become `u32::MAX`. Launching with either size is an error.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Dim(pub [u32; 3]);

macro_rules! dim_from {
    ($($t:ty: $size:ident => $as_u32:expr;)*) => { $(
        impl From<$t> for Dim {
            fn from(x: $t) -> Self {
                Self::from([x, 1, 1])
            }
        }
        impl From<($t, $t)> for Dim {
            fn from((x, y): ($t, $t)) -> Self {
                Self::from([x, y, 1])
            }
        }
        impl From<($t, $t, $t)> for Dim {
            fn from((x, y, z): ($t, $t, $t)) -> Self {
                Self::from([x, y, z])
            }
        }
        impl From<[$t; 2]> for Dim {
            fn from([x, y]: [$t; 2]) -> Self {
                Self::from([x, y, 1])
            }
        }
        impl From<[$t; 3]> for Dim {
            fn from(sizes: [$t; 3]) -> Self {
                Self(sizes.map(|$size| $as_u32))
            }
        }
    )* };
}
dim_from! {
    u32: size => size;
    usize: size => u32::try_from(size).unwrap_or(u32::MAX);
    // Integer literals without a suffix have this type.
    i32: size => u32::try_from(size).unwrap_or(0);
}

/// The shape of a launch.
///
/// ```
/// use warpsmith_runtime::Launch;
///
/// Launch::auto(1000); // at minimum 1000 threads, in blocks that suit the kernel
/// Launch::auto(1000).waves(4); // the same, but no more than the device holds at once, four times over
/// Launch::for_occupancy(1000); // at minimum 1000 threads, in blocks that fill the multiprocessors best
/// Launch::for_bandwidth(1000, 8); // a kernel that loops over 1000 items and moves 8 bytes for each
/// Launch::cover((640, 480)); // at minimum 640 × 480 threads, in the kernel's block or one that suits it
/// Launch::cover((640, 480)).block((16, 16)); // the same, in blocks of 16 × 16 threads
/// Launch::cover((640, 480)).tile((32, 32)); // a block for each tile of 32 × 32 elements
/// Launch::linear(1000, 128); // at minimum 1000 threads, in blocks of 128
/// Launch::grid_block((10, 2), 64).shared(1024); // 10 × 2 blocks of 64 threads with 1 KiB each
/// Launch::grid_block(64, 128).cluster(4); // blocks in clusters of 4, which reach each other's shared memory
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a launch does nothing until a kernel is launched with it"]
pub struct Launch {
    pub(super) shape: Shape,
    /// Limit on the grid, in waves; 0 for no limit.
    pub(super) waves: u32,
    pub(super) shared_bytes: u32,
    pub(super) cluster: [u32; 3],
    pub(super) cooperative: bool,
    pub(super) dependent: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// At least this number of threads, in blocks of a specified size, or of a size that is chosen later.
    Linear { threads: usize, block: Option<u32> },
    /// At least this number of threads, in blocks with the highest occupancy.
    Occupancy { threads: usize },
    /// A loop over this number of items.
    Bandwidth { items: usize, item_bytes: u32, in_flight: u32 },
    /// At least one thread per element of the extent, in blocks of a specified size, or of a size that is chosen later.
    /// A side of `u32::MAX` is too large.
    Cover { extent: [u32; 3], block: Option<[u32; 3]> },
    /// This number of blocks, of a specified size or of a size that is chosen later.
    Tiles { grid: [u32; 3], block: Option<[u32; 3]> },
    /// Exactly this grid and block.
    Explicit { grid: [u32; 3], block: [u32; 3] },
}

/// Number of words in the key that identifies a launch.
pub(super) const KEY_WORDS: usize = 6;

impl Launch {
    fn of(shape: Shape) -> Self {
        Self { shape, waves: 0, shared_bytes: 0, cluster: [1; 3], cooperative: false, dependent: false }
    }

    /// Returns the extent of the launch along x, y and z; `None` if the launch specifies blocks instead of threads or
    /// items.
    pub fn extent(&self) -> Option<[u64; 3]> {
        match self.shape {
            Shape::Linear { threads, .. } | Shape::Occupancy { threads } => Some([threads as u64, 1, 1]),
            Shape::Bandwidth { items, .. } => Some([items as u64, 1, 1]),
            Shape::Cover { extent, .. } => Some(extent.map(u64::from)),
            Shape::Tiles { .. } | Shape::Explicit { .. } => None,
        }
    }

    /// Requests at least `threads` threads in one dimension. The block size is chosen from the kernel, the device and
    /// the number of threads. If `threads` is 0, nothing is launched.
    ///
    /// Small launches use small blocks, so that all SMs receive work. If a configuration was
    /// [tuned](super::store) earlier for this kernel, device and size, that configuration is used instead.
    pub fn auto(threads: usize) -> Self {
        Self::of(Shape::Linear { threads, block: None })
    }

    /// Requests at least `threads` threads in one dimension, in blocks with the highest occupancy. Use it for
    /// compute-bound kernels. If `threads` is 0, nothing is launched.
    pub fn for_occupancy(threads: usize) -> Self {
        Self::of(Shape::Occupancy { threads })
    }

    /// Requests a grid-stride loop over `items` items, each of which moves `item_bytes` bytes. Use it for memory-bound
    /// kernels. If `items` is 0, nothing is launched.
    ///
    /// Block and grid are chosen so that enough bytes are in flight on every SM and all blocks have the same amount of
    /// work. Each thread is assumed to have the bytes of one item in flight, unless [`Launch::in_flight`] specifies
    /// another number.
    ///
    /// The kernel must loop until all items are processed; a kernel without such a loop would leave some of them
    /// unprocessed.
    pub fn for_bandwidth(items: usize, item_bytes: u32) -> Self {
        Self::of(Shape::Bandwidth { items, item_bytes, in_flight: item_bytes })
    }

    /// Sets the number of bytes that a thread has in flight, that is, the bytes of all loads that it issues before it
    /// uses the first loaded value. Only affects [`Launch::for_bandwidth`].
    pub fn in_flight(mut self, bytes: u32) -> Self {
        if let Shape::Bandwidth { in_flight, .. } = &mut self.shape {
            *in_flight = bytes;
        }
        self
    }

    /// Requests at least `threads` threads in one dimension, in blocks of `block` threads. If `threads` is 0, nothing
    /// is launched.
    pub fn linear(threads: usize, block: u32) -> Self {
        Self::of(Shape::Linear { threads, block: Some(block) })
    }

    /// Requests at least one thread per element of an extent in one to three dimensions: width, height and depth. If a
    /// side is 0, nothing is launched.
    ///
    /// The kernel can require a block (`#[kernel(block(16, 16))]`), and [`Self::block`] can set one. If neither is the
    /// case, the number of threads is chosen from the properties of the kernel and the device, with 32 threads along x.
    pub fn cover(extent: impl Into<Dim>) -> Self {
        Self::of(Shape::Cover { extent: extent.into().0, block: None })
    }

    /// Sets the block dimensions in threads. Only affects [`Self::cover`].
    pub fn block(mut self, size: impl Into<Dim>) -> Self {
        if let Shape::Cover { block, .. } | Shape::Tiles { block, .. } = &mut self.shape {
            *block = Some(size.into().0);
        }
        self
    }

    /// Makes each block of [`Self::cover`] cover a tile of this many elements, instead of one element per thread. Use
    /// it for kernels whose threads process several elements each. Only affects [`Self::cover`].
    pub fn tile(mut self, size: impl Into<Dim>) -> Self {
        if let Shape::Cover { extent, block } = self.shape {
            let tiles = |side: u32, tile: u32| match (side, tile) {
                // A side that is zero or too large stays unchanged, so that it is rejected later.
                (u32::MAX | 0, _) | (_, 0) => side,
                (side, tile) => side.div_ceil(tile),
            };
            let Dim([x, y, z]) = size.into();
            let grid = [tiles(extent[0], x), tiles(extent[1], y), tiles(extent[2], z)];
            self.shape = Shape::Tiles { grid, block };
        }
        self
    }

    /// Requests exactly this grid and exactly this block size.
    pub fn grid_block(grid: impl Into<Dim>, block: impl Into<Dim>) -> Self {
        Self::of(Shape::Explicit { grid: grid.into().0, block: block.into().0 })
    }

    /// Limits the grid to `waves` waves (at least one), that is, to `waves` times the number of blocks that can be
    /// resident on the device concurrently.
    ///
    /// The kernel must loop until all elements are processed (grid-stride loop); a kernel without such a loop would
    /// leave some of them unprocessed. The limit has no effect on [`Launch::grid_block`] and [`Launch::cover`].
    pub fn waves(mut self, waves: u32) -> Self {
        self.waves = waves.max(1);
        self
    }

    /// Allocates this many bytes of dynamic shared memory per block, in addition to the kernel's `Shared<[T]>` arrays,
    /// whose lengths are launch arguments ([`SharedLen`](gpu_spec::SharedLen)). Sizes above the device's default limit
    /// are opted in to automatically, up to the device's maximum.
    pub fn shared(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }

    /// Adds the bytes of dynamic shared memory that the arguments require.
    #[inline(always)]
    pub(super) fn with_arrays(mut self, bytes: u32) -> Self {
        self.shared_bytes = self.shared_bytes.saturating_add(bytes);
        self
    }

    /// Groups blocks into clusters of this size. The blocks of a cluster run at the same time and can access each
    /// other's shared memory (distributed shared memory). Requires compute capability 9.0.
    ///
    /// The grid must be a multiple of the cluster. If only a number of threads or an extent is specified, the grid is
    /// rounded up to a multiple of the cluster. A kernel that requires clusters (`#[kernel(cluster(2))]`) is launched
    /// with them even without this call.
    pub fn cluster(mut self, size: impl Into<Dim>) -> Self {
        self.cluster = size.into().0;
        self
    }

    /// Requests a cooperative launch. The launch succeeds only if all blocks can be resident concurrently, so that they
    /// can wait for each other. Kernels declared as cooperative are always launched this way.
    pub fn cooperative(mut self) -> Self {
        self.cooperative = true;
        self
    }

    /// Requests a programmatic dependent launch (PDL). The kernel may start when the preceding kernel on the stream
    /// permits it, before that kernel has finished. The kernel must be declared as dependent, because it must wait for
    /// the preceding kernel itself. Without this call, such a kernel is launched like any other.
    pub fn dependent(mut self) -> Self {
        self.dependent = true;
        self
    }

    /// Returns true if the launch sets nothing except a shape, shared memory and a limit on waves.
    pub(super) fn is_plain(&self) -> bool {
        // The expression has no branches, because all conditions usually hold.
        (self.cluster == [1; 3]) & !self.cooperative & !self.dependent
    }

    /// Returns true if the launch leaves the block and grid size open, so that any grid with enough threads is correct
    /// or, for a loop, any grid at all.
    pub(super) fn is_open(&self) -> bool {
        self.is_free() && self.waves == 0 && self.shared_bytes == 0 && self.is_plain()
    }

    /// Returns true if the block must be chosen for a number of threads or items.
    pub(super) fn is_free(&self) -> bool {
        match self.shape {
            Shape::Linear { block, .. } => block.is_none(),
            Shape::Occupancy { .. } | Shape::Bandwidth { .. } => true,
            Shape::Cover { .. } | Shape::Tiles { .. } | Shape::Explicit { .. } => false,
        }
    }

    /// Returns a key that identifies the launch.
    pub(super) fn key(&self) -> [u64; KEY_WORDS] {
        let pair = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
        let sizes =
            |[gx, gy, gz]: [u32; 3], [bx, by, bz]: [u32; 3]| [pair(gx, gy), pair(gz, bx), pair(by, bz)];
        let [cluster_x, cluster_y, cluster_z] = self.cluster;
        let flags = u32::from(self.cooperative) | u32::from(self.dependent) << 1;
        let (tag, shape) = match self.shape {
            Shape::Linear { threads, block } => (1, [threads as u64, u64::from(block.unwrap_or(0)), 0]),
            Shape::Occupancy { threads } => (2, [threads as u64, 0, 0]),
            Shape::Bandwidth { items, item_bytes, in_flight } => {
                (3, [items as u64, pair(item_bytes, in_flight), 0])
            }
            Shape::Explicit { grid, block } => (4, sizes(grid, block)),
            // These shapes are converted to explicit ones before they are looked up.
            Shape::Cover { extent, block } => (5, sizes(extent, block.unwrap_or_default())),
            Shape::Tiles { grid, block } => (6, sizes(grid, block.unwrap_or_default())),
        };
        [
            pair(tag | flags << 8, self.waves),
            pair(self.shared_bytes, cluster_x),
            pair(cluster_y, cluster_z),
            shape[0],
            shape[1],
            shape[2],
        ]
    }
}

/// Launches exactly this configuration.
impl From<LaunchConfig> for Launch {
    fn from(config: LaunchConfig) -> Self {
        let LaunchConfig { grid, block, shared_bytes, cluster, cooperative, dependent } = config;
        Self {
            shape: Shape::Explicit { grid, block },
            waves: 0,
            shared_bytes,
            cluster,
            cooperative,
            dependent,
        }
    }
}
