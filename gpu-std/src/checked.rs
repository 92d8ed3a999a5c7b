//! [`Checked`]: `bool` and enums in memory that may contain arbitrary bytes.

use core::fmt;

use bytemuck::{Pod, Zeroable};

use crate::element::{KernelType, KernelValue};

/// Either `bool`, or a fieldless enum that derives [`KernelValue`](derive@crate::KernelValue).
///
/// See the example of [`Checked`].
///
/// # Safety
/// The type must have the same size, alignment and byte representation as `Bits`, and `is_valid` must return true only
/// for the bits of a valid value.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is neither `bool` nor an enum that kernels can use",
    label = "not a `KernelEnum`",
    note = "derive it for an enum without fields: `#[derive(Clone, Copy, KernelValue)]`, with a discriminant type \
            such as `#[repr(u8)]`"
)]
pub unsafe trait KernelEnum: KernelValue {
    /// Integer type with the same size, alignment and byte representation as the type.
    type Bits: KernelType + Pod + PartialEq + fmt::Debug;

    /// Returns whether the bits represent a valid value.
    #[doc(hidden)]
    fn is_valid(bits: Self::Bits) -> bool;
}

// SAFETY: a `bool` is one byte: 0 for false and 1 for true.
unsafe impl KernelEnum for bool {
    type Bits = u8;

    #[inline(always)]
    fn is_valid(bits: u8) -> bool {
        bits <= 1
    }
}

/// The bytes of a `bool` or enum, for use as a buffer element or as a field of a buffer element.
///
/// A buffer can be uninitialized or contain data of another type, so the bytes may not represent a valid `T`. [`get`]
/// checks them. Otherwise, a `Checked<T>` behaves like a `T` and has its size.
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
    /// Stores the bytes of `value`.
    #[inline(always)]
    pub fn new(value: T) -> Self {
        const { assert!(size_of::<T>() == size_of::<T::Bits>()) };
        // SAFETY: by the contract of the trait, a value and its `Bits` have the same bytes.
        Self { bits: unsafe { core::mem::transmute_copy(&value) } }
    }

    /// Returns the value, or `None` if the bytes are invalid.
    #[inline(always)]
    pub fn get(self) -> Option<T> {
        const { assert!(size_of::<T>() == size_of::<T::Bits>()) };
        // SAFETY: the bits have the size of the value and were checked to be valid.
        T::is_valid(self.bits).then(|| unsafe { core::mem::transmute_copy(&self.bits) })
    }

    /// Returns the bytes as an integer, even if they do not represent a valid value.
    #[inline(always)]
    pub fn bits(self) -> T::Bits {
        self.bits
    }

    /// Reinterprets a slice of values as `Checked` values, for an upload.
    #[inline(always)]
    pub fn from_slice(values: &[T]) -> &[Self] {
        const { assert!(size_of::<T>() == size_of::<Self>() && align_of::<T>() == align_of::<Self>()) };
        // SAFETY: both element types have the same size, alignment and bytes, and a `Checked` can contain any bytes.
        unsafe { core::slice::from_raw_parts(values.as_ptr().cast(), values.len()) }
    }
}

impl Checked<bool> {
    /// The value `true`.
    pub const TRUE: Self = Self { bits: 1 };
    /// The value `false`.
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

// SAFETY: the type consists of its bits, for which zero is valid.
unsafe impl<T: KernelEnum> Zeroable for Checked<T> {}
// SAFETY: the type consists of its bits, which are plain data, and every bit pattern is a valid `Checked`.
unsafe impl<T: KernelEnum> Pod for Checked<T> {}
// SAFETY: the type has the layout of its bits.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelEnum> KernelValue for Checked<T> {
    const SIGNATURE: u32 = gpu_spec::signature("Checked", &[T::SIGNATURE]);
}
// SAFETY: every bit pattern is valid.
#[diagnostic::do_not_recommend]
unsafe impl<T: KernelEnum> KernelType for Checked<T> {
    const HAS_PADDING: bool = T::Bits::HAS_PADDING;
}
