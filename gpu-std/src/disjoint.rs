//! Mutable views that assign every thread its own elements.
//!
//! Safe kernels write through a [`DisjointMut`], or in two and three dimensions through a [`DisjointMut2`] or
//! [`DisjointMut3`]. All threads of a launch hold a view of the same memory. A thread can access only elements whose
//! index no other thread can obtain. Such an index is a *claim*: an index token that proves ownership.
//!
//! # Why this is sound
//! 1. *Indices are divided among threads.* In a launch of S threads, index i belongs to the thread whose linear index
//!    is i mod S. In thread t, [`unique_index`] returns t, and [`grid_stride`] returns t, t + S, t + 2S, …. All these
//!    indices belong to the calling thread. S and t are constant while a kernel runs.
//! 2. *An index does not leave its thread.* [`UniqueIndex`] has no public constructor, cannot be created from bytes,
//!    and is neither `Send` nor `Sync`. Therefore, safe code cannot store one in memory that threads share. Copies of
//!    an index belong to the same thread. (On the host, a `thread_local!` could carry an index to the next emulated
//!    thread on the same OS thread, or into another launch. For this reason, the host's `get_mut` checks that the index
//!    belongs to the caller.)
//! 3. *All threads divide the memory in the same way.* The elements that index i owns depend only on i, the length and
//!    the mapping `M`. `M` is part of the parameter's type. No safe function changes the mapping, takes a subview, or
//!    creates a view from other data, so two threads always use the same mapping. For any one `M`, the element sets of
//!    different indices do not overlap.
//! 4. *The borrow checker applies within a thread.* A view is neither `Clone` nor `Copy`. `get_mut` borrows it mutably
//!    for as long as the reference exists, so a thread cannot hold two references to an element.
//! 5. *The shape of a launch makes claims unique.* The linear index t from point 1 is unique to each thread in any
//!    launch. A claim from [`unique_2d`] or [`unique_3d`] belongs to the thread whose index along each axis is the
//!    coordinate modulo the launch's number of threads along that axis. These claims are unique only if the launch has
//!    no more dimensions than the claim, and at most 2^32 threads along each axis. Each view declares the launch shapes
//!    in which its claims are unique ([`MutableView::CLAIMS`]). `#[kernel]` records the requirements of all views in
//!    the kernel's `KernelInfo`. The runtime rejects launches with other shapes. The kernel itself does not check the
//!    shape.
//! 6. *Nothing else accesses the memory.* The runtime creates a view from a buffer that the launch borrows mutably.
//!    Until the launch ends, the runtime prevents all other reads and writes of the buffer. Therefore, two parameters
//!    of one launch never overlap.

mod claims;
mod strides;
mod tiles;
mod views;

use core::marker::PhantomData;
use core::ops::Index;

pub use gpu_spec::Claims;

pub use self::claims::{Unique2d, Unique3d, unique_2d, unique_3d};
pub(crate) use self::strides::Claim;
pub use self::strides::{
    GridStride, GridStride2d, GridStride3d, grid_stride, grid_stride_2d, grid_stride_3d,
};
pub use self::tiles::{TileMapping, Tiles, TransposedTiles};
pub use self::views::{DisjointMut2, DisjointMut3};
use crate::per_block::PerBlock;
use crate::per_tile::PerTile;
use crate::thread;

/// An index that no other thread of the launch can obtain. The index is the thread's claim to its elements of a
/// [`DisjointMut`].
///
/// ```
/// use gpu_std::prelude::*;
/// use gpu_std::disjoint::UniqueIndex;
///
/// /// Only the thread that has the index can write the element.
/// fn store(out: &mut DisjointMut<f32>, index: UniqueIndex, value: f32) {
///     if let Some(out) = out.get_mut(index) {
///         *out = value;
///     }
/// }
///
/// #[kernel]
/// fn square(x: &[f32], mut out: DisjointMut<f32>) {
///     for index in thread::grid_stride(x.len()) {
///         let value = x[index.get()];
///         store(&mut out, index, value * value);
///     }
/// }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct UniqueIndex {
    index: usize,
    /// Makes the type neither `Send` nor `Sync`.
    _of_this_thread: PhantomData<*const ()>,
}

