//! Arguments for each kind of kernel parameter.
//!
//! | parameter | marker | argument |
//! | --- | --- | --- |
//! | `value: T` | [`Value<T>`](Value) | `T` |
//! | `data: &[T]` | [`Slice<T>`](Slice) | `&DeviceBuffer<T>`, `DeviceSlice<T>`, `&DeviceSlice<T>` |
//! | `out: DisjointMut<T>` | [`SliceMut<T>`](SliceMut) | `&mut DeviceBuffer<T>`, `DeviceSliceMut<T>`, `&mut DeviceSliceMut<T>` |
//! | `data: &[Atomic<T>]` | [`AtomicSlice<T>`](AtomicSlice) | same as for `DisjointMut<T>` |
//! | `image: Slice2<T>` | [`Slice2<T>`](Slice2) | [`DeviceSlice2<T>`](DeviceSlice2), `&DeviceSlice2<T>`: `buffer.as_2d(rows, columns)?` |
//! | `out: DisjointMut2<T>` | [`SliceMut2<T>`](SliceMut2) | [`DeviceSliceMut2<T>`](DeviceSliceMut2), `&mut DeviceSliceMut2<T>`: `buffer.as_2d_mut(rows, columns)?` |
//! | `counts: Slice2<Atomic<T>>` | [`AtomicSlice2<T>`](AtomicSlice2) | same as for `DisjointMut2<T>` |
//! | `Slice3<T>`, `DisjointMut3<T>` | [`Slice3<T>`](Slice3), [`SliceMut3<T>`](SliceMut3) | as for two dimensions |
//! | `tile: Shared<[T]>`, `DoubleBuffer<[T]>` | [`Shared<T>`](gpu_spec::param::Shared) | [`SharedLen`]: `SharedLen(elements)` |
//! | `map: &TensorMap<T, RANK>` | [`TensorMap<T, RANK>`](gpu_spec::param::TensorMap) | [`TensorMap`], [`TensorMapMut`] for stores, or a reference to either |
//! | an `Option` of a slice or view | [`Optional<M>`](Optional) | an `Option` of one of the above: `Some(&x)`, `None::<&DeviceBuffer<T>>`, `None::<DeviceSlice2<T>>` |
//! | `data: *const T` | [`Pointer<T>`](Pointer) | as for `&[T]`, or a [`DevicePtr`] |
//! | `out: *mut T` | [`PointerMut<T>`](PointerMut) | as for `DisjointMut<T>`, or a [`DevicePtr`] |
//!
//! Arguments are passed as one tuple of up to 32 elements. They borrow their buffers until the launch is enqueued; from
//! then on, each buffer tracks its use on the stream.

use std::ffi::c_void;

use gpu_spec::param::{
    AtomicSlice, AtomicSlice2, AtomicSlice3, Optional, Pointer, PointerAndExtent, PointerMut, Shared, Slice,
    Slice2, Slice3, SliceMut, SliceMut2, SliceMut3, Value,
};
use gpu_spec::{SharedLen, param};

use super::inline::Inline;
use crate::device::Device;
use crate::driver::DevicePtr;
use crate::error::{Error, Result};
use crate::memory::storage::BufferUse;
use crate::memory::usage::Access;
use crate::memory::{
    DeviceBuffer, DeviceCopy, DeviceSlice, DeviceSlice2, DeviceSlice3, DeviceSliceMut, DeviceSliceMut2,
    DeviceSliceMut3, TensorMap, TensorMapMut,
};

/// Maximum number of arguments per launch. Lists of this capacity are on the stack; only used slots are written.
const MAX_ARGUMENTS: usize = 32;
/// Maximum number of PTX parameters. Each argument has at most two: a pointer, and a length or extents.
const MAX_PARAMS: usize = 2 * MAX_ARGUMENTS;
/// Maximum number of buffer uses: one per argument, plus one for the kernel's module.
const MAX_USES: usize = MAX_ARGUMENTS + 1;

