//! [`product`]: the tile of a block, which all skinny kernels compute.

use core::array::from_fn;
use core::mem::MaybeUninit;

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::shared::{self, commit_copies, wait_copies_leaving};
use gpu_std::tensor::mma::mma;
use gpu_std::vectorized::{each, load_or};

use super::columns::{Columns, Slot, eight};
use super::row::Row;
use super::{CHUNK_K, GROUP_M, LANES, MAX_CHUNKS, MAX_M, MAX_WARPS, STAGES, SkinnySizes, TILE_N};
use crate::epilogue::{EpilogueParams, silu};
use crate::number4::{Number4, both};
use crate::tiles::divide;

/// Tile of a block.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub plane: u64,
    first_row: u32,
    first_column: u32,
}

impl Place {
    #[inline(always)]
    pub fn new<const GROUPS: usize, const TILES: usize>(sizes: &SkinnySizes) -> Self {
        let (height, width) = (GROUP_M * GROUPS as u32, width::<TILES>(sizes));
        let (number, column) = divide(thread::block_idx_x(), sizes.n.div_ceil(width));
        let (plane, row) = divide(number, sizes.m.div_ceil(height));
        Self { plane: plane.into(), first_row: row * height, first_column: column * width }
    }
}

/// Returns the number of columns of C per block, a power of two.
#[inline(always)]
fn width<const TILES: usize>(sizes: &SkinnySizes) -> u32 {
    if TILES == 2 && sizes.gate == 0 { 2 * TILE_N } else { TILE_N }
}

/// RMS norm of the rows of A.
#[derive(Clone, Copy)]
pub(super) struct Norm<'a, T> {
    /// Factor of each column of A. Without it, the rows are not normalized.
    pub weight: Option<&'a [T]>,
    /// Number that is added to the mean of the squares.
    pub epsilon: f32,
}

/// Computes the tile of a block. If `IS_ROW`, A has one row, which the block stores in shared memory.
///
/// # Safety
///
/// The caller must uphold the safety contracts of the kernels.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "they are those of the kernels")]
pub(super) unsafe fn product<
    T: Number4,
    B: Columns<T>,
    const GROUPS: usize,
    const TILES: usize,
    const IS_ROW: bool,
