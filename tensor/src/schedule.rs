//! [`Schedule`]: how a product is divided among the multiprocessors.

use warpsmith_runtime::Device;
use warpsmith_tensor_kernels::matmul::{ROW_BYTES, TILE_M, TILE_N};
use warpsmith_tensor_kernels::one_tile;

/// How a product is divided among the multiprocessors. By default it follows from the sizes, the type and the number of
/// multiprocessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// Rows and columns of a tile of `c`: 128 or 64 x 256, 192 or 128. With an `a` by columns, or i8, 128 x 256.
    pub tile: [u32; 2],
    /// Tiles, one above the other, whose blocks are in one cluster and share the tiles of `b`: 1 or 2. With tiles of 192 columns 1.
    pub cluster: u32,
    /// Parts of K that are summed by blocks of their own and then added, in their order: 1, 2, 3, 4 or 8, and no more than 8 in all of a
    /// cluster, whose blocks they are too. With tiles of 192 columns, an `a` by columns, or i8, 1.
    pub splits: u32,
}

/// The tile of the kernels of [`matmul`](mod@warpsmith_tensor_kernels::matmul).
pub(crate) const LARGE: [u32; 2] = [TILE_M, TILE_N];
/// That of kernels that have tiles of one size.
pub(crate) const MIDDLE: [u32; 2] = [one_tile::ROWS as u32, one_tile::COLUMNS as u32];

/// Blocks of a cluster that share tiles.
pub(crate) const CLUSTER: u32 = 2;

/// Microseconds of a multiprocessor for a stage of a tile, whatever the type: a stage has the same bytes of each. This and what follows
/// fits measurements on an H100; `run-tensor DEVICE schedules` of the bundle makes them.
const fn stage_us(tile: [u32; 2]) -> f64 {
    match tile {
        LARGE => 0.65,
        MIDDLE => 0.33,
        [128, 192] => 0.50,
        [64, 256] => 0.36,
        _ => 0.40,
    }
}

/// The time of tiles of 64 x 128, of which two fit into a multiprocessor, when one is there.
const ALONE: f64 = 0.79;
/// The time of tiles that share those of `b`, of blocks with one tile: of one wave, and of several.
pub(crate) const SHARED: [f64; 2] = [0.97, 1.08];
/// That of blocks that go from tile to tile, and what it costs once, in microseconds.
const PERSISTENT_SHARED: (f64, f64) = (0.985, 1.0);
/// Microseconds before the first block begins, and what is more where it does not begin before the launch ahead has ended.
const BEGIN_US: (f64, f64) = (2.0, 2.3);
/// Microseconds before the first product and after the last of a block that goes from tile to tile, with its beginning: once.
const PERSISTENT_US: f64 = 3.0;
/// Those of a block with one tile: for each wave.
const ONE_TILE_US: f64 = 2.0;
/// Microseconds in which the blocks of a cluster add their sums: at least, and for each part.
const ADD_US: (f64, f64) = (0.5, 0.5);
/// Bytes that are read from memory or written in a microsecond.
const BYTES_PER_US: f64 = 2.4e6;
/// What counts of the time that multiprocessors wait for memory: schedules that it bounds are ordered by what they have to spare.
const SPARE: f64 = 0.02;

/// Of 132 multiprocessors those that have room for clusters of this number of blocks, which lie in one of the GPU's parts. Those of
/// 3 and 6 blocks are estimated.
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

/// What a schedule is made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub m: u32,
    pub n: u32,
    /// Stages of K.
    pub stages: u32,
    pub batches: u32,
    pub multiprocessors: u32,
    /// The tiles that there are kernels for.
    pub tiles: &'static [[u32; 2]],
    /// Whether there are kernels whose blocks have one tile, or a part of K of one.
    pub has_clusters: bool,
    /// Whether there are kernels for large tiles whose blocks go from tile to tile.
    pub is_persistent: bool,
    /// How much longer a stage takes than one of a single product.
    pub slower: f64,
    /// [`SHARED`], or that of kernels which memory bounds otherwise.
    pub shared: [f64; 2],
}

/// Multiprocessors to divide products among. Emulated devices have as many as small products in tests need to have all schedules.
pub(crate) fn multiprocessors(device: &Device) -> u32 {
    if device.is_emulated() { 16 } else { device.properties().multiprocessors }
}

impl Schedule {
    /// The tiles that there are.
    pub const TILES: [[u32; 2]; 6] = [LARGE, [128, 192], MIDDLE, [64, 256], [64, 192], [64, 128]];

    /// The parts of K that there are.
    pub const SPLITS: [u32; 5] = [1, 2, 3, 4, 8];

    /// The default of a product of 16-bit numbers of more than 16 rows, with an `a` of m x k and `b` of k x n elements, both with k
    /// adjacent in memory, and a `c` whose rows begin at multiples of 16 bytes.
    ///
    /// ```
    /// use warpsmith_runtime::Device;
    /// use warpsmith_tensor::Schedule;
    ///
    /// # fn main() -> Result<(), warpsmith_runtime::Error> {
    /// let schedule = Schedule::of_product(&Device::emulated(0)?, [4096, 4096, 4096]);
    /// assert!(Schedule::TILES.contains(&schedule.tile) && schedule.exists());
    /// # Ok(())
    /// # }
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

    /// Whether there are kernels for it, but with an `a` by columns, or i8.
    pub fn exists(&self) -> bool {
        self.missing(&Self::TILES, true).is_none()
    }

