//! Read-only 2-D and 3-D views: [`Slice2`] and [`Slice3`].
//!
//! The extents and strides are launch parameters and part of the view, so they are the same in all threads. An index of
//! any integer type is in range if and only if it is at least 0 and below the extent. If an unsigned index `row - 1`
//! wraps around, the result is out of range.
//!
//! # Order of indices and sizes
//! In shapes and indices, the outermost dimension comes first, as in Rust arrays. A view from `as_2d(rows, columns)`
//! has elements `[row, column]`, and a view from `as_3d(planes, rows, columns)` has elements `[plane, row, column]`.
//! The same order applies to [`Slice2`] and [`Slice3`], the claims of [`unique_2d`](crate::thread::unique_2d) and
//! [`unique_3d`](crate::thread::unique_3d), [`Shared`](crate::Shared) arrays, and [`Tiles`](crate::disjoint::Tiles).
//! For *threads*, x comes first, as in CUDA: `Launch::cover((columns, rows))`, `block(x, y)`, and a thread's own
//! indices, such as [`index_2d`](crate::thread::index_2d). x is the column, and y is the row.
//!
//! ```
//! use gpu_std::prelude::*;
//!
//! /// The mean of an element and its neighbors; those outside the image count as 0.
//! #[kernel]
//! pub fn smooth(image: Slice2<f32>, mut out: DisjointMut2<f32>) {
//!     let cell = thread::unique_2d();
//!     let [row, column] = cell.get();
//!     if let Some(out) = out.get_mut(cell) {
//!         let at = |row, column| image.get([row, column]).copied().unwrap_or(0.0);
//!         let vertical = at(row.wrapping_sub(1), column) + at(row + 1, column);
//!         let horizontal = at(row, column.wrapping_sub(1)) + at(row, column + 1);
//!         *out = (at(row, column) + vertical + horizontal) / 5.0;
//!     }
//! }
//! ```

use core::fmt;
use core::marker::PhantomData;
use core::ops::Index;

use gpu_spec::{Extents2, Extents3};

use crate::disjoint::{Unique2d, Unique3d};

/// An integer type for the indices of a view: `u32`, `i32`, `usize`, `isize`, `u64`, `i64`, `u16` or `u8`.
///
/// ```
/// use gpu_std::prelude::*;
/// use gpu_std::view::Coordinate;
///
/// fn at<I: Coordinate>(image: Slice2<f32>, row: I, column: I) -> f32 {
///     image.get([row, column]).copied().unwrap_or(0.0)
/// }
/// ```
pub trait Coordinate: sealed::Coordinate {}

mod sealed {
    use core::fmt::Display;

    pub trait Coordinate: Copy + Display {
        /// Returns true if the index is below the extent `side`, which is at most `i32::MAX`.
        fn is_below(self, side: u32) -> bool;
        /// Returns the index as a `u32`. The index must be in range for an extent.
        fn get(self) -> u32;
    }
}

macro_rules! coordinates {
    ($($t:ty as $wide:ty),*) => { $(
        impl sealed::Coordinate for $t {
            #[inline(always)]
            fn is_below(self, side: u32) -> bool {
                // The cast makes a negative number larger than any side.
                (self as $wide) < side as $wide
            }
            #[inline(always)]
            fn get(self) -> u32 {
                self as u32
            }
        }
        impl Coordinate for $t {}
    )* };
}
coordinates! { u8 as u32, u16 as u32, u32 as u32, i32 as u32, usize as usize, isize as usize, u64 as u64, i64 as u64 }

/// A read-only 2-D view, as a kernel parameter. Copying a view does not copy the elements.
///
/// A launch passes `buffer.as_2d(rows, columns)?`. The elements can be [`Atomic`](crate::atomic::Atomic)s, which all
/// threads can read and update. For a `Slice2<Atomic<T>>`, a launch passes `buffer.as_2d_mut(rows, columns)?` with a
/// buffer of `T`.
///
/// ```
/// use gpu_std::atomic::{Atomic, Ordering};
/// use gpu_std::prelude::*;
///
/// /// Counts the points, each a row and a column, in each element.
/// #[kernel]
/// pub fn density(points: &[[i32; 2]], counts: Slice2<Atomic<u32>>) {
///     for i in thread::grid_stride(points.len()) {
///         if let Some(count) = counts.get(points[i.get()]) {
///             count.fetch_add(1, Ordering::Relaxed);
///         }
///     }
/// }
/// ```
pub struct Slice2<'a, T> {
    data: *const T,
    pub(crate) extents: Extents2,
    _borrow: PhantomData<&'a [T]>,
}

impl<T> Clone for Slice2<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slice2<'_, T> {}

// SAFETY: the view is equivalent to a shared reference to the elements.
unsafe impl<T: Sync> Send for Slice2<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Slice2<'_, T> {}

