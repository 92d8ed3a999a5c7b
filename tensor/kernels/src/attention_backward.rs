//! Attention backward kernels, for [`attention`](mod@crate::attention).
//!
//! The probabilities `p = exp(scale * q * k^T - lse)` are recomputed. `delta` is the sum of `out * dout` for each row:
//!
//! ```text
//! ds = p * (dout * v^T - delta)
//! dq = scale * ds * k          dk = scale * ds^T * q          dv = p^T * dout
//! ```
//!
//! Two kernels accumulate the gradients in registers, without atomics. The results are therefore deterministic, at the
//! cost of seven GEMMs instead of five. Each block of [`attention_backward_queries`](fn@attention_backward_queries)
//! processes [`TILE`] rows of q and loops over the rows of k and v. Each block of
//! [`attention_backward_keys`](fn@attention_backward_keys) processes [`TILE`] rows of k and v. Such a block computes
//! the transpose of each product and loops over the rows of q of all heads that attend to its rows. In both kernels,
//! each block has a producer warp and two consumer warpgroups, which process 64 rows each. The fragments of `p` and
//! `ds` stay in registers as the left operand of the next `wgmma`.
//!
//! Design: the equations of FlashAttention-2 (arXiv 2307.08691), without its atomics.

mod keys;
mod queries;

use core::f32::consts::LOG2_E;

use gpu_std::math::Math;
use gpu_std::prelude::*;
use gpu_std::scalar::Float;
use gpu_std::tensor::{Barrier, Half, SharedMemory, SharedTile, TensorMap, warpgroup};
use gpu_std::vectorized::load;

use self::keys::keys;
use self::queries::queries;
use crate::attention::{BOX, Head64, Head128};
use crate::sequences::{HeadStrides, Sequences, coordinates};
use crate::tiles::divide;

/// Number of rows per block.
pub const TILE: u32 = 128;
/// Number of rows per step of a block's loop, which is also the number of rows per box in all tensor maps.
pub const STEP: u32 = 64;
/// Number of stages of the circular buffer.
pub const STAGES: usize = 2;
/// Number of threads per block.
pub const THREADS: u32 = 3 * warpgroup::THREADS;
/// Number of threads per block in the kernel that computes `delta`.
pub const DELTA_THREADS: u32 = 256;
/// Threads per row of `delta`; each processes chunks of 8 elements.
pub const DELTA_LANES: u32 = 16;

/// Number of rows per warpgroup.
const GROUP_ROWS: u32 = 64;
/// Number of consumer warpgroups.
const CONSUMERS: u32 = TILE / GROUP_ROWS;
/// Number of bytes per row of a box.
const ROW_BYTES: u32 = 2 * BOX;

/// Returns the dynamic shared memory per block, in bytes, for heads of `dim` elements.
pub const fn shared_bytes(dim: u32) -> u32 {
    let tiles = 2 * TILE * dim * 2 + STAGES as u32 * (2 * STEP * dim * 2 + 8 * 128);
    SharedMemory::bytes(tiles, 2 + 2 * STAGES as u32)
}

/// Attention options and strides of the gradients.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Backward {
    /// The sequences. In both kernels, the q sizes come before the k sizes.
    pub sequences: Sequences,
    /// Number of heads of q per head of k and v.
    pub group: u32,
    /// See [`Shape::is_causal`](crate::attention::Shape::is_causal).
    pub is_causal: u32,
    /// Softmax scale; positive.
    pub scale: f32,
    /// [`Shape::scale`](crate::attention::Shape::scale): the scale times log2(e).
    pub factor: f32,
    /// Bit mask of the tensor maps whose row dimension comes before the head dimension: bit 0 for q, 1 for k, 2 for v,
    /// 3 for the gradient of `out`.
    pub rows_first: u32,
    /// Strides of the q gradient or, in the kernel for k and v, of the k gradient.
    pub first: HeadStrides,
    /// Strides of the v gradient.
    pub second: HeadStrides,
}

