//! Gradient of q.
//!
//! Each block processes a tile of rows of q and loops over the rows of k and v.

use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;
use gpu_std::tensor::wgmma::{Depth, Width};
use gpu_std::tensor::{
    Accumulator, Columns, Fragments, Half, MnMajor, PipelineState, SharedMemory, barrier, copy, warpgroup,
};

use super::{
    Backward, CONSUMERS, Ends, GROUP_ROWS, Maps, ROW_BYTES, STAGES, STEP, TILE, base_of, load_boxes,
};
use crate::attention::{BOX, clear, own_rows, release, write_rows};
use crate::softmax::{Keys, mask, scale};
use crate::tiles::divide;

/// Body of [`attention_backward_queries()`](super::attention_backward_queries()) for heads of `D` elements.
///
/// # Safety
/// The caller must uphold the safety contract of [`attention_backward_queries()`](super::attention_backward_queries()),
/// and `ROWS` must be `2 * D`.
#[inline(always)]
pub(super) unsafe fn queries<T: Half, const D: usize, const ROWS: usize>(
    maps: Maps<'_, T>,
    sums: &[f32],
    delta: &[f32],
    mut dq: DisjointMut<T>,
    offsets: Ends<'_>,
    of: Backward,
) where
    Columns<D>: Width,
    Columns<64>: Depth,
{
    let parts = D as u32 / BOX;
    let number = thread::block_idx_x();
    // SAFETY: guaranteed by the caller.
    let Some(place) = (unsafe { of.sequences.place(number, TILE, offsets.0, offsets.1) }) else { return };
    let is_packed = offsets.0.is_some();
    let keys = Keys::new(&place, of.is_causal != 0);
    let steps = keys.before(place.row + TILE - 1).div_ceil(STEP);
    let kv_head = divide(place.head, of.group).0;

    // SAFETY: the caller guarantees that the launch has this dynamic shared memory.
    let mut memory = unsafe { SharedMemory::new() };
    let q_tile = memory.tiles::<T, ROWS, 1>().tile::<0>();
    let dout_tile = memory.tiles::<T, ROWS, 1>().tile::<0>();
    let k_tiles = memory.tiles::<T, D, STAGES>();
    let v_tiles = memory.tiles::<T, D, STAGES>();
    let once = memory.barriers::<1>();
    let partial = memory.barriers::<1>();
    let (full, empty) = (memory.barriers::<STAGES>(), memory.barriers::<STAGES>());
    if thread::linear_in_block() == 0 {
        // SAFETY: the barriers have not been used yet; all threads synchronize after the initialization.
        unsafe {
            once.init(1);
            partial.init(1);
            full.init(1);
            empty.init(CONSUMERS);
        }
        barrier::publish();
    }
    thread::sync_threads();
    let (once, partial) = (once.at(PipelineState::new()), partial.at(PipelineState::new()));

    let warp = warpgroup::warp_index();
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
                    load_boxes(maps.q, q_tile, CONSUMERS, at(0), once);
                    load_boxes(maps.dout, dout_tile, CONSUMERS, at(3), once);
                }
            }
            let mut step = 0;
            while step < steps {
                let first = step * STEP;
                // The rows that follow a sequence belong to the next one, and may contain NaN.
                let is_partial = is_packed && first + STEP > place.k.1;
                let loaded = if is_partial { partial } else { full.at(slot) };
                let (k_tile, v_tile) = (k_tiles.at(slot), v_tiles.at(slot));
                if leads {
                    // SAFETY: the consumers have finished reading this stage.
                    unsafe {
                        empty.at(slot).wait(slot.parity() ^ 1);
                        loaded.arrive_expecting(2 * D as u32 * ROW_BYTES);
                        let row = place.k.0 + first;
                        let at =
                            |map| move |column, _| of.coordinates(map, column, row, kv_head, place.plane);
                        load_boxes(maps.k, k_tile, 1, at(1), loaded);
                        load_boxes(maps.v, v_tile, 1, at(2), loaded);
                    }
                }
                if is_partial {
                    // SAFETY: only one step is partial. The tiles are loaded, and no other thread uses them before the
                    // barrier signals that they are full.
                    unsafe {
                        warp::sync_warp(!0);
                        loaded.wait(0);
                        clear::<T, D, D>(k_tile, place.k.1 - first, STEP);
                        clear::<T, D, D>(v_tile, place.k.1 - first, STEP);
                        copy::fence_tiles();
                        warp::sync_warp(!0);
                        if leads {
                            full.at(slot).arrive();
                        }
                    }
                }
                slot.advance();
                step += 1;
            }
        }
        warp::sync_warp(!0);
        return;
    }

    // SAFETY: the block size is fixed, and the producer releases 128 registers per thread: 40 + 2 * 232 = 3 * 168.
    unsafe { warpgroup::acquire_registers::<232>() };
    let group = warp / 4 - 1;
    let lane = warp::lane_id();
    let group_row = place.row + group * GROUP_ROWS;
    let row = group_row + warp % 4 * 16 + lane / 4;
    // Exclusive end of the steps to which all rows of the warpgroup attend in full.
    let whole = keys.before(group_row) / STEP;
    let limits = [keys.before(row), keys.before(row + 8)].map(|limit| limit as i32 - (lane % 4 * 2) as i32);
    let of_row = |values: &[f32], row: u32| {
        let row = (place.q.0 + row.min(place.q.1 - 1)).min(of.sequences.q_rows - 1);
        // SAFETY: the array has one element per row.
        unsafe { *values.get_unchecked(of.of_row(place.plane, place.head, row)) }
    };
    let bases = [base_of(of_row(sums, row)), base_of(of_row(sums, row + 8))];
    let deltas = [of_row(delta, row), of_row(delta, row + 8)];
    let factor = of.factor;
    let mut gradient = Accumulator::<D>::new();
    let mut scores = Accumulator::<64>::new();
    let mut products = Accumulator::<64>::new();
    // SAFETY: all threads of the warpgroup execute the same code. Each stage is read only while it is full, and is
    // released only after the `wgmma` operations that read it are complete.
    unsafe {
        once.wait(0);
        if steps > 0 {
            let mut step = 0;
            while step < steps {
                let (k_tile, v_tile) = (k_tiles.at(slot), v_tiles.at(slot));
                full.at(slot).wait(slot.parity());
                let mut batch = scores.pending().begin();
                let mut part = 0;
                while part < parts {
                    batch.mma(own_rows(q_tile, part, group), k_tile.rows::<64>(part), part > 0);
                    part += 1;
                }
                let of_scores = batch.commit();
                let mut batch = products.pending().begin();
                let mut part = 0;
                while part < parts {
                    batch.mma(own_rows(dout_tile, part, group), v_tile.rows::<64>(part), part > 0);
                    part += 1;
                }
                let of_products = batch.commit();
                scores = of_scores.wait_leaving::<1>();
                let weights = scores.registers_mut();
                if step >= whole {
                    mask(weights, limits, step * STEP);
                }
                let mut i = 0;
                while i < 32 {
                    weights[i] = fast::exp2(Math::mul_add(weights[i], factor, -bases[i / 2 % 2]));
                    i += 1;
                }
                products = of_products.wait();
                let slopes = products.registers_mut();
                let mut i = 0;
                while i < 32 {
                    slopes[i] = (slopes[i] - deltas[i / 2 % 2]) * scores.registers()[i];
                    i += 1;
                }
                let fragments = Fragments::<T, 64>::new(products.registers());
                let mut batch = gradient.pending().begin_with(fragments);
                batch.mma_fragments::<MnMajor>(0, k_tile, step > 0);
                gradient = batch.commit().wait();
                release(empty.at(slot), warp);
                slot.advance();
                step += 1;
            }
        }
        scale(gradient.registers_mut().as_mut(), [of.scale; 2]);
        // The warpgroup has finished reading its rows of q.
        warpgroup::sync(1 + group, warpgroup::THREADS);
        if group_row < place.q.1 {
            let at = of.first.at(place.plane, place.head, place.q.0 + group_row);
            let to = dq.as_mut_ptr().wrapping_add(at as usize);
            let rows = place.q.1 - group_row;
            write_rows::<T, D, ROWS>(
                gradient.registers().as_ref(),
                q_tile,
                (group, warp),
                to,
                of.first.row,
                rows,
            );
        }
    }
}
