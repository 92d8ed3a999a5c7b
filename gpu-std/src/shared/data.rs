//! Types that the threads of a block can share ([`SharedData`]), and their shapes ([`SharedArray`]).

use crate::atomic::{Atomic, AtomicValue};
use crate::element::KernelType;

/// A type that shared memory can contain: any [`KernelType`], arrays of such types, and arrays of [`Atomic`]s with any
/// scope. Arrays have up to three dimensions. The outermost dimension can be a slice: `[T]`, `[[T; C]]`, `[[[T; C];
/// R]]`.
///
/// See the example of [`Shared`](super::Shared).
///
/// # Safety
/// Every bit pattern must be valid, and threads must be able to read a value concurrently. For each `number` below
/// `count`, the element at `place(number)` must lie within the value, and these elements must not overlap. `ALIGN` must
/// be at most the value's alignment.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be in shared memory",
    label = "neither a `KernelType` nor an array of atomics",
    note = "shared memory can contain arrays of numbers, of structs with `#[derive(KernelType)]`, and of `Atomic<T, \
            S>`",
    note = "not every byte is a valid `bool` or enum variant: use `Checked<bool>` or `Checked<Enum>`"
)]
pub unsafe trait SharedData: Sync + 'static {
    /// Size of an innermost element, in bytes.
    #[doc(hidden)]
    const ELEMENT_BYTES: usize;

    /// Alignment of the value, in bytes.
    #[doc(hidden)]
    const ALIGN: usize;

    /// Returns the number of innermost elements. The number is a constant unless the type is a slice.
    #[doc(hidden)]
    fn count(this: *const Self) -> u32;

    /// Returns the position of element `number`, in elements from the start of the value.
    #[doc(hidden)]
    #[inline(always)]
    fn place(number: u32) -> u32 {
        number
    }
}

// SAFETY: guaranteed by the trait itself; an array has the size of its element type.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelType> SharedData for T {
    const ELEMENT_BYTES: usize = T::ELEMENT_BYTES;
    const ALIGN: usize = align_of::<T>();

    #[inline(always)]
    fn count(_: *const Self) -> u32 {
        const { count_of::<Self>(T::ELEMENT_BYTES) }
    }
}

// SAFETY: as above; a slice contains the elements of each `T` contiguously.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelType> SharedData for [T] {
    const ELEMENT_BYTES: usize = T::ELEMENT_BYTES;
    const ALIGN: usize = align_of::<T>();

    #[inline(always)]
    fn count(this: *const Self) -> u32 {
        // The product is at most the size of shared memory in bytes.
        this.len() as u32 * const { count_of::<T>(T::ELEMENT_BYTES) }
    }
}

/// Returns the number of innermost elements of a value.
const fn count_of<A>(element_bytes: usize) -> u32 {
    assert!(
        size_of::<A>() > 0,
        "a shared array must have at least one element, which must not be zero-sized"
    );
    let count = size_of::<A>() / element_bytes;
    assert!(count <= u32::MAX as usize / 2, "a shared array must fit into shared memory");
    count as u32
}

macro_rules! atomics {
    ($([$($length:ident)*] $t:ty;)*) => { $(
        // SAFETY: the type has the layout of its numbers, and every access through a shared reference is atomic.
        #[diagnostic::do_not_recommend]
        unsafe impl<T: AtomicValue, S: 'static, $(const $length: usize),*> SharedData for $t {
            const ELEMENT_BYTES: usize = size_of::<T>();
            const ALIGN: usize = align_of::<T>();

            #[inline(always)]
            fn count(_: *const Self) -> u32 {
                const { count_of::<Self>(size_of::<T>()) }
            }
        }

        // SAFETY: as above.
        #[diagnostic::do_not_recommend]
        unsafe impl<T: AtomicValue, S: 'static, $(const $length: usize),*> SharedData for [$t] {
            const ELEMENT_BYTES: usize = size_of::<T>();
            const ALIGN: usize = align_of::<T>();

            #[inline(always)]
            fn count(this: *const Self) -> u32 {
                this.len() as u32 * const { count_of::<$t>(size_of::<T>()) }
            }
        }
    )* };
}
atomics! {
    [] Atomic<T, S>;
    [N] [Atomic<T, S>; N];
    [R C] [[Atomic<T, S>; C]; R];
}

