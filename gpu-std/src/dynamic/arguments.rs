//! Arguments of launches from kernels.
//!
//! | parameter | argument |
//! | --- | --- |
//! | `value: T` | `T` |
//! | `data: &[T]` | `&[T]`, `*const [T]` |
//! | `counts: &[Atomic<T>]` | `&[Atomic<T>]` |
//! | `out: DisjointMut<T>` | `*mut [T]`, `&mut [T]`, `&mut DisjointMut<T>` (the whole view) |
//! | an `Option` of a slice or view | an `Option` of the corresponding argument |
//! | `image: Slice2<T>`, `Slice3<T>`, including views of atomic elements | `Slice2<T>`, `Slice3<T>` |
//! | `out: DisjointMut2<T>`, `DisjointMut3<T>` | `&mut DisjointMut2<T, M>`, `&mut DisjointMut3<T, M>` (the whole view) |
//! | `tile: Shared<[T]>`, `DoubleBuffer<[T]>` | `SharedLen` |
//! | `data: *const T` | `*const T`, `*mut T` |
//! | `out: *mut T` | `*mut T` |
//!
//! A launch passes its arguments as one tuple of up to 32 elements.

use core::marker::PhantomData;

use gpu_spec::param::{AtomicSlice, Optional, Pointer, PointerAndExtent, PointerMut, Slice, SliceMut, Value};
use gpu_spec::{Extents2, Extents3, SharedLen, param};

use crate::atomic::{Atomic, AtomicValue};
use crate::disjoint::{DisjointMut, DisjointMut2, DisjointMut3};
use crate::element::{KernelType, KernelValue};
use crate::view::{Slice2, Slice3};

/// Maximum size of a launch's parameters, in bytes.
pub const MAX_PARAMETER_BYTES: usize = 4096;

/// Kernel parameters (PTX `.param`) of a launch. Each parameter is stored at the next address that is aligned for its
/// type.
///
/// See the [example](super).
#[derive(Debug)]
pub struct Parameters<'a> {
    base: *mut u8,
    bytes: usize,
    _buffer: PhantomData<&'a mut [u8]>,
}

impl Parameters<'_> {
    /// Creates an empty parameter list.
    ///
    /// # Safety
    ///
    /// `base` must be aligned to 16 bytes and valid for writes of all parameters that are added later.
    #[inline(always)]
    pub(super) unsafe fn new(base: *mut u8) -> Self {
        Self { base, bytes: 0, _buffer: PhantomData }
    }

    #[inline(always)]
    fn push<T: Copy>(&mut self, value: T) {
        let offset = self.bytes.next_multiple_of(align_of::<T>());
        // SAFETY: the caller of `new` promised space for all parameters. `base` is aligned for any type, so the aligned
        // offset is aligned for this type.
        unsafe { self.base.add(offset).cast::<T>().write(value) };
        self.bytes = offset + size_of::<T>();
    }
}

/// Returns the maximum number of bytes that a value needs, including alignment padding before it.
const fn bytes_of<T>() -> usize {
    size_of::<T>() + align_of::<T>() - 1
}

/// An argument that a kernel can pass for a parameter with marker `M`.
///
/// See the [example](super), which passes a pointer and a number.
///
/// # Safety
///
/// `add` must add the kernel parameters that `M` represents, which must take at most `BYTES` bytes.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot pass `{Self}` for a parameter `{M}`",
    label = "not an argument for `{M}`",
    note = "`Value<T>` stands for a parameter `T` and takes a `T`; `Slice<T>` stands for a parameter `&[T]` and \
            takes a `&[T]`",
    note = "`SliceMut<T>` stands for a parameter `DisjointMut<T>` and takes a `*mut [T]` or `&mut DisjointMut<T>`"
)]
pub unsafe trait Argument<M> {
    /// Maximum size of the argument, in bytes.
    const BYTES: usize;

    /// Returns the size, in bytes, of the dynamic shared memory that the argument requires in the child.
    #[inline(always)]
    fn shared_bytes(&self) -> u32 {
        0
    }

