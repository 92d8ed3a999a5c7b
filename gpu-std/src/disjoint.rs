//! Mutable views of which every thread gets its own elements.
//!
//! [`DisjointMut`] is how a safe kernel writes, [`DisjointMut2`] and [`DisjointMut3`] in two and three dimensions. All threads of a launch have a view of the same memory, but a
//! thread can only reach the elements that belong to an index which only that thread can have.
//!
//! # Why this is sound
//!
//! 1. *Indices are divided among threads.* In a launch of S threads, index i belongs to the thread whose linear
//!    index is i mod S. [`unique_index`] gives thread t the index t, and [`grid_stride`] gives it t, t + S,
//!    t + 2S, …: both only indices that belong to the calling thread. S and t cannot change while a kernel runs.
//! 2. *An index does not leave its thread.* [`UniqueIndex`] has no public constructor, cannot be made from
//!    bytes, and is neither `Send` nor `Sync`, so no safe memory that threads share can hold one. It may be
//!    copied: the copies belong to the same thread. (On the host, a `thread_local!` could carry one from an
//!    emulated thread to the next that runs on the same thread of the operating system, or into another
//!    launch; therefore the host's `get_mut` checks that the index belongs to the caller.)
//! 3. *All threads divide the memory alike.* Which elements belong to index i depends on i, the length and the
//!    mapping `M` only. `M` is part of the parameter's type, and no safe function changes it, takes a part of a
//!    view, or makes a view from something else, so two threads cannot disagree. For any one `M`, the element
//!    sets of different indices do not overlap.
//! 4. *Within a thread the borrow checker rules.* A view is neither `Clone` nor `Copy`, and `get_mut` borrows it
//!    mutably for as long as the reference lives, so that a thread cannot hold two references to an element.
//! 5. *A launch has a shape in which claims are unique.* Number t of point 1 distinguishes all threads of any launch. The
//!    places of [`unique_2d`] and [`unique_3d`] (x, y and z belong to the thread whose indices are x, y and z modulo the
//!    launch's threads along each axis) distinguish the threads of launches with no more dimensions, and with at most
//!    2^32 threads along each. Each view says which shapes its claims need ([`MutableView::CLAIMS`]), `#[kernel]` puts
//!    what all views of a kernel need into its `KernelInfo`, and the runtime refuses launches of other shapes. Nothing
//!    of it is checked in the kernel.
//! 6. *Nothing else touches the memory.* The runtime makes a view from a buffer that the launch borrows
//!    mutably, and lets nothing read or write the buffer until the launch ends. Two parameters of one launch
//!    therefore never overlap.

mod claims;
mod planes;
mod strides;
mod striped;
mod tiles;
mod views;

use core::marker::PhantomData;
use core::ops::Index;

pub use gpu_spec::Claims;

pub use self::claims::{Unique2d, Unique3d, unique_2d, unique_3d};
pub use self::planes::{Column, Planes, SlicePlanes};
pub(crate) use self::strides::Claim;
pub use self::strides::{
    GridStride, GridStride2d, GridStride3d, grid_stride, grid_stride_2d, grid_stride_3d,
};
pub use self::striped::Striped;
pub use self::tiles::{TileMapping, Tiles, TransposedTiles};
pub use self::views::{DisjointMut2, DisjointMut3};
use crate::per_block::PerBlock;
use crate::per_tile::PerTile;
use crate::thread;

/// An index that no other thread of the launch has: a thread's claim to its elements of a [`DisjointMut`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UniqueIndex {
    index: usize,
    /// Neither `Send` nor `Sync`.
    _of_this_thread: PhantomData<*const ()>,
}

impl Claim for UniqueIndex {
    /// The index belongs to this thread: index modulo the launch size is the thread's linear index.
    #[inline(always)]
    fn at(index: usize) -> Self {
        Self { index, _of_this_thread: PhantomData }
    }
}