/// PTX parameters of a launch and the buffers that they point to, collected without heap allocation.
///
/// All code is inlined into callers that know the argument types, so the counts become constants.
pub struct ArgumentList<'a> {
    params: Inline<Param, MAX_PARAMS>,
    uses: Uses<'a>,
    /// Number of arguments added so far.
    count: usize,
}

/// Buffers of the arguments, each with the one-based position of its argument.
#[derive(Default)]
pub(crate) struct Uses<'a> {
    parts: Inline<(usize, BufferUse<'a>), MAX_USES>,
    /// Bytes of dynamic shared memory for arrays whose lengths are passed as arguments.
    pub(super) shared_bytes: u32,
}

/// A PTX parameter: a pointer to a value, or a word stored inline.
#[derive(Clone, Copy)]
enum Param {
    Word(u64),
    Value(*const c_void),
}

impl<'a> ArgumentList<'a> {
    #[inline(always)]
    fn push(&mut self, param: Param) {
        self.params.push(param);
    }

    #[inline(always)]
    fn used(&mut self, part: BufferUse<'a>) {
        self.uses.parts.push((self.count + 1, part));
    }

    #[inline(always)]
    fn slice<T: DeviceCopy>(&mut self, slice: DeviceSlice<'a, T>, access: Access) {
        self.elements(slice, access);
        self.push(Param::Word(slice.len() as u64));
    }

    #[inline(always)]
    fn view<T: DeviceCopy, E>(&mut self, slice: DeviceSlice<'a, T>, extents: &'a E, access: Access) {
        self.elements(slice, access);
        self.push(Param::Value(std::ptr::from_ref(extents).cast()));
    }

    /// Adds the address of a slice's or view's elements.
    #[inline(always)]
    fn elements<T: DeviceCopy>(&mut self, slice: DeviceSlice<'a, T>, access: Access) {
        self.used(slice.used(access));
        let address = match slice.as_device_ptr() {
            // The kernel creates a slice from this pointer, which must not be null.
            DevicePtr::NULL => align_of::<T>() as u64,
            DevicePtr(address) => address,
        };
        self.push(Param::Word(address));
    }

    #[inline(always)]
    fn pointer<T: DeviceCopy>(&mut self, slice: DeviceSlice<'a, T>, access: Access) {
        self.used(slice.used(access));
        self.push(Param::Word(slice.as_device_ptr().0));
    }

    /// Calls `work` with pointers to the PTX parameters and with the buffers.
    #[inline(always)]
    pub(super) fn of<P, A: Arguments<P>, R>(
        args: &'a A,
        work: impl FnOnce(&[*const c_void], &mut Uses<'a>) -> R,
    ) -> R {
        let mut list = Self { params: Inline::default(), uses: Uses::default(), count: 0 };
        args.add_all(&mut list);
        let mut pointers = Inline::<*const c_void, MAX_PARAMS>::default();
        for param in list.params.as_slice() {
            pointers.push(match param {
                Param::Word(word) => std::ptr::from_ref(word).cast(),
                Param::Value(value) => *value,
            });
        }
        work(pointers.as_slice(), &mut list.uses)
    }
}

/// Calls `read` with pointers to the kernel parameters (PTX `.param`) of a launch with these arguments, in order, as
/// the driver expects. A slice is passed as two parameters: its address and its length in elements.
///
/// ```
/// use gpu_spec::param::Value;
/// use warpsmith_runtime::launch::arguments::with_ptx_params;
///
/// with_ptx_params::<(Value<u32>, Value<f32>), _, _>(&(3_u32, 0.5_f32), |params| {
///     // SAFETY: the first parameter is a `u32`.
///     assert_eq!((params.len(), unsafe { *params[0].cast::<u32>() }), (2, 3));
/// });
/// ```
pub fn with_ptx_params<P, A: Arguments<P>, R>(arguments: &A, read: impl FnOnce(&[*const c_void]) -> R) -> R {
    ArgumentList::of::<P, A, R>(arguments, |parameters, _| read(parameters))
}

impl<'a> Uses<'a> {
    /// Adds a buffer that is not an argument.
    #[cold]
    pub(super) fn add(&mut self, part: BufferUse<'a>) {
        self.parts.push((0, part));
    }

    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = &BufferUse<'a>> + Clone {
        self.parts.as_slice().iter().map(|(_, part)| part)
    }

