//! The backward pass of [`attention`](mod@crate::attention): the kernels.
//!
//! With the weights `p = exp(scale * q * k^T - sums)`, which are computed again, and `delta`, for each row the sum of `out * dout`:
//!
//! ```text
//! ds = p * (dout * v^T - delta)
//! dq = scale * ds * k          dk = scale * ds^T * q          dv = p^T * dout
//! ```
//!
//! Two kernels add up the gradients in registers, without atomics: the bits are the same in every run, for seven products instead
//! of five. [`attention_backward_queries`](fn@attention_backward_queries) has blocks of [`TILE`] rows of q, and goes over the rows of
//! k and v; [`attention_backward_keys`](fn@attention_backward_keys) has blocks of [`TILE`] rows of k and v, computes all transposed,
//! and goes over the rows of q of all heads that read them. Both have a warp that copies and two warp groups that multiply, 64 rows
//! each. What a group has of `p` and `ds` in registers is the left operand of the next product as it is.
//!
//! Design: the equations are those of FlashAttention-2 (arXiv 2307.08691), without its atomics.

use core::f32::consts::LOG2_E;

use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;
use gpu_std::scalar::Float;
use gpu_std::tensor::wgmma::{Depth, Width};
use gpu_std::tensor::{
    Accumulator, Barrier, Columns, Fragments, Half, MnMajor, SharedMemory, SharedTile, Slot, TensorMap,
    barrier, copy, warp_group,
};
use gpu_std::vectorized::{load, opaque};

use crate::attention::{BOX, Head64, Head128, clear, own_rows, release, write_rows};
use crate::sequences::{HeadStrides, Place, Sequences, coordinates};
use crate::softmax::{Keys, mask, scale};
use crate::tiles::divide;

/// Rows of a block.
pub const TILE: u32 = 128;
/// Rows of what a block goes over, and of the boxes of all maps.
pub const STEP: u32 = 64;
/// Stages of the ring.
pub const STAGES: usize = 2;
/// Threads of a block.
pub const THREADS: u32 = 3 * warp_group::THREADS;
/// Threads of a block that computes `delta`.
pub const DELTA_THREADS: u32 = 256;
/// Threads for a row of `delta`, with a chunk of 8 elements each.
pub const DELTA_LANES: u32 = 16;

/// Rows of a warp group.
const GROUP_ROWS: u32 = 64;
/// Warp groups that multiply.
const CONSUMERS: u32 = TILE / GROUP_ROWS;
/// Bytes of a row of a box.
const ROW_BYTES: u32 = 2 * BOX;

/// Dynamic shared memory of a block, of heads of `dim` elements.
pub const fn shared_bytes(dim: u32) -> u32 {
    let tiles = 2 * TILE * dim * 2 + STAGES as u32 * (2 * STEP * dim * 2 + 8 * 128);
    SharedMemory::bytes(tiles, 2 + 2 * STAGES as u32)
}

/// How rows attend, and where the gradients lie.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Backward {
    /// The sequences, with the rows of q and of k as they are: for both kernels.
    pub sequences: Sequences,
    /// Heads of q for each head of k and v.
    pub group: u32,
    /// As [`Shape::is_causal`](crate::attention::Shape::is_causal).
    pub is_causal: u32,
    /// The factor of scores: positive.
    pub scale: f32,
    /// [`Shape::scale`](crate::attention::Shape::scale): the same times log2(e).
    pub factor: f32,
    /// Which maps have rows before heads: bit 0 for q, 1 for k, 2 for v, 3 for the gradient of out.
    pub rows_first: u32,
    /// Where the gradient of q lies, or of k.
    pub first: HeadStrides,
    /// Where the gradient of v lies.
    pub second: HeadStrides,
}

impl Backward {
    #[inline(always)]
    fn coordinates(&self, map: u32, column: u32, row: u32, head: u32, plane: u32) -> [u32; 4] {
        coordinates(self.rows_first, map, column, row, head, plane)
    }

    /// Where the sums and `delta` of a row of q lie.
    #[inline(always)]
    fn of_row(&self, plane: u32, head: u32, row: u32) -> usize {
        let head = u64::from(plane) * u64::from(self.sequences.heads) + u64::from(head);
        (head * u64::from(self.sequences.q_rows) + u64::from(row)) as usize
    }
}