impl UniqueIndex {
    /// The index.
    #[inline(always)]
    pub fn get(self) -> usize {
        self.index
    }

    /// Whether the index belongs to the calling thread, see point 2 of the module documentation.
    #[cfg(not(target_arch = "nvptx64"))]
    #[inline(always)]
    fn is_own(self) -> bool {
        let own = linear_in_launch();
        self.index == own || self.index % thread::launch_size() == own
    }

    /// Panics on the host if the index belongs to another thread.
    #[inline(always)]
    #[track_caller]
    fn check(self) {
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(
            self.is_own(),
            "the index {} belongs to another thread of this or another launch",
            self.get()
        );
    }
}

/// An index that names elements of the calling thread alone: [`UniqueIndex`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an index that only the calling thread has",
    label = "every thread could name the same element",
    note = "take `thread::unique_index()`, or in a loop `thread::grid_stride(len)`"
)]
pub trait OwnIndex: sealed::Index {
    #[doc(hidden)]
    fn own(self) -> UniqueIndex;
}

impl sealed::Index for UniqueIndex {}
#[diagnostic::do_not_recommend]
impl OwnIndex for UniqueIndex {
    #[inline(always)]
    fn own(self) -> UniqueIndex {
        self
    }
}

/// The calling thread's linear index in the launch.
#[inline(always)]
pub(crate) fn linear_in_launch() -> usize {
    crate::block::linear_index() * crate::block::threads() as usize + thread::linear_in_block() as usize
}

/// The calling thread's linear index in the launch: 0, 1, … up to [`launch_size`](crate::thread::launch_size). In a
/// one-dimensional launch it is what [`index_1d`](crate::thread::index_1d) gives.
///
/// In two and three dimensions it counts block after block, so that index i is not that of element i of rows and columns:
/// take [`unique_2d`] and a [`DisjointMut2`] for those. The runtime refuses launches of several dimensions of kernels whose
/// views are all of one.
#[inline(always)]
pub fn unique_index() -> UniqueIndex {
    UniqueIndex::at(linear_in_launch())
}

/// A mutable view with one of its mappings, as a parameter of a kernel.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot take `{Self}`: the view has no such mapping",
    label = "not a view of a kernel",
    note = "there are `DisjointMut` of `Elements`, `Chunks<N>`, `Striped<N>`, `Planes<K>`, `PerTile<N>`, `PerBlock` and `Unclaimed`, `DisjointMut2` of `Elements`, `Rows`, `Tiles<WIDTH, HEIGHT>` and `TransposedTiles<WIDTH, HEIGHT>`, and `DisjointMut3` of `Elements`"
)]
pub trait MutableView: sealed::View {
    /// The launches in which no two threads have the same claim to it.
    const CLAIMS: Claims;

    /// What is wrong with the constants of the mapping. `#[kernel]` and the view itself do not compile then.
    #[doc(hidden)]
    const WRONG: Option<&'static str>;

    /// The planes of the mapping, whose number divides the length of a buffer.
    #[doc(hidden)]
    const PLANES: usize;

    /// What the mapping is, for the comparison of host and GPU code: see
    /// [`gpu_spec::signature`](mod@gpu_spec::signature).
    #[doc(hidden)]
    const SIGNATURE: u32;
}

mod sealed {
    pub trait View {}
    pub trait Index {}
    pub trait ViewIndex {}
}

