//! [`Padded`]: an array with padding after each row.

use core::mem::MaybeUninit;
use core::ops::Index;

use super::data::{SharedArray, SharedData, plane_indices};
use crate::element::KernelType;

/// A `[[T; C]; R]` with `GAP` elements of padding after each row, to avoid bank conflicts when a warp reads a column.
/// Shared memory has 32 banks of 4 bytes. Without padding, all elements of a column are in the same bank if a row has
/// 32 `f32` elements.
///
/// Index it as `tile[row][column]`, or transposed as `tile[column][row]`.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// The transpose of each 32 x 32 elements, one after the other. A block has 1024 threads.
/// #[kernel(launch_bounds(1024))]
/// fn transpose_each(data: &[[[f32; 32]; 32]], mut tile: Shared<Padded<f32, 32, 32>>, mut out: DisjointMut<f32>) {
///     let data = &data[block::linear_index()];
///     let tile = tile.fill(|[row, column]| data[row][column]);
///     let own = thread::linear_in_block() as usize;
///     if let Some(out) = out.get_mut(thread::unique_index()) {
///         *out = tile[own % 32][own / 32];
///     }
/// }
/// ```
#[repr(transparent)]
pub struct Padded<T, const R: usize, const C: usize, const GAP: usize = 1>([Row<T, C, GAP>; R]);

#[repr(C)]
struct Row<T, const C: usize, const GAP: usize> {
    elements: [T; C],
    _gap: MaybeUninit<[T; GAP]>,
}

impl<T, const R: usize, const C: usize, const GAP: usize> Index<usize> for Padded<T, R, C, GAP> {
    type Output = [T; C];

    #[inline(always)]
    #[track_caller]
    fn index(&self, row: usize) -> &[T; C] {
        &self.0[row].elements
    }
}

// SAFETY: every bit pattern is valid, including the padding. Element `number` is in row `number / C`, and each row
// starts `C + GAP` elements after the previous one.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelType, const R: usize, const C: usize, const GAP: usize> SharedData
    for Padded<T, R, C, GAP>
{
    const ELEMENT_BYTES: usize = T::ELEMENT_BYTES;
    const ALIGN: usize = align_of::<T>();

    #[inline(always)]
    fn count(_: *const Self) -> u32 {
        const {
            assert!(
                size_of::<[[T; C]; R]>() > 0,
                "a shared array must have at least one element, which must not be \
                                                   zero-sized"
            );
            (R * C) as u32
        }
    }

    #[inline(always)]
    fn place(number: u32) -> u32 {
        number / C as u32 * (C + GAP) as u32 + number % C as u32
    }
}

// SAFETY: see above.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelType, const R: usize, const C: usize, const GAP: usize> SharedArray<2>
    for Padded<T, R, C, GAP>
{
    type Element = T;

    #[inline(always)]
    fn indices(number: u32) -> [usize; 2] {
        plane_indices::<C>(number)
    }
}