/// The elements of heads that have backward kernels: [`Head64`], [`Head128`].
pub trait BackwardHead: Send + Sync + 'static {
    /// Elements of a row of a head.
    const DIM: u32;
    #[doc(hidden)]
    #[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
    unsafe fn queries<T: Half>(
        maps: Maps<'_, T>,
        sums: &[f32],
        delta: &[f32],
        dq: DisjointMut<T>,
        offsets: Ends<'_>,
        of: Backward,
    );
    #[doc(hidden)]
    #[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
    unsafe fn keys<T: Half>(
        maps: Maps<'_, T>,
        sums: &[f32],
        delta: &[f32],
        gradients: [DisjointMut<T>; 2],
        offsets: Ends<'_>,
        of: Backward,
    );
}

/// The maps of q, k, v and the gradient of out.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Maps<'a, T> {
    q: &'a TensorMap<T, 4>,
    k: &'a TensorMap<T, 4>,
    v: &'a TensorMap<T, 4>,
    dout: &'a TensorMap<T, 4>,
}

/// The offsets of q and of k, of sequences of lengths of their own.
#[doc(hidden)]
pub type Ends<'a> = (Option<&'a [u32]>, Option<&'a [u32]>);

macro_rules! heads {
    ($($name:ident: $dim:literal;)*) => { $(
        impl BackwardHead for $name {
            const DIM: u32 = $dim;
            #[inline(always)]
            unsafe fn queries<T: Half>(
                maps: Maps<'_, T>,
                sums: &[f32],
                delta: &[f32],
                dq: DisjointMut<T>,
                offsets: Ends<'_>,
                of: Backward,
            ) {
                // SAFETY: the caller's promise.
                unsafe { queries::<T, $dim, { 2 * $dim }>(maps, sums, delta, dq, offsets, of) }
            }
            #[inline(always)]
            unsafe fn keys<T: Half>(
                maps: Maps<'_, T>,
                sums: &[f32],
                delta: &[f32],
                gradients: [DisjointMut<T>; 2],
                offsets: Ends<'_>,
                of: Backward,
            ) {
                // SAFETY: the caller's promise.
                unsafe { keys::<T, $dim, { 2 * $dim }>(maps, sums, delta, gradients, offsets, of) }
            }
        }
    )* };
}
heads! {
    Head64: 64;
    Head128: 128;
}

/// `delta` = for each row of each head of each plane the sum of `out * dout`.
///
/// # Safety
///
/// The grid has one dimension. Both matrices begin at multiples of 16 bytes and lie as `of_out` and `of_dout` say, with `planes`
/// planes of as many heads and rows of q as `sequences` has, of `dim` elements, a multiple of 8 up to 128; `delta` has an element
/// for each row.
#[kernel(types(T = bf16, f16), arch = 80, block(DELTA_THREADS), no_panic)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_delta<T: Half + Float>(
    out: &[T],
    dout: &[T],
    mut delta: DisjointMut<f32>,
    of_out: HeadStrides,
    of_dout: HeadStrides,
    sequences: Sequences,
    planes: u32,
    dim: u32,
) {
    let lane = thread::thread_idx_x() % DELTA_LANES;
    let rows = u64::from(planes) * u64::from(sequences.heads) * u64::from(sequences.q_rows);
    let step = u64::from(thread::grid_dim_x() * (DELTA_THREADS / DELTA_LANES));
    let own = thread::block_idx_x() * (DELTA_THREADS / DELTA_LANES) + thread::thread_idx_x() / DELTA_LANES;
    // The lanes of a warp go through it together.
    let mut first = u64::from(own) & !1;
    while first < rows {
        let index = first | u64::from(own & 1);
        let mut sum = 0.0f32;
        if index < rows && 8 * lane < dim {
            let (head, row) = divide_64(index, sequences.q_rows);
            let (plane, head) = divide(head, sequences.heads);
            let at = |of: HeadStrides| (of.at(plane, head, row) + u64::from(8 * lane)) as usize;
            // SAFETY: the row has these elements, from a multiple of 16 bytes on.
            let (x, y) = unsafe {
                (load::<T, 8>(out.as_ptr().add(at(of_out))), load::<T, 8>(dout.as_ptr().add(at(of_dout))))
            };
            let mut i = 0;
            while i < 8 {
                sum = Math::mul_add(x[i].cast::<f32>(), y[i].cast::<f32>(), sum);
                i += 1;
            }
        }
        let mut distance = DELTA_LANES / 2;
        while distance > 0 {
            sum += warp::shuffle_xor(!0, sum, distance);
            distance /= 2;
        }
        if index < rows && lane == 0 {
            // SAFETY: there is an element for each row, which has one group of threads.
            unsafe { delta.as_mut_ptr().add(index as usize).write(sum) };
        }
        first += step;
    }
}

