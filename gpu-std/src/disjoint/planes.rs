//! [`Planes`]: a structure-of-arrays mapping that assigns a thread one element in each of several planes.
//!
//! # Why this is sound
//! In a view of `K` planes with n elements each, index i (below n) owns the elements `k * n + i` for k below `K`. The
//! position of an element determines both k and i, so two indices never share an element. n is part of the view and the
//! same in all threads.

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Index, IndexMut};

use super::{DisjointMut, MutableView, OwnIndex};

/// Mapping of a [`DisjointMut`] of `K` consecutive planes of equal length, in which index i owns element i of each
/// plane. Use this mapping to pass a structure of `K` arrays as one parameter. Adjacent threads own adjacent elements
/// in every plane.
///
/// The launch fails if the buffer's length is not a multiple of `K`. The read-only counterpart is [`SlicePlanes`].
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// Moves particles; planes are x, y, z.
/// #[kernel]
/// fn drift(velocities: SlicePlanes<f32, 3>, dt: f32, mut positions: DisjointMut<f32, Planes<3>>) {
///     let index = thread::unique_index();
///     if let Some(mut position) = positions.get_mut(index) {
///         for axis in 0..3 {
///             position[axis] += dt * velocities[[axis, index.get()]];
///         }
///     }
/// }
/// ```
pub enum Planes<const K: usize> {}

/// The elements that a thread owns in a view of [`Planes`]: one in each of the `K` planes.
///
/// See the example of [`Planes`].
pub struct Column<'a, T, const K: usize> {
    /// Pointer to the thread's element in the first plane.
    first: *mut T,
    /// Distance between the starts of adjacent planes, in elements.
    plane_len: usize,
    _borrow: PhantomData<&'a mut T>,
}

impl<T, const K: usize> DisjointMut<'_, T, Planes<K>> {
    /// Returns the number of elements per plane.
    #[inline(always)]
    pub fn plane_len(&self) -> usize {
        const { assert!(Self::WRONG.is_none()) };
        self.len / K
    }

    /// Returns the elements that `index` owns, one in each plane, or `None` if the index is out of range.
    #[inline(always)]
    #[track_caller]
    pub fn get_mut<I: OwnIndex>(&mut self, index: I) -> Option<Column<'_, T, K>> {
        let index = index.own();
        index.check();
        let plane_len = self.plane_len();
        if index.get() < plane_len {
            // If the element is in range in the first plane, it is in range in all planes.
            let first = self.data.wrapping_add(index.get());
            Some(Column { first, plane_len, _borrow: PhantomData })
        } else {
            None
        }
    }
}

impl<T: Copy, const K: usize> Column<'_, T, K> {
    /// Reads all elements.
    #[inline(always)]
    pub fn read(&self) -> [T; K] {
        core::array::from_fn(|plane| self[plane])
    }

    /// Writes all elements.
    #[inline(always)]
    pub fn write(&mut self, values: [T; K]) {
        for (plane, value) in values.into_iter().enumerate() {
            self[plane] = value;
        }
    }
}

impl<T, const K: usize> Column<'_, T, K> {
    #[inline(always)]
    #[track_caller]
    fn at(&self, plane: usize) -> *mut T {
        assert!(plane < K, "plane {plane} is out of range: the view has {K} planes");
        self.first.wrapping_add(plane * self.plane_len)
    }
}

/// # Panics
/// Panics if the plane does not exist.
impl<T, const K: usize> Index<usize> for Column<'_, T, K> {
    type Output = T;

    #[inline(always)]
    #[track_caller]
    fn index(&self, plane: usize) -> &T {
        // SAFETY: the element is in range, the module documentation explains why no other thread owns it, and the view
        // is borrowed.
        unsafe { &*self.at(plane) }
    }
}

/// # Panics
/// Panics if the plane does not exist.
impl<T, const K: usize> IndexMut<usize> for Column<'_, T, K> {
    #[inline(always)]
    #[track_caller]
    fn index_mut(&mut self, plane: usize) -> &mut T {
        // SAFETY: as above, with a mutable borrow.
        unsafe { &mut *self.at(plane) }
    }
}

impl<T: fmt::Debug, const K: usize> fmt::Debug for Column<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries((0..K).map(|plane| &self[plane])).finish()
    }
}

/// Read-only view of `K` consecutive planes of equal length, as a kernel parameter. `[plane, index]` selects element
/// `index` of a plane.
///
/// The launch argument is a buffer, as for `&[T]`. The launch fails if the buffer's length is not a multiple of `K`.
/// Kernels write such a buffer through the mapping [`Planes`].
///
/// ```
/// use gpu_std::SlicePlanes;
///
/// // The x and y coordinates of three points.
/// let points: SlicePlanes<f32, 2> = SlicePlanes::new(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
/// assert_eq!((points.plane_len(), points[[1, 0]]), (3, 4.0));
/// assert_eq!(points.column(2), Some([&3.0, &6.0]));
/// ```
///
/// The example of [`Planes`] has such a parameter.
pub struct SlicePlanes<'a, T, const K: usize> {
    elements: &'a [T],
    plane_len: usize,
}

impl<'a, T, const K: usize> SlicePlanes<'a, T, K> {
    /// Divides a slice into planes. If its length is not a multiple of `K`, the remaining elements do not belong to any
    /// plane.
    #[inline(always)]
    pub fn new(elements: &'a [T]) -> Self {
        const { assert!(K > 0, "a view must have at least one plane") };
        Self { elements, plane_len: elements.len() / K }
    }

    /// Returns the number of elements per plane.
    #[inline(always)]
    pub fn plane_len(self) -> usize {
        self.plane_len
    }

    /// Returns a plane, or `None` if it does not exist.
    #[inline(always)]
    pub fn plane(self, plane: usize) -> Option<&'a [T]> {
        if plane < K { self.elements.get(plane * self.plane_len..)?.get(..self.plane_len) } else { None }
    }

    /// Returns an element, or `None` if it is out of range.
    #[inline(always)]
    pub fn get(self, [plane, index]: [usize; 2]) -> Option<&'a T> {
        if (plane < K) & (index < self.plane_len) {
            // SAFETY: the planes are within the slice.
            Some(unsafe { self.elements.get_unchecked(plane * self.plane_len + index) })
        } else {
            None
        }
    }

    /// Returns element `index` of each plane, or `None` if it is out of range.
    #[inline(always)]
    pub fn column(self, index: usize) -> Option<[&'a T; K]> {
        if index < self.plane_len {
            // SAFETY: the planes are within the slice.
            Some(core::array::from_fn(|plane| unsafe {
                self.elements.get_unchecked(plane * self.plane_len + index)
            }))
        } else {
            None
        }
    }
}

impl<T, const K: usize> Clone for SlicePlanes<'_, T, K> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<T, const K: usize> Copy for SlicePlanes<'_, T, K> {}

/// # Panics
/// Panics if the element is out of range.
impl<T, const K: usize> Index<[usize; 2]> for SlicePlanes<'_, T, K> {
    type Output = T;

    #[inline(always)]
    #[track_caller]
    fn index(&self, [plane, index]: [usize; 2]) -> &T {
        match self.get([plane, index]) {
            Some(element) => element,
            None => panic!(
                "element [{plane}, {index}] is out of range: the view has {K} planes of {} elements",
                self.plane_len
            ),
        }
    }
}

impl<T, const K: usize> fmt::Debug for SlicePlanes<'_, T, K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlicePlanes({K} x {})", self.plane_len)
    }
}