impl<'a, T> Slice2<'a, T> {
    /// Creates a view of the elements that start at `data`.
    ///
    /// ```
    /// use gpu_std::Extents2;
    /// use gpu_std::prelude::*;
    ///
    /// let x = [1, 2, 3, 4, 5, 6];
    /// let extents = Extents2::new(2, 2, 3).expect("the sides are small");
    /// // SAFETY: two rows of two elements, three elements apart, lie within the array.
    /// let view = unsafe { Slice2::from_raw_parts(x.as_ptr(), extents) };
    /// assert_eq!((view[[0, 1]], view[[1, 0]], view.get([0, 2])), (2, 4, None));
    /// ```
    ///
    /// # Safety
    /// `data` must be aligned, not null, and valid for reads of `extents.span()` elements for `'a`. As with shared
    /// references to the elements, nothing may change them except through atomics.
    #[inline(always)]
    pub unsafe fn from_raw_parts(data: *const T, extents: Extents2) -> Self {
        // SAFETY: guaranteed by the caller. This assumption removes the null check of the `Option<&T>`.
        unsafe { core::hint::assert_unchecked(!data.is_null()) };
        Self { data, extents, _borrow: PhantomData }
    }

    /// Returns the number of rows.
    #[inline(always)]
    pub fn rows(self) -> usize {
        self.extents.rows() as usize
    }

    /// Returns the number of elements per row.
    #[inline(always)]
    pub fn columns(self) -> usize {
        self.extents.columns() as usize
    }

    /// Returns the row stride in elements, which is at least the number of columns.
    #[inline(always)]
    pub fn row_stride(self) -> usize {
        self.extents.row_stride() as usize
    }

    /// Returns the element at `[row, column]`, or `None` if it is out of range.
    #[inline(always)]
    pub fn get<I: Coordinate>(self, [row, column]: [I; 2]) -> Option<&'a T> {
        // Both comparisons are evaluated so that only one branch remains.
        if !(column.is_below(self.extents.columns()) & row.is_below(self.extents.rows())) {
            return None;
        }
        // SAFETY: both indices are in range, so the element is within the span.
        Some(unsafe { &*self.data.add(self.extents.offset([row.get(), column.get()])) })
    }

    /// Returns the element at `[row, column]` without a bounds check.
    ///
    /// ```
    /// use gpu_std::prelude::*;
    ///
    /// #[kernel]
    /// fn row_sums(x: Slice2<f32>, mut sums: DisjointMut<f32>) {
    ///     let row = thread::unique_index();
    ///     if row.get() >= x.rows() {
    ///         return;
    ///     }
    ///     if let Some(sum) = sums.get_mut(row) {
    ///         // SAFETY: the row was checked, and the columns are those of the view.
    ///         *sum = (0..x.columns()).map(|column| unsafe { *x.get_unchecked([row.get(), column]) }).sum();
    ///     }
    /// }
    /// ```
    ///
    /// # Safety
    /// `row` and `column` must be in range.
    #[inline(always)]
    pub unsafe fn get_unchecked(self, [row, column]: [usize; 2]) -> &'a T {
        // SAFETY: guaranteed by the caller.
        unsafe { &*self.data.add(self.extents.offset([row as u32, column as u32])) }
    }

    /// Returns row `row`, or `None` if it is out of range.
    #[inline(always)]
    pub fn row(self, row: impl Coordinate) -> Option<&'a [T]> {
        if !row.is_below(self.extents.rows()) {
            return None;
        }
        // SAFETY: the row is within the span. A row without elements has its own address or the address of the first
        // row.
        Some(unsafe {
            core::slice::from_raw_parts(
                self.data.wrapping_add(self.extents.offset([row.get(), 0])),
                self.columns(),
            )
        })
    }

    /// Returns a pointer to the first element. The pointer is valid for `(rows - 1) * row_stride + columns` elements.
    #[inline(always)]
    pub fn as_ptr(self) -> *const T {
        self.data
    }
}

/// # Panics
/// Panics if the element is out of range.
impl<T, I: Coordinate> Index<[I; 2]> for Slice2<'_, T> {
    type Output = T;

    #[inline(always)]
    #[track_caller]
    fn index(&self, [row, column]: [I; 2]) -> &T {
        match self.get([row, column]) {
            Some(element) => element,
            None => panic!(
                "element [{row}, {column}] is out of range: the view has {} rows of {} elements",
                self.rows(),
                self.columns()
            ),
        }
    }
}

/// # Panics
/// Panics if the element is out of range.
impl<T> Index<Unique2d> for Slice2<'_, T> {
    type Output = T;

    #[inline(always)]
    #[track_caller]
    fn index(&self, cell: Unique2d) -> &T {
        &self[cell.get()]
    }
}

impl<T> fmt::Debug for Slice2<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice2({} x {}, row stride {})", self.rows(), self.columns(), self.row_stride())
    }
}

