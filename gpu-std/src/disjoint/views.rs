//! Mutable views of rows and columns, of which every thread gets its own elements: [`DisjointMut2`] and
//! [`DisjointMut3`].

use core::marker::PhantomData;

use gpu_spec::{Extents2, Extents3};

use super::{Elements, Rows, Unique2d, Unique3d, UniqueIndex};
use crate::view::{Slice2, Slice3};

macro_rules! view {
    ($(#[$doc:meta])* $name:ident, $extents:ty, $read:ident, [$($(#[$side_doc:meta])* $side:ident),*]) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name<'a, T, M = Elements> {
            pub(super) data: *mut T,
            pub(crate) extents: $extents,
            _borrow: PhantomData<&'a mut [T]>,
            _mapping: PhantomData<fn() -> M>,
        }

        impl<'a, T, M> $name<'a, T, M> {
            /// The view of elements from `data` on; every thread of the launch makes the same one.
            ///
            /// # Safety
            ///
            /// For `'a`, `data` is aligned, not null, and valid for reads and writes of `extents.span()` elements; all
            /// threads of the launch make the view with the same arguments and mapping, at most once; nothing but these
            /// views uses the elements; and the launch has a shape that [`MutableView::CLAIMS`](super::MutableView::CLAIMS)
            /// allows.
            #[inline(always)]
            pub unsafe fn from_raw_parts(data: *mut T, extents: $extents) -> Self {
                // SAFETY: the caller's promise. It leaves no comparison of an `Option<&mut T>` with null.
                unsafe { core::hint::assert_unchecked(!data.is_null()) };
                Self { data, extents, _borrow: PhantomData, _mapping: PhantomData }
            }

            $(
                $(#[$side_doc])*
                #[inline(always)]
                pub fn $side(&self) -> usize {
                    self.extents.$side() as usize
                }
            )*

            /// The first element, for kernels that divide the work in their own way. The pointer is valid for the
            /// elements of all rows, `pitch` from row to row; that no two threads touch one at the same time is up to the
            /// caller.
            #[inline(always)]
            pub fn as_mut_ptr(&mut self) -> *mut T {
                self.data
            }

            /// The same view for a shorter time, to pass to a function and keep.
            #[inline(always)]
            pub fn reborrow(&mut self) -> $name<'_, T, M> {
                $name { data: self.data, extents: self.extents, _borrow: PhantomData, _mapping: PhantomData }
            }

            /// All elements, to read.
            ///
            /// # Safety
            ///
            /// No thread writes the elements while the view lives: between two barriers of the grid, for example.
            #[inline(always)]
            pub unsafe fn as_slice(&self) -> $read<'_, T> {
                // SAFETY: the memory is as this view says; that nothing changes it is the caller's promise.
                unsafe { $read::from_raw_parts(self.data, self.extents) }
            }
        }
    };
}

view! {
    /// A mutable view of rows of which every thread of the launch gets its own elements: a parameter of kernels.
    ///
    /// `M` says which:
    ///
    /// | mapping | a thread's elements | its claim |
    /// | --- | --- | --- |
    /// | [`Elements`] | the element in its row and column | [`unique_2d`](crate::thread::unique_2d), [`grid_stride_2d`](crate::thread::grid_stride_2d) |
    /// | [`Rows`] | the row of its index | [`unique_index`](crate::thread::unique_index), [`grid_stride`](crate::thread::grid_stride) |
    /// | [`Tiles`](super::Tiles), [`TransposedTiles`](super::TransposedTiles) | its share of the block's tile | none: [`write_tile`](Self::write_tile) |
    ///
    /// A launch passes `buffer.as_2d_mut(width, height)?`. One of three dimensions is refused, since several threads would
    /// have the same x and y.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    ///
    /// #[kernel(block(16, 16))]
    /// fn add(a: Slice2<f32>, b: Slice2<f32>, mut out: DisjointMut2<f32>) {
    ///     let cell = thread::unique_2d();
    ///     if let Some(out) = out.get_mut(cell) {
    ///         *out = a[cell] + b[cell];
    ///     }
    /// }
    /// ```
    DisjointMut2, Extents2, Slice2,
    [
        /// Elements of a row.
        width,
        /// Rows.
        height,
        /// Elements from the beginning of a row to that of the next: at least the width.
        pitch
    ]
}

view! {
    /// A mutable view of planes of rows of which every thread of the launch gets its own element, that of its
    /// [`unique_3d`](crate::thread::unique_3d): a parameter of kernels.
    ///
    /// A launch passes `buffer.as_3d_mut(width, height, depth)?`.
    DisjointMut3, Extents3, Slice3,
    [
        /// Elements of a row.
        width,
        /// Rows of a plane.
        height,
        /// Planes.
        depth,
        /// Elements from the beginning of a row to that of the next: at least the width.
        pitch
    ]
}

impl<T> DisjointMut2<'_, T, Elements> {
    /// The element at a place, or `None` outside.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut(&mut self, cell: Unique2d) -> Option<&mut T> {
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(
            cell.is_own(),
            "the place {:?} belongs to another thread of this or another launch",
            cell.get()
        );
        let [row, column] = cell.raw();
        if (column >= self.extents.width()) | (row >= self.extents.height()) {
            return None;
        }
        // SAFETY: both are in range, so the element is within the span; that no other thread has it is argued in the
        // parent module.
        Some(unsafe { &mut *self.data.add(self.extents.offset([row, column])) })
    }
}

impl<T> DisjointMut2<'_, T, Rows> {
    /// Row `index`, or `None` outside.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut(&mut self, index: UniqueIndex) -> Option<&mut [T]> {
        index.check();
        if index.get() >= self.height() {
            return None;
        }
        let start = self.extents.offset([index.get() as u32, 0]);
        // SAFETY: the row is within the span; that no other thread has its elements is argued in the parent module: rows
        // do not overlap, since the pitch is at least the width.
        Some(unsafe { core::slice::from_raw_parts_mut(self.data.wrapping_add(start), self.width()) })
    }
}

impl<T> DisjointMut3<'_, T, Elements> {
    /// The element at a place, or `None` outside.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut(&mut self, cell: Unique3d) -> Option<&mut T> {
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(
            cell.is_own(),
            "the place {:?} belongs to another thread of this or another launch",
            cell.get()
        );
        let [plane, row, column] = cell.raw();
        let extents = self.extents;
        if (column >= extents.width()) | (row >= extents.height()) | (plane >= extents.depth()) {
            return None;
        }
        // SAFETY: as in two dimensions.
        Some(unsafe { &mut *self.data.add(extents.offset([plane, row, column])) })
    }
}