    /// Fails with [`crate::Error::DifferentDevices`] if a buffer is on a different device than the kernel.
    #[inline]
    pub(super) fn check_devices(&self, device: &Device, kernel: &'static str) -> Result<()> {
        match self.parts.as_slice().iter().find(|(_, part)| !part.device().ptr_eq(device)) {
            None => Ok(()),
            Some((argument, part)) => Err(elsewhere(*argument, part.device(), device, kernel)),
        }
    }
}

#[cold]
fn elsewhere(argument: usize, found: &Device, expected: &Device, kernel: &'static str) -> Error {
    Error::DifferentDevices {
        operation: format!("launching kernel `{kernel}`"),
        what: format!("argument {argument}"),
        found: found.id(),
        expected: expected.id(),
        beside: "the stream",
        remedy: "copy it there first",
    }
}

/// A value that can be passed for a parameter with marker `M`.
///
/// The example of [`TypedKernel`](crate::TypedKernel) passes a number and two buffers.
///
/// # Safety
/// `add` must add the PTX parameters that `M` represents, and the buffer that they point to, if any.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be passed for a kernel parameter `{M}`",
    label = "not an argument for `{M}`",
    note = "`Optional<M>` stands for an `Option` of a slice or view, and takes `Some(&buffer)` or \
            `None::<&DeviceBuffer<T>>`",
    note = "`Shared<T>` stands for a `Shared<[T]>` or `DoubleBuffer<[T]>`, and takes its length, `SharedLen(elements)`"
)]
pub unsafe trait Argument<M> {
    /// Adds the argument to the list.
    fn add<'a>(&'a self, list: &mut ArgumentList<'a>);
}

