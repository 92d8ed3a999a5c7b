//! [`Schedule`]: tile size, cluster size and split-K factor of a GEMM.

use warpsmith_runtime::driver::DevicePtr;
use warpsmith_runtime::{Device, Result, Stream};
use warpsmith_tensor_kernels::matmul::{ROW_BYTES, TILE_M, TILE_N};
use warpsmith_tensor_kernels::mma::COUNTERS;
use warpsmith_tensor_kernels::non_persistent;

/// GEMM schedule: tile size, cluster size and split-K factor. The default depends on the sizes, the element type and
/// the number of SMs.
///
/// ```
/// use warpsmith_tensor::Schedule;
///
/// let schedule = Schedule { tile: [128, 256], cluster: 2, split_k: 4 };
/// assert!(schedule.exists());
/// // A cluster has at most eight blocks.
/// assert!(!Schedule { split_k: 8, ..schedule }.exists());
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// Numbers of rows and columns of a tile of `c`. Tiles have 128 or 64 rows and 256, 192 or 128 columns. For a
    /// transposed `a` and for i8, the tile must be 128 x 256.
    pub tile: [u32; 2],
    /// Number of vertically adjacent tiles per cluster that share tiles of `b` by TMA multicast: 1 or 2. Must be 1 for
    /// tiles of 192 columns.
    pub cluster: u32,
    /// Split-K factor: 1, 2, 3, 4 or 8 blocks of the cluster each accumulate a range of K. Their partial sums are added
    /// in block order. `cluster * split_k` must be at most 8. The factor must be 1 for tiles of 192 columns, for a
    /// transposed `a`, and for i8.
    pub split_k: u32,
}

/// Tile size of the kernels in [`matmul`](mod@warpsmith_tensor_kernels::matmul).
pub(crate) const LARGE: [u32; 2] = [TILE_M, TILE_N];
/// Tile size of kernels that support only one tile size.
pub(crate) const MIDDLE: [u32; 2] = [non_persistent::ROWS as u32, non_persistent::COLUMNS as u32];

/// Number of blocks per cluster if the blocks share tiles (TMA multicast).
pub(crate) const CLUSTER: u32 = 2;

/// Returns how many microseconds one SM takes per stage of a tile. The time does not depend on the element type,
/// because a stage has the same number of bytes for each type. This and the following constants were fitted to
/// measurements on an H100. The bundle's `run-tensor DEVICE schedules` command repeats the measurements.
const fn stage_us(tile: [u32; 2]) -> f64 {
    match tile {
        LARGE => 0.65,
        MIDDLE => 0.33,
        [128, 192] => 0.50,
        [64, 256] => 0.36,
        _ => 0.40,
    }
}

/// Relative duration of a 64 x 128 tile if it is the only tile on an SM that can hold two.
const ALONE: f64 = 0.79;
/// Relative durations of non-persistent kernels whose blocks share tiles of `b`: for launches of one wave, and for
/// launches of several waves.
pub(crate) const SHARED: [f64; 2] = [0.97, 1.08];
/// Relative duration and fixed cost (in microseconds) of persistent kernels whose blocks share tiles of `b`.
const PERSISTENT_SHARED: (f64, f64) = (0.985, 1.0);
/// Launch latency in microseconds: the time until the first block starts, and the additional time if that block has to
/// wait for the end of the preceding launch.
const BEGIN_US: (f64, f64) = (2.0, 2.3);
/// Fixed cost of a persistent kernel in microseconds: its launch latency, prologue and epilogue.
const PERSISTENT_US: f64 = 3.0;
/// Cost of a non-persistent kernel's prologue and epilogue, in microseconds per wave.
const NON_PERSISTENT_US: f64 = 2.0;
/// Cost of a split-K reduction within a cluster, in microseconds: the fixed cost, and the cost per part.
const ADD_US: (f64, f64) = (0.5, 0.5);
/// Memory bandwidth in bytes per microsecond.
const BYTES_PER_US: f64 = 2.4e6;
/// Weight of the compute time in the cost estimate of memory-bound schedules. Among memory-bound schedules, this weight
/// favors the one with the most compute headroom.
const SPARE: f64 = 0.02;

/// Returns how many of 132 SMs can be occupied by clusters of `blocks` blocks. A cluster must fit in one GPC. The
/// values for 3 and 6 blocks are estimates.
const fn in_clusters(blocks: u32) -> u32 {
    match blocks {
        1 => 132,
        2 => 128,
        3 => 120,
        4 => 116,
        6 => 108,
        _ => 104,
    }
}

