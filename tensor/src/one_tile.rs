//! [`Clusters`]: how products of types with tiles of one size are divided among clusters.

use warpsmith_core::{Launch, Result, Stream};
use warpsmith_tensor_kernels::matmul::Sizes;
use warpsmith_tensor_kernels::one_tile::{MOST_BLOCKS, TILE_N, shared_bytes, threads};

use crate::error::TensorError;
use crate::matrix::{Matrix, MatrixMut};

/// Stages that a part of K has at least.
const FEWEST_STAGES: u32 = 8;
/// Most blocks of a launch.
const MOST: u64 = i32::MAX as u64;

/// Clusters for tiles of `rows` rows, which are the more the fewer tiles there are.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clusters {
    /// What the kernel is told.
    pub sizes: Sizes,
    /// Tiles of a cluster, one above the other: 1 or 2.
    pub shared_by: u32,
    rows: usize,
    splits: u32,
    blocks: u32,
}

impl Clusters {
    /// For products of matrices that were checked, with `tile_k` columns of `a` in a stage.
    ///
    /// # Errors
    /// [`TensorError::Shape`] for more tiles than a launch has blocks.
    pub fn new<T, C>(
        operation: &'static str,
        stream: &Stream,
        rows: usize,
        tile_k: u32,
        (a, b, c): (&Matrix<'_, T>, &Matrix<'_, T>, &MatrixMut<'_, C>),
    ) -> Result<Self>
    where
        T: warpsmith_core::DeviceCopy,
        C: warpsmith_core::DeviceCopy,
    {
        let (m, n, k) = (c.rows(), c.columns(), a.columns());
        let shared_by = if m > rows { 2 } else { 1 };
        let high = m.div_ceil(rows * shared_by) as u64 * shared_by as u64;
        let tiles = high * (n as u64).div_ceil(TILE_N.into()) * c.planes() as u64;
        let stages = (k as u32).div_ceil(tile_k);
        let multiprocessors = stream.device().properties().multiprocessors;
        let fits = |splits: &u32| {
            splits * shared_by as u32 <= MOST_BLOCKS
                && tiles * u64::from(*splits) <= multiprocessors.into()
                && stages / splits >= FEWEST_STAGES
        };
        let splits = [8, 4, 2].into_iter().find(fits).unwrap_or(1);
        let blocks = tiles * u64::from(splits);
        if blocks > MOST {
            let what = format!("c has {tiles} tiles of {rows} x {TILE_N}, more than {MOST}");
            return Err(TensorError::Shape { operation, what }.into());
        }
        let sizes = Sizes {
            m: m as u32,
            n: n as u32,
            k: k as u32,
            batches: c.planes() as u32,
            a_planes: a.planes() as u32,
            b_planes: b.planes() as u32,
            splits: 1,
            split_stages: stages.div_ceil(splits),
        };
        Ok(Self { sizes, shared_by: shared_by as u32, rows, splits, blocks: blocks as u32 })
    }

    /// The launch of a kernel with so many stages of `parts` tiles of each operand.
    pub fn launch(&self, stages: usize, parts: u32) -> Launch {
        Launch::grid_block(self.blocks, threads(self.rows))
            .shared(shared_bytes(self.rows, stages, parts))
            .cluster(self.splits * self.shared_by)
    }

    /// Columns of a copy of `b`.
    pub fn columns(&self) -> u32 {
        TILE_N / self.shared_by
    }
}
