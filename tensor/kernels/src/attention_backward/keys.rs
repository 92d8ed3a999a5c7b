//! Gradients of k and v.
//!
//! Each block processes a tile of rows of k and v, and loops over the rows of q of all heads that attend to them.

use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;
use gpu_std::tensor::wgmma::{Depth, Width};
use gpu_std::tensor::{
    Accumulator, Columns, Fragments, Half, MnMajor, PipelineState, SharedMemory, SharedTile, barrier, copy,
    warpgroup,
};
use gpu_std::vectorized::opaque;

use super::{
    Backward, CONSUMERS, Ends, GROUP_ROWS, Maps, ROW_BYTES, STAGES, STEP, TILE, base_of, load_boxes,
};
use crate::attention::{BOX, clear, own_rows, write_rows};
use crate::sequences::{HeadStrides, Place, Sequences};
use crate::softmax::scale;
use crate::tiles::divide;

/// Body of [`attention_backward_keys()`](super::attention_backward_keys()) for heads of `D` elements.
///
/// # Safety
/// The caller must uphold the safety contract of [`attention_backward_keys()`](super::attention_backward_keys()), and
/// `ROWS` must be `2 * D`.
#[inline(always)]
pub(super) unsafe fn keys<T: Half, const D: usize, const ROWS: usize>(
    maps: Maps<'_, T>,
    sums: &[f32],
    delta: &[f32],
    [mut dk, mut dv]: [DisjointMut<T>; 2],
    offsets: Ends<'_>,
    of: Backward,
) where
    Columns<D>: Width,
    Columns<64>: Depth,
{
    let parts = D as u32 / BOX;
    let number = thread::block_idx_x();
    // The roles of q and k are swapped in these sequences.
    let Sequences { count, heads, q_rows, k_rows, raster_group } = of.sequences;
    let kv_heads = divide(heads, of.group).0;
    let turned = Sequences { count, heads: kv_heads, q_rows: k_rows, k_rows: q_rows, raster_group };
    // SAFETY: guaranteed by the caller.
    let Some(place) = (unsafe { turned.place(number, TILE, offsets.1, offsets.0) }) else { return };
    let is_packed = offsets.0.is_some();
    let queries = Queries::new(&place, of.is_causal != 0);
    let (first_step, end_step) = (queries.from(place.row) / STEP, place.k.1.div_ceil(STEP));

    // SAFETY: the caller guarantees that the launch has this dynamic shared memory.
    let mut memory = unsafe { SharedMemory::new() };
    let k_tile = memory.tiles::<T, ROWS, 1>().tile::<0>();
    let v_tile = memory.tiles::<T, ROWS, 1>().tile::<0>();
    let q_tiles = memory.tiles::<T, D, STAGES>();
    let dout_tiles = memory.tiles::<T, D, STAGES>();
    let of_rows = memory.tiles::<f32, 8, STAGES>();
    let once = memory.barriers::<1>();
    let partial = memory.barriers::<1>();
    let (full, empty) = (memory.barriers::<STAGES>(), memory.barriers::<STAGES>());
    if thread::linear_in_block() == 0 {
        // SAFETY: the barriers have not been used yet; all threads synchronize after the initialization.
        unsafe {
            once.init(1);
            partial.init(1);
            // One arrival signals the TMA copies, and the other signals the writes by the warp's threads.
            full.init(2);
            // Each warp releases the stage separately.
            empty.init(4 * CONSUMERS);
        }
        barrier::publish();
    }
    thread::sync_threads();
    let (once, partial) = (once.at(PipelineState::new()), partial.at(PipelineState::new()));

    let warp = warpgroup::warp_index();
    let lane = warp::lane_id();
    let mut slot = PipelineState::new();
    if warp < 4 {
        // SAFETY: the block size is fixed, and each thread started with 168 registers.
        unsafe { warpgroup::release_registers::<40>() };
        if warp == 0 {
            // SAFETY: all lanes of the warp execute this call.
            let leads = unsafe { warpgroup::elect() };
            if leads {
                let row = place.q.0 + place.row;
                // SAFETY: nothing has accessed the tiles yet.
                unsafe {
                    once.arrive_expecting(2 * ROWS as u32 * ROW_BYTES);
                    let at = |map| {
                        move |column, down| of.coordinates(map, column, row + down, place.head, place.plane)
                    };
                    load_boxes(maps.k, k_tile, CONSUMERS, at(1), once);
                    load_boxes(maps.v, v_tile, CONSUMERS, at(2), once);
                }
            }
            let mut partials = 0;
            let mut head = place.head * of.group;
            while head < (place.head + 1) * of.group {
                let mut step = first_step;
                while step < end_step {
                    let first = step * STEP;
                    let is_partial = is_packed && first + STEP > place.k.1;
                    let loaded = if is_partial { partial } else { full.at(slot) };
                    let (q_tile, dout_tile) = (q_tiles.at(slot), dout_tiles.at(slot));
                    // SAFETY: the consumers have finished reading this stage.
                    unsafe {
                        empty.at(slot).wait(slot.parity() ^ 1);
                        if leads {
                            loaded.arrive_expecting(2 * D as u32 * ROW_BYTES);
                            let row = place.k.0 + first;
                            let at =
                                |map| move |column, _| of.coordinates(map, column, row, head, place.plane);
                            load_boxes(maps.q, q_tile, 1, at(0), loaded);
                            load_boxes(maps.dout, dout_tile, 1, at(3), loaded);
                        }
                        // Half of the lanes load log-sum-exps, the other half `delta`. Each lane loads a chunk whose
                        // values are later read by a single thread of a quad.
                        let (which, chunk) = (lane / 16, lane % 16);
                        let columns = chunk % 4 * 16 + chunk / 4 * 2;
                        let value = |column: u32| {
                            let row = (first + column).min(place.k.1 - 1);
                            let at = of.of_row(place.plane, head, place.k.0 + row);
                            if which == 0 {
                                base_of(*sums.get_unchecked(at))
                            } else {
                                *delta.get_unchecked(at)
                            }
                        };
                        let four =
                            [value(columns), value(columns + 1), value(columns + 8), value(columns + 9)];
                        let (line, in_line) = (lane / 8, lane % 8);
                        of_rows.at(slot).store_chunk(line, in_line, four.map(f32::to_bits));
                        warp::sync_warp(!0);
                        if is_partial {
                            loaded.wait(partials);
                            partials ^= 1;
                            clear::<T, D, D>(q_tile, place.k.1 - first, STEP);
                            clear::<T, D, D>(dout_tile, place.k.1 - first, STEP);
                            copy::fence_tiles();
                            warp::sync_warp(!0);
                            if leads {
                                full.at(slot).arrive();
                            }
                        }
                        if leads {
                            full.at(slot).arrive();
                        }
                    }
                    slot.advance();
                    step += 1;
                }
                head += 1;
            }
        }
        warp::sync_warp(!0);
        return;
    }

    // SAFETY: the block size is fixed, and the producer releases 128 registers per thread: 40 + 2 * 232 = 3 * 168.
    unsafe { warpgroup::acquire_registers::<232>() };
    let group = warp / 4 - 1;
    let group_row = place.row + group * GROUP_ROWS;
    let row = group_row + warp % 4 * 16 + lane / 4;
    // First step whose rows of q all attend to all rows of the warpgroup.
    let whole = queries.from(group_row + GROUP_ROWS - 1).div_ceil(STEP);
    let in_quad = (lane % 4 * 2) as i32;
    let froms = [queries.from(row), queries.from(row + 8)].map(|from| from as i32 - in_quad);
    let end = place.k.1 as i32 - in_quad;
    let factor = of.factor;
    let mut of_k = Accumulator::<D>::new();
    let mut of_v = Accumulator::<D>::new();
    let mut is_first = true;
    // SAFETY: all threads of the warpgroup execute the same code. Each stage is read only while it is full, and is
    // released only after the `wgmma` operations that read it are complete.
    unsafe {
        once.wait(0);
        let mut head = 0;
        while head < of.group {
            let mut step = first_step;
            while step < end_step {
                let (q_tile, dout_tile, of_rows) = (q_tiles.at(slot), dout_tiles.at(slot), of_rows.at(slot));
                full.at(slot).wait(slot.parity());
                // Without this call, the compiler hoists the descriptors of all parts out of the loop, for which there
                // are not enough registers.
                let group = opaque(group);
                // Reusing the accumulator of the preceding step would keep its registers live until here.
                let mut batch = Accumulator::<64>::new().pending().begin();
                let mut part = 0;
                while part < parts {
                    batch.mma(own_rows(k_tile, part, group), q_tile.rows::<64>(part), part > 0);
                    part += 1;
                }
                let of_scores = batch.commit();
                let mut batch = Accumulator::<64>::new().pending().begin();
                let mut part = 0;
                while part < parts {
                    batch.mma(own_rows(v_tile, part, group), dout_tile.rows::<64>(part), part > 0);
                    part += 1;
                }
                let of_products = batch.commit();
                let mut scores = of_scores.wait_leaving::<1>();
                let weights = scores.registers_mut();
                if step < whole || (step + 1) * STEP > place.k.1 {
                    mask_columns(weights, froms, end, step * STEP);
                }
                let mut i = 0;
                while i < 8 {
                    let bases = chunk_of(of_rows, 0, lane, i / 2);
                    let mut j = 0;
                    while j < 4 {
                        let at = 4 * i + j;
                        weights[at] =
                            fast::exp2(Math::mul_add(weights[at], factor, -bases[i % 2 * 2 + j % 2]));
                        j += 1;
                    }
                    i += 1;
                }
                let mut products = of_products.wait();
                let slopes = products.registers_mut();
                let mut i = 0;
                while i < 8 {
                    let deltas = chunk_of(of_rows, 1, lane, i / 2);
                    let mut j = 0;
                    while j < 4 {
                        let at = 4 * i + j;
                        slopes[at] = (slopes[at] - deltas[i % 2 * 2 + j % 2]) * scores.registers()[at];
                        j += 1;
                    }
                    i += 1;
                }
                // The fragments are built only here, because there are not enough registers for both of them in
                // addition to the accumulators.
                let mut batch = of_v.pending().begin_with(Fragments::<T, 64>::new(scores.registers()));
                batch.mma_fragments::<MnMajor>(0, dout_tile, !is_first);
                let of_values = batch.commit();
                let mut batch = of_k.pending().begin_with(Fragments::<T, 64>::new(products.registers()));
                batch.mma_fragments::<MnMajor>(0, q_tile, !is_first);
                let of_keys = batch.commit();
                of_v = of_values.wait_leaving::<1>();
                of_k = of_keys.wait();
                is_first = false;
                if lane == 0 {
                    empty.at(slot).arrive();
                }
                slot.advance();
                step += 1;
            }
            head += 1;
        }
        scale(of_k.registers_mut().as_mut(), [of.scale; 2]);
        // The warpgroup has finished reading its rows of k and v.
        warpgroup::sync(1 + group, warpgroup::THREADS);
        if group_row < place.q.1 {
            let rows = place.q.1 - group_row;
            let at = |of: HeadStrides| of.at(place.plane, place.head, place.q.0 + group_row) as usize;
            let to = dk.as_mut_ptr().wrapping_add(at(of.first));
            write_rows::<T, D, ROWS>(
                of_k.registers().as_ref(),
                k_tile,
                (group, warp),
                to,
                of.first.row,
                rows,
            );
            let to = dv.as_mut_ptr().wrapping_add(at(of.second));
            write_rows::<T, D, ROWS>(
                of_v.registers().as_ref(),
                v_tile,
                (group, warp),
                to,
                of.second.row,
                rows,
            );
        }
    }
}

