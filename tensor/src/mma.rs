//! GEMM with `mma.sync`, for devices without `wgmma` and for matrices that TMA cannot copy.

use gpu_std::tensor::{F8E4M3, KMajor, MnMajor};
use gpu_std::{Kernel, param};
use half::{bf16, f16};
use warpsmith_runtime::driver::DevicePtr;
use warpsmith_runtime::{DeviceCopy, Launch, Result};
use warpsmith_tensor_kernels::epilogue::EpilogueParams;
use warpsmith_tensor_kernels::matmul::Sizes;
use warpsmith_tensor_kernels::mma::{
    self as kernels, COUNTERS, MmaNumber, shared_bytes, step, threads, workspace_bytes,
};
use warpsmith_tensor_kernels::simt::Strides;

use crate::IMAGE;
use crate::error::TensorError;
use crate::matrix::{Matrix, check_rows, has_layout};
use crate::schedule::{Schedule, multiprocessors, with_workspace};
use crate::simt::problem;
use crate::skinny::Product;

/// Maximum number of blocks per launch.
const MAX_BLOCKS: u64 = i32::MAX as u64;
/// Bytes of each row of A per stage of the cost model.
const STEP_BYTES: usize = 64;
/// Tile sizes, each with the time that a stage takes per block, in microseconds, if the SM has enough blocks to stay
/// busy. This and the following constants are estimates for an H200; only their ratios matter.
const TILES: [([u32; 2], f64); 3] = [([128, 256], 0.59), ([128, 128], 0.32), ([64, 128], 0.19)];
/// Tile size of the kernels that copy elements one by one.
const UNALIGNED: [u32; 2] = [128, 128];
/// Duration of a stage if each of the four parts of an SM has at most one warp, in microseconds.
const WARP_US: f64 = 0.31;
/// Cost of a block's prologue and epilogue, in microseconds.
const BLOCK_US: f64 = 2.0;
/// Fixed cost of split-K in microseconds, and the elements of partial sums that a block adds per microsecond.
const ADD: (f64, f64) = (1.5, 17e3);

/// Factor of the estimated duration with split-K. It is selected only if it is clearly faster.
const SPLIT: f64 = 1.05;

/// Element types with `mma.sync` kernels.
pub(crate) trait MmaElement: MmaNumber<Output: DeviceCopy> + DeviceCopy {
    fn launch_mma(plan: Plan<'_, '_, Self>) -> Result<()>;
}

/// Selects the kernel instance for the tile.
macro_rules! by_tile {
    ($plan:ident, $kernel:ident<$($ty:ty),*>) => {
        match $plan.schedule.tile {
            [64, _] => $plan.launch::<kernels::$kernel<$($ty,)* 2>>(),
            [_, 128] => $plan.launch::<kernels::$kernel<$($ty,)* 4>>(),
            _ => $plan.launch::<kernels::$kernel<$($ty,)* 8>>(),
        }
    };
}

/// Selects the kernel instance for the layouts of `a` and `b`.
macro_rules! by_layout {
    ($plan:ident, $ty:ty) => {
        match ($plan.product.a.is_transposed, $plan.product.b.is_transposed) {
            (false, true) => by_tile!($plan, matmul_mma<$ty, KMajor, KMajor>),
            (false, false) => by_tile!($plan, matmul_mma<$ty, KMajor, MnMajor>),
            (true, true) => by_tile!($plan, matmul_mma<$ty, MnMajor, KMajor>),
            (true, false) => by_tile!($plan, matmul_mma<$ty, MnMajor, MnMajor>),
        }
    };
}

macro_rules! k_major {
    ($plan:ident, $ty:ty) => {
        by_tile!($plan, matmul_mma_tn<$ty>)
    };
}

macro_rules! elements {
    ($($ty:ty: $select:ident),* $(,)?) => { $(
        impl MmaElement for $ty {
            fn launch_mma(plan: Plan<'_, '_, Self>) -> Result<()> {
                match plan.is_aligned {
                    false => plan.launch::<kernels::matmul_mma_unaligned<$ty>>(),
                    true => $select!(plan, $ty),
                }
            }
        }
    )* };
}
elements!(bf16: by_layout, f16: by_layout, f32: k_major, F8E4M3: k_major, i8: k_major);

/// GEMM of matrices that have been checked, with its schedule.
pub(crate) struct Plan<'a, 'c, T: MmaElement> {
    product: Product<'a, 'c, T, T::Output>,
    /// True for kernels that copy 16 bytes at a time.
    is_aligned: bool,
    schedule: Schedule,
}

