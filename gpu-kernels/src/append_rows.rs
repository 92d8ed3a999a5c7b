//! `append_rows`: appends new rows to a KV cache.
//!
//! There is one instance per element size (`u8`, `u16`, `u32`, `u64`) and index size. Rows that do not fit are skipped.
//! The host checks for such rows before the launch.

use gpu_std::prelude::*;

use crate::thread_group::{Same, for_parts, lanes, map_rows, with_lanes};

/// Copies row `token` of plane `sequence` of `new` to row `lengths[sequence] + token` of plane `sequence` of `cache`.
///
/// # Safety
/// The launch must meet the requirements of the `thread_group` module, with blocks of at most 256 threads and without
/// clusters. If `parts` is greater than one, the thread group must be a block. `cache` and `new` must have the same
/// number of columns, and as many planes as there are lengths. If `has_vectors` is 1, all rows of both views must start
/// at the same address modulo 16 bytes.
#[kernel(
    types(T = u8, u16, u32, u64; I = u32, u64),
    launch_bounds(256, 1),
    bytes = 2 * new.bytes() + lengths.bytes()
)]
pub unsafe fn append_rows<T: Scalar, I: Scalar>(
    new: Slice3<T>,
    lengths: &[I],
    mut cache: DisjointMut3<T>,
    group_size: u32,
    parts: u32,
    has_vectors: u32,
) {
    let (tokens, capacity) = (new.rows(), cache.rows() as u64);
    let (of_row, of_plane) = (cache.row_stride(), cache.plane_stride());
    let target = cache.as_mut_ptr();
    for_parts(group_size, parts, lengths.len() * tokens, |row, part| {
        let Some(sequence) = row.checked_div(tokens) else { return };
        let token = row - sequence * tokens;
        if let Some(length) = lengths.get(sequence).map(|length| length.cast::<u64>())
            && length < capacity
            && capacity - length > token as u64
            && let Some(source) = new.row([sequence, token])
        {
            let target = target.wrapping_add(sequence * of_plane + (length as usize + token) * of_row);
            // SAFETY: both rows lie within their views, and each part of a row has only one writer; the caller
            // guarantees the rest.
            with_lanes!(lanes::<T>(16), N => unsafe {
                map_rows::<T, 1, N>([source.as_ptr()], target, (source.len(), has_vectors != 0), part, &Same)
            });
        }
    });
}