impl Claim for UniqueIndex {
    /// Creates an index that must belong to this thread: the index modulo the launch size must be the thread's linear
    /// index.
    #[inline(always)]
    fn at(index: usize) -> Self {
        Self { index, _of_this_thread: PhantomData }
    }
}

impl UniqueIndex {
    /// Returns the index.
    #[inline(always)]
    pub fn get(self) -> usize {
        self.index
    }

    /// Returns whether the index belongs to the calling thread; see point 2 of the module documentation.
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

/// An index type whose values belong only to the calling thread: [`UniqueIndex`].
///
/// See the example of [`UniqueIndex`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an index that is unique to the calling thread",
    label = "several threads could access the same element",
    note = "use `thread::unique_index()`, or `thread::grid_stride(len)` in a loop"
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

/// Returns the calling thread's linear index in the launch.
#[inline(always)]
pub(crate) fn linear_in_launch() -> usize {
    crate::block::linear_index() * crate::block::threads() as usize + thread::linear_in_block() as usize
}

/// Returns the calling thread's linear index in the launch. The index is less than
/// [`launch_size`](crate::thread::launch_size). In a one-dimensional launch it equals
/// [`index_1d`](crate::thread::index_1d).
///
/// In two and three dimensions, threads are numbered block by block, so index i is not element i of a row-major array.
/// For row-major arrays, use [`unique_2d`] with a [`DisjointMut2`]. The runtime rejects multi-dimensional launches of a
/// kernel if all of its mutable views are one-dimensional.
///
/// See the example of [`DisjointMut`].
#[inline(always)]
pub fn unique_index() -> UniqueIndex {
    UniqueIndex::at(linear_in_launch())
}

/// A mutable view with a specific mapping, as a kernel parameter.
///
/// ```
/// use gpu_std::disjoint::{Claims, MutableView};
/// use gpu_std::prelude::*;
///
/// assert_eq!(<DisjointMut<'_, f32> as MutableView>::CLAIMS, Claims::Linear);
/// assert_eq!(<DisjointMut2<'_, f32> as MutableView>::CLAIMS, Claims::Plane);
/// ```
#[diagnostic::on_unimplemented(
    message = "a kernel cannot take `{Self}`: the view does not support this mapping",
    label = "not a view that kernels can take",
    note = "`DisjointMut` supports `Elements`, `Chunks<N>`, `PerTile<N>`, `PerBlock` and `Unclaimed`; \
            `DisjointMut2` supports `Elements`, `Rows`, `Tiles<ROWS, COLUMNS>` and \
            `TransposedTiles<ROWS, COLUMNS>`; `DisjointMut3` supports `Elements`"
)]
pub trait MutableView: sealed::View {
    /// Launch shapes in which no two threads can obtain the same claim.
    const CLAIMS: Claims;

    /// Compile-time error message if the constants of the mapping are invalid.
    #[doc(hidden)]
    const WRONG: Option<&'static str>;

    /// Number of adjacent elements that each claim owns.
    #[doc(hidden)]
    const ITEMS: usize;

    /// Signature of the mapping, used to compare host and GPU code (see
    /// [`gpu_spec::signature`](mod@gpu_spec::signature)).
    #[doc(hidden)]
    const SIGNATURE: u32;
}

mod sealed {
    pub trait View {}
    pub trait Index {}
    pub trait ViewIndex {}
}

