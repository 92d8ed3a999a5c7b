//! `C = A * B` for an A of few rows, as when a model generates one token after the other: bound by the memory of B, whose columns
//! are adjacent in memory, as 16-bit numbers or as 4-bit weights.
//!
//! Each lane copies 16 bytes of columns of B to places of its own in shared memory, several steps before it multiplies them by
//! `mma.m16n8k16`: B takes the side of 16 rows, the rows of A that of 8 columns. The warps of a block sum interleaved parts of K,
//! which are added in the order of the warps. Numbers of A come to registers a step ahead.
//!
//! Which numbers of a row meet in an instruction does not matter as long as both operands agree, so that no lane needs what
//! another has copied, and no barrier is between the copies and the products.

mod columns;

use core::array::from_fn;

use gpu_std::prelude::*;
use gpu_std::shared::{self, commit_copies, wait_copies_leaving};
use gpu_std::tensor::mma::{WarpOperand, mma};
use gpu_std::vectorized::load;

use self::columns::{Codes, Columns, Plain, eight};
use crate::epilogue::Finish;
use crate::number4::Number4;
use crate::tiles::divide;

/// Rows of A that an instruction multiplies.
pub const GROUP_M: u32 = 8;
/// Most rows of A that a block multiplies at once.
pub const MOST_M: u32 = 2 * GROUP_M;
/// Columns of B of an instruction.
pub const TILE_N: u32 = 16;
/// Columns of B to a scale of 4-bit weights.
pub const GROUP_K: u32 = 128;
/// Threads of a block.
pub const THREADS: u32 = 32 * WARPS as u32;

const WARPS: usize = 8;
/// Steps whose columns of B have places: one that is multiplied, and those under way.
const STAGES: usize = 3;
/// The most chunks of a step.
const MOST_CHUNKS: usize = 4;
/// Columns of `A` in 16 bytes of each lane.
const CHUNK_K: u32 = 32;

/// Bytes of shared memory of a launch with this number of tiles: of 16-bit numbers, or of 4-bit weights.
///
/// The sums of the warps have room there at the end.
pub const fn shared_bytes(tiles: u32, is_4bit: bool) -> u32 {
    let loads = if is_4bit { 1 } else { 2 };
    16 * THREADS * 2 * tiles * loads * STAGES as u32
}

/// Blocks of a multiprocessor, for which the registers of a thread are bounded where that costs no spills.
const fn resident_4bit(groups: usize, tiles: usize) -> u32 {
    if groups * tiles < 4 { 2 } else { 1 }
}

/// What is multiplied; distances in elements.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct FewRows {
    /// Rows of A and C.
    pub m: u32,
    /// Columns of B and C.
    pub n: u32,
    /// Columns of A and rows of B.
    pub k: u32,
    /// From a row of A to the next.
    pub a_pitch: u64,
    /// From a column of B to the next; 4-bit weights have none between.
    pub b_pitch: u64,
    /// From a row of C to the next.
    pub c_pitch: u64,
    /// From a matrix A to the next, or 0.
    pub a_plane: u64,
    /// From a matrix B to the next, or 0.
    pub b_plane: u64,
    /// From a matrix C to the next.
    pub c_plane: u64,
}

/// `c = activation(scale * a * b + bias)`: each block multiplies `8 * GROUPS` rows of A by `16 * TILES` columns of B. Successive
/// blocks have successive columns, then the next rows, and then the next matrices.
///
/// # Safety
///
/// - The slices have the matrices that `sizes` says, with m and n at least 1. Rows of A and columns of B begin at multiples of
///   16 bytes.
/// - `bias` has n elements. `c` overlaps neither `a` nor `b`.
/// - The grid has one dimension and covers columns, rows and matrices, and the launch has [`shared_bytes`].
#[kernel(
    types(T = bf16, f16),
    consts(GROUPS = 1, 2; TILES = 1, 2),
    arch = 80,
    block(THREADS),
    // By itself ptxas spills to have two.
    launch_bounds(THREADS, 1),
    no_panic
)]
pub unsafe fn few_rows<T: WarpOperand, const GROUPS: usize, const TILES: usize>(
    a: &[T],
    b: &[T],
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    sizes: FewRows,
    finish: Finish,
) {
    let place = Place::new::<GROUPS, TILES>(&sizes);
    let from = b.as_ptr().wrapping_add((place.plane * sizes.b_plane) as usize);
    let b = Plain { from, pitch: sizes.b_pitch, k: sizes.k };
    // SAFETY: the caller's promise.
    unsafe { product::<T, _, GROUPS, TILES>(a, b, &mut c, bias, sizes, place, finish) }
}

