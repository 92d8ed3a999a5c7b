//! [`Schedule`]: how a product is divided among the multiprocessors.

use warpsmith_tensor_kernels::matmul::{TILE_M, TILE_N};

/// How a product is divided among the multiprocessors. By default it follows from the sizes, the type and the number of
/// multiprocessors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Schedule {
    /// Blocks of a cluster, which share the tiles of `b`: 1 or 2.
    pub cluster: u32,
    /// Parts of K that are summed by blocks of their own and then added, in their order: 1 for none, which `a` by columns, i8 and
    /// clusters of 2 require.
    pub splits: u32,
}

/// Blocks of a cluster, where C has rows for several.
pub(crate) const CLUSTER: u32 = 2;
/// Rows of tiles from which on an odd one costs less than clusters save.
const MANY_ROWS: u32 = 16;
/// Most parts.
pub(crate) const MOST_SPLITS: u32 = 64;

/// Microseconds of a block for a stage, whatever the type: a stage has the same bytes of each.
const STAGE_US: f64 = 0.6;
/// Microseconds of the launch that adds parts.
const LAUNCH_US: f64 = 3.0;
/// Bytes of parts that are written or read in a microsecond.
const BYTES_PER_US: f64 = 3e6;

/// What a schedule is made for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    pub m: u32,
    pub n: u32,
    /// Stages of K.
    pub stages: u32,
    pub batches: u32,
    pub multiprocessors: u32,
    pub can_split: bool,
}

impl Schedule {
    /// The default.
    pub(crate) fn of(work: Work) -> Self {
        let rows = work.m.div_ceil(TILE_M);
        let tiles = u64::from(rows) * u64::from(work.n.div_ceil(TILE_N)) * u64::from(work.batches);
        let splits =
            if work.can_split && 2 * tiles <= work.multiprocessors.into() { work.splits(tiles) } else { 1 };
        let is_paired = splits == 1 && (rows.is_multiple_of(CLUSTER) || rows >= MANY_ROWS);
        Self { cluster: if is_paired { CLUSTER } else { 1 }, splits }
    }
}

impl Work {
    /// Stages of each of `splits` parts but the last, which has at least one.
    pub fn split_stages(&self, splits: u32) -> u32 {
        self.stages.div_ceil(splits).max(1)
    }

    /// The number of parts that costs least.
    fn splits(&self, tiles: u64) -> u32 {
        let part_bytes = 8.0 * f64::from(self.m) * f64::from(self.n) * f64::from(self.batches);
        let cost = |splits: u32| {
            let waves = (tiles * u64::from(splits)).div_ceil(self.multiprocessors.max(1).into());
            let product = waves as f64 * f64::from(self.split_stages(splits)) * STAGE_US;
            match splits {
                1 => product,
                _ => product + LAUNCH_US + f64::from(splits) * part_bytes / BYTES_PER_US,
            }
        };
        let most = self.stages.min(MOST_SPLITS);
        let best = (1..=most).min_by(|x, y| cost(*x).total_cmp(&cost(*y))).unwrap_or(1);
        // As many as are not empty.
        self.stages.div_ceil(self.split_stages(best)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(m: u32, n: u32, stages: u32, can_split: bool) -> Schedule {
        Schedule::of(Work { m, n, stages, batches: 1, multiprocessors: 132, can_split })
    }

    #[test]
    fn few_tiles_are_split_and_many_are_not() {
        assert_eq!(of(8192, 8192, 128, true), Schedule { cluster: 2, splits: 1 });
        assert_eq!(of(16, 4096, 64, false), Schedule { cluster: 1, splits: 1 });
        let small = of(16, 4096, 64, true);
        assert!(small.cluster == 1 && (4..=16).contains(&small.splits), "{small:?}");
        // Little to sum is not worth another launch.
        assert_eq!(of(16, 4096, 4, true).splits, 1);
    }

    #[test]
    fn no_part_is_empty() {
        for stages in 1..300 {
            let work = Work { m: 64, n: 256, stages, batches: 1, multiprocessors: 132, can_split: true };
            let splits = Schedule::of(work).splits;
            let before_last = (splits - 1) * work.split_stages(splits);
            assert!(before_last < stages, "{stages} stages in {splits} parts");
        }
    }
}