/// Defines a trait per kind of parameter, so that compiler errors name the parameter as written in the kernel, not its
/// marker.
macro_rules! parameters {
    ($($(#[$attribute:meta])* $name:ident: $marker:ident;)*) => { $(
        $(#[$attribute])*
        ///
        /// # Safety
        /// The requirements are the same as for [`Argument`].
        pub unsafe trait $name<T> {
            /// Adds the argument to the list.
            fn add<'a>(&'a self, list: &mut ArgumentList<'a>);
        }

        // SAFETY: the trait's `add` adds the parameters that the marker represents.
        unsafe impl<T, A: $name<T>> Argument<$marker<T>> for A {
            #[inline(always)]
            fn add<'a>(&'a self, list: &mut ArgumentList<'a>) {
                $name::add(self, list);
            }
        }
    )* };
}

parameters! {
    /// Argument for a parameter `T`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be passed for a kernel parameter `{T}`",
        label = "the kernel takes a `{T}` by value"
    )]
    ValueArgument: Value;

    /// Argument for a parameter `&[T]`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be passed for a kernel parameter `&[{T}]`",
        label = "the kernel takes a `&DeviceBuffer<{T}>`, or a part of one: `buffer.slice(..)`"
    )]
    SliceArgument: Slice;

    /// Argument for a parameter `DisjointMut<T>`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be passed for a kernel parameter `DisjointMut<{T}>`",
        label = "the kernel takes a `&mut DeviceBuffer<{T}>`, or a part of one: `buffer.slice_mut(..)`"
    )]
    MutArgument: SliceMut;

    /// Argument for a parameter `&[Atomic<T>]`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be passed for a kernel parameter `&[Atomic<{T}>]`",
        label = "all threads can write the buffer: the kernel takes a `&mut DeviceBuffer<{T}>`, or a part of one"
    )]
    AtomicArgument: AtomicSlice;

    /// Argument for a parameter `Slice2<T>`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be passed for a kernel parameter `Slice2<{T}>`",
        label = "the kernel takes rows of a buffer of `{T}`: `buffer.as_2d(rows, columns)?`"
    )]
    Slice2Argument: Slice2;

    /// Argument for a parameter `Slice3<T>`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be passed for a kernel parameter `Slice3<{T}>`",
        label = "the kernel takes planes of a buffer of `{T}`: `buffer.as_3d(planes, rows, columns)?`"
    )]
    Slice3Argument: Slice3;

    /// Argument for a parameter `DisjointMut2<T>`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be passed for a kernel parameter `DisjointMut2<{T}>`",
        label = "the kernel takes rows of a buffer of `{T}`: `buffer.as_2d_mut(rows, columns)?`"
    )]
    Mut2Argument: SliceMut2;

    /// Argument for a parameter `DisjointMut3<T>`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be passed for a kernel parameter `DisjointMut3<{T}>`",
        label = "the kernel takes planes of a buffer of `{T}`: `buffer.as_3d_mut(planes, rows, columns)?`"
    )]
    Mut3Argument: SliceMut3;

    /// Argument for a parameter `Slice2<Atomic<T>>`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be passed for a kernel parameter `Slice2<Atomic<{T}>>`",
        label = "all threads can write the buffer: the kernel takes `buffer.as_2d_mut(rows, columns)?` of a buffer \
                 of `{T}`"
    )]
    Atomic2Argument: AtomicSlice2;

    /// Argument for a parameter `Slice3<Atomic<T>>`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be passed for a kernel parameter `Slice3<Atomic<{T}>>`",
        label = "all threads can write the buffer: the kernel takes `buffer.as_3d_mut(planes, rows, columns)?` of a \
                 buffer of `{T}`"
    )]
    Atomic3Argument: AtomicSlice3;

    /// Argument for a parameter `*const T`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be passed for a kernel parameter `*const {T}`",
        label = "the kernel takes a `&DeviceBuffer<{T}>`, a part of one, or a `DevicePtr`"
    )]
    PointerArgument: Pointer;

    /// Argument for a parameter `*mut T`.
    #[diagnostic::on_unimplemented(
        message = "`{Self}` cannot be passed for a kernel parameter `*mut {T}`",
        label = "the kernel takes a `&mut DeviceBuffer<{T}>`, a part of one, or a `DevicePtr`"
    )]
    PointerMutArgument: PointerMut;
}

// SAFETY: a value is passed as one PTX parameter that contains its bytes. `#[kernel]` checks the type.
unsafe impl<T: Copy + Send + Sync + 'static> ValueArgument<T> for T {
    #[inline(always)]
    fn add<'a>(&'a self, list: &mut ArgumentList<'a>) {
        list.push(Param::Value(std::ptr::from_ref(self).cast()));
    }
}

/// Implements the listed traits for a slice type. The last trait passes only the pointer; the others pass the pointer
/// and the length.
macro_rules! buffer_argument {
    ($argument:ty, $self:ident => $slice:expr, $access:ident, [$($view:ident),*], $pointer:ident) => {
        $(
            // SAFETY: a slice or view is passed as a pointer and a length, and the buffer is added to the list.
            unsafe impl<T: DeviceCopy> $view<T> for $argument {
                #[inline(always)]
                fn add<'a>(&'a $self, list: &mut ArgumentList<'a>) {
                    list.slice($slice, Access::$access);
                }
            }
        )*
        // SAFETY: a raw pointer is passed as one PTX parameter, and the buffer is added to the list.
        unsafe impl<T: DeviceCopy> $pointer<T> for $argument {
            #[inline(always)]
            fn add<'a>(&'a $self, list: &mut ArgumentList<'a>) {
                list.pointer($slice, Access::$access);
            }
        }
    };
}

