//! Markers for the kinds of kernel parameter. They are never constructed: a runtime says which host values
//! can stand for which marker, so that a launch with the wrong argument does not compile.

use core::marker::PhantomData;

/// `value: T`, copied to the kernel.
pub struct Value<T>(PhantomData<T>);
/// `data: &[T]`: read by every thread.
pub struct Slice<T>(PhantomData<T>);
/// `counts: &[Atomic<T>]`: read and changed by every thread; stands for a buffer of `T` that the launch borrows
/// mutably.
pub struct AtomicSlice<T>(PhantomData<T>);
/// `out: DisjointMut<T, M>`: every thread writes its own elements.
pub struct SliceMut<T>(PhantomData<T>);
/// `image: Slice2<T>`: rows of elements, read by every thread.
pub struct Slice2<T>(PhantomData<T>);
/// `counts: Slice2<Atomic<T>>`: rows of elements, read and changed by every thread; stands for a view of `T` that the
/// launch borrows mutably.
pub struct AtomicSlice2<T>(PhantomData<T>);
/// `volume: Slice3<T>`: planes of rows of elements, read by every thread.
pub struct Slice3<T>(PhantomData<T>);
/// `counts: Slice3<Atomic<T>>`: as [`AtomicSlice2`] in three dimensions.
pub struct AtomicSlice3<T>(PhantomData<T>);
/// `out: DisjointMut2<T, M>`: every thread writes its own elements.
pub struct SliceMut2<T>(PhantomData<T>);
/// `out: DisjointMut3<T, M>`: every thread writes its own elements.
pub struct SliceMut3<T>(PhantomData<T>);
/// `tile: Shared<[T]>`: an array in shared memory, whose length comes with the launch. That of a `DoubleBuffer<[T]>` is of
/// elements `[T; 2]`.
pub struct Shared<T>(PhantomData<T>);
/// `data: *const T`, in an `unsafe` kernel.
pub struct Pointer<T>(PhantomData<T>);
/// `data: *mut T`, in an `unsafe` kernel.
pub struct PointerMut<T>(PhantomData<T>);
/// `data: Option<&[T]>`, `Option<&[Atomic<T>]>` or `Option<DisjointMut<T, M>>`, with the marker of what may be there. Passed
/// as that is; where there is nothing, as a null pointer and length 0.
pub struct Optional<M>(PhantomData<M>);

/// The markers of parameters that are a pointer and a length.
pub trait PointerAndLength {}

impl<T> PointerAndLength for Slice<T> {}
impl<T> PointerAndLength for AtomicSlice<T> {}
impl<T> PointerAndLength for SliceMut<T> {}