/// As [`few_rows()`], with columns of B that are `scales * (codes - zeros)`: 4 bits a code, the lower first, and a scale and a zero
/// for each [`GROUP_K`] of them; without zeros these are 8.
///
/// # Safety
///
/// As for [`few_rows()`]; k is a multiple of [`GROUP_K`], `codes` has n * k / 2 bytes from a multiple of 16 bytes on, and `scales`
/// and `zeros` have n * k / [`GROUP_K`] elements, column by column.
#[kernel(
    types(T = bf16, f16),
    consts(GROUPS = 1, 2; TILES = 1, 2),
    arch = 80,
    block(THREADS),
    launch_bounds(THREADS, resident_4bit(GROUPS, TILES)),
    no_panic
)]
pub unsafe fn few_rows_4bit<T: Number4, const GROUPS: usize, const TILES: usize>(
    a: &[T],
    codes: &[u8],
    scales: &[T],
    zeros: Option<&[u8]>,
    mut c: DisjointMut<T>,
    bias: Option<&[T]>,
    sizes: FewRows,
    finish: Finish,
) {
    let b = Codes { codes, scales, zeros, k: sizes.k };
    let place = Place::new::<GROUPS, TILES>(&sizes);
    // SAFETY: the caller's promise.
    unsafe { product::<T, _, GROUPS, TILES>(a, b, &mut c, bias, sizes, place, finish) }
}

/// What a block multiplies.
#[derive(Clone, Copy)]
struct Place {
    plane: u64,
    first_row: u32,
    first_column: u32,
}

impl Place {
    #[inline(always)]
    fn new<const GROUPS: usize, const TILES: usize>(sizes: &FewRows) -> Self {
        let (height, width) = (GROUP_M * GROUPS as u32, TILE_N * TILES as u32);
        let (number, column) = divide(thread::block_idx_x(), sizes.n.div_ceil(width));
        let (plane, row) = divide(number, sizes.m.div_ceil(height));
        Self { plane: plane.into(), first_row: row * height, first_column: column * width }
    }
}

