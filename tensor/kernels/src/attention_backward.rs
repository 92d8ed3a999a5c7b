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

mod keys;
mod queries;

use core::f32::consts::LOG2_E;

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::scalar::Float;
use gpu_std::tensor::{Barrier, Half, SharedMemory, SharedTile, TensorMap, warp_group};
use gpu_std::vectorized::load;

use self::keys::keys;
use self::queries::queries;
use crate::attention::{BOX, Head64, Head128};
use crate::sequences::{HeadStrides, Sequences, coordinates};
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