/// Takes `[constants] view, mapping => claims` and the constraints on the constants. The constraints are checked where
/// a kernel names the mapping.
macro_rules! views {
    ($([$($constant:ident: $ty:ty),*] $view:ident, $mapping:ty => $claims:ident
        $(, if $holds:expr, $text:literal)? $(, items $items:expr)?;)*
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
            const ITEMS: usize = {
                #[allow(unused_mut, unused_assignments, reason = "one mapping has several")]
                let mut items = 1;
                $(items = $items;)?
                items
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
    [N: usize] DisjointMut, Chunks<N> => Linear, if N > 0, "a chunk must have at least one element", items N;
    [N: u32] DisjointMut, PerTile<N> => Any, if N.is_power_of_two() && N <= 32, "a tile must have 1, 2, 4, 8, 16 or \
                                                                                 32 threads";
    [] DisjointMut, PerBlock => Any;
    [] DisjointMut, Unclaimed => Any;
    [] DisjointMut2, Elements => Plane;
    [] DisjointMut2, Rows => Linear;
    [ROWS: usize, COLUMNS: usize] DisjointMut2, Tiles<ROWS, COLUMNS> => Plane,
        if is_tile(ROWS, COLUMNS), "a tile must have 1 to 4096 rows and columns";
    [ROWS: usize, COLUMNS: usize] DisjointMut2, TransposedTiles<ROWS, COLUMNS> => Plane,
        if is_tile(ROWS, COLUMNS), "a tile must have 1 to 4096 rows and columns";
    [] DisjointMut3, Elements => Volume;
}

const fn is_tile(rows: usize, columns: usize) -> bool {
    rows > 0 && columns > 0 && rows <= 1 << 12 && columns <= 1 << 12
}

impl<V: MutableView> sealed::View for Option<V> {}
#[diagnostic::do_not_recommend]
impl<V: MutableView> MutableView for Option<V> {
    const CLAIMS: Claims = V::CLAIMS;
    const WRONG: Option<&'static str> = V::WRONG;
    const ITEMS: usize = V::ITEMS;
    const SIGNATURE: u32 = V::SIGNATURE;
}

/// Mapping in which each claim owns one element: the element at its index in a [`DisjointMut`], or at its coordinates
/// in a [`DisjointMut2`] or [`DisjointMut3`].
///
/// See the example of [`DisjointMut`].
pub enum Elements {}

/// Mapping of a [`DisjointMut2`] in which index i owns row i.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// Fills row i with i.
/// #[kernel]
/// fn number(mut rows: DisjointMut2<u32, Rows>) {
///     if let Some(row) = rows.get_mut(thread::unique_index()) {
///         row.fill(thread::index_1d());
///     }
/// }
/// ```
pub enum Rows {}

/// Mapping of a [`DisjointMut`] in which index i owns elements `i * N .. (i + 1) * N`, truncated at the length.
///
/// See the example of [`DisjointMut`].
pub enum Chunks<const N: usize> {}

/// Mapping of a [`DisjointMut`] in which no index owns an element. Use it in kernels that divide the work themselves
/// with [`as_mut_ptr`](DisjointMut::as_mut_ptr). The mapping allows launches of any shape.
///
/// See the [example](crate::look_back) of a kernel that writes its own tiles.
pub enum Unclaimed {}

/// A mutable slice that assigns every thread of the launch its own elements.
///
/// The mapping `M` determines which elements a thread owns: [`Elements`] (one per index) or [`Chunks`] (`N` per
/// index). The module documentation explains why two threads can never access the same element.
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
    /// Creates a view of `len` elements at `data`. Every thread of the launch creates the same view.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    /// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
    ///
    /// /// Doubles `n` numbers.
    /// ///
    /// /// # Safety
    /// /// `x` must point to `n` numbers that nothing else uses during the launch.
    /// #[kernel]
    /// unsafe fn double(x: *mut f32, n: usize) {
    ///     // SAFETY: the function's contract; every thread creates one view with the same arguments.
    ///     let mut x: DisjointMut<'_, f32> = unsafe { DisjointMut::from_raw_parts(x, n) };
    ///     for i in thread::grid_stride(n) {
    ///         if let Some(x) = x.get_mut(i) {
    ///             *x *= 2.0;
    ///         }
    ///     }
    /// }
    ///
    /// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
    /// # let stream = Device::emulated(0)?.default_stream();
    /// # let module = stream.device().load(&IMAGE)?;
    /// let mut x = DeviceBuffer::from_host(&stream, &[1.0_f32, 2.0, 3.0])?;
    /// // SAFETY: the buffer has 3 numbers.
    /// unsafe { module.kernel::<double>()?.launch_unsafe(&stream, Launch::auto(3), (&mut x, 3_usize))? };
    /// assert_eq!(x.to_host()?, [2.0, 4.0, 6.0]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Safety
    /// `data` must be aligned, and valid for reads and writes of `len` elements for `'a`. All threads of the launch
    /// must create the view with the same arguments and mapping, and each thread must create it at most once. Only
    /// these views may access the memory.
    #[inline(always)]
    pub unsafe fn from_raw_parts(data: *mut T, len: usize) -> Self {
        Self { data, len, _borrow: PhantomData, _mapping: PhantomData }
    }

    /// Returns the number of elements of the whole view, not only of those that the thread owns.
    #[inline(always)]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if the view has no elements.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns a pointer to the first element, for kernels that divide the work themselves. The pointer is valid for
    /// `len` elements. The caller must ensure that no two threads access an element at the same time.
    ///
    /// See the [example](crate::look_back) of a kernel that divides the work into tiles.
    #[inline(always)]
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.data
    }

    /// Reborrows the view for a shorter lifetime, so that it can be passed to a function and still be used afterwards.
    #[inline(always)]
    pub fn reborrow(&mut self) -> DisjointMut<'_, T, M> {
        DisjointMut { data: self.data, len: self.len, _borrow: PhantomData, _mapping: PhantomData }
    }
}