/// # Safety
///
/// That of [`few_rows()`] and [`few_rows_4bit()`].
#[inline(always)]
unsafe fn product<T: WarpOperand, B: Columns<T>, const GROUPS: usize, const TILES: usize>(
    a: &[T],
    b: B,
    c: &mut DisjointMut<T>,
    bias: Option<&[T]>,
    sizes: FewRows,
    place: Place,
    finish: Finish,
) {
    /// Sums of a warp for each row of A: twice [`TILE_N`].
    const ROW: usize = 2 * TILE_N as usize;
    let FewRows { m, n, k, .. } = sizes;
    let Place { plane, first_row, first_column } = place;
    let (lane, warp) = (warp::lane_id(), thread::thread_idx_x() / 32);
    let (row, quarter) = (lane / 4, lane % 4);

    // What is beyond the matrices repeats the last and is not stored.
    let columns: [[u32; 2]; TILES] = from_fn(|tile| {
        from_fn(|half| (first_column + TILE_N * tile as u32 + 8 * half as u32 + row).min(n - 1))
    });
    let rows: [*const T; GROUPS] = from_fn(|group| {
        let row = (first_row + GROUP_M * group as u32 + row).min(m - 1);
        a.as_ptr().wrapping_add((plane * sizes.a_plane + u64::from(row) * sizes.a_pitch) as usize)
    });
    let step = CHUNK_K * B::CHUNKS as u32;
    let hop = WARPS as u32 * step;
    let places = shared::dynamic_aligned::<[u32; 4]>().wrapping_add(thread::thread_idx_x() as usize);
    let place = |stage: usize, tile: usize, half: usize| {
        places.wrapping_add(((stage * TILES + tile) * 2 + half) * B::LOADS * THREADS as usize)
    };
    // One branch for all copies of a step.
    let copy = |at: u32, stage: usize| {
        let copy = |is_inside: bool| {
            let mut i = 0;
            while i < 2 * TILES {
                // SAFETY: the columns are those of B. The places are this thread's, which has multiplied what was there.
                unsafe { b.copy(columns[i / 2][i % 2], at, quarter, is_inside, place(stage, i / 2, i % 2)) };
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
    // The numbers of A of a step: of each chunk those of each group of rows.
    let of_a = |at: u32| {
        let all = |is_inside: bool| {
            from_fn::<_, MOST_CHUNKS, _>(|chunk| {
                rows.map(|row| {
                    if chunk >= B::CHUNKS {
                        return [0; 4];
                    }
                    let first = at + B::at(chunk, quarter);
                    // SAFETY: these are rows of A, which have all numbers of a step that is inside.
                    unsafe {
                        if is_inside {
                            load::<u32, 4>(row.wrapping_add(first as usize).cast())
                        } else if B::IS_WHOLE {
                            [0; 4]
                        } else {
                            eight::<T, true>(row, first, k)
                        }
                    }
                })
            })
        };
        if at + step <= k { all(true) } else { all(false) }
    };
    // SAFETY: the columns are those of B.
    let beside = |at: u32| columns.map(|halves| halves.map(|column| unsafe { b.beside(column, at) }));

    let mut sums = [[[0.0f32; 4]; TILES]; GROUPS];
    let mut at = warp * step;
    let mut stage = 0;
    while stage < STAGES - 1 {
        copy(at + stage as u32 * hop, stage);
        stage += 1;
    }
    let (mut groups, mut numbers) = (beside(at), of_a(at));
    stage = 0;
    while at < k {
        // They arrive while those of this step are multiplied.
        let later = (beside(at + hop), of_a(at + hop));
        // The place of the step before, which has been multiplied.
        copy(at + (STAGES as u32 - 1) * hop, if stage == 0 { STAGES - 1 } else { stage - 1 });
        wait_copies_leaving::<{ STAGES - 1 }>();
        let loaded: [[B::Loaded; 2]; TILES] =
            // SAFETY: the copies of the stage are complete.
            from_fn(|tile| from_fn(|half| unsafe { B::loaded(place(stage, tile, half)) }));
        let mut products = [[[0.0f32; 4]; TILES]; GROUPS];
        let mut chunk = 0;
        while chunk < B::CHUNKS {
            let of_a = numbers[chunk].map(B::ordered);
            let mut tile = 0;
            while tile < TILES {
                // SAFETY: the step has not ended.
                let [low, high] =
                    [0, 1].map(|half| unsafe { B::numbers(&loaded[tile][half], &groups[tile][half], chunk) });
                let mut group = 0;
                while group < GROUPS {
                    let mut pair = 0;
                    while pair < 4 {
                        let of_b = [low[pair], high[pair], low[pair + 1], high[pair + 1]];
                        // SAFETY: the whole warp is here, as `at` is the same in it.
                        products[group][tile] = unsafe {
                            mma::<T>(products[group][tile], of_b, [of_a[group][pair], of_a[group][pair + 1]])
                        };
                        pair += 2;
                    }
                    group += 1;
                }
                tile += 1;
            }
            chunk += 1;
        }
        let mut tile = 0;
        while tile < TILES {
            let mut group = 0;
            while group < GROUPS {
                let mut i = 0;
                while i < 4 {
                    let sum = &mut sums[group][tile][i];
                    *sum = B::add(&groups[tile][i / 2], *sum, products[group][tile][i]);
                    i += 1;
                }
                group += 1;
            }
            tile += 1;
        }
        (groups, numbers) = later;
        at += hop;
        stage = if stage + 1 == STAGES { 0 } else { stage + 1 };
    }

    // The sums take the place of the copies.
    thread::sync_threads();
    let stage = shared::dynamic_aligned::<f32>();
    let mut group = 0;
    while group < GROUPS {
        let mut tile = 0;
        while tile < TILES {
            let mut i = 0;
            while i < 4 {
                let of_row = warp as usize * MOST_M as usize
                    + GROUP_M as usize * group
                    + (2 * quarter) as usize
                    + i % 2;
                let column = TILE_N as usize * tile + row as usize + 8 * (i / 2);
                // SAFETY: each sum of a warp has a place.
                unsafe { stage.add(of_row * ROW + column).write(sums[group][tile][i]) };
                i += 1;
            }
            tile += 1;
        }
        group += 1;
    }
    thread::sync_threads();

    let mut i = thread::thread_idx_x();
    while i < TILE_N * TILES as u32 * GROUP_M * GROUPS as u32 {
        let (row, column) = (i / (TILE_N * TILES as u32), i % (TILE_N * TILES as u32));
        let mut sum = 0.0;
        let mut warp = 0;
        while warp < WARPS {
            // SAFETY: it was written before the barrier.
            sum +=
                unsafe { stage.add((warp * MOST_M as usize + row as usize) * ROW + column as usize).read() };
            warp += 1;
        }
        let (row, column) = (first_row + row, first_column + column);
        if row < m && column < n {
            // SAFETY: the bias has an element for each column.
            let bias = bias.map(|bias| unsafe { *bias.get_unchecked(column as usize) }.cast::<f32>());
            let to = plane * sizes.c_plane + u64::from(row) * sizes.c_pitch + u64::from(column);
            // SAFETY: C has this element, which no other thread writes.
            unsafe { c.as_mut_ptr().add(to as usize).write(finish.of(sum, bias).cast::<T>()) };
        }
        i += THREADS;
    }
}