/// `[constants] view, mapping => claims`, and what its constants are: that is checked where a kernel names the mapping.
macro_rules! views {
    ($([$($constant:ident: $ty:ty),*] $view:ident, $mapping:ty => $claims:ident
        $(, if $holds:expr, $text:literal)? $(, planes $planes:expr)?;)*
    ) => { $(
        impl<T, $(const $constant: $ty),*> sealed::View for $view<'_, T, $mapping> {}
        #[diagnostic::do_not_recommend]
        impl<T, $(const $constant: $ty),*> MutableView for $view<'_, T, $mapping> {
            const CLAIMS: Claims = Claims::$claims;
            const WRONG: Option<&'static str> = {
                #[allow(unused_mut, unused_assignments, reason = "not all mappings have constants")]
                let mut wrong = None;
                $(wrong = if $holds { None } else { Some($text) };)?
                wrong
            };
            const PLANES: usize = {
                #[allow(unused_mut, unused_assignments, reason = "one mapping has several")]
                let mut planes = 1;
                $(planes = $planes;)?
                planes
            };
            const SIGNATURE: u32 = gpu_spec::signature(
                stringify!($mapping),
                &[$($constant as u32, ($constant as u64 >> 32) as u32),*],
            );
        }
    )* };
}
views! {
    [] DisjointMut, Elements => Linear;
    [N: usize] DisjointMut, Chunks<N> => Linear, if N > 0, "a chunk has at least one element";
    [N: usize] DisjointMut, Striped<N> => Linear, if N > 0 && N <= 1 << 16, "a thread has 1 to 65536 elements of a tile";
    [K: usize] DisjointMut, Planes<K> => Linear, if K > 0, "a view has at least one plane", planes K;
    [N: u32] DisjointMut, PerTile<N> => Any, if N.is_power_of_two() && N <= 32, "a tile has 1, 2, 4, 8, 16 or 32 threads";
    [] DisjointMut, PerBlock => Any;
    [] DisjointMut, Unclaimed => Any;
    [] DisjointMut2, Elements => Plane;
    [] DisjointMut2, Rows => Linear;
    [WIDTH: usize, HEIGHT: usize] DisjointMut2, Tiles<WIDTH, HEIGHT> => Plane,
        if is_tile(WIDTH, HEIGHT), "a tile has 1 to 4096 columns and rows";
    [WIDTH: usize, HEIGHT: usize] DisjointMut2, TransposedTiles<WIDTH, HEIGHT> => Plane,
        if is_tile(WIDTH, HEIGHT), "a tile has 1 to 4096 columns and rows";
    [] DisjointMut3, Elements => Volume;
}

const fn is_tile(width: usize, height: usize) -> bool {
    width > 0 && height > 0 && width <= 1 << 12 && height <= 1 << 12
}

impl<V: MutableView> sealed::View for Option<V> {}
#[diagnostic::do_not_recommend]
impl<V: MutableView> MutableView for Option<V> {
    const CLAIMS: Claims = V::CLAIMS;
    const WRONG: Option<&'static str> = V::WRONG;
    const PLANES: usize = V::PLANES;
    const SIGNATURE: u32 = V::SIGNATURE;
}

/// The mapping in which each thread has one element: of a [`DisjointMut`] that of its index, of a [`DisjointMut2`] or
/// [`DisjointMut3`] that of its place.
pub enum Elements {}

/// The mapping of a [`DisjointMut2`] in which index i has row i.
pub enum Rows {}

/// The mapping of a [`DisjointMut`] in which index i has elements `i * N .. (i + 1) * N`, cut at the length.
pub enum Chunks<const N: usize> {}

/// The mapping of a [`DisjointMut`] of which no index has an element: of a kernel that divides the work in its own way, by
/// [`as_mut_ptr`](DisjointMut::as_mut_ptr), in a launch of any shape.
pub enum Unclaimed {}

/// A mutable slice of which every thread of the launch gets its own elements.
///
/// `M` says which: [`Elements`] (one each), [`Chunks`] or [`Striped`] (`N` each). The module documentation says why two
/// threads can never reach the same element.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[kernel]
/// fn iota(mut out: DisjointMut<u32>) {
///     if let Some(element) = out.get_mut(thread::unique_index()) {
///         *element = thread::index_1d();
///     }
/// }
///
/// #[kernel]
/// fn fill_rows(value: f32, mut rows: DisjointMut<f32, Chunks<4>>) {
///     if let Some(row) = rows.get_mut(thread::unique_index()) {
///         row.fill(value);
///     }
/// }
/// ```
#[derive(Debug)]
pub struct DisjointMut<'a, T, M = Elements> {
    data: *mut T,
    len: usize,
    _borrow: PhantomData<&'a mut [T]>,
    _mapping: PhantomData<fn() -> M>,
}

