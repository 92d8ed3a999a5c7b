//! `move_rows`: copies rows, in order or selected by indices. Source and destination have independent pitches.

use core::num::{NonZeroU32, NonZeroUsize};
use core::ptr;

use gpu_std::prelude::*;

use crate::tile::{aligned, for_each, in_first_row, lanes, load, store, with_lanes};

/// An index type.
pub trait Index: KernelType {
    /// Converts the index to `u64`. A negative index becomes larger than any limit.
    fn number(self) -> u64;
}

impl Index for u32 {
    #[inline(always)]
    fn number(self) -> u64 {
        u64::from(self)
    }
}

impl Index for i64 {
    #[inline(always)]
    fn number(self) -> u64 {
        self as u64
    }
}

/// The sizes and pitches of a row copy.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Rows {
    /// Number of rows to copy.
    pub count: u64,
    /// Elements per row.
    pub width: u64,
    /// Exclusive upper limit of the indices. Rows whose indices are not below the limit are skipped.
    pub limit: u64,
    /// Row pitches of the source and the destination, in elements.
    pub pitches: [u64; 2],
    /// 1 if the indices select the destination row (scatter), or 0 if they select the source row (gather).
    pub scatters: u64,
}

/// For each row `i`, copies `to[i] = from[indices[i]]` (gather) or `to[indices[i]] = from[i]` (scatter). Without
/// indices, copies `to[i] = from[i]`. There is one instance per element size.
///
/// # Safety
/// The launch must be one-dimensional. There must be one index per row, or no indices. `from` and `to` must be valid
/// for the rows that `rows` and the indices describe, and must not overlap. If the indices select the destination row,
/// no index may occur twice. Nothing else may write `from` or access `to` until the launch ends.
#[kernel(
    types(T = u8, u16, u32, u64; I = u32, i64),
    consts(ITEMS = 2; VECTOR = 16),
    launch_bounds(512),
    bytes = 2 * rows.count as usize * rows.width as usize * size_of::<T>() + indices.map_or(0, |indices| indices.bytes())
)]
pub unsafe fn move_rows<T: KernelType, I: Index, const ITEMS: usize, const VECTOR: usize>(
    rows: Rows,
    indices: Option<&[I]>,
    from: *const T,
    to: *mut T,
) {
    if !in_first_row() {
        return;
    }
    with_lanes!(lanes::<T>(VECTOR), N => {
        let in_vectors = rows.width | rows.pitches[0] | rows.pitches[1];
        // SAFETY: guaranteed by this function's contract.
        unsafe {
            if N > 1 && in_vectors.is_multiple_of(N as u64) && aligned::<T, N>(from) && aligned::<T, N>(to) {
                move_units::<T, I, ITEMS, N>(rows, indices, from, to);
            } else {
                move_units::<T, I, ITEMS, 1>(rows, indices, from, to);
            }
        }
    })
}

/// Copies rows in units of `N` elements.
#[inline(always)]
unsafe fn move_units<T: KernelType, I: Index, const ITEMS: usize, const N: usize>(
    rows: Rows,
    indices: Option<&[I]>,
    from: *const T,
    to: *mut T,
) {
    let Some(of_row) = NonZeroUsize::new(rows.width as usize / N) else { return };
    // The result is used only if the number of units per row fits in 32 bits.
    let few = NonZeroU32::new(of_row.get() as u32).unwrap_or(NonZeroU32::MIN);
    let units = rows.count as usize * of_row.get();
    let is_small = units >> 32 == 0;
    // Returns the addresses of a unit, or null pointers if its index is out of range.
    let addresses = |unit: usize| -> (*const T, *mut T) {
        let (row, column) = if of_row.get() == 1 {
            (unit, 0)
        } else if is_small {
            ((unit as u32 / few) as usize, (unit as u32 % few) as usize)
        } else {
            (unit / of_row, unit % of_row)
        };
        let other = indices.map_or(row as u64, |indices| {
            // SAFETY: there is one index per row.
            unsafe { indices.get_unchecked(row) }.number()
        });
        if indices.is_some() && other >= rows.limit {
            return (ptr::null(), ptr::null_mut());
        }
        let (read, written) = if rows.scatters == 0 { (other as usize, row) } else { (row, other as usize) };
        let first = |row: usize, pitch: u64| row * pitch as usize + column * N;
        (from.wrapping_add(first(read, rows.pitches[0])), to.wrapping_add(first(written, rows.pitches[1])))
    };
    for_each::<(Option<[T; N]>, *mut T), ITEMS>(
        units,
        |unit| {
            let (read, written) = addresses(unit);
            // SAFETY: this function's contract guarantees that the address refers to a unit in a row.
            ((!read.is_null()).then(|| unsafe { load(read) }), written)
        },
        |_, (values, written)| {
            if let Some(values) = values {
                // SAFETY: this function's contract guarantees that the address refers to this thread's own unit in a
                // row.
                unsafe { store(written, values) };
            }
        },
    );
}
