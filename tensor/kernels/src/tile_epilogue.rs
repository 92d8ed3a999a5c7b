//! Epilogue of a tile in registers: reduces the partial sums of split-K, applies the epilogue, and stores the rows of
//! C.
//!
//! Each warp processes 16 rows of the tile. It converts these rows to the type of C, stages them in its own rows of
//! shared memory, and stores 16-byte pieces that are adjacent in a row of C. Warps do not have to wait for each other.
//! Where C does not start on a 16-byte boundary, or ends within a piece, elements are stored one by one.
//!
//! With split-K, each block finishes a share of the columns of the tile. Each block writes its partial sums to shared
//! memory in the order of its threads. The corresponding threads of the other blocks read these sums.

use core::mem::transmute_copy;

use gpu_std::prelude::*;
use gpu_std::tensor::{Output, SharedTile, SharedTiles, Sum};
use gpu_std::vectorized::store_run;

use crate::epilogue::EpilogueParams;
use crate::matmul::At;
use crate::tiles::divide;

/// Maximum number of shared memory tiles, with 128-byte rows, that the sums of one tile of C occupy.
pub(crate) const SUM_TILES: usize = 8;
/// Number of 16-byte pieces that a thread reads in one batch.
const PIECES: usize = 4;

/// Output tile and its epilogue.
#[derive(Clone, Copy)]
pub struct OutputTile<'a, C> {
    /// Pointer to the first row of the tile in C.
    pub to: *mut C,
    /// Row stride of C, in elements.
    pub pitch: u64,
    /// Number of rows of C from the tile's first row on.
    pub rows: u32,
    /// First column of the tile in C.
    pub column: u32,
    /// Number of columns of C.
    pub n: u32,
    /// Bias: one element per column.
    pub bias: Option<&'a [C]>,
    /// Epilogue of the sums.
    pub finish: EpilogueParams,
}

/// A thread's sums in 16 columns of its warp's rows, in accumulator order.
type Eight<S> = [S; 8];

/// Type of C, with the epilogue of sums of type `S`.
pub trait Finish<S: Sum>: Output<S> {
    /// Applies the epilogue to a thread's sums. `column` is the column of the first sum.
    fn finish(sums: &mut Eight<S>, params: EpilogueParams, bias: Option<&[Self]>, column: u32);
}

impl<C: Output<f32> + Into<f32>> Finish<f32> for C {
    #[inline(always)]
    fn finish(sums: &mut Eight<f32>, params: EpilogueParams, bias: Option<&[Self]>, column: u32) {
        params.apply(sums, bias, At { batch: 0, row: 0, column });
    }
}

/// Integers have no epilogue.
impl Finish<i32> for i32 {
    #[inline(always)]
    fn finish(_: &mut Eight<i32>, _: EpilogueParams, _: Option<&[Self]>, _: u32) {}
}

/// Applies the epilogue to a warp's sums and stores them. The sums cover all columns of the 16 rows that start at
/// `row`.
///
/// # Safety
/// `sums` must have `COLUMNS / 2` elements, from the same rows in all threads of the warp. Only this warp may use these
/// rows of `tiles`. `target` must contain the rows and columns, and no other thread may write them; its bias must have
/// n elements.
#[inline(always)]
pub(crate) unsafe fn store_own<C, const ROWS: usize, const COLUMNS: usize>(
    tiles: SharedTiles<C, ROWS, SUM_TILES>,
    row: u32,
    sums: &[f32],
    target: &OutputTile<'_, C>,
) where
    C: Output<f32> + Into<f32>,
{
    // SAFETY: guaranteed by the caller.
    unsafe {
        stage::<C, f32, ROWS, COLUMNS>(tiles, row, sums, target);
        store_staged::<C, ROWS>(tiles, (row, 16), (0, COLUMNS as u32), target);
    }
}

/// Applies the epilogue to a warp's sums, as [`store_own`] does, but leaves them in shared memory.
///
/// # Safety
/// The caller must uphold the safety contract of [`store_own`].
#[inline(always)]
pub(crate) unsafe fn stage<C: Finish<S>, S: Sum, const ROWS: usize, const COLUMNS: usize>(
    tiles: SharedTiles<C, ROWS, SUM_TILES>,
    row: u32,
    sums: &[S],
    target: &OutputTile<'_, C>,
) {
    // The test for the identity epilogue is hoisted out of the loop.
    macro_rules! put_all {
        (|$eight:ident, $column:ident| $finished:expr) => {{
            let mut block = 0;
            while block < COLUMNS / 16 {
                let $eight: Eight<S> = core::array::from_fn(|i| sums[8 * block + i]);
                let $column = 16 * block as u32;
                let finished = $finished;
                // SAFETY: guaranteed by the caller.
                unsafe { put(tiles, row, $column / 16, finished) };
                block += 1;
            }
        }};
    }
    if target.is_plain() {
        put_all!(|eight, _column| eight);
    } else {
        put_all!(|eight, column| target.finish(eight, column));
    }
}