/// Types that can index a mutable view, as in `y[i]`. No type implements this trait, because any thread could use the
/// same index.
#[diagnostic::on_unimplemented(
    message = "a mutable view cannot be indexed with `[…]`, because several threads could access the same element",
    label = "get the element with `get_mut` and a claim that is unique to the calling thread",
    note = "`if let Some(element) = y.get_mut(thread::unique_index()) {{ *element = … }}`, or loop over \
            `thread::grid_stride(y.len())`; use `thread::unique_2d()` for rows, and `block::unique_index()` for one \
            result per block"
)]
pub trait ViewIndex: sealed::ViewIndex {
    #[doc(hidden)]
    fn none<R>(&self) -> R;
}

macro_rules! not_indexed {
    ($($view:ident),*) => { $(
        /// Never called; it exists only for the trait's error message, which states how to access an element.
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
    /// Returns the element at `index`, or `None` if the index is out of range.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut<I: OwnIndex>(&mut self, index: I) -> Option<&mut T> {
        let index = index.own();
        index.check();
        if index.get() < self.len {
            // SAFETY: the index is in range, and the module documentation explains why no other thread owns the
            // element.
            Some(unsafe { &mut *self.data.add(index.get()) })
        } else {
            None
        }
    }
}

/// Returns the index of a chunk's first element, or `None` if the index exceeds the address space.
#[inline(always)]
fn chunk(index: usize, len: usize) -> Option<usize> {
    index.checked_mul(len)
}

impl<T, const N: usize> DisjointMut<'_, T, Chunks<N>> {
    /// Returns chunk `index`, or `None` if it is out of range. A chunk has `N` elements, or fewer at the end of the
    /// view.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut<I: OwnIndex>(&mut self, index: I) -> Option<&mut [T]> {
        const { assert!(Self::WRONG.is_none()) };
        let index = index.own();
        index.check();
        let start = chunk(index.get(), N).filter(|&start| start < self.len)?;
        let rest = self.len - start;
        let len = if rest < N { rest } else { N };
        // SAFETY: `start + len` is at most the length, and the module documentation explains why no other thread owns
        // these elements.
        Some(unsafe { core::slice::from_raw_parts_mut(self.data.add(start), len) })
    }

    /// Returns the number of chunks in the whole view. The last chunk may have fewer than `N` elements.
    #[inline(always)]
    pub fn chunks(&self) -> usize {
        self.len.div_ceil(N)
    }
}