/// Enqueues the GEMM of matrices that have been checked.
pub(crate) fn product<T: MmaElement>(product: Product<'_, '_, T, T::Output>) -> Result<()> {
    let Product { operation, stream, schedule, a, b, c, .. } = &product;
    // The kernels copy 16 bytes at a time, and nothing beyond the end of a row.
    let is_aligned = |name, of: &Matrix<'_, T>| {
        check_rows(operation, name, of.elements, of.stored).is_ok()
            && of.stored.columns.is_multiple_of(16 / size_of::<T>())
    };
    let is_aligned = is_aligned("a", a) && is_aligned("b", b) && has_layout::<T>(a, b);
    let work = Work {
        sides: [c.rows() as u32, c.columns() as u32],
        batches: c.planes() as u32,
        stages: (a.columns() * size_of::<T>()).div_ceil(STEP_BYTES) as u32,
        multiprocessors: multiprocessors(stream.device()).max(1),
        slowdown: slowdown(stream.device().capability()),
        is_aligned,
    };
    let schedule = (*schedule).unwrap_or_else(|| work.schedule());
    if !work.has(&schedule) {
        let what = format!("mma.sync kernels do not support {schedule:?}");
        return Err(TensorError::Schedule { operation, what }.into());
    }
    T::launch_mma(Plan { product, is_aligned, schedule })
}

/// GEMM for which a schedule is selected.
#[derive(Debug, Clone, Copy)]
struct Work {
    /// m and n.
    sides: [u32; 2],
    batches: u32,
    /// Number of stages along K.
    stages: u32,
    multiprocessors: u32,
    /// Duration of a stage relative to that on an H200.
    slowdown: f64,
    is_aligned: bool,
}

/// Returns how much longer a stage of a tile takes on an SM of a compute capability than on an SM of an H200.
///
/// The factors are ratios of `bf16` rates per SM. An H200 was measured at 4.8 TFLOP/s with `mma.sync`. NVIDIA specifies
/// 2.9 for an A100, 0.9 (RTX 3090, 8.6) to 1.8 (A10), 1.3 (RTX 4090, 8.9) to 2.6 (L40S) and 1.2 (RTX 5090, 12.0); the
/// factor for all but the A100 is between their ratios.
fn slowdown(capability: (u32, u32)) -> f64 {
    match capability {
        (8, 0) => 1.7,
        (8 | 12, _) => 3.0,
        _ => 1.0,
    }
}

impl Work {
    /// Returns the schedule with the lowest estimated cost.
    fn schedule(&self) -> Schedule {
        let all = TILES
            .iter()
            .flat_map(|&(tile, _)| Schedule::SPLIT_K.map(|split_k| Schedule { tile, cluster: 1, split_k }));
        let all =
            all.filter(|schedule| self.has(schedule) && (schedule.split_k == 1 || self.is_split(schedule)));
        let best = all.min_by(|x, y| self.cost(x).total_cmp(&self.cost(y)));
        best.unwrap_or(Schedule { tile: UNALIGNED, cluster: 1, split_k: 1 })
    }

    /// Returns whether kernels exist for a schedule.
    fn has(&self, schedule: &Schedule) -> bool {
        let Schedule { tile, cluster, split_k } = *schedule;
        let exists = if self.is_aligned { TILES.iter().any(|of| of.0 == tile) } else { tile == UNALIGNED };
        exists && cluster == 1 && (split_k == 1 || split_k > 1 && self.tiles(tile) <= COUNTERS as u64)
    }

    /// Returns whether split-K with this schedule can pay off: each part has several stages, and the blocks fit on the
    /// device at once. This also limits the workspace.
    fn is_split(&self, schedule: &Schedule) -> bool {
        let blocks = self.tiles(schedule.tile) * u64::from(schedule.split_k);
        self.stages >= 4 * schedule.split_k && blocks <= 2 * u64::from(self.multiprocessors)
    }

    /// Returns the number of tiles of `c`.
    fn tiles(&self, [height, width]: [u32; 2]) -> u64 {
        let [m, n] = self.sides;
        u64::from(m.div_ceil(height)) * u64::from(n.div_ceil(width)) * u64::from(self.batches)
    }

    /// Returns the estimated duration in microseconds, without the launch.
    fn cost(&self, schedule: &Schedule) -> f64 {
        let Schedule { tile, split_k, .. } = *schedule;
        let stage = TILES.iter().find(|of| of.0 == tile).map_or(0.0, |of| of.1);
        let blocks = self.tiles(tile) * u64::from(split_k);
        let per_multiprocessor = blocks.div_ceil(self.multiprocessors.into()) as f64;
        let stages = f64::from(self.stages.div_ceil(split_k)) * self.slowdown;
        let sums = f64::from(tile[0] * tile[1] * split_k);
        let added = if split_k > 1 { ADD.0 + sums / ADD.1 } else { 0.0 };
        let time =
            stages * (per_multiprocessor * stage).max(WARP_US) + BLOCK_US * per_multiprocessor.min(2.0);
        if split_k > 1 { SPLIT * (time + added) } else { time }
    }
}

/// Parameters of the kernels.
type Params<T, C> = (
    param::Slice<T>,
    param::Slice<T>,
    param::SliceMut<C>,
    param::Optional<param::Slice<C>>,
    param::PointerMut<u32>,
    param::Value<Sizes>,
    param::Value<Strides>,
    param::Value<EpilogueParams>,
);