// SAFETY: as above.
#[diagnostic::do_not_recommend]
unsafe impl<T: AtomicValue, S: 'static, const P: usize, const R: usize, const C: usize> SharedData
    for [[[Atomic<T, S>; C]; R]; P]
{
    const ELEMENT_BYTES: usize = size_of::<T>();
    const ALIGN: usize = align_of::<T>();

    #[inline(always)]
    fn count(_: *const Self) -> u32 {
        const { count_of::<Self>(size_of::<T>()) }
    }
}

/// A `D`-dimensional array that a block can share: `[T; N]`, `[[T; C]; R]` or `[[[T; C]; R]; P]`, or as a slice `[T]`,
/// `[[T; C]]` or `[[[T; C]; R]]`.
///
/// `D` must count all dimensions, so that the elements themselves are not arrays. For example, a row cannot be written
/// as one element:
///
/// ```compile_fail
/// # use gpu_std::prelude::*;
/// #[kernel]
/// fn rows(mut tile: Shared<[[f32; 8]; 8]>) {
///     tile.fill(|[_row]| [0.0; 8]);
/// }
/// ```
///
/// See the example of [`Shared::fill`](super::Shared::fill).
///
/// # Safety
/// Elements must have `ELEMENT_BYTES` bytes, and `indices` must return the indices of element `number`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be indexed with {D} indices",
    note = "`[T; N]` is indexed with `[i]`, `[[T; C]; R]` with `[row, column]`, and `[[[T; C]; R]; P]` with `[plane, \
            row, column]`"
)]
pub unsafe trait SharedArray<const D: usize>: SharedData {
    /// Type of the array's elements.
    type Element: SharedData;

    /// Returns the indices of element `number`, which must be below `count`.
    #[doc(hidden)]
    fn indices(number: u32) -> [usize; D];

    /// Compiles only if `D` counts all dimensions down to the innermost elements.
    #[doc(hidden)]
    const CHECK: () = assert!(
        size_of::<Self::Element>() == Self::ELEMENT_BYTES,
        "this array has more dimensions: give the closure one index per dimension, as in `|[row, column]| …`. An \
         element of an array in shared memory cannot be an array: use a struct"
    );
}

// SAFETY: this is the layout of a Rust array.
unsafe impl<T: SharedData, const N: usize> SharedArray<1> for [T; N]
where
    Self: SharedData,
{
    type Element = T;

    #[inline(always)]
    fn indices(number: u32) -> [usize; 1] {
        [number as usize]
    }
}

// SAFETY: as above.
unsafe impl<T: SharedData> SharedArray<1> for [T]
where
    Self: SharedData,
{
    type Element = T;

    #[inline(always)]
    fn indices(number: u32) -> [usize; 1] {
        [number as usize]
    }
}

// SAFETY: as above.
unsafe impl<T: SharedData, const R: usize, const C: usize> SharedArray<2> for [[T; C]; R]
where
    Self: SharedData,
{
    type Element = T;

    #[inline(always)]
    fn indices(number: u32) -> [usize; 2] {
        plane_indices::<C>(number)
    }
}

// SAFETY: as above.
unsafe impl<T: SharedData, const C: usize> SharedArray<2> for [[T; C]]
where
    Self: SharedData,
{
    type Element = T;

    #[inline(always)]
    fn indices(number: u32) -> [usize; 2] {
        plane_indices::<C>(number)
    }
}

// SAFETY: as above.
unsafe impl<T: SharedData, const P: usize, const R: usize, const C: usize> SharedArray<3> for [[[T; C]; R]; P]
where
    Self: SharedData,
{
    type Element = T;

    #[inline(always)]
    fn indices(number: u32) -> [usize; 3] {
        volume_indices::<R, C>(number)
    }
}

// SAFETY: as above.
unsafe impl<T: SharedData, const R: usize, const C: usize> SharedArray<3> for [[[T; C]; R]]
where
    Self: SharedData,
{
    type Element = T;

    #[inline(always)]
    fn indices(number: u32) -> [usize; 3] {
        volume_indices::<R, C>(number)
    }
}

/// Returns the row and column of element `number` in rows of `C` elements.
#[inline(always)]
pub(super) fn plane_indices<const C: usize>(number: u32) -> [usize; 2] {
    let columns = C as u32;
    [(number / columns) as usize, (number % columns) as usize]
}

/// Returns the plane, row and column of element `number` in planes of `R` rows of `C` elements.
#[inline(always)]
fn volume_indices<const R: usize, const C: usize>(number: u32) -> [usize; 3] {
    let (rows, columns) = (R as u32, C as u32);
    let line = number / columns;
    [(line / rows) as usize, (line % rows) as usize, (number % columns) as usize]
}