/// GEMM for which a schedule is selected.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub m: u32,
    pub n: u32,
    /// Number of stages along K.
    pub stages: u32,
    pub batches: u32,
    pub multiprocessors: u32,
    /// Tile sizes for which kernels exist.
    pub tiles: &'static [[u32; 2]],
    /// True if non-persistent kernels exist, with or without split-K.
    pub has_clusters: bool,
    /// True if persistent kernels exist for large tiles.
    pub is_persistent: bool,
    /// Duration of a stage relative to a stage of a single GEMM.
    pub slower: f64,
    /// [`SHARED`], or the corresponding values for a kernel whose memory behavior differs.
    pub shared: [f64; 2],
}

/// Returns the number of SMs for which schedules are selected. For emulated devices, this number is small, so that
/// small GEMMs in tests cover all schedules.
pub(crate) fn multiprocessors(device: &Device) -> u32 {
    if device.is_emulated() { 16 } else { device.properties().multiprocessors }
}

impl Schedule {
    /// Available tile sizes.
    pub const TILES: [[u32; 2]; 6] = [LARGE, [128, 192], MIDDLE, [64, 256], [64, 192], [64, 128]];

    /// Available split-K factors.
    pub const SPLIT_K: [u32; 5] = [1, 2, 3, 4, 8];

    /// Returns the default schedule of a GEMM with 16-bit elements and more than 16 rows. `a` is m×k and `b` is k×n,
    /// both contiguous along k, and the rows of `c` start on 16-byte boundaries.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    /// use warpsmith_tensor::Schedule;
    ///
    /// let schedule = Schedule::of_product(&Device::emulated(0)?, [4096, 4096, 4096]);
    /// assert!(Schedule::TILES.contains(&schedule.tile) && schedule.exists());
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    pub fn of_product(device: &Device, [m, n, k]: [usize; 3]) -> Self {
        Self::of(Work {
            m: m as u32,
            n: n as u32,
            stages: k.div_ceil(ROW_BYTES as usize / 2) as u32,
            batches: 1,
            multiprocessors: multiprocessors(device),
            tiles: &Self::TILES,
            has_clusters: true,
            is_persistent: true,
            slower: 1.0,
            shared: SHARED,
        })
    }

    /// Returns whether kernels exist for the schedule, assuming that `a` is not transposed and the type is not i8.
    pub fn exists(&self) -> bool {
        self.missing(&Self::TILES, true).is_none()
    }

    /// Returns whether blocks of a non-persistent kernel start while blocks of the preceding launch are still running.
    /// With larger clusters, or several blocks per SM, blocks would be placed unevenly in the freed slots, which
    /// measurements showed to be slower.
    pub(crate) fn starts_early(&self) -> bool {
        let [height, width] = self.tile;
        self.cluster * self.split_k <= 2 && non_persistent::resident(height as usize, width as usize) == 1
    }

    /// If no kernel exists for the schedule, describes the unsupported part and the supported values.
    pub(crate) fn missing(&self, tiles: &[[u32; 2]], has_clusters: bool) -> Option<String> {
        let Self { tile, cluster, split_k } = *self;
        let [rows, columns] = tile;
        Some(if !Self::TILES.contains(&tile) {
            format!(
                "tiles of {rows} x {columns}: tiles must have 128 or 64 rows, and 256, 192 or 128 columns"
            )
        } else if !tiles.contains(&tile) {
            format!("tiles of {rows} x {columns} require a row-major a and a type other than i8")
        } else if cluster != 1 && cluster != CLUSTER {
            format!("clusters of {cluster} blocks are not supported: cluster must be 1 or 2")
        } else if !Self::SPLIT_K.contains(&split_k) || split_k > non_persistent::MAX_IN_CLUSTER / cluster {
            format!(
                "split_k {split_k} with cluster {cluster}: split_k must be 1, 2, 3, 4 or 8, and cluster * split_k at \
                 most 8"
            )
        } else if columns == 192 && (cluster > 1 || split_k > 1) {
            format!("split_k {split_k} with cluster {cluster}: both must be 1 for tiles of 192 columns")
        } else if split_k > 1 && !has_clusters {
            "split_k requires a row-major a and a type other than i8".to_owned()
        } else {
            return None;
        })
    }

    /// Returns the default schedule, which has the lowest estimated cost.
    pub(crate) fn of(work: Work) -> Self {
        let all = work.tiles.iter().flat_map(|&tile| {
            [CLUSTER, 1]
                .into_iter()
                .flat_map(move |cluster| Self::SPLIT_K.map(move |split_k| Self { tile, cluster, split_k }))
        });
        let all = all.filter(|schedule| schedule.missing(work.tiles, work.has_clusters).is_none());
        let best = all.min_by(|x, y| work.cost(x).total_cmp(&work.cost(y)));
        best.unwrap_or(Self { tile: LARGE, cluster: 1, split_k: 1 })
    }
}

impl Work {
    /// Returns the number of stages in each of the `split_k` parts except the last part.
    pub fn split_stages(&self, split_k: u32) -> u32 {
        self.stages.div_ceil(split_k).max(1)
    }