/// Writes the sums of consumer thread `thread` to shared memory, where the corresponding threads of other blocks read
/// them.
///
/// # Safety
/// `sums` must have `COLUMNS / 2` elements, and nothing else may use the tiles.
#[inline(always)]
pub(crate) unsafe fn leave<const ROWS: usize, const COLUMNS: usize>(
    left: SharedTiles<f32, ROWS, SUM_TILES>,
    thread: u32,
    sums: &[f32],
) {
    let mut four = 0;
    while four < COLUMNS / 8 {
        let bits = core::array::from_fn(|i| sums[4 * four + i].to_bits());
        let (tile, row, chunk) = place::<ROWS>(thread, four as u32);
        // SAFETY: there is one tile per 16 sums of a thread; the caller guarantees the rest.
        unsafe { left.at_index(tile).store_chunk(row, chunk, bits) };
        four += 1;
    }
}

/// Returns where the tiles contain a thread's four sums from `4 * four` on: the tile, the row in the tile, and the
/// chunk in the row. Consecutive threads use consecutive chunks.
#[inline(always)]
fn place<const ROWS: usize>(thread: u32, four: u32) -> (u32, u32, u32) {
    (four / 4, four % 4 * (ROWS as u32 / 4) + thread / 8, thread % 8)
}

/// Split-K reduction: adds the partial sums of `SPLIT_K` blocks for the calling block's share of the columns, `ITEMS`
/// times 16 columns at a time. The function then applies the epilogue to the sums of 16 rows from `row` on, and stores
/// them. It arrives at the cluster barrier as soon as it has read all partial sums.
///
/// # Safety
/// The caller must uphold the safety contract of [`store_own`], except that other blocks store the other columns. The
/// blocks with the ranks `which`, `which + shared_by` and so on must have written their sums to `left`, which must not
/// overlap `staged`. None of these blocks may exit, or write there, before all have arrived.
#[inline(always)]
pub(crate) unsafe fn add<
    C,
    const ROWS: usize,
    const COLUMNS: usize,
    const SPLIT_K: usize,
    const ITEMS: usize,
>(
    (left, staged): (SharedTiles<f32, ROWS, SUM_TILES>, SharedTiles<C, ROWS, SUM_TILES>),
    (row, thread): (u32, u32),
    shared_by: u32,
    target: &OutputTile<'_, C>,
) where
    C: Output<f32> + Into<f32>,
{
    let blocks = const { (COLUMNS / 16) as u32 };
    let is_even = const { (COLUMNS / 16).is_multiple_of(SPLIT_K * ITEMS) };
    let rounds = const { (COLUMNS / 16).div_ceil(SPLIT_K).div_ceil(ITEMS) };
    let rank = cluster::block_rank();
    let (split, which) = divide(rank, shared_by);
    let [first, end] = [split, split + 1].map(|part| part * blocks / SPLIT_K as u32);
    let is_plain = target.is_plain();
    let mut round = 0;
    while round < rounds {
        let mut all = [[[[0u32; 4]; 2]; SPLIT_K]; ITEMS];
        let mut item = 0;
        while item < ITEMS {
            // If the blocks have unequal shares of the columns, a block with a smaller share reads its last 16 columns
            // twice.
            let block = first + (round * ITEMS + item) as u32;
            let block = if is_even { block } else { block.min(end - 1) };
            let mut part = 0;
            while part < SPLIT_K {
                let of = part as u32 * shared_by + which;
                let mut half = 0;
                while half < 2 {
                    let (tile, row, chunk) = place::<ROWS>(thread, 2 * block + half as u32);
                    // SAFETY: the corresponding thread of that block has written its sums there, and nothing overwrites
                    // them.
                    all[item][part][half] = unsafe { left.at_index(tile).load_chunk_of(of, row, chunk) };
                    half += 1;
                }
                part += 1;
            }
            item += 1;
        }
        if round + 1 == rounds {
            cluster::arrive();
        }
        item = 0;
        while item < ITEMS {
            let block = (round * ITEMS + item) as u32;
            let eight: Eight<f32> = core::array::from_fn(|i| {
                let mut sum = 0.0;
                let mut part = 0;
                while part < SPLIT_K {
                    sum += f32::from_bits(all[item][part][i / 4][i % 4]);
                    part += 1;
                }
                sum
            });
            let eight = if is_plain { eight } else { target.finish(eight, 16 * (first + block)) };
            if is_even || first + block < end {
                // SAFETY: guaranteed by the caller.
                unsafe { put(staged, row, block, eight) };
            }
            item += 1;
        }
        round += 1;
    }
    let columns = if is_even { const { (COLUMNS / SPLIT_K) as u32 } } else { 16 * (end - first) };
    // SAFETY: guaranteed by the caller.
    unsafe { store_staged::<C, ROWS>(staged, (row, 16), (16 * first, columns), target) };
}

