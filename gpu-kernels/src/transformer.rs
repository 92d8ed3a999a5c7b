//! Transformer operations that run between GEMMs: SwiGLU and rotary position embedding. For `f16` and `bf16`, these
//! operations compute in `f32`.

use gpu_std::prelude::*;

use crate::softmax::exponential;
use crate::thread_group::{Cut, for_parts, lanes, lanewise, load_or_any, stream, with_lanes};
use crate::tile::store;

/// Number of vectors per row that a thread loads from memory at once.
const STREAMED: usize = 4;

/// SwiGLU: gate / (1 + exp(-gate)) · up.
#[inline(always)]
fn gated<T: Float, const M: usize>([gate, up]: [[T; M]; 2]) -> [T; M] {
    lanewise(|i| {
        let (gate, up) = (gate[i].to_acc(), up[i].to_acc());
        let [a, b] = crate::arithmetic::gate(gate, gate, exponential::<T>);
        T::from_acc(a * up * b)
    })
}

/// Writes the SwiGLU of a row of `gate` and a row of `up` to `target`, at the positions assigned to thread `rank` out
/// of `size` threads.
///
/// # Safety
/// The rows and `target` must be valid for `len` elements. If `have_vectors` is true, the addresses of the rows and
/// `target` must be equal modulo `N` elements. Each position must have only one writer.
#[inline(always)]
unsafe fn swiglu_row<T: Float, const N: usize>(
    rows: [*const T; 2],
    target: *mut T,
    (len, have_vectors): (usize, bool),
    part: (usize, usize),
) {
    let cut = Cut::new::<T, N>(target, len, have_vectors);
    stream::<_, [[T; N]; 2], [T; 2], STREAMED, N>(
        &cut,
        part,
        &mut (),
        // SAFETY: `stream` passes positions of vectors that exist and of elements outside them, and both rows are
        // divided in the same way.
        |place, is_there| lanewise(|k| unsafe { load_or_any(rows[k].wrapping_add(place), is_there) }),
        // SAFETY: as above.
        |(), place, vectors| unsafe { store(target.add(place), gated(vectors)) },
        // SAFETY: as above.
        |place| lanewise(|k| unsafe { rows[k].add(place).read() }),
        |(), place, [gate, up]| {
            let [value] = gated([[gate], [up]]);
            // SAFETY: as above.
            unsafe { target.add(place).write(value) };
        },
    );
}

/// Computes `out` = SiLU(`gate`) · `up`.
///
/// # Safety
/// The launch must meet the requirements of the `thread_group` module, with blocks of at most 256 threads and without
/// clusters. If `parts` is greater than one, the thread group must be a block. All views must have the same shape. If
/// `has_vectors` is 1, the addresses of corresponding rows must be equal modulo 16 bytes.
#[kernel(
    types(T = f32, f64, f16, bf16),
    launch_bounds(256, 1),
    bytes = gate.bytes() + up.bytes() + out.bytes()
)]
pub unsafe fn swiglu<T: Float>(
    gate: Slice2<T>,
    up: Slice2<T>,
    mut out: DisjointMut2<T>,
    group_size: u32,
    parts: u32,
    has_vectors: u32,
) {
    let (width, out_pitch) = (gate.columns(), out.row_stride());
    let out = out.as_mut_ptr();
    for_parts(group_size, parts, gate.rows(), |row, part| {
        let sources = [
            gate.as_ptr().wrapping_add(row * gate.row_stride()),
            up.as_ptr().wrapping_add(row * up.row_stride()),
        ];
        let target = out.wrapping_add(row * out_pitch);
        // SAFETY: the rows lie within their views, and each part of a row has only one writer; the caller guarantees
        // the rest.
        with_lanes!(lanes::<T>(16), N => unsafe {
            swiglu_row::<T, N>(sources, target, (width, has_vectors != 0), part)
        });
    });
}

/// Rotary position embedding, which rotates pairs (a, b) of each head to (a cos - b sin, a sin + b cos). The position
/// of a row of `x` selects the row of the tables. If no positions are passed, each row's own index is its position. A
/// head must be twice as wide as `cos`. Pair i consists of elements i and i + half or, if `is_interleaved` is 1, of
/// elements 2i and 2i + 1. Rows whose position is beyond the tables are skipped.
///
/// # Safety
/// The launch must meet the requirements of the `thread_group` module, with blocks of at most 256 threads and without
/// clusters. If `parts` is greater than one, the thread group must be a block. `x` and `out` must have the same shape,
/// and their width must be a multiple of the head width. `cos` and `sin` must have the same shape, and there must be
/// one position per row.
#[kernel(
    types(T = f32, f64, f16, bf16; I = u32, u64),
    launch_bounds(256, 1),
    bytes = x.bytes() + out.bytes()
)]
#[allow(clippy::too_many_arguments, reason = "they are what a launch passes")]
pub unsafe fn rotary<T: Float, I: Scalar>(
    x: Slice2<T>,
    positions: Option<&[I]>,
    cos: Slice2<T::Accumulator>,
    sin: Slice2<T::Accumulator>,
    mut out: DisjointMut2<T>,
    is_interleaved: u32,
    group_size: u32,
    parts: u32,
) {
    let (pairs, out_pitch) = (x.columns() / 2, out.row_stride());
    // The maximum avoids a division by zero, which would panic.
    let half = (cos.columns() as u32).max(1);
    let out = out.as_mut_ptr();
    for_parts(group_size, parts, x.rows(), |row, (rank, size)| {
        let position = match positions {
            // SAFETY: there is one position per row.
            Some(positions) => unsafe { *positions.get_unchecked(row) }.cast::<u64>(),
            None => row as u64,
        };
        if position >= cos.rows() as u64 {
            return;
        }
        let [cos, sin] =
            [cos, sin].map(|table| table.as_ptr().wrapping_add(position as usize * table.row_stride()));
        let (source, target) =
            (x.as_ptr().wrapping_add(row * x.row_stride()), out.wrapping_add(row * out_pitch));
        let mut pair = rank;
        while pair < pairs {
            let (head, i) = (pair as u32 / half, pair as u32 % half);
            let (first, distance) = if is_interleaved != 0 {
                (2 * pair, 1)
            } else {
                ((2 * half * head + i) as usize, half as usize)
            };
            // SAFETY: both elements lie within the row, the angle lies within the tables, and each pair has only one
            // writer.
            unsafe {
                let (cos, sin) = (cos.add(i as usize).read(), sin.add(i as usize).read());
                let a = source.add(first).read().to_acc();
                let b = source.add(first + distance).read().to_acc();
                target.add(first).write(T::from_acc(a * cos - b * sin));
                target.add(first + distance).write(T::from_acc(a * sin + b * cos));
            }
            pair += size;
        }
    });
}