buffer_argument!(&DeviceBuffer<T>, self => self.as_slice(), Read, [SliceArgument], PointerArgument);
buffer_argument!(DeviceSlice<'_, T>, self => *self, Read, [SliceArgument], PointerArgument);
buffer_argument!(&DeviceSlice<'_, T>, self => **self, Read, [SliceArgument], PointerArgument);
// Threads write through a slice of atomics, so it must borrow its elements exclusively.
buffer_argument!(&mut DeviceBuffer<T>, self => self.as_slice(), Write, [MutArgument, AtomicArgument], PointerMutArgument);
buffer_argument!(DeviceSliceMut<'_, T>, self => self.as_slice(), Write, [MutArgument, AtomicArgument], PointerMutArgument);
buffer_argument!(&mut DeviceSliceMut<'_, T>, self => self.as_slice(), Write, [MutArgument, AtomicArgument], PointerMutArgument);

/// Implements the listed traits for views in two and three dimensions.
macro_rules! view_argument {
    ($($argument:ty => $view:ident, $access:ident: $self:ident, $elements:expr;)*) => { $(
        // SAFETY: a view is passed as a pointer and its extents, and its buffer is added to the list.
        unsafe impl<T: DeviceCopy> $view<T> for $argument {
            #[inline(always)]
            fn add<'a>(&'a $self, list: &mut ArgumentList<'a>) {
                list.view($elements, $self.extents(), Access::$access);
            }
        }
    )* };
}

view_argument! {
    DeviceSlice2<'_, T> => Slice2Argument, Read: self, self.elements();
    &DeviceSlice2<'_, T> => Slice2Argument, Read: self, self.elements();
    DeviceSlice3<'_, T> => Slice3Argument, Read: self, self.elements();
    &DeviceSlice3<'_, T> => Slice3Argument, Read: self, self.elements();
    DeviceSliceMut2<'_, T> => Mut2Argument, Write: self, self.as_slice().elements();
    &mut DeviceSliceMut2<'_, T> => Mut2Argument, Write: self, self.as_slice().elements();
    DeviceSliceMut3<'_, T> => Mut3Argument, Write: self, self.as_slice().elements();
    &mut DeviceSliceMut3<'_, T> => Mut3Argument, Write: self, self.as_slice().elements();
    DeviceSliceMut2<'_, T> => Atomic2Argument, Write: self, self.as_slice().elements();
    &mut DeviceSliceMut2<'_, T> => Atomic2Argument, Write: self, self.as_slice().elements();
    DeviceSliceMut3<'_, T> => Atomic3Argument, Write: self, self.as_slice().elements();
    &mut DeviceSliceMut3<'_, T> => Atomic3Argument, Write: self, self.as_slice().elements();
}

/// Implements [`Argument`] for tensor maps.
macro_rules! tensor_argument {
    ($($argument:ty => $access:ident: $self:ident, $elements:expr;)*) => { $(
        // SAFETY: a tensor map is passed as one PTX parameter that contains its bytes, and its buffer is added to the
        // list.
        unsafe impl<T: DeviceCopy, const RANK: usize> Argument<param::TensorMap<T, RANK>> for $argument {
            #[inline(always)]
            fn add<'a>(&'a $self, list: &mut ArgumentList<'a>) {
                list.used($elements.used(Access::$access));
                list.push(Param::Value(std::ptr::from_ref($self.data()).cast()));
            }
        }
    )* };
}

tensor_argument! {
    TensorMap<'_, T, RANK> => Read: self, self.elements();
    &TensorMap<'_, T, RANK> => Read: self, self.elements();
    TensorMapMut<'_, T, RANK> => Write: self, self.elements();
    &mut TensorMapMut<'_, T, RANK> => Write: self, self.elements();
}

// SAFETY: a raw pointer is passed as one PTX parameter; the caller is responsible for the memory at that address.
unsafe impl<T> PointerArgument<T> for DevicePtr {
    #[inline(always)]
    fn add<'a>(&'a self, list: &mut ArgumentList<'a>) {
        list.push(Param::Word(self.0));
    }
}

// SAFETY: as above.
unsafe impl<T> PointerMutArgument<T> for DevicePtr {
    #[inline(always)]
    fn add<'a>(&'a self, list: &mut ArgumentList<'a>) {
        list.push(Param::Word(self.0));
    }
}