    /// Returns whether a schedule uses the persistent kernel.
    pub fn is_persistent(&self, schedule: &Schedule) -> bool {
        self.is_persistent && schedule.tile == LARGE && schedule.split_k == 1
    }

    /// Returns the estimated duration in microseconds.
    fn cost(&self, schedule: &Schedule) -> f64 {
        let Schedule { tile: tile @ [height, width], cluster, split_k } = *schedule;
        let rows = u64::from(self.m.div_ceil(height * cluster));
        let clusters = rows * u64::from(self.n.div_ceil(width)) * u64::from(self.batches);
        let size = cluster * split_k;
        let room = self.multiprocessors * in_clusters(size) / in_clusters(1);
        let resident = non_persistent::resident(height as usize, width as usize);
        let waves = clusters.div_ceil((room * resident / size).max(1).into()) as f64;
        let is_alone = resident > 1 && clusters * u64::from(size) <= room.into();
        let is_shared = cluster == CLUSTER;
        let products = waves * f64::from(self.split_stages(split_k)) * stage_us(tile) * self.slower;
        let time = if self.is_persistent(schedule) {
            let (less, more) = if is_shared { PERSISTENT_SHARED } else { (1.0, 0.0) };
            PERSISTENT_US + more + less * products
        } else {
            let shared = self.shared[usize::from(waves > 1.0)];
            let products =
                products * if is_alone { ALONE } else { 1.0 } * if is_shared { shared } else { 1.0 };
            let added = if split_k > 1 { ADD_US.0 + ADD_US.1 * f64::from(split_k) } else { 0.0 };
            let begin = BEGIN_US.0 + if schedule.starts_early() { 0.0 } else { BEGIN_US.1 };
            begin + products + waves * (NON_PERSISTENT_US + added)
        };
        let [m, n] = [self.m, self.n].map(f64::from);
        let bytes =
            f64::from(self.batches) * (f64::from(ROW_BYTES) * f64::from(self.stages) * (m + n) + 2.0 * m * n);
        time.max(bytes / BYTES_PER_US) + SPARE * time
    }
}

/// Enqueues a GEMM of `mma.sync` kernels with split-K, whose workspace has [`COUNTERS`] counters that are zero.
pub(crate) fn with_workspace(
    stream: &Stream,
    bytes: usize,
    enqueue: impl FnOnce(DevicePtr) -> Result<()>,
) -> Result<()> {
    // Sizes are powers of two, so that larger launches rarely need a new allocation.
    let bytes = bytes.next_power_of_two();
    // SAFETY: the memset and the kernel run on this stream, and the kernel leaves the counters zero.
    unsafe {
        stream.with_scratch("matmul_mma", bytes, |memory, is_new| {
            if is_new {
                let (driver, context) = stream.device().driver();
                driver.memset(context, memory, 0, size_of::<u32>() * COUNTERS, stream.handle())?;
            }
            enqueue(memory)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(m: u32, n: u32, stages: u32) -> Work {
        let (batches, multiprocessors, tiles) = (1, 132, &Schedule::TILES);
        let (has_clusters, is_persistent, slower, shared) = (true, true, 1.0, SHARED);
        Work { m, n, stages, batches, multiprocessors, tiles, has_clusters, is_persistent, slower, shared }
    }

    #[test]
    fn large_products_have_large_tiles_and_few_tiles_are_split() {
        assert_eq!(Schedule::of(work(8192, 8192, 128)), Schedule { tile: LARGE, cluster: 2, split_k: 1 });
        let small = Schedule::of(work(64, 4096, 64));
        assert!(small.tile != LARGE && small.split_k > 1, "{small:?}");
        // Split-K does not pay off for a small K.
        assert_eq!(Schedule::of(work(64, 4096, 2)).split_k, 1);
    }

    #[test]
    fn rows_of_tiles_that_would_be_left_over_are_not_paired() {
        // For 33 tile rows, 17 pairs would require five waves, whereas 33 single tiles require four.
        let work = Work { tiles: &[LARGE], ..work(4097, 4096, 64) };
        assert_eq!(Schedule::of(work), Schedule { tile: LARGE, cluster: 1, split_k: 1 });
    }

    #[test]
    fn kernels_that_there_are_not_are_not_chosen() {
        for m in [1, 64, 100, 4096] {
            let of = |tiles, has_clusters| Schedule::of(Work { tiles, has_clusters, ..work(m, 512, 64) });
            assert_eq!(of(&[LARGE], true).tile, LARGE);
            assert_eq!(of(&[MIDDLE], true).tile, MIDDLE);
            let plain = of(&[LARGE], false);
            assert_eq!((plain.tile, plain.split_k), (LARGE, 1));
        }
    }
}
