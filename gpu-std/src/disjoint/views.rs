//! Mutable 2-D and 3-D views that assign every thread its own elements: [`DisjointMut2`] and [`DisjointMut3`].

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
            /// Creates a view of the elements that start at `data`. Every thread of the launch creates the same view.
            ///
            /// See the example of [`DisjointMut::from_raw_parts`](super::DisjointMut::from_raw_parts).
            ///
            /// # Safety
            /// `data` must be aligned, not null, and valid for reads and writes of `extents.span()` elements for `'a`.
            /// All threads of the launch must create the view with the same arguments and mapping, and each thread must
            /// create it at most once. Only these views may access the elements. The launch must have a shape that
            /// [`MutableView::CLAIMS`](super::MutableView::CLAIMS) allows.
            #[inline(always)]
            pub unsafe fn from_raw_parts(data: *mut T, extents: $extents) -> Self {
                // SAFETY: guaranteed by the caller. This assumption removes the null check of the `Option<&mut T>`.
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

            /// Returns a pointer to the first element, for kernels that divide the work themselves. The pointer is
            /// valid for the elements of all rows. The starts of adjacent rows are `row_stride` elements apart. The
            /// caller must ensure that no two threads access an element at the same time.
            #[inline(always)]
            pub fn as_mut_ptr(&mut self) -> *mut T {
                self.data
            }

            /// Reborrows the view for a shorter lifetime, so that it can be passed to a function and still be used
            /// afterwards.
            #[inline(always)]
            pub fn reborrow(&mut self) -> $name<'_, T, M> {
                $name { data: self.data, extents: self.extents, _borrow: PhantomData, _mapping: PhantomData }
            }

            /// Returns a read-only view of all elements.
            ///
            /// ```
            /// use gpu_std::prelude::*;
            /// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
            ///
            /// /// Doubles each element of `x`, and copies its right neighbor.
            /// #[kernel(cooperative)]
            /// fn shift(mut x: DisjointMut2<u32>, mut out: DisjointMut2<u32>) {
            ///     let cell = thread::unique_2d();
            ///     if let Some(x) = x.get_mut(cell) {
            ///         *x *= 2;
            ///     }
            ///     grid::sync();
            ///     // SAFETY: no thread writes `x` after the barrier.
            ///     let x = unsafe { x.as_slice() };
            ///     let [row, column] = cell.get();
            ///     if let (Some(out), Some(right)) = (out.get_mut(cell), x.get([row, column + 1])) {
            ///         *out = *right;
            ///     }
            /// }
            ///
            /// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
            /// # let stream = Device::emulated(0)?.default_stream();
            /// # let module = stream.device().load(&IMAGE)?;
            /// let mut x = DeviceBuffer::from_host(&stream, &[1_u32, 2, 3, 4])?;
            /// let mut out = DeviceBuffer::<u32>::zeros(&stream, 4)?;
            /// let views = (x.as_2d_mut(2, 2)?, out.as_2d_mut(2, 2)?);
            /// module.kernel::<shift>()?.launch(&stream, Launch::cover((2, 2)).block((1, 1)), views)?;
            /// assert_eq!(out.to_host()?, [4, 0, 8, 0]);
            /// # Ok::<(), warpsmith_runtime::Error>(())
            /// ```
            ///
            /// # Safety
            /// No thread may write the elements while the returned view is in use. This holds, for example, between two
            /// grid-wide barriers.
            #[inline(always)]
            pub unsafe fn as_slice(&self) -> $read<'_, T> {
                // SAFETY: the pointer and the extents describe this view's elements, and the caller promises that
                // nothing changes them.
                unsafe { $read::from_raw_parts(self.data, self.extents) }
            }
        }
    };
}