/// Range of the rows of q that attend to a row of k. The range extends to the end of the sequence.
#[derive(Clone, Copy)]
struct Queries {
    count: u32,
    is_causal: bool,
    /// Number of rows of k minus number of rows of q.
    ahead: i32,
}

impl Queries {
    /// Creates the mask for a tile whose rows are rows of k.
    #[inline(always)]
    fn new(place: &Place, is_causal: bool) -> Self {
        Self { count: place.k.1, is_causal, ahead: place.q.1 as i32 - place.k.1 as i32 }
    }

    /// Returns the first row of q that attends to row `row` of k.
    #[inline(always)]
    fn from(self, row: u32) -> u32 {
        if !self.is_causal {
            return 0;
        }
        let from = row as i32 - self.ahead;
        if from < 0 { 0 } else { self.count.min(from as u32) }
    }
}

/// Masks the scores of rows of q that do not attend to the thread's two rows of k, in a block whose first row is
/// `first`. For each of the thread's two rows of k, masks the rows of q before the row's element of `froms` and from
/// row `end` on. All these indices are relative to the thread's first column.
#[inline(always)]
fn mask_columns(scores: &mut [f32], froms: [i32; 2], end: i32, first: u32) {
    let (froms, end) = (froms.map(|from| from - first as i32), end - first as i32);
    let mut i = 0;
    while i < scores.len() {
        let column = (i / 4 * 8 + i % 2) as i32;
        if column < froms[i / 2 % 2] || column >= end {
            scores[i] = f32::NEG_INFINITY;
        }
        i += 1;
    }
}

/// Returns the four values per row of q that a thread needs: two pairs of columns, starting at column 16 * `index`, for
/// the thread's position in the quad. `kind` is 0 for log-sum-exps and 1 for `delta`.
///
/// # Safety
/// The tile must contain these values, and nothing may write to it during the call.
#[inline(always)]
unsafe fn chunk_of(tile: SharedTile<f32, 8>, kind: u32, lane: u32, index: usize) -> [f32; 4] {
    let chunk = kind * 16 + lane % 4 * 4 + index as u32;
    // SAFETY: guaranteed by the caller.
    unsafe { tile.load_chunk(chunk / 8, chunk % 8) }.map(f32::from_bits)
}