impl Backward {
    #[inline(always)]
    fn coordinates(&self, map: u32, column: u32, row: u32, head: u32, plane: u32) -> [u32; 4] {
        coordinates(self.rows_first, map, column, row, head, plane)
    }

    /// Returns the index of a row of q in `lse` and `delta`.
    #[inline(always)]
    fn of_row(&self, plane: u32, head: u32, row: u32) -> usize {
        let head = u64::from(plane) * u64::from(self.sequences.heads) + u64::from(head);
        (head * u64::from(self.sequences.q_rows) + u64::from(row)) as usize
    }
}

/// Head dimensions that have backward kernels: [`Head64`], [`Head128`].
pub trait BackwardHead: Send + Sync + 'static {
    /// Number of elements per row of a head.
    const DIM: u32;
    #[doc(hidden)]
    #[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
    unsafe fn queries<T: Half>(
        maps: Maps<'_, T>,
        lse: &[f32],
        delta: &[f32],
        dq: DisjointMut<T>,
        offsets: Ends<'_>,
        of: Backward,
    );
    #[doc(hidden)]
    #[allow(clippy::too_many_arguments, reason = "they are a kernel's")]
    unsafe fn keys<T: Half>(
        maps: Maps<'_, T>,
        lse: &[f32],
        delta: &[f32],
        gradients: [DisjointMut<T>; 2],
        offsets: Ends<'_>,
        of: Backward,
    );
}

/// Tensor maps of q, k, v and the gradient of `out`.
#[doc(hidden)]
#[derive(Clone, Copy)]
pub struct Maps<'a, T> {
    q: &'a TensorMap<T, 4>,
    k: &'a TensorMap<T, 4>,
    v: &'a TensorMap<T, 4>,
    dout: &'a TensorMap<T, 4>,
}

/// Offsets of q and of k, for packed variable-length sequences.
#[doc(hidden)]
pub type Ends<'a> = (Option<&'a [u32]>, Option<&'a [u32]>);

macro_rules! heads {
    ($($name:ident: $dim:literal;)*) => { $(
        impl BackwardHead for $name {
            const DIM: u32 = $dim;
            #[inline(always)]
            unsafe fn queries<T: Half>(
                maps: Maps<'_, T>,
                lse: &[f32],
                delta: &[f32],
                dq: DisjointMut<T>,
                offsets: Ends<'_>,
                of: Backward,
            ) {
                // SAFETY: guaranteed by the caller.
                unsafe { queries::<T, $dim, { 2 * $dim }>(maps, lse, delta, dq, offsets, of) }
            }
            #[inline(always)]
            unsafe fn keys<T: Half>(
                maps: Maps<'_, T>,
                lse: &[f32],
                delta: &[f32],
                gradients: [DisjointMut<T>; 2],
                offsets: Ends<'_>,
                of: Backward,
            ) {
                // SAFETY: guaranteed by the caller.
                unsafe { keys::<T, $dim, { 2 * $dim }>(maps, lse, delta, gradients, offsets, of) }
            }
        }
    )* };
}
heads! {
    Head64: 64;
    Head128: 128;
}

/// Computes `delta`: the sum of `out * dout` for each row of each head of each plane.
///
/// # Safety
/// The grid must be one-dimensional. Both matrices must start on 16-byte boundaries and have the strides `of_out` and
/// `of_dout`, respectively. They must have `planes` planes with the heads and rows of q that `sequences` describes. A
/// row has `dim` elements, a multiple of 8. `delta` has one element per row.
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
    // All lanes of a warp iterate the same number of times.
    let mut first = u64::from(own) & !1;
    while first < rows {
        let index = first | u64::from(own & 1);
        let mut sum = 0.0f32;
        if index < rows {
            let (head, row) = divide_64(index, sequences.q_rows);
            let (plane, head) = divide(head, sequences.heads);
            let mut column = 8 * lane;
            while column < dim {
                let at = |of: HeadStrides| (of.at(plane, head, row) + u64::from(column)) as usize;
                // SAFETY: these elements are within the row, and start on a 16-byte boundary.
                let (x, y) = unsafe {
                    (load::<T, 8>(out.as_ptr().add(at(of_out))), load::<T, 8>(dout.as_ptr().add(at(of_dout))))
                };
                let mut i = 0;
                while i < 8 {
                    sum = Math::mul_add(x[i].cast::<f32>(), y[i].cast::<f32>(), sum);
                    i += 1;
                }
                column += 8 * DELTA_LANES;
            }
        }
        let mut distance = DELTA_LANES / 2;
        while distance > 0 {
            sum += warp::shuffle_xor(!0, sum, distance);
            distance /= 2;
        }
        if index < rows && lane == 0 {
            // SAFETY: `delta` has one element per row, and one thread group processes each row.
            unsafe { delta.as_mut_ptr().add(index as usize).write(sum) };
        }
        first += step;
    }
}