view! {
    /// A mutable 2-D view that assigns every thread of the launch its own elements, as a kernel parameter.
    ///
    /// The mapping `M` determines which elements a thread owns:
    ///
    /// | mapping | elements that a thread owns | claim |
    /// | --- | --- | --- |
    /// | [`Elements`] | the element at its row and column | [`unique_2d`](crate::thread::unique_2d), [`grid_stride_2d`](crate::thread::grid_stride_2d) |
    /// | [`Rows`] | the row at its index | [`unique_index`](crate::thread::unique_index), [`grid_stride`](crate::thread::grid_stride) |
    /// | [`Tiles`](super::Tiles), [`TransposedTiles`](super::TransposedTiles) | its share of the block's tile | no claim; use [`write_tile`](Self::write_tile) |
    ///
    /// A launch passes `buffer.as_2d_mut(rows, columns)?`. The runtime rejects three-dimensional launches because
    /// threads that differ only in z would share the same claim.
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
        /// Number of rows.
        rows,
        /// Number of elements per row.
        columns,
        /// Row stride in elements, which is at least the number of columns.
        row_stride
    ]
}

view! {
    /// A mutable 3-D view that assigns every thread of the launch its own element, as a kernel parameter. A thread owns
    /// the element at its claim [`unique_3d`](crate::thread::unique_3d).
    ///
    /// A launch passes `buffer.as_3d_mut(planes, rows, columns)?`.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    /// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
    ///
    /// /// Sets each element to its plane.
    /// #[kernel]
    /// fn number(mut out: DisjointMut3<u32>) {
    ///     let cell = thread::unique_3d();
    ///     if let Some(out) = out.get_mut(cell) {
    ///         *out = cell.get()[0] as u32;
    ///     }
    /// }
    ///
    /// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
    /// # let stream = Device::emulated(0)?.default_stream();
    /// # let module = stream.device().load(&IMAGE)?;
    /// let mut out = DeviceBuffer::<u32>::zeros(&stream, 2 * 1 * 3)?;
    /// module.kernel::<number>()?.launch(&stream, Launch::cover((3, 1, 2)), (out.as_3d_mut(2, 1, 3)?,))?;
    /// assert_eq!(out.to_host()?, [0, 0, 0, 1, 1, 1]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    DisjointMut3, Extents3, Slice3,
    [
        /// Number of planes.
        planes,
        /// Number of rows per plane.
        rows,
        /// Number of elements per row.
        columns,
        /// Plane stride, in elements.
        plane_stride,
        /// Row stride in elements, which is at least the number of columns.
        row_stride
    ]
}

impl<T> DisjointMut2<'_, T, Elements> {
    /// Returns the element at the claim's coordinates, or `None` if they are out of range.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut(&mut self, cell: Unique2d) -> Option<&mut T> {
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(
            cell.is_own(),
            "the index {:?} belongs to another thread of this or another launch",
            cell.get()
        );
        let [row, column] = cell.raw();
        if (column >= self.extents.columns()) | (row >= self.extents.rows()) {
            return None;
        }
        // SAFETY: both indices are in range, so the element is within the span, and the parent module explains why no
        // other thread owns it.
        Some(unsafe { &mut *self.data.add(self.extents.offset([row, column])) })
    }
}

impl<T> DisjointMut2<'_, T, Rows> {
    /// Returns row `index`, or `None` if it is out of range.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut(&mut self, index: UniqueIndex) -> Option<&mut [T]> {
        index.check();
        if index.get() >= self.rows() {
            return None;
        }
        let start = self.extents.offset([index.get() as u32, 0]);
        // SAFETY: the row is within the span. Rows do not overlap because the stride is at least the number of columns.
        // The parent module explains why no other thread owns the row.
        Some(unsafe { core::slice::from_raw_parts_mut(self.data.wrapping_add(start), self.columns()) })
    }
}

impl<T> DisjointMut3<'_, T, Elements> {
    /// Returns the element at the claim's coordinates, or `None` if they are out of range.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut(&mut self, cell: Unique3d) -> Option<&mut T> {
        #[cfg(not(target_arch = "nvptx64"))]
        assert!(
            cell.is_own(),
            "the index {:?} belongs to another thread of this or another launch",
            cell.get()
        );
        let [plane, row, column] = cell.raw();
        let extents = self.extents;
        if (column >= extents.columns()) | (row >= extents.rows()) | (plane >= extents.planes()) {
            return None;
        }
        // SAFETY: as in two dimensions.
        Some(unsafe { &mut *self.data.add(extents.offset([plane, row, column])) })
    }
}
