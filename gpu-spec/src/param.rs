//! Types that mark the kinds of kernel parameters. They have no values. The runtime defines which host values can be
//! passed for each marker, so that a launch with an incorrect argument does not compile.

use core::marker::PhantomData;

use crate::{Extents2, Extents3};

/// `value: T`, which is copied to the kernel.
pub struct Value<T>(PhantomData<T>);
/// `data: &[T]`, which every thread can read.
pub struct Slice<T>(PhantomData<T>);
/// `counts: &[Atomic<T>]`, which every thread can read and update. It represents a buffer of `T` that the launch
/// borrows mutably.
pub struct AtomicSlice<T>(PhantomData<T>);
/// `out: DisjointMut<T, M>`, in which every thread writes its own elements.
pub struct SliceMut<T>(PhantomData<T>);
/// `image: Slice2<T>`, a 2-D view that every thread can read.
pub struct Slice2<T>(PhantomData<T>);
/// `counts: Slice2<Atomic<T>>`, a 2-D view that every thread can read and update. It represents a view of `T` that the
/// launch borrows mutably.
pub struct AtomicSlice2<T>(PhantomData<T>);
/// `volume: Slice3<T>`, a 3-D view that every thread can read.
pub struct Slice3<T>(PhantomData<T>);
/// `counts: Slice3<Atomic<T>>`, the 3-D counterpart of [`AtomicSlice2`].
pub struct AtomicSlice3<T>(PhantomData<T>);
/// `out: DisjointMut2<T, M>`, in which every thread writes its own elements.
pub struct SliceMut2<T>(PhantomData<T>);
/// `out: DisjointMut3<T, M>`, in which every thread writes its own elements.
pub struct SliceMut3<T>(PhantomData<T>);
/// `tile: Shared<[T]>`, an array in dynamic shared memory. For a `DoubleBuffer<[T]>`, the elements are `[T; 2]`.
pub struct Shared<T>(PhantomData<T>);
/// `map: &TensorMap<T, RANK>`, a tensor in device memory for TMA copies.
pub struct TensorMap<T, const RANK: usize>(PhantomData<T>);
/// `data: *const T`, in an `unsafe` kernel.
pub struct Pointer<T>(PhantomData<T>);
/// `data: *mut T`, in an `unsafe` kernel.
pub struct PointerMut<T>(PhantomData<T>);
/// An `Option` of a slice or view, such as `Option<&[T]>` or `Option<DisjointMut2<T, M>>`. `M` is the marker of that
/// slice or view. `Some` is passed like the slice or view itself, and `None` as a null pointer and
/// [`PointerAndExtent::EMPTY`].
pub struct Optional<M>(PhantomData<M>);

/// A slice marker, with the corresponding markers of 2-D and 3-D views of the same elements.
pub trait SliceMarker {
    /// Marker of the corresponding `Slice2`.
    type Rows;
    /// Marker of the corresponding `Slice3`.
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

/// Marker of a slice or view, which is passed as two kernel parameters (PTX `.param`): a pointer, and a length or
/// extents.
pub trait PointerAndExtent {
    /// Type of the length or the extents.
    type Extent: Copy + 'static;

    /// Extent without elements.
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
