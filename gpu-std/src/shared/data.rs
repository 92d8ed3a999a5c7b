//! What a block can share: [`SharedData`], and its shape, [`SharedArray`].

use crate::atomic::{Atomic, AtomicValue};
use crate::element::KernelType;

/// What shared memory can hold: every [`KernelType`], arrays of them, and arrays of [`Atomic`]s of any scope, in up to
/// three dimensions.
///
/// # Safety
///
/// Any bytes are a value, and threads may read it together. `ELEMENT_BYTES` divides the size; it is that of an
/// innermost element.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be in shared memory",
    label = "neither a `KernelType` nor an array of atomics",
    note = "shared memory holds arrays of numbers, of structs with `#[derive(KernelType)]`, and of `Atomic<T, S>`"
)]
pub unsafe trait SharedData: Sync + 'static {
    /// Bytes of an innermost element.
    #[doc(hidden)]
    const ELEMENT_BYTES: usize;
}

// SAFETY: the trait's own promise; an array knows its element's bytes.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelType> SharedData for T {
    const ELEMENT_BYTES: usize = T::ELEMENT_BYTES;
}

macro_rules! atomics {
    ($([$($length:ident)*] $t:ty;)*) => { $(
        // SAFETY: it has the layout of numbers, and all access through a shared reference is atomic.
        #[diagnostic::do_not_recommend]
        unsafe impl<T: AtomicValue, S: 'static, $(const $length: usize),*> SharedData for $t {
            const ELEMENT_BYTES: usize = size_of::<T>();
        }
    )* };
}
atomics! {
    [] Atomic<T, S>;
    [N] [Atomic<T, S>; N];
    [R C] [[Atomic<T, S>; C]; R];
    [P R C] [[[Atomic<T, S>; C]; R]; P];
}

/// An array of `D` dimensions that a block can share: `[T; N]`, `[[T; C]; R]` or `[[[T; C]; R]; P]`.
///
/// `D` counts down to elements that are no arrays, so it is the same wherever an array is written.
///
/// # Safety
///
/// The array is `COUNT` elements one after the other, of which `position` gives the indices.
#[diagnostic::on_unimplemented(
    message = "`{Self}` has no elements with {D} indices",
    note = "`[T; N]` has `[i]`, `[[T; C]; R]` has `[row, column]`, `[[[T; C]; R]; P]` has `[plane, row, column]`"
)]
pub unsafe trait SharedArray<const D: usize>: SharedData {
    /// What it is an array of.
    type Element: SharedData;
    /// How many there are.
    #[doc(hidden)]
    const COUNT: u32;
    /// The indices of the element at this place in memory.
    #[doc(hidden)]
    fn position(linear: u32) -> [usize; D];
}

/// The number of elements, when there are as many as one at least and each is an innermost one.
const fn count<A: SharedData, T: SharedData>() -> u32 {
    assert!(size_of::<A>() > 0, "a shared array has elements, and they have bytes");
    assert!(
        size_of::<T>() == A::ELEMENT_BYTES,
        "this array has more dimensions: give the function an index for each, as in `|[row, column]| …`"
    );
    let count = size_of::<A>() / size_of::<T>();
    assert!(count <= u32::MAX as usize / 2, "a shared array fits into shared memory");
    count as u32
}

// SAFETY: Rust lays an array out like this.
unsafe impl<T: SharedData, const N: usize> SharedArray<1> for [T; N]
where
    Self: SharedData,
{
    type Element = T;
    const COUNT: u32 = count::<Self, T>();

    #[inline(always)]
    fn position(linear: u32) -> [usize; 1] {
        [linear as usize]
    }
}

// SAFETY: as above.
unsafe impl<T: SharedData, const R: usize, const C: usize> SharedArray<2> for [[T; C]; R]
where
    Self: SharedData,
{
    type Element = T;
    const COUNT: u32 = count::<Self, T>();

    #[inline(always)]
    fn position(linear: u32) -> [usize; 2] {
        let columns = C as u32;
        [(linear / columns) as usize, (linear % columns) as usize]
    }
}

// SAFETY: as above.
unsafe impl<T: SharedData, const P: usize, const R: usize, const C: usize> SharedArray<3> for [[[T; C]; R]; P]
where
    Self: SharedData,
{
    type Element = T;
    const COUNT: u32 = count::<Self, T>();

    #[inline(always)]
    fn position(linear: u32) -> [usize; 3] {
        let (rows, columns) = (R as u32, C as u32);
        let line = linear / columns;
        [(line / rows) as usize, (line % rows) as usize, (linear % columns) as usize]
    }
}