/// A read-only 3-D view, as a kernel parameter.
///
/// A launch passes `buffer.as_3d(planes, rows, columns)?`.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// The sum over the planes, for each row and column.
/// #[kernel]
/// fn sum_planes(volume: Slice3<f32>, mut out: DisjointMut2<f32>) {
///     let cell = thread::unique_2d();
///     let [row, column] = cell.get();
///     if let Some(out) = out.get_mut(cell) {
///         *out = (0..volume.planes()).filter_map(|plane| volume.get([plane, row, column])).sum();
///     }
/// }
/// ```
pub struct Slice3<'a, T> {
    data: *const T,
    pub(crate) extents: Extents3,
    _borrow: PhantomData<&'a [T]>,
}

impl<T> Clone for Slice3<'_, T> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Slice3<'_, T> {}

// SAFETY: the view is equivalent to a shared reference to the elements.
unsafe impl<T: Sync> Send for Slice3<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Slice3<'_, T> {}

impl<'a, T> Slice3<'a, T> {
    /// Creates a view of the elements that start at `data`.
    ///
    /// See the example of [`Slice2::from_raw_parts`].
    ///
    /// # Safety
    /// The caller must uphold the safety contract of [`Slice2::from_raw_parts`].
    #[inline(always)]
    pub unsafe fn from_raw_parts(data: *const T, extents: Extents3) -> Self {
        // SAFETY: guaranteed by the caller. This assumption removes the null check of the `Option<&T>`.
        unsafe { core::hint::assert_unchecked(!data.is_null()) };
        Self { data, extents, _borrow: PhantomData }
    }

    /// Returns the number of planes.
    #[inline(always)]
    pub fn planes(self) -> usize {
        self.extents.planes() as usize
    }

    /// Returns the number of rows per plane.
    #[inline(always)]
    pub fn rows(self) -> usize {
        self.extents.rows() as usize
    }

    /// Returns the number of elements per row.
    #[inline(always)]
    pub fn columns(self) -> usize {
        self.extents.columns() as usize
    }

    /// Returns the plane stride, in elements.
    #[inline(always)]
    pub fn plane_stride(self) -> usize {
        self.extents.plane_stride() as usize
    }

    /// Returns the row stride in elements, which is at least the number of columns.
    #[inline(always)]
    pub fn row_stride(self) -> usize {
        self.extents.row_stride() as usize
    }

    /// Returns the element at `[plane, row, column]`, or `None` if it is out of range.
    #[inline(always)]
    pub fn get<I: Coordinate>(self, [plane, row, column]: [I; 3]) -> Option<&'a T> {
        let Self { extents, .. } = self;
        let is_inside = column.is_below(extents.columns())
            & row.is_below(extents.rows())
            & plane.is_below(extents.planes());
        if !is_inside {
            return None;
        }
        // SAFETY: all indices are in range, so the element is within the span.
        Some(unsafe { &*self.data.add(extents.offset([plane.get(), row.get(), column.get()])) })
    }

    /// Returns the row at `[plane, row]`, or `None` if it is out of range.
    #[inline(always)]
    pub fn row<I: Coordinate>(self, [plane, row]: [I; 2]) -> Option<&'a [T]> {
        if !(row.is_below(self.extents.rows()) & plane.is_below(self.extents.planes())) {
            return None;
        }
        // SAFETY: as for a row of a `Slice2`.
        Some(unsafe {
            core::slice::from_raw_parts(
                self.data.wrapping_add(self.extents.offset([plane.get(), row.get(), 0])),
                self.columns(),
            )
        })
    }

    /// Returns plane `plane`, or `None` if it is out of range.
    #[inline(always)]
    pub fn plane(self, plane: impl Coordinate) -> Option<Slice2<'a, T>> {
        if !plane.is_below(self.extents.planes()) {
            return None;
        }
        // SAFETY: the plane is within the span.
        Some(unsafe {
            let data = self.data.wrapping_add(self.extents.offset([plane.get(), 0, 0]));
            Slice2::from_raw_parts(data, self.extents.plane())
        })
    }

    /// Returns a pointer to the first element.
    #[inline(always)]
    pub fn as_ptr(self) -> *const T {
        self.data
    }
}

/// # Panics
/// Panics if the element is out of range.
impl<T, I: Coordinate> Index<[I; 3]> for Slice3<'_, T> {
    type Output = T;

    #[inline(always)]
    #[track_caller]
    fn index(&self, [plane, row, column]: [I; 3]) -> &T {
        match self.get([plane, row, column]) {
            Some(element) => element,
            None => panic!(
                "element [{plane}, {row}, {column}] is out of range: the view has {} planes of {} rows of {} \
                 elements",
                self.planes(),
                self.rows(),
                self.columns()
            ),
        }
    }
}

/// # Panics
/// Panics if the element is out of range.
impl<T> Index<Unique3d> for Slice3<'_, T> {
    type Output = T;

    #[inline(always)]
    #[track_caller]
    fn index(&self, cell: Unique3d) -> &T {
        &self[cell.get()]
    }
}

impl<T> fmt::Debug for Slice3<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Slice3({} x {} x {})", self.planes(), self.rows(), self.columns())
    }
}