/// Returns `a / b` and `a % b`; the quotient must be less than 2^32.
#[inline(always)]
fn divide_64(a: u64, b: u32) -> (u32, u32) {
    // SAFETY: the value is at least 1, because 0 is replaced by 1.
    let b = unsafe { core::num::NonZeroU64::new_unchecked(u64::from(b).max(1)) };
    ((a / b) as u32, (a % b) as u32)
}

/// Computes the gradient `dq` of `q` from the gradient `dout` of the output of [`attention`](mod@crate::attention).
/// `lse` is its log-sum-exp output. Gradient rows that belong to no sequence are not written.
///
/// # Safety
///
/// - The launch must have `shared_bytes(H::DIM)` bytes of dynamic shared memory, and one block per tile of [`TILE`]
///   rows of [`Sequences::tiles`].
/// - The maps must describe the elements, rows, heads and planes of `of`, in boxes of [`BOX`] elements and [`STEP`]
///   rows with `Swizzle::Bytes128`. `rows_first` defines the order of their dimensions. `lse` and `delta` have one
///   element per row of each head of each plane of q. `dq` starts on a 16-byte boundary and has the strides `of.first`.
///   The offsets are either both present or both absent, and the length of each array is the number of sequences plus
///   one.
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
    lse: &[f32],
    delta: &[f32],
    dq: DisjointMut<T>,
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    of: Backward,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { H::queries(Maps { q, k, v, dout }, lse, delta, dq, (q_offsets, k_offsets), of) }
}

/// Computes the gradients `dk` and `dv` of `k` and `v`, like [`attention_backward_queries()`] for `q`.
///
/// # Safety
/// The caller must uphold the safety contract of [`attention_backward_queries()`], but with one block per tile of
/// [`TILE`] rows of the heads of k. `dk` has the strides `of.first`, and `dv` has the strides `of.second`.
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
    lse: &[f32],
    delta: &[f32],
    dk: DisjointMut<T>,
    dv: DisjointMut<T>,
    q_offsets: Option<&[u32]>,
    k_offsets: Option<&[u32]>,
    of: Backward,
) {
    // SAFETY: guaranteed by the caller.
    unsafe { H::keys(Maps { q, k, v, dout }, lse, delta, [dk, dv], (q_offsets, k_offsets), of) }
}

/// Returns the base that is subtracted from the exponents of a row: its log-sum-exp in base 2. The probabilities of a
/// row that attends to no rows are 0 for any base.
#[inline(always)]
pub(crate) fn base_of(sum: f32) -> f32 {
    if sum == f32::NEG_INFINITY { 0.0 } else { sum * LOG2_E }
}

/// Starts the TMA copy of a tile that consists of `ROWS / (64 * high)` columns of boxes. Each column consists of `high`
/// boxes with [`STEP`] rows each. A single thread must call this function. `at` maps the first column and row of a box
/// in the tile to its coordinates in the tensor.
///
/// # Safety
/// The caller must uphold the safety contract of [`TensorMap::load`].
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
        // SAFETY: the tile contains these boxes; the caller guarantees the rest.
        unsafe { map.load(tile.rows::<{ STEP as usize }>(i), at(BOX * column, STEP * row), loaded) };
        i += 1;
    }
}