    /// Whether blocks with one tile begin while those of the launch ahead still run. Where larger clusters, or several blocks of a
    /// multiprocessor, take the places that these leave, they lie unevenly: measured, that costs more.
    pub(crate) fn starts_early(&self) -> bool {
        let [height, width] = self.tile;
        self.cluster * self.splits <= 2 && one_tile::resident(height as usize, width as usize) == 1
    }

    /// Which part of it there is not, and what there is.
    pub(crate) fn missing(&self, tiles: &[[u32; 2]], has_clusters: bool) -> Option<String> {
        let Self { tile, cluster, splits } = *self;
        let [rows, columns] = tile;
        Some(if !Self::TILES.contains(&tile) {
            format!(
                "tiles of {rows} x {columns}: there are those of 128 or 64 rows, and 256, 192 or 128 columns"
            )
        } else if !tiles.contains(&tile) {
            format!("tiles of {rows} x {columns} need an a by rows, and another type than i8")
        } else if cluster != 1 && cluster != CLUSTER {
            format!("clusters of {cluster} blocks: 1 or 2 share tiles of b")
        } else if !Self::SPLITS.contains(&splits) || splits > one_tile::MOST_IN_CLUSTER / cluster {
            format!(
                "{splits} parts of K for each of {cluster} tiles: the blocks of a cluster sum 1, 2, 3, 4 or 8"
            )
        } else if columns == 192 && (cluster > 1 || splits > 1) {
            format!("{splits} parts of K for each of {cluster} tiles of 192 columns: they have 1 of each")
        } else if splits > 1 && !has_clusters {
            "parts of K need an a by rows, and another type than i8".to_owned()
        } else {
            return None;
        })
    }

    /// The default: the one that costs least.
    pub(crate) fn of(work: Work) -> Self {
        let all = work.tiles.iter().flat_map(|&tile| {
            [CLUSTER, 1]
                .into_iter()
                .flat_map(move |cluster| Self::SPLITS.map(move |splits| Self { tile, cluster, splits }))
        });
        let all = all.filter(|schedule| schedule.missing(work.tiles, work.has_clusters).is_none());
        let best = all.min_by(|x, y| work.cost(x).total_cmp(&work.cost(y)));
        best.unwrap_or(Self { tile: LARGE, cluster: 1, splits: 1 })
    }
}

impl Work {
    /// Stages of each of `splits` parts but the last.
    pub fn split_stages(&self, splits: u32) -> u32 {
        self.stages.div_ceil(splits).max(1)
    }

    /// Whether a schedule is that of blocks that go from tile to tile.
    pub fn is_persistent(&self, schedule: &Schedule) -> bool {
        self.is_persistent && schedule.tile == LARGE && schedule.splits == 1
    }

    /// Microseconds, about.
    fn cost(&self, schedule: &Schedule) -> f64 {
        let Schedule { tile: tile @ [height, width], cluster, splits } = *schedule;
        let rows = u64::from(self.m.div_ceil(height * cluster));
        let clusters = rows * u64::from(self.n.div_ceil(width)) * u64::from(self.batches);
        let size = cluster * splits;
        let room = self.multiprocessors * in_clusters(size) / in_clusters(1);
        let resident = one_tile::resident(height as usize, width as usize);
        let waves = clusters.div_ceil((room * resident / size).max(1).into()) as f64;
        let is_alone = resident > 1 && clusters * u64::from(size) <= room.into();
        let is_shared = cluster == CLUSTER;
        let products = waves * f64::from(self.split_stages(splits)) * stage_us(tile) * self.slower;
        let time = if self.is_persistent(schedule) {
            let (less, more) = if is_shared { PERSISTENT_SHARED } else { (1.0, 0.0) };
            PERSISTENT_US + more + less * products
        } else {
            let shared = self.shared[usize::from(waves > 1.0)];
            let products =
                products * if is_alone { ALONE } else { 1.0 } * if is_shared { shared } else { 1.0 };
            let added = if splits > 1 { ADD_US.0 + ADD_US.1 * f64::from(splits) } else { 0.0 };
            let begin = BEGIN_US.0 + if schedule.starts_early() { 0.0 } else { BEGIN_US.1 };
            begin + products + waves * (ONE_TILE_US + added)
        };
        let [m, n] = [self.m, self.n].map(f64::from);
        let bytes =
            f64::from(self.batches) * (f64::from(ROW_BYTES) * f64::from(self.stages) * (m + n) + 2.0 * m * n);
        time.max(bytes / BYTES_PER_US) + SPARE * time
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
        assert_eq!(Schedule::of(work(8192, 8192, 128)), Schedule { tile: LARGE, cluster: 2, splits: 1 });
        let small = Schedule::of(work(64, 4096, 64));
        assert!(small.tile != LARGE && small.splits > 1, "{small:?}");
        // Little to sum is not worth adding.
        assert_eq!(Schedule::of(work(64, 4096, 2)).splits, 1);
    }

    #[test]
    fn rows_of_tiles_that_would_be_left_over_are_not_paired() {
        // 33 rows of tiles: 17 pairs would take five waves, and 33 four.
        let work = Work { tiles: &[LARGE], ..work(4097, 4096, 64) };
        assert_eq!(Schedule::of(work), Schedule { tile: LARGE, cluster: 1, splits: 1 });
    }

    #[test]
    fn kernels_that_there_are_not_are_not_chosen() {
        for m in [1, 64, 100, 4096] {
            let of = |tiles, has_clusters| Schedule::of(Work { tiles, has_clusters, ..work(m, 512, 64) });
            assert_eq!(of(&[LARGE], true).tile, LARGE);
            assert_eq!(of(&[MIDDLE], true).tile, MIDDLE);
            let plain = of(&[LARGE], false);
            assert_eq!((plain.tile, plain.splits), (LARGE, 1));
        }
    }
}