impl<'a, T, M> DisjointMut<'a, T, M> {
    /// A view of `len` elements at `data`; every thread of the launch makes the same one.
    ///
    /// # Safety
    ///
    /// For `'a`, `data` is aligned and valid for reads and writes of `len` elements; all threads of the launch
    /// make the view with the same arguments and mapping, at most once; and nothing but these views uses the
    /// memory.
    #[inline(always)]
    pub unsafe fn from_raw_parts(data: *mut T, len: usize) -> Self {
        Self { data, len, _borrow: PhantomData, _mapping: PhantomData }
    }

    /// Elements in the whole view, over all threads.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the view has no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first element, for kernels that divide the work in their own way. The pointer is valid for `len`
    /// elements; that no two threads touch one at the same time is up to the caller.
    #[inline(always)]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.data
    }

    /// The same view for a shorter time, to pass to a function and keep.
    #[inline(always)]
    pub fn reborrow(&mut self) -> DisjointMut<'_, T, M> {
        DisjointMut { data: self.data, len: self.len, _borrow: PhantomData, _mapping: PhantomData }
    }
}

/// What a mutable view could be indexed by, `y[i]`: nothing, since any thread could have the same index.
#[diagnostic::on_unimplemented(
    message = "a mutable view is not indexed by `[…]`: any thread could name the same element",
    label = "take the element by `get_mut`, with a claim that only the calling thread has",
    note = "`if let Some(element) = y.get_mut(thread::unique_index()) {{ *element = … }}`, or in a loop over \
            `thread::grid_stride(y.len())`; in rows `thread::unique_2d()`, for results of a block `block::unique_index()`"
)]
pub trait ViewIndex: sealed::ViewIndex {
    #[doc(hidden)]
    fn none<R>(&self) -> R;
}

macro_rules! not_indexed {
    ($($view:ident),*) => { $(
        /// There is no such index: the error says how to reach an element.
        impl<T, M, I: ViewIndex> Index<I> for $view<'_, T, M> {
            type Output = T;

            fn index(&self, index: I) -> &T {
                index.none()
            }
        }
    )* };
}
not_indexed!(DisjointMut, DisjointMut2, DisjointMut3);

impl<T> DisjointMut<'_, T, Elements> {
    /// Element `index`, or `None` past the end.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut<I: OwnIndex>(&mut self, index: I) -> Option<&mut T> {
        let index = index.own();
        index.check();
        if index.get() < self.len {
            // SAFETY: the index is in range; that no other thread has the element is argued above.
            Some(unsafe { &mut *self.data.add(index.get()) })
        } else {
            None
        }
    }
}

/// Where the chunk of an index begins.
#[inline(always)]
fn chunk(index: usize, len: usize) -> Option<usize> {
    index.checked_mul(len)
}

impl<T, const N: usize> DisjointMut<'_, T, Chunks<N>> {
    /// Chunk `index`: `N` elements, fewer if the view ends there; `None` past the end.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut<I: OwnIndex>(&mut self, index: I) -> Option<&mut [T]> {
        const { assert!(Self::WRONG.is_none()) };
        let index = index.own();
        index.check();
        let start = chunk(index.get(), N).filter(|&start| start < self.len)?;
        let rest = self.len - start;
        let len = if rest < N { rest } else { N };
        // SAFETY: `start + len` is at most the length; that no other thread has these elements is argued above.
        Some(unsafe { core::slice::from_raw_parts_mut(self.data.add(start), len) })
    }

    /// Chunks in the whole view; the last may have fewer than `N` elements.
    #[inline(always)]
    pub fn chunks(&self) -> usize {
        self.len.div_ceil(N)
    }
}
