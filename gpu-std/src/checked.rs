//! [`Checked`]: `bool` and enums in memory whose bytes may be anything.

use core::fmt;

use bytemuck::{Pod, Zeroable};

use crate::element::{KernelType, KernelValue};

/// `bool`, or an enum without fields that derives [`KernelValue`](derive@crate::KernelValue).
///
/// # Safety
///
/// The type has the size, alignment and bytes of `Bits`, and `is_valid` is true only for bits that are a value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither `bool` nor an enum of kernels",
    label = "not a `KernelEnum`",
    note = "an enum without fields is one with `#[derive(Clone, Copy, KernelValue)]` and the type of its numbers, as in `#[repr(u8)]`"
)]
pub unsafe trait KernelEnum: KernelValue {
    /// The integer that its bytes are.
    type Bits: KernelType + Pod + PartialEq + fmt::Debug;

    /// Whether the bits are a value.
    #[doc(hidden)]
    fn is_valid(bits: Self::Bits) -> bool;
}

// SAFETY: one byte, 0 for false and 1 for true.
unsafe impl KernelEnum for bool {
    type Bits = u8;

    #[inline(always)]
    fn is_valid(bits: u8) -> bool {
        bits <= 1
    }
}

/// The bytes of a `bool` or of an enum, in a buffer or in a struct that lies in one.
///
/// A buffer can be uninitialised or hold what another type left, so its bytes need not be a value of `T`: [`get`] says
/// whether they are. Otherwise it is like a `T`, of the same size.
///
/// ```
/// use gpu_std::prelude::*;
/// use gpu_std::Checked;
///
/// #[derive(Debug, Clone, Copy, PartialEq, KernelValue)]
/// #[repr(u8)]
/// enum Cell {
///     Dead,
///     Alive,
/// }
///
/// #[kernel]
/// fn invert(cells: &[Checked<Cell>], mut out: DisjointMut<Checked<Cell>>) {
///     let i = thread::unique_index();
///     if let Some(out) = out.get_mut(i) {
///         *out = match cells[i.get()].get() {
///             Some(Cell::Alive) => Cell::Dead.into(),
///             _ => Cell::Alive.into(),
///         };
///     }
/// }
///
/// let cells = [Cell::Dead, Cell::Alive];
/// let for_upload: &[Checked<Cell>] = Checked::from_slice(&cells);
/// assert_eq!(for_upload[1].get(), Some(Cell::Alive));
/// assert_eq!(bytemuck::cast::<u8, Checked<Cell>>(7).get(), None);
/// ```
///
/// [`get`]: Self::get
#[repr(transparent)]
pub struct Checked<T: KernelEnum> {
    bits: T::Bits,
}

impl<T: KernelEnum> Checked<T> {
    /// The bytes of `value`.
    #[inline(always)]
    pub fn new(value: T) -> Self {
        const { assert!(size_of::<T>() == size_of::<T::Bits>()) };
        // SAFETY: a value has the bytes of its bits, by the contract of the trait.
        Self { bits: unsafe { core::mem::transmute_copy(&value) } }
    }

    /// The value; `None` when the bytes are none.
    #[inline(always)]
    pub fn get(self) -> Option<T> {
        const { assert!(size_of::<T>() == size_of::<T::Bits>()) };
        // SAFETY: the bits are a value, and have its bytes.
        T::is_valid(self.bits).then(|| unsafe { core::mem::transmute_copy(&self.bits) })
    }

    /// The bytes as a number, whether they are a value or not.
    #[inline(always)]
    pub fn bits(self) -> T::Bits {
        self.bits
    }

    /// The same values, for an upload.
    #[inline(always)]
    pub fn from_slice(values: &[T]) -> &[Self] {
        const { assert!(size_of::<T>() == size_of::<Self>() && align_of::<T>() == align_of::<Self>()) };
        // SAFETY: the elements are alike in size, alignment and bytes, and any bytes are a `Checked`.
        unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
    }
}

impl Checked<bool> {
    /// `true`.
    pub const TRUE: Self = Self { bits: 1 };
    /// `false`.
    pub const FALSE: Self = Self { bits: 0 };
}

impl<T: KernelEnum> Clone for Checked<T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: KernelEnum> Copy for Checked<T> {}

impl<T: KernelEnum> From<T> for Checked<T> {
    #[inline(always)]
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: KernelEnum> PartialEq for Checked<T> {
    #[inline(always)]
    fn eq(&self, other: &Self) -> bool {
        self.bits == other.bits
    }
}

impl<T: KernelEnum + fmt::Debug> fmt::Debug for Checked<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.get() {
            Some(value) => value.fmt(f),
            None => write!(f, "invalid({:?})", self.bits),
        }
    }
}

// SAFETY: it is its bits, of which zeros are a value.
unsafe impl<T: KernelEnum> Zeroable for Checked<T> {}
// SAFETY: it is its bits, which are plain, and any of them are a `Checked`.
unsafe impl<T: KernelEnum> Pod for Checked<T> {}
// SAFETY: it has the layout of its bits.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelEnum> KernelValue for Checked<T> {
    const SIGNATURE: u32 = gpu_spec::signature("Checked", &[T::SIGNATURE]);
}
// SAFETY: any bytes are a value.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelEnum> KernelType for Checked<T> {
    const HAS_PADDING: bool = T::Bits::HAS_PADDING;
}