    /// Appends the kernel parameters of this argument to `parameters`.
    fn add(self, parameters: &mut Parameters<'_>);
}

// SAFETY: a value is passed as one kernel parameter that consists of the value's bytes.
unsafe impl<T: KernelValue> Argument<Value<T>> for T {
    const BYTES: usize = bytes_of::<T>();

    #[inline(always)]
    fn add(self, parameters: &mut Parameters<'_>) {
        parameters.push(self);
    }
}

/// Implements [`Argument`] for a type that consists of a pointer to the first element and a length.
macro_rules! slice_argument {
    ($([$($generics:tt)*] $argument:ty => $marker:ty: $self:ident, $data:expr, $len:expr;)*) => { $(
        // SAFETY: a slice or view is passed as a pointer and a length.
        unsafe impl<$($generics)*> Argument<$marker> for $argument {
            const BYTES: usize = 2 * bytes_of::<usize>();

            #[inline(always)]
            fn add($self, parameters: &mut Parameters<'_>) {
                parameters.push($data);
                parameters.push($len);
            }
        }
    )* };
}

slice_argument! {
    [T: KernelType] &[T] => Slice<T>: self, self.as_ptr(), self.len();
    [T: KernelType] *const [T] => Slice<T>: self, self.cast::<T>(), self.len();
    [T: AtomicValue, S] &[Atomic<T, S>] => AtomicSlice<T>: self, self.as_ptr(), self.len();
    [T: KernelType] *mut [T] => SliceMut<T>: self, self.cast::<T>(), self.len();
    [T: KernelType] &mut [T] => SliceMut<T>: self, self.as_mut_ptr(), self.len();
    [T: KernelType, M] &mut DisjointMut<'_, T, M> => SliceMut<T>: self, self.as_mut_ptr(), self.len();
}

// SAFETY: a slice or view is passed as a pointer and its extent. For `None`, the pointer is null and the extent is
// empty.
unsafe impl<M: PointerAndExtent, A: Argument<M>> Argument<Optional<M>> for Option<A> {
    const BYTES: usize = bytes_of::<usize>() + bytes_of::<M::Extent>();

    #[inline(always)]
    fn add(self, parameters: &mut Parameters<'_>) {
        match self {
            Some(argument) => argument.add(parameters),
            None => {
                parameters.push(core::ptr::null::<u8>());
                parameters.push(*M::EMPTY);
            }
        }
    }
}

/// Implements [`Argument`] for a view, which consists of a pointer to the first element and extents.
macro_rules! view_argument {
    ($([$($generics:tt)*] $argument:ty => $marker:ty, $extents:ty: $self:ident, $data:expr;)*) => { $(
        // SAFETY: a view is passed as a pointer and its extents.
        unsafe impl<$($generics)*> Argument<$marker> for $argument {
            const BYTES: usize = bytes_of::<usize>() + bytes_of::<$extents>();

            #[inline(always)]
            fn add($self, parameters: &mut Parameters<'_>) {
                let extents: $extents = $self.extents;
                parameters.push($data);
                parameters.push(extents);
            }
        }
    )* };
}

view_argument! {
    [T: KernelType] Slice2<'_, T> => param::Slice2<T>, Extents2: self, self.as_ptr();
    [T: KernelType] Slice3<'_, T> => param::Slice3<T>, Extents3: self, self.as_ptr();
    [T: AtomicValue, S] Slice2<'_, Atomic<T, S>> => param::AtomicSlice2<T>, Extents2: self, self.as_ptr();
    [T: AtomicValue, S] Slice3<'_, Atomic<T, S>> => param::AtomicSlice3<T>, Extents3: self, self.as_ptr();
    [T: KernelType, M] &mut DisjointMut2<'_, T, M> => param::SliceMut2<T>, Extents2: self, self.as_mut_ptr();
    [T: KernelType, M] &mut DisjointMut3<'_, T, M> => param::SliceMut3<T>, Extents3: self, self.as_mut_ptr();
}

/// Implements [`Argument`] for a raw pointer.
macro_rules! pointer_argument {
    ($($argument:ty => $marker:ty;)*) => { $(
        // SAFETY: a raw pointer is passed as one kernel parameter.
        unsafe impl<T> Argument<$marker> for $argument {
            const BYTES: usize = bytes_of::<usize>();

            #[inline(always)]
            fn add(self, parameters: &mut Parameters<'_>) {
                parameters.push(self);
            }
        }
    )* };
}

pointer_argument! {
    *const T => Pointer<T>;
    *mut T => Pointer<T>;
    *mut T => PointerMut<T>;
}

// SAFETY: a length is passed as one kernel parameter.
unsafe impl<T> Argument<param::Shared<T>> for SharedLen {
    const BYTES: usize = bytes_of::<usize>();

