//! [`Clusters`]: the GEMM schedule for types that support only one tile size.

use warpsmith_runtime::{DeviceCopy, Launch, Result, Stream};
use warpsmith_tensor_kernels::matmul::Sizes;
use warpsmith_tensor_kernels::non_persistent::{COLUMNS, ROWS, THREADS_ALONE, shared_bytes};

use crate::error::TensorError;
use crate::matrix::{Matrix, MatrixMut};
use crate::schedule::{MIDDLE, Schedule, Work, multiprocessors};

/// Maximum number of blocks per launch.
const MAX_BLOCKS: u64 = i32::MAX as u64;

/// Schedule of a kernel launched in thread block clusters, with tiles of `ROWS` x `COLUMNS`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clusters {
    /// Problem size, as passed to the kernel.
    pub sizes: Sizes,
    schedule: Schedule,
    blocks: u32,
}

impl Clusters {
    /// Selects the schedule for matrices that have been checked; a stage covers `tile_k` columns of `a`. `slower` is
    /// the duration of a stage relative to a stage of a single GEMM. `shared` is the relative duration of clusters
    /// whose blocks share tiles of `b`.
    ///
    /// # Errors
    /// Returns [`TensorError::Shape`] if the number of tiles exceeds the maximum number of blocks per launch.
    pub fn new<T: DeviceCopy, C: DeviceCopy>(
        operation: &'static str,
        stream: &Stream,
        (tile_k, slower, shared): (u32, f64, [f64; 2]),
        (a, b, c): (&Matrix<'_, T>, &Matrix<'_, T>, &MatrixMut<'_, C>),
    ) -> Result<Self> {
        let work = Work {
            m: c.rows() as u32,
            n: c.columns() as u32,
            stages: (a.columns() as u32).div_ceil(tile_k),
            batches: c.planes() as u32,
            multiprocessors: multiprocessors(stream.device()),
            tiles: &[MIDDLE],
            has_clusters: true,
            is_persistent: false,
            slower,
            shared,
        };
        let schedule = Schedule::of(work);
        let Schedule { tile: [height, width], cluster, split_k } = schedule;
        let high = u64::from(work.m.div_ceil(height * cluster)) * u64::from(cluster);
        let blocks = high * u64::from(work.n.div_ceil(width)) * u64::from(work.batches) * u64::from(split_k);
        if blocks > MAX_BLOCKS {
            let what = format!("c requires {blocks} blocks, more than the maximum of {MAX_BLOCKS}");
            return Err(TensorError::Shape { operation, what }.into());
        }
        let sizes = Sizes {
            m: work.m,
            n: work.n,
            k: a.columns() as u32,
            batches: work.batches,
            a_planes: a.planes() as u32,
            b_planes: b.planes() as u32,
            split_stages: work.split_stages(split_k),
        };
        Ok(Self { sizes, schedule, blocks: blocks as u32 })
    }

    /// Returns the launch configuration of a kernel that has `stages` pipeline stages with `parts` tiles per operand.
    pub fn launch(&self, stages: usize, parts: u32) -> Launch {
        Launch::grid_block(self.blocks, THREADS_ALONE)
            .shared(shared_bytes(ROWS, COLUMNS, stages, parts))
            .cluster(self.schedule.split_k * self.schedule.cluster)
    }

    /// Returns the number of vertically adjacent tiles per cluster.
    pub fn shared_by(&self) -> u32 {
        self.schedule.cluster
    }
}