impl<T: MmaElement> Plan<'_, '_, T> {
    fn launch<K: Kernel<Params = Params<T, T::Output>>>(self) -> Result<()> {
        let Product { operation, stream, epilogue, a, b, c, .. } = self.product;
        let Schedule { tile, split_k, .. } = self.schedule;
        let [rows, columns] = tile.map(|side| side as usize);
        let (sizes, strides) = problem(&a, &b, &c, step::<T>(rows, columns) as u32);
        let split_stages = sizes.split_stages.div_ceil(split_k).max(1);
        // Rounding up the number of stages per part may leave fewer parts.
        let parts = sizes.split_stages.div_ceil(split_stages).max(1) as usize;
        let sizes = Sizes { split_stages, ..sizes };
        let tiles = c.rows().div_ceil(rows) as u64 * c.columns().div_ceil(columns) as u64 * c.planes() as u64;
        let blocks = tiles * parts as u64;
        if blocks > MAX_BLOCKS {
            let what = format!("c requires {blocks} blocks, more than the maximum of {MAX_BLOCKS}");
            return Err(TensorError::Shape { operation, what }.into());
        }
        let launch =
            Launch::grid_block(blocks as u32, threads(rows, columns)).shared(shared_bytes(rows, columns));
        let kernel = stream.device().load(&IMAGE)?.kernel::<K>()?;
        let enqueue = |workspace: DevicePtr| {
            let finish = epilogue.finish();
            let arguments =
                (a.elements, b.elements, c.elements, epilogue.bias, workspace, sizes, strides, finish);
            // SAFETY: the sizes and strides describe the matrices, in layouts of the kernel instance, which supports
            // their alignment; the views check that the dimensions are below 2^31. `c` is borrowed
            // exclusively, the bias has n elements, and there is one block per tile and part. The workspace has room
            // for the parts, if there are several.
            unsafe { kernel.launch_unsafe(stream, launch, arguments) }
        };
        if parts == 1 {
            return enqueue(DevicePtr::NULL);
        }
        with_workspace(stream, workspace_bytes(rows, columns, blocks as usize), enqueue)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the schedule for an H200.
    fn schedule(sides: [u32; 2], k: u32, is_aligned: bool) -> ([u32; 2], u32) {
        schedule_on(132, (9, 0), sides, k, is_aligned)
    }

    fn schedule_on(
        multiprocessors: u32,
        capability: (u32, u32),
        sides: [u32; 2],
        k: u32,
        is_aligned: bool,
    ) -> ([u32; 2], u32) {
        let stages = (2 * k).div_ceil(STEP_BYTES as u32);
        let slowdown = slowdown(capability);
        let work = Work { sides, batches: 1, stages, multiprocessors, slowdown, is_aligned };
        let Schedule { tile, cluster, split_k } = work.schedule();
        assert_eq!(cluster, 1);
        (tile, split_k)
    }

    /// The table in `docs/benchmarks/tensor-cores.md`.
    #[test]
    fn other_gpus_get_their_own_schedules() {
        // A100, L4, RTX 4090, RTX 5090.
        let gpus = [(108, (8, 0)), (58, (8, 9)), (128, (8, 9)), (170, (12, 0))];
        let schedules = |sides, k| gpus.map(|(count, of)| schedule_on(count, of, sides, k, true));
        let [large, middle, small] = [[128, 256], [128, 128], [64, 128]];
        let expected = [(large, 1), (large, 1), (large, 1), (middle, 1)];
        assert_eq!(schedules([4096, 4096], 4096), expected);
        assert_eq!(schedules([2048, 2048], 2048), [(small, 1), (middle, 1), (large, 1), (large, 1)]);
        assert_eq!(schedules([256, 4096], 4096), [(large, 3), (large, 3), (middle, 2), (middle, 2)]);
        assert_eq!(schedules([64, 4096], 4096), [(small, 3), (small, 3), (small, 8), (small, 8)]);
    }

    #[test]
    fn tiles_fill_the_device() {
        assert_eq!(schedule([8192, 8192], 8192, true), ([128, 256], 1));
        // 33 rows of 17 large tiles would need a fifth wave.
        assert_eq!(schedule([4104, 4104], 4104, true), ([128, 128], 1));
        let (_, split_k) = schedule([128, 4096], 4096, true);
        assert!(split_k > 1);
        // Split-K does not pay off for a small K.
        assert_eq!(schedule([128, 4096], 64, true).1, 1);
        assert_eq!(schedule([8192, 8192], 8192, false), (UNALIGNED, 1));
        assert!(schedule([128, 1024], 8192, false).1 > 1);
    }

    #[test]
    fn there_are_counters_for_all_tiles_of_split_products() {
        let work = |side| Work {
            sides: [side; 2],
            batches: 1,
            stages: 8,
            multiprocessors: 132,
            slowdown: 1.0,
            is_aligned: true,
        };
        let schedule = Schedule { tile: [128, 128], cluster: 1, split_k: 2 };
        assert!(work(64 * 128).has(&schedule) && !work(65 * 128).has(&schedule));
    }
}