/// `a / b` and `a % b`, of a quotient below 2^32.
#[inline(always)]
fn divide_64(a: u64, b: u32) -> (u32, u32) {
    // SAFETY: the least is 1, which is what 0 becomes.
    let b = unsafe { core::num::NonZeroU64::new_unchecked(u64::from(b).max(1)) };
    ((a / b) as u32, (a % b) as u32)
}

/// `dq` = the gradient of `q`, of the gradient `dout` of the result of [`attention`](mod@crate::attention), whose `sums` are those
/// that it gave. Rows that belong to no sequence are not written.
///
/// # Safety
///
/// - The launch has `shared_bytes(H::DIM)`, and a block for each tile of [`Sequences::tiles`] of [`TILE`] rows.
/// - The maps are of the elements, rows, heads and planes that `of` says, in boxes of [`BOX`] elements and [`STEP`] rows with
///   `Swizzle::Bytes128`; their dimensions are in the order that `rows_first` says.
/// - `sums` and `delta` have an element for each row of each head of each plane of q. `dq` begins at a multiple of 16 bytes and lies
///   as `of.first` says. Both offsets or none are there, with an element more than there are sequences.
#[kernel(
    types(T = bf16, f16; H = Head64, Head128),
    arch = "90a",
    block(THREADS),
    launch_bounds(THREADS, 1),
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_backward_queries<T: Half, H: BackwardHead>(
    q: &TensorMap<T, 4>,
    k: &TensorMap<T, 4>,
    v: &TensorMap<T, 4>,
    dout: &TensorMap<T, 4>,
    sums: &[f32],
    delta: &[f32],
    dq: DisjointMut<T>,
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    of: Backward,
) {
    // SAFETY: the caller's promise.
    unsafe { H::queries(Maps { q, k, v, dout }, sums, delta, dq, (q_offsets, k_offsets), of) }
}

/// `dk` and `dv` = the gradients of `k` and `v`, as [`attention_backward_queries()`] has that of `q`.
///
/// # Safety
///
/// As for [`attention_backward_queries()`], with a block for each tile of [`TILE`] rows of the heads of k; `dk` lies as `of.first`
/// says, and `dv` as `of.second`.
#[kernel(
    types(T = bf16, f16; H = Head64, Head128),
    arch = "90a",
    block(THREADS),
    launch_bounds(THREADS, 1),
    no_panic
)]
#[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
pub unsafe fn attention_backward_keys<T: Half, H: BackwardHead>(
    q: &TensorMap<T, 4>,
    k: &TensorMap<T, 4>,
    v: &TensorMap<T, 4>,
    dout: &TensorMap<T, 4>,
    sums: &[f32],
    delta: &[f32],
    dk: DisjointMut<T>,
    dv: DisjointMut<T>,
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    of: Backward,
) {
    // SAFETY: the caller's promise.
    unsafe { H::keys(Maps { q, k, v, dout }, sums, delta, [dk, dv], (q_offsets, k_offsets), of) }
}

/// What the exponents of a row's weights are relative to: its sum's logarithm to base 2. A row that attends to nothing has weights
/// of 0 whatever it is.
#[inline(always)]
fn base_of(sum: f32) -> f32 {
    if sum == f32::NEG_INFINITY { 0.0 } else { sum * LOG2_E }
}

/// Begins to copy a tile of `ROWS / (64 * high)` columns of boxes, each of `high` boxes of [`STEP`] rows, by one thread. `at` is the place of
/// a box by its first column and row in the tile.
///
/// # Safety
///
/// As for [`TensorMap::load`].
#[inline(always)]
unsafe fn load_boxes<T: Half, const ROWS: usize>(
    map: &TensorMap<T, 4>,
    tile: SharedTile<T, ROWS>,
    high: u32,
    at: impl Fn(u32, u32) -> [u32; 4],
    loaded: Barrier,
) {
    let mut i = 0;
    while i < ROWS as u32 / STEP {
        let (column, row) = divide(i, high);
        // SAFETY: the caller's promise; the tile has these boxes.
        unsafe { map.load(tile.rows::<{ STEP as usize }>(i), at(BOX * column, STEP * row), loaded) };
        i += 1;
    }
}