// SAFETY: a length is passed as one PTX parameter, and the launch allocates the shared memory that its arguments
// require.
unsafe impl<T> Argument<Shared<T>> for SharedLen {
    #[inline(always)]
    fn add<'a>(&'a self, list: &mut ArgumentList<'a>) {
        // `u32::MAX` bytes exceed every device's limit.
        let bytes = self.bytes::<T>().unwrap_or(u32::MAX);
        list.uses.shared_bytes = list.uses.shared_bytes.saturating_add(bytes);
        list.push(Param::Word(self.0 as u64));
    }
}

// SAFETY: a slice or view is passed as two PTX parameters; `None` is passed as a null pointer and an empty extent.
unsafe impl<M: PointerAndExtent, A: Argument<M>> Argument<Optional<M>> for Option<A> {
    #[inline(always)]
    fn add<'a>(&'a self, list: &mut ArgumentList<'a>) {
        match self {
            Some(argument) => argument.add(list),
            None => {
                list.push(Param::Word(0));
                list.push(Param::Value(std::ptr::from_ref(M::EMPTY).cast()));
            }
        }
    }
}

/// A tuple of arguments for a kernel with the parameters `P` (a tuple of markers).
///
/// The example of [`TypedKernel`](crate::TypedKernel) passes a number and two buffers.
///
/// # Safety
/// The requirements of [`Argument`] apply to each element, in order.
#[diagnostic::on_unimplemented(
    message = "the kernel has a different number of parameters",
    label = "expected a tuple with one argument for each parameter of the kernel",
    note = "the kinds of the parameters are `{P}`; pass one argument for each, in this order",
    note = "for `Shared<T>` in this list, pass the length of the kernel's `Shared<[T]>`: `SharedLen(elements)`; \
            a `Shared<[T; N]>` takes no argument and is not in the list",
    note = "a kernel with one parameter takes a one-element tuple: `(&x,)`"
)]
pub unsafe trait Arguments<P> {
    /// Adds all arguments to the list.
    fn add_all<'a>(&'a self, list: &mut ArgumentList<'a>);
}

macro_rules! arguments {
    ($(($argument:ident $marker:ident $index:tt))*) => {
        // SAFETY: each argument is added once, in order.
        unsafe impl<$($argument: Argument<$marker>, $marker),*> Arguments<($($marker,)*)> for ($($argument,)*) {
            #[inline(always)]
            #[allow(unused_variables, reason = "the empty tuple has no arguments")]
            fn add_all<'a>(&'a self, list: &mut ArgumentList<'a>) {
                $(
                    self.$index.add(list);
                    list.count += 1;
                )*
            }
        }
    };
}

/// Implements [`Arguments`] for tuples of up to as many elements as listed.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn thirty_two_arguments_are_passed_in_order() {
        macro_rules! check {
            ($($value:literal)*) => {{
                let args = ($($value as u64,)*);
                ArgumentList::of::<($(check!(@ $value),)*), _, _>(&args, |pointers, _| {
                    // SAFETY: every argument is a live `u64`.
                    let passed: Vec<u64> = pointers.iter().map(|value| unsafe { *value.cast::<u64>() }).collect();
                    assert_eq!(passed, [$($value),*]);
                });
            }};
            (@ $value:literal) => { Value<u64> };
        }
        check!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31);
    }
}