>(
    a: &[T],
    b: B,
    c: &mut DisjointMut<T>,
    bias: Option<&[T]>,
    norm: Norm<'_, T>,
    sizes: SkinnySizes,
    place: Place,
    finish: EpilogueParams,
) {
    /// Length of a row of sums in shared memory, twice [`TILE_N`]. Each warp has one row of sums for each row of A.
    const ROW: usize = 2 * TILE_N as usize;
    let SkinnySizes { m, n, k, gate, reads_early, .. } = sizes;
    let Place { plane, first_row, first_column } = place;
    if reads_early == 0 {
        grid::dependency_wait();
    }
    let (lane, warp) = (warp::lane_id(), thread::thread_idx_x() / 32);
    let warps = thread::block_dim_x() / 32;
    let (row, quarter) = (lane / 4, lane % 4);

    // Out-of-bounds columns repeat the last column and are not stored.
    let width = width::<TILES>(&sizes);
    let columns: [[B::Column; 2]; TILES] = from_fn(|tile| {
        let tile = tile as u32;
        let first = first_column + ((TILE_N * tile) & (width - 1));
        from_fn(|half| b.column((first + 8 * half as u32 + row).min(n - 1) + tile * gate))
    });
    let rows: [*const T; GROUPS] = from_fn(|group| {
        let row = (first_row + GROUP_M * group as u32 + row).min(m - 1);
        a.as_ptr().wrapping_add((plane * sizes.a_plane + u64::from(row) * sizes.a_pitch) as usize)
    });
    let step = CHUNK_K * B::CHUNKS as u32;
    let hop = warps * step;
    // Each warp has its own stages.
    let memory = shared::dynamic_aligned::<[u32; 4]>();
    let of_warp = const { STAGES * TILES * 2 * B::LOADS * LANES };
    let places = memory.wrapping_add(warp as usize * of_warp);
    let stored_row = Row::new::<T, B>(memory.wrapping_add(warps as usize * of_warp), k);
    let place = |stage: u32, tile: usize, half: usize| {
        let of_stage = places.wrapping_add((stage * (TILES * 2 * B::LOADS * LANES) as u32) as usize);
        of_stage.wrapping_add((tile * 2 + half) * B::LOADS * LANES)
    };
    let own = Slot::new(places.wrapping_add(lane as usize));
    // A single branch covers all copies of a step.
    let copy = |at: u32, stage: u32| {
        let to = own.add(stage * (TILES * 2 * B::LOADS * LANES) as u32);
        let copy = |is_inside: bool| {
            let mut i = 0;
            while i < 2 * TILES {
                let to = to.add((i * B::LOADS * LANES) as u32);
                // SAFETY: the columns are inside B. The slots belong to this thread, and the lanes that read them no
                // longer need their previous contents.
                unsafe { b.copy(columns[i / 2][i % 2], at, [row, quarter], is_inside, to) };
                i += 1;
            }
        };
        if at + step <= k {
            copy(true);
        } else {
            copy(false);
        }
        commit_copies();
    };
    // If all steps are whole, the loads of a step that does not exist are those of the last step.
    let existing = |at: u32| if B::IS_WHOLE { at.min(k - step) } else { at };
    // SAFETY: these are rows of A.
    let of_a = |at: u32| unsafe { chunks::<T, B, GROUPS>(rows, existing(at), quarter, k) };
    let beside = |at: u32| {
        // SAFETY: the columns are inside B.
        columns.map(|halves| halves.map(|column| unsafe { b.beside(column, existing(at)) }))
    };

    let prefetch = |at: u32| columns.map(|halves| halves.map(|column| b.prefetch(column, existing(at))));
    // Four values, so that each has its own register and the loop does not copy them. If sums of A are used, k is a
    // multiple of the step.
    let minus_ones: [u32; 4] = from_fn(|i| both(T::MINUS_CODE) | (k % step) << i);
    let mut sums = [[[0.0f32; 4]; TILES]; GROUPS];
    // The sum of the lanes of a quad is that of the row.
    let mut squares = [0.0f32; GROUPS];
    let mut at = warp * step;
    let has_steps = at < k;
    // Scales come from memory. Those of steps with one scale per column are loaded two steps before they are used.
    // Steps with several scales would need too many registers; their scales are prefetched to the L2 cache.
    let mut scales = MaybeUninit::uninit();
    if has_steps {
        scales.write([beside(at), beside(at + hop)]);
        let mut stage = 0;
        while stage < STAGES as u32 - 1 {
            if B::IS_FINE {
                prefetch(at + stage * hop);
            }
            copy(at + stage * hop, stage);
            stage += 1;
        }
    }
    grid::dependency_wait();
    if !has_steps {
        grid::launch_dependents();
    }
    let mut square_of_row = 0.0;
    if IS_ROW {
        // SAFETY: the row has k elements, and all threads execute this call.
        square_of_row = unsafe { stored_row.fill::<T, B>(rows[0], norm.weight, k) };
        thread::sync_threads();
    }
    let mut numbers = if IS_ROW || !has_steps { [[[0; 4]; GROUPS]; MAX_CHUNKS] } else { of_a(at) };
    let mut stage = 0;
    while at < k {
        let weight = norm.weight.filter(|_| !IS_ROW);
        // SAFETY: the weight has k elements.
        let weights = weight.map(|weight| unsafe { chunks::<T, B, 1>([weight.as_ptr()], at, quarter, k) });
        // This copy reuses the stage of the preceding step, whose products have been computed.
        if B::SHARES {
            warp::sync_warp(!0);
        }
        // SAFETY: these scales have been loaded, because a step exists.
        let [first, second] = unsafe { scales.assume_init() };
        let groups = if B::IS_FINE { beside(at) } else { first };
        // For one row, the registers of the second scales are worth more than their earlier load.
        let second = if IS_ROW && !B::IS_FINE { beside(at + hop) } else { second };
        let next = at + (STAGES as u32 - 1) * hop;
        if next + hop >= k {
            // The next launch starts its copies of B when this one has issued its last ones.
            grid::launch_dependents();
        }
        if B::IS_FINE {
            prefetch(next);
        }
        copy(next, if stage == 0 { STAGES as u32 - 1 } else { stage - 1 });
        wait_copies_leaving::<{ STAGES - 1 }>();
        if B::SHARES {
            warp::sync_warp(!0);
        }
        if let Some(weights) = weights {
            each::<GROUPS>(|group| {
                // The products of the rows with each other. Those of a row with itself are on the diagonal.
                let mut products = [0.0; 4];
                each::<MAX_CHUNKS>(|chunk| {
                    if chunk < B::CHUNKS {
                        let of_a = &mut numbers[chunk][group];
                        let [x, y, z, w] = *of_a;
                        // SAFETY: the whole warp executes this call, because `at` is the same in all lanes.
                        products = unsafe {
                            mma::<T>(mma::<T>(products, [x, x, y, y], [x, y]), [z, z, w, w], [z, w])
                        };
                        each::<4>(|i| of_a[i] = T::multiply_add(of_a[i], weights[chunk][0][i], 0x8000_8000));
                    }
                });
                // The lane has the products of its row with two others, of which one may be the row itself.
                if quarter == row / 2 {
                    squares[group] += if row % 2 == 0 { products[0] } else { products[1] };
                }
            });
        }
        let loaded: [[B::Loaded; 2]; TILES] = from_fn(|tile| {
            from_fn(|half| {
                // SAFETY: the copies of the stage are complete.
                unsafe { b.loaded(place(stage, tile, half), &groups[tile][half], [row, quarter]) }
            })
        });
        let mut products = [[[0.0f32; 4]; TILES]; GROUPS];
        let mut minus_a = [[0.0f32; 4]; GROUPS];
        let mut chunk = 0;
        while chunk < B::CHUNKS {
            let of_a = if IS_ROW {
                // SAFETY: the row has been stored.
                [unsafe { stored_row.elements(at, chunk, quarter) }; GROUPS]
            } else {
                numbers[chunk].map(B::ordered)
            };
            if B::USES_SUMS && !IS_ROW {
                each::<GROUPS>(|group| {
                    let [x, y, z, w] = of_a[group];
                    // SAFETY: the whole warp executes this call, because `at` is the same in all lanes.
                    minus_a[group] =
                        unsafe { mma::<T>(mma::<T>(minus_a[group], minus_ones, [x, y]), minus_ones, [z, w]) };
                });
            }
            let mut tile = 0;
            while tile < TILES {
                let mut part = 0;
                while part < B::PARTS {
                    let [low, high] = loaded[tile].each_ref().map(|loaded| {
                        // SAFETY: the elements belong to the current step.
                        unsafe { B::numbers(loaded, chunk, part) }
                    });
                    let mut i = 0;
                    while i < 2 * GROUPS {
                        let (group, pair) = (i / 2, i % 2 * 2);
                        let of_b = [low[pair], high[pair], low[pair + 1], high[pair + 1]];
                        // SAFETY: as above.
                        products[group][tile] = unsafe {
                            mma::<T>(products[group][tile], of_b, [of_a[group][pair], of_a[group][pair + 1]])
                        };
                        i += 1;
                    }
                    part += 1;
                }
                tile += 1;
            }
            if B::IS_FINE || chunk + 1 == B::CHUNKS {
                if B::USES_SUMS && IS_ROW {
                    // SAFETY: the sums have been stored.
                    minus_a = [[unsafe { stored_row.minus_sum::<T, B>(at, chunk) }; 4]; GROUPS];
                }
                let mut i = 0;
                while i < GROUPS * TILES {
                    let (group, tile) = (i / TILES, i % TILES);
                    sums[group][tile] = from_fn(|i| {
                        // Odd numbers belong to odd rows of A.
                        if IS_ROW && i % 2 == 1 {
                            return 0.0;
                        }
                        let (sum, product) = (sums[group][tile][i], products[group][tile][i]);
                        b.add(&groups[tile][i / 2], chunk, sum, product, minus_a[group][i])
                    });
                    products[group][tile] = [0.0; 4];
                    i += 1;
                }
                minus_a = [[0.0; 4]; GROUPS];
            }
            chunk += 1;
        }
        at += hop;
        // These loads complete while the warp waits for the next copies.
        if !IS_ROW {
            numbers = of_a(at);
        }
        scales.write([second, if IS_ROW { second } else { beside(at + hop) }]);
        stage = if stage + 1 == STAGES as u32 { 0 } else { stage + 1 };
    }
    // The sums reuse the memory of the copied elements.
    thread::sync_threads();
    let stage = shared::dynamic_aligned::<f32>();
    let squares_at = warps as usize * MAX_M as usize * ROW;
    let mut group = 0;
    while group < GROUPS {
        let mut tile = 0;
        while tile < TILES {
            let mut i = 0;
            while i < 4 {
                let of_row = warp as usize * MAX_M as usize
                    + GROUP_M as usize * group
                    + (2 * quarter) as usize
                    + i % 2;
                let column = TILE_N as usize * tile + row as usize + 8 * (i / 2);
                // SAFETY: each sum of a warp has its own slot.
                unsafe { stage.add(of_row * ROW + column).write(sums[group][tile][i]) };
                i += 1;
            }
            tile += 1;
        }
        let mut square = if IS_ROW { square_of_row } else { squares[group] };
        let mut distance = 1;
        while distance < if IS_ROW { 32 } else { 4 } {
            square += warp::shuffle_xor(!0, square, distance);
            distance *= 2;
        }
        let of_row = warp as usize * MAX_M as usize + GROUP_M as usize * group + row as usize;
        if quarter == 0 {
            // SAFETY: each row of a warp has its own slot, after the sums.
            unsafe { stage.add(squares_at + of_row).write(square) };
        }
        group += 1;
    }
    thread::sync_threads();

    let mut i = thread::thread_idx_x();
    while i < width * GROUP_M * GROUPS as u32 {
        let (row, column) = (i >> width.trailing_zeros(), i & (width - 1));
        // Adds one value per warp: that of the first warp is at `first`, and the next ones follow at distance `pitch`.
        let sum = |first: usize, pitch: usize| {
            let mut sum = 0.0;
            each::<MAX_WARPS>(|warp| {
                if (warp as u32) < warps {
                    // SAFETY: the value was written before the barrier.
                    sum += unsafe { stage.add(first + warp * pitch).read() };
                }
            });
            sum
        };
        let (to_row, to_column) = (first_row + row, first_column + column);
        let mut factor = 1.0;
        if norm.weight.is_some() {
            let square = sum(squares_at + row as usize, MAX_M as usize);
            factor = Math::rsqrt(square / k.max(1) as f32 + norm.epsilon);
        }
        if to_row < m && to_column < n {
            let result = |tile: u32| {
                let at = (to_column + tile * gate) as usize;
                // SAFETY: the bias has one element per column of B.
                let bias = bias.map(|bias| unsafe { *bias.get_unchecked(at) }.cast::<f32>());
                let sum = sum(row as usize * ROW + (column + TILE_N * tile) as usize, MAX_M as usize * ROW);
                finish.of(factor * sum, bias)
            };
            let to = plane * sizes.c_plane + u64::from(to_row) * sizes.c_pitch + u64::from(to_column);
            let to = c.as_mut_ptr().wrapping_add(to as usize);
            let mut value = result(0);
            if TILES == 2 && gate != 0 {
                value = silu(value) * result(1);
            }
            // SAFETY: the element is inside C, and no other thread accesses it.
            unsafe {
                if finish.accumulates != 0 {
                    value += to.read().cast::<f32>();
                }
                to.write(value.cast::<T>());
            }
        }
        i += thread::block_dim_x();
    }
}