/// [`attention_backward_queries()`] of heads of `D` elements.
///
/// # Safety
///
/// That of [`attention_backward_queries()`]; `ROWS` is `2 * D`.
#[inline(always)]
unsafe fn queries<T: Half, const D: usize, const ROWS: usize>(
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
    let place = match offsets {
        // SAFETY: the caller's promise.
        (Some(q), Some(k)) => match unsafe { of.sequences.packed(number, TILE, q, k) } {
            Some(place) => place,
            None => return,
        },
        _ => of.sequences.equal(number, TILE),
    };
    let is_packed = offsets.0.is_some();
    let keys = Keys::new(&place, of.is_causal != 0);
    let steps = keys.before(place.row + TILE - 1).div_ceil(STEP);
    let kv_head = divide(place.head, of.group).0;

    // SAFETY: the launch has this memory for it, by the caller's promise.
    let mut memory = unsafe { SharedMemory::new() };
    let q_tile = memory.tiles::<T, ROWS, 1>().tile::<0>();
    let dout_tile = memory.tiles::<T, ROWS, 1>().tile::<0>();
    let k_tiles = memory.tiles::<T, D, STAGES>();
    let v_tiles = memory.tiles::<T, D, STAGES>();
    let once = memory.barriers::<1>();
    let partial = memory.barriers::<1>();
    let (full, empty) = (memory.barriers::<STAGES>(), memory.barriers::<STAGES>());
    if thread::linear_in_block() == 0 {
        // SAFETY: nothing has used the barriers; all threads meet after it.
        unsafe {
            once.init(1);
            partial.init(1);
            full.init(1);
            empty.init(CONSUMERS);
        }
        barrier::publish();
    }
    thread::sync_threads();
    let (once, partial) = (once.at(Slot::new()), partial.at(Slot::new()));

    let warp = warp_group::warp_index();
    let mut slot = Slot::new();
    if warp < 4 {
        // SAFETY: the block has a fixed size, and began with 168 registers a thread.
        unsafe { warp_group::release_registers::<40>() };
        if warp == 0 {
            let leads = warp_group::elect();
            if leads {
                let row = place.q.0 + place.row;
                // SAFETY: nothing has used the tiles.
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
                // What follows a sequence belongs to another, and may be NaN.
                let is_partial = is_packed && first + STEP > place.k.1;
                let loaded = if is_partial { partial } else { full.at(slot) };
                let (k_tile, v_tile) = (k_tiles.at(slot), v_tiles.at(slot));
                if leads {
                    // SAFETY: the consumers have read the stage.
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
                    // SAFETY: one step alone is partial. The tiles are loaded, and nothing else uses them before the barrier says
                    // that they are full.
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

    // SAFETY: the block has a fixed size, and the producer releases 128 registers a thread: 40 + 2 * 232 = 3 * 168.
    unsafe { warp_group::acquire_registers::<232>() };
    let group = warp / 4 - 1;
    let lane = warp::lane_id();
    let group_row = place.row + group * GROUP_ROWS;
    let row = group_row + warp % 4 * 16 + lane / 4;
    // Steps that all rows of the group attend to.
    let whole = keys.before(group_row) / STEP;
    let limits = [keys.before(row), keys.before(row + 8)].map(|limit| limit as i32 - (lane % 4 * 2) as i32);
    let of_row = |values: &[f32], row: u32| {
        let row = (place.q.0 + row.min(place.q.1 - 1)).min(of.sequences.q_rows - 1);
        // SAFETY: there is an element for each row.
        unsafe { *values.get_unchecked(of.of_row(place.plane, place.head, row)) }
    };
    let bases = [base_of(of_row(sums, row)), base_of(of_row(sums, row + 8))];
    let deltas = [of_row(delta, row), of_row(delta, row + 8)];
    let factor = of.factor;
    let mut gradient = Accumulator::<D>::new();
    let mut scores = Accumulator::<64>::new();
    let mut products = Accumulator::<64>::new();
    // SAFETY: all threads of the warp group do the same. Stages are read when they are full, and given back when the products
    // that read them are done.
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
        // The group has read its rows of q to the end.
        warp_group::sync(1 + group, warp_group::THREADS);
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

/// [`attention_backward_keys()`] of heads of `D` elements.
///
/// # Safety
///
/// That of [`attention_backward_keys()`]; `ROWS` is `2 * D`.
#[inline(always)]
unsafe fn keys<T: Half, const D: usize, const ROWS: usize>(
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
    // The rows of k in the place of those of q.
    let Sequences { count, heads, q_rows, k_rows, band } = of.sequences;
    let kv_heads = divide(heads, of.group).0;
    let turned = Sequences { count, heads: kv_heads, q_rows: k_rows, k_rows: q_rows, band };
    let place = match offsets {
        // SAFETY: the caller's promise.
        (Some(q), Some(k)) => match unsafe { turned.packed(number, TILE, k, q) } {
            Some(place) => place,
            None => return,
        },
        _ => turned.equal(number, TILE),
    };
    let is_packed = offsets.0.is_some();
    let queries = Queries::new(&place, of.is_causal != 0);
    let (first_step, end_step) = (queries.from(place.row) / STEP, place.k.1.div_ceil(STEP));

    // SAFETY: the launch has this memory for it, by the caller's promise.
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
        // SAFETY: nothing has used the barriers; all threads meet after it.
        unsafe {
            once.init(1);
            partial.init(1);
            // The copies, and what the threads of the warp write.
            full.init(2);
            // Each warp has read them by itself.
            empty.init(4 * CONSUMERS);
        }
        barrier::publish();
    }
    thread::sync_threads();
    let (once, partial) = (once.at(Slot::new()), partial.at(Slot::new()));

    let warp = warp_group::warp_index();
    let lane = warp::lane_id();
    let mut slot = Slot::new();
    if warp < 4 {
        // SAFETY: the block has a fixed size, and began with 168 registers a thread.
        unsafe { warp_group::release_registers::<40>() };
        if warp == 0 {
            let leads = warp_group::elect();
            if leads {
                let row = place.q.0 + place.row;
                // SAFETY: nothing has used the tiles.
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
                    // SAFETY: the consumers have read the stage.
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
                        // Half of the lanes have the sums, half `delta`: a chunk each, of what one thread of a quad reads together.
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

    // SAFETY: the block has a fixed size, and the producer releases 128 registers a thread: 40 + 2 * 232 = 3 * 168.
    unsafe { warp_group::acquire_registers::<232>() };
    let group = warp / 4 - 1;
    let group_row = place.row + group * GROUP_ROWS;
    let row = group_row + warp % 4 * 16 + lane / 4;
    // The first step of which all rows attend to all of the group's.
    let whole = queries.from(group_row + GROUP_ROWS - 1).div_ceil(STEP);
    let in_quad = (lane % 4 * 2) as i32;
    let froms = [queries.from(row), queries.from(row + 8)].map(|from| from as i32 - in_quad);
    let end = place.k.1 as i32 - in_quad;
    let factor = of.factor;
    let mut of_k = Accumulator::<D>::new();
    let mut of_v = Accumulator::<D>::new();
    let mut is_first = true;
    // SAFETY: all threads of the warp group do the same. Stages are read when they are full, and given back when the products
    // that read them are done.
    unsafe {
        once.wait(0);
        let mut head = 0;
        while head < of.group {
            let mut step = first_step;
            while step < end_step {
                let (q_tile, dout_tile, of_rows) = (q_tiles.at(slot), dout_tiles.at(slot), of_rows.at(slot));
                full.at(slot).wait(slot.parity());
                // There are not the registers for the descriptors of all parts, which would be computed before the loop.
                let group = opaque(group);
                // New ones: those of the step before would keep their registers until here.
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
                // Neither before: there are not the registers for fragments beside both.
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
        // The group has read its rows of k and v to the end.
        warp_group::sync(1 + group, warp_group::THREADS);
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

/// Which rows of q attend to each row of k: those from some row of the sequence on.
#[derive(Clone, Copy)]
struct Queries {
    count: u32,
    is_causal: bool,
    /// By how many rows k is longer than q.
    ahead: i32,
}

impl Queries {
    /// Of a place whose rows are those of k.
    #[inline(always)]
    fn new(place: &Place, is_causal: bool) -> Self {
        Self { count: place.k.1, is_causal, ahead: place.q.1 as i32 - place.k.1 as i32 }
    }

    /// The first row of q that attends to row `row` of k.
    #[inline(always)]
    fn from(self, row: u32) -> u32 {
        if !self.is_causal {
            return 0;
        }
        let from = row as i32 - self.ahead;
        if from < 0 { 0 } else { self.count.min(from as u32) }
    }
}

/// Takes the scores of rows of q, of which the first is `first`, that do not attend to the thread's two rows of k out of a block: those
/// before `froms` and from `end` on, each less the thread's first column.
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

/// Four of the values of rows of q that a thread needs: those of columns 16 * `index` and up of its quad's thread, two and two. The
/// sums are kind 0, `delta` kind 1.
///
/// # Safety
///
/// The tile has them, and nothing writes it.
#[inline(always)]
unsafe fn chunk_of(tile: SharedTile<f32, 8>, kind: u32, lane: u32, index: usize) -> [f32; 4] {
    let chunk = kind * 16 + lane % 4 * 4 + index as u32;
    // SAFETY: the caller's promise.
    unsafe { tile.load_chunk(chunk / 8, chunk % 8) }.map(f32::from_bits)
}