/// Converts and stages the sums of 16 columns, in the 16 rows of a warp from `row` on. `block` is the index of these 16
/// columns among those that the calling block stores.
///
/// # Safety
/// The caller must uphold the safety contract of [`store_own`].
#[inline(always)]
unsafe fn put<C: Output<S>, S: Sum, const ROWS: usize>(
    tiles: SharedTiles<C, ROWS, SUM_TILES>,
    row: u32,
    block: u32,
    eight: Eight<S>,
) {
    let in_tile = SharedTile::<C, ROWS>::COLUMNS / 16;
    // SAFETY: guaranteed by the caller.
    unsafe { C::store(tiles.at_index(block / in_tile), row, block % in_tile, eight) };
}

/// Stores the staged columns of `rows` rows of the warp, from `row` on. The columns start at the tile's column `first`,
/// and their number is a multiple of 16.
///
/// # Safety
/// The requirements of [`store_own`] apply to all rows.
#[inline(always)]
pub(crate) unsafe fn store_staged<C: KernelType, const ROWS: usize>(
    tiles: SharedTiles<C, ROWS, SUM_TILES>,
    (row, rows): (u32, u32),
    (first, columns): (u32, u32),
    target: &OutputTile<'_, C>,
) {
    // Other threads of the warp have written the pieces.
    warp::sync_warp(!0);
    let in_piece = SharedTile::<C, ROWS>::COLUMNS / 8;
    let in_row = columns / in_piece;
    let mut at = warp::lane_id();
    while at < rows * in_row {
        let mut pieces = [[0u32; 4]; PIECES];
        let mut i = 0;
        while i < PIECES {
            let (down, piece) = divide(at + 32 * i as u32, in_row);
            if at + 32 * (i as u32) < rows * in_row {
                // SAFETY: there is one tile per eight pieces of a row, and the warp has written these pieces.
                pieces[i] = unsafe { tiles.at_index(piece / 8).load_chunk(row + down, piece % 8) };
            }
            i += 1;
        }
        i = 0;
        while i < PIECES {
            let (down, piece) = divide(at + 32 * i as u32, in_row);
            let (row, column) = (row + down, target.column + first + in_piece * piece);
            if at + 32 * (i as u32) < rows * in_row && row < target.rows && column < target.n {
                // SAFETY: the elements are inside the row, and no other thread writes them.
                unsafe { target.store(row, column, pieces[i]) };
            }
            i += 1;
        }
        at += 32 * PIECES as u32;
    }
}

impl<C: KernelType> OutputTile<'_, C> {
    /// Returns whether sums are stored unchanged.
    #[inline(always)]
    fn is_plain(&self) -> bool {
        self.bias.is_none() && self.finish.is_plain()
    }

    /// Applies the epilogue to the sums of a thread in 16 rows and 16 columns; `column` is the first of these columns
    /// in the tile.
    #[inline(always)]
    fn finish<S: Sum>(&self, mut eight: Eight<S>, column: u32) -> Eight<S>
    where
        C: Finish<S>,
    {
        let column = self.column + column + warp::lane_id() % 4 * 2;
        C::finish(&mut eight, self.finish, self.bias, column);
        eight
    }

    /// Stores the part of a piece that is inside C. `column` is the piece's first column in C, and `row` its row in the
    /// tile.
    ///
    /// # Safety
    /// C must contain this row from `column` on, and no other thread may write it.
    #[inline(always)]
    unsafe fn store(&self, row: u32, column: u32, piece: [u32; 4]) {
        let first = (u64::from(row) * self.pitch + u64::from(column)) as usize;
        let count = (self.n - column) as usize;
        // SAFETY: a piece has the size of the elements; the caller guarantees the rest.
        unsafe {
            if size_of::<C>() == 2 {
                store_run::<C, 8>(self.to, first, count.min(8), transmute_copy(&piece));
            } else {
                store_run::<C, 4>(self.to, first, count.min(4), transmute_copy(&piece));
            }
        }
    }
}