/// Loads the lane's elements of some rows for the step that starts at `at`. Elements beyond k are zero.
///
/// # Safety
///
/// The rows must have k elements and start on 16-byte boundaries. If [`Columns::IS_WHOLE`], the step must be inside K.
#[inline(always)]
unsafe fn chunks<T: Number4, B: Columns<T>, const N: usize>(
    rows: [*const T; N],
    at: u32,
    quarter: u32,
    k: u32,
) -> [[[u32; 4]; N]; MAX_CHUNKS] {
    let all = |is_inside: bool| {
        from_fn(|chunk| {
            rows.map(|row| {
                if chunk >= B::CHUNKS {
                    return [0; 4];
                }
                let first = at + B::at(chunk, quarter);
                // SAFETY: the rows contain all elements of a step that is entirely inside K.
                unsafe {
                    if is_inside {
                        let of_lane = row.wrapping_add((at + B::at(0, quarter)) as usize);
                        // Otherwise, LLVM would move the loads of the next step to where the elements are used.
                        load_or::<u32, 4, true>(
                            of_lane.wrapping_add(B::at(chunk, 0) as usize).cast(),
                            true,
                            [0; 4],
                        )
                    } else {
                        eight::<T, true>(row, first, k)
                    }
                }
            })
        })
    };
    if B::IS_WHOLE || at + CHUNK_K * B::CHUNKS as u32 <= k { all(true) } else { all(false) }
}