    #[inline(always)]
    fn shared_bytes(&self) -> u32 {
        // No block has this much shared memory, so the launch will fail.
        self.bytes::<T>().unwrap_or(u32::MAX)
    }

    #[inline(always)]
    fn add(self, parameters: &mut Parameters<'_>) {
        parameters.push(self.0);
    }
}

/// A tuple of arguments for a tuple of parameters.
///
/// See the [example](super).
///
/// # Safety
///
/// The conditions of [`Argument`] must hold for each argument, in order.
#[diagnostic::on_unimplemented(
    message = "these arguments do not match a kernel with the parameters `{P}`",
    label = "expected a tuple with one argument for each parameter",
    note = "a kernel with one parameter takes a one-element tuple: `(x,)`"
)]
pub unsafe trait Arguments<P> {
    /// Maximum size of the arguments, in bytes.
    const BYTES: usize;

    /// Returns the size, in bytes, of the dynamic shared memory that the arguments require in the child.
    fn shared_bytes(&self) -> u32;

    /// Appends the kernel parameters of all arguments, in order, to `parameters`.
    fn add_all(self, parameters: &mut Parameters<'_>);
}

macro_rules! arguments {
    ($(($argument:ident $marker:ident $index:tt))*) => {
        // SAFETY: each argument is added once, in order.
        unsafe impl<$($argument: Argument<$marker>, $marker),*> Arguments<($($marker,)*)> for ($($argument,)*) {
            const BYTES: usize = 0 $(+ $argument::BYTES)*;

            #[inline(always)]
            fn shared_bytes(&self) -> u32 {
                0_u32 $(.saturating_add(self.$index.shared_bytes()))*
            }

            #[inline(always)]
            #[allow(unused_variables, reason = "the empty tuple has no arguments")]
            fn add_all(self, parameters: &mut Parameters<'_>) {
                $(self.$index.add(parameters);)*
            }
        }
    };
}

/// Implements `Arguments` for tuples of every length up to the number of names.
macro_rules! arguments_up_to {
    ([$($done:tt)*]) => { arguments!($($done)*); };
    ([$($done:tt)*] $next:tt $($rest:tt)*) => {
        arguments!($($done)*);
        arguments_up_to!([$($done)* $next] $($rest)*);
    };
}

arguments_up_to!(
    [] (A0 P0 0) (A1 P1 1) (A2 P2 2) (A3 P3 3) (A4 P4 4) (A5 P5 5) (A6 P6 6) (A7 P7 7) (A8 P8 8) (A9 P9 9) (A10 P10 10)
    (A11 P11 11) (A12 P12 12) (A13 P13 13) (A14 P14 14) (A15 P15 15) (A16 P16 16) (A17 P17 17) (A18 P18 18) (A19 P19 19)
    (A20 P20 20) (A21 P21 21) (A22 P22 22) (A23 P23 23) (A24 P24 24) (A25 P25 25) (A26 P26 26) (A27 P27 27) (A28 P28 28)
    (A29 P29 29) (A30 P30 30) (A31 P31 31)
);
