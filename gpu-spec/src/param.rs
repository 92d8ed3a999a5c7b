//! Markers for the kinds of kernel parameter. They are never constructed: a runtime says which host values
//! can stand for which marker, so that a launch with the wrong argument does not compile.

use core::marker::PhantomData;

use crate::{Extents2, Extents3};

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
/// `map: &TensorMap<T, RANK>`: a tensor in device memory, for tensor copies.
pub struct TensorMap<T, const RANK: usize>(PhantomData<T>);
/// `data: *const T`, in an `unsafe` kernel.
pub struct Pointer<T>(PhantomData<T>);
/// `data: *mut T`, in an `unsafe` kernel.
pub struct PointerMut<T>(PhantomData<T>);
/// An `Option` of a slice or view, such as `Option<&[T]>` or `Option<DisjointMut2<T, M>>`, with the marker of what may be
/// there. Passed as that is; where there is nothing, as a null pointer and [`PointerAndExtent::EMPTY`].
pub struct Optional<M>(PhantomData<M>);

/// The markers of slices, with those of views in two and three dimensions of the same elements.
pub trait SliceMarker {
    /// That of `Slice2`.
    type Rows;
    /// That of `Slice3`.
    type Planes;
}

impl<T> SliceMarker for Slice<T> {
    type Rows = Slice2<T>;
    type Planes = Slice3<T>;
}

impl<T> SliceMarker for AtomicSlice<T> {
    type Rows = AtomicSlice2<T>;
    type Planes = AtomicSlice3<T>;
}

/// The markers of slices and views, which are two machine parameters: a pointer, and a length or extents.
pub trait PointerAndExtent {
    /// The second of them.
    type Extent: Copy + 'static;

    /// The extent of no elements.
    const EMPTY: &'static Self::Extent;
}

macro_rules! pointer_and_extent {
    ($($($marker:ident),* => $extent:ty: $empty:expr;)*) => { $($(
        impl<T> PointerAndExtent for $marker<T> {
            type Extent = $extent;
            const EMPTY: &'static $extent = &$empty;
        }
    )*)* };
}

pointer_and_extent! {
    Slice, AtomicSlice, SliceMut => usize: 0;
    Slice2, AtomicSlice2, SliceMut2 => Extents2: Extents2::EMPTY;
    Slice3, AtomicSlice3, SliceMut3 => Extents3: Extents3::EMPTY;
}
