//! [`Launch`]: a launch request, independent of the kernel and the device.

use crate::driver::LaunchConfig;

/// Sizes in x, y and z, converted from `n`, `(x, y)`, `(x, y, z)` or an array of these, as `u32`, `usize` or `i32`.
///
/// Negative sizes become 0; sizes above `u32::MAX` are clamped. Launching with either is an error.
///
/// ```
/// use warpsmith_runtime::Dim;
///
/// assert_eq!(Dim::from(640), Dim([640, 1, 1]));
/// assert_eq!(Dim::from((640_usize, 480)), Dim([640, 480, 1]));
/// assert_eq!(Dim::from([-1, 2, 3]), Dim([0, 2, 3]));
/// ```
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
/// Launch::auto(1000); // at least 1000 threads; block size chosen
/// Launch::auto(1000).waves(4); // the same, but at most four waves
/// Launch::for_occupancy(1000); // at least 1000 threads; block size with the highest occupancy
/// Launch::for_bandwidth(1000, 8); // a loop over 1000 items that moves 8 bytes per item
/// Launch::cover((640, 480)); // at least 640 × 480 threads; block size chosen
/// Launch::cover((640, 480)).block((16, 16)); // the same, in blocks of 16 × 16 threads
/// Launch::cover((640, 480)).tile((32, 32)); // one block per tile of 32 × 32 elements
/// Launch::linear(1000, 128); // at least 1000 threads, in blocks of 128
/// Launch::grid_block((10, 2), 64).shared(1024); // 10 × 2 blocks of 64 threads, with 1 KiB of shared memory each
/// Launch::grid_block(64, 128).cluster(4); // clusters of 4 blocks
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
    /// At least this number of threads, in blocks of the given size or of a size chosen later.
    Linear { threads: usize, block: Option<u32> },
    /// At least this number of threads, in blocks with the highest occupancy.
    Occupancy { threads: usize },
    /// A loop over this number of items.
    Bandwidth { items: usize, item_bytes: u32, in_flight: u32 },
    /// At least one thread per element of the extent, in blocks of the given size or of a size chosen later. A
    /// dimension of `u32::MAX` is too large.
    Cover { extent: [u32; 3], block: Option<[u32; 3]> },
    /// This number of blocks, of the given size or of a size chosen later.
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
    /// Small launches use small blocks, so that all SMs receive work. A configuration [tuned](super::store) for this
    /// kernel, device and size takes precedence.
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
    /// work. Each thread is assumed to have one item's bytes in flight, unless [`Launch::in_flight`] sets another
    /// number.
    ///
    /// The kernel must loop until all items are processed; otherwise, some remain unprocessed.
    pub fn for_bandwidth(items: usize, item_bytes: u32) -> Self {
        Self::of(Shape::Bandwidth { items, item_bytes, in_flight: item_bytes })
    }

    /// Sets the number of bytes that a thread has in flight: the bytes of all loads issued before the first loaded
    /// value is used. Only affects [`Launch::for_bandwidth`].
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
    /// dimension is 0, nothing is launched.
    ///
    /// If neither the kernel requires a block (`#[kernel(block(16, 16))]`) nor [`Self::block`] sets one, the block is
    /// chosen from properties of the kernel and the device, with 32 threads along x.
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

    /// Makes each block cover a tile of this many elements, instead of one element per thread, for kernels whose
    /// threads process several elements each. Only affects [`Self::cover`].
    pub fn tile(mut self, size: impl Into<Dim>) -> Self {
        if let Shape::Cover { extent, block } = self.shape {
            let tiles = |side: u32, tile: u32| match (side, tile) {
                // A dimension that is zero or too large stays unchanged and is rejected later.
                (u32::MAX | 0, _) | (_, 0) => side,
                (side, tile) => side.div_ceil(tile),
            };
            let Dim([x, y, z]) = size.into();
            let grid = [tiles(extent[0], x), tiles(extent[1], y), tiles(extent[2], z)];
            self.shape = Shape::Tiles { grid, block };
        }
        self
    }

    /// Requests exactly this grid and block size.
    pub fn grid_block(grid: impl Into<Dim>, block: impl Into<Dim>) -> Self {
        Self::of(Shape::Explicit { grid: grid.into().0, block: block.into().0 })
    }

    /// Limits the grid to `waves` waves (at least one), that is, to `waves` times the number of blocks that can be
    /// resident on the device concurrently.
    ///
    /// The kernel must loop until all elements are processed (grid-stride loop); otherwise, some remain unprocessed.
    /// The limit has no effect on [`Launch::grid_block`] and [`Launch::cover`].
    pub fn waves(mut self, waves: u32) -> Self {
        self.waves = waves.max(1);
        self
    }

    /// Allocates this many bytes of dynamic shared memory per block, in addition to the kernel's `Shared<[T]>` arrays,
    /// whose lengths are launch arguments ([`SharedLen`](gpu_spec::SharedLen)). The runtime opts in to sizes above the
    /// device's default limit, up to its maximum.
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

    /// Groups blocks into clusters of this size. The blocks of a cluster are co-scheduled and can access each other's
    /// shared memory (distributed shared memory). Requires compute capability 9.0.
    ///
    /// The grid must be a multiple of the cluster. A grid computed from a number of threads or an extent is rounded up
    /// to such a multiple. A kernel that requires clusters (`#[kernel(cluster(2))]`) is launched with them even without
    /// this call.
    pub fn cluster(mut self, size: impl Into<Dim>) -> Self {
        self.cluster = size.into().0;
        self
    }

    /// Requests a cooperative launch, whose blocks can wait for each other. It fails unless all blocks can be resident
    /// concurrently. Kernels declared as cooperative are always launched this way.
    pub fn cooperative(mut self) -> Self {
        self.cooperative = true;
        self
    }

    /// Requests a programmatic dependent launch (PDL): the kernel may start before the preceding kernel on the stream
    /// has finished, once that kernel permits it. The kernel must be declared as dependent, because it must itself wait
    /// for the preceding kernel. Without this call, or if the code in use was compiled for a compute capability below
    /// 9.0, such a kernel is launched like any other.
    pub fn dependent(mut self) -> Self {
        self.dependent = true;
        self
    }

    /// Returns true if the launch sets nothing except a shape, shared memory and a limit on waves.
    pub(super) fn is_plain(&self) -> bool {
        // Branch-free, because all conditions usually hold.
        (self.cluster == [1; 3]) & !self.cooperative & !self.dependent
    }

    /// Returns true if the launch leaves the block and grid size open. Any grid with enough threads is then correct or,
    /// for a loop, any grid at all.
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
            // These shapes are made explicit before the lookup.
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
