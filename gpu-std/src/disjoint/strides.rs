//! Loops over claims: [`grid_stride`] divides indices among all threads of a launch, however many there are, and
//! [`grid_stride_2d`] and [`grid_stride_3d`] places.
//!
//! Each iterator begins at what belongs to the caller and goes on by whole launches, so that all it returns belongs to the
//! caller: point 1 of the parent module's documentation.

use core::iter::FusedIterator;
use core::marker::PhantomData;

use super::claims::{Unique2d, Unique3d, launch_threads};
use super::{UniqueIndex, linear_in_launch};
use crate::thread;

/// A claim, made of its place. The trait is not public, and so nothing outside of the library makes a claim by it.
pub trait Claim {
    /// What a claim is made of.
    type Place;

    /// The claim to a place, which belongs to the caller.
    fn at(place: Self::Place) -> Self;
}

/// Divides `0..len` among all threads of the launch, however many there are: thread t gets t, t + S, t + 2S, …
/// for S threads.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[kernel]
/// fn double(mut data: DisjointMut<u32>) {
///     for i in thread::grid_stride(data.len()) {
///         if let Some(x) = data.get_mut(i) {
///             *x *= 2;
///         }
///     }
/// }
/// ```
#[inline(always)]
pub fn grid_stride(len: usize) -> GridStride {
    GridStride::new(linear_in_launch(), thread::launch_size(), len)
}

/// The claims that [`grid_stride`] gives to a thread, and [`block::stride`](crate::block::stride) to a block.
#[derive(Debug)]
pub struct GridStride<C = UniqueIndex> {
    next: usize,
    step: usize,
    len: usize,
    /// Neither `Send` nor `Sync`.
    _of_this_thread: PhantomData<*const C>,
}

impl<C> GridStride<C> {
    /// `first`, which belongs to the caller, and every `step`th index after it, which is a whole launch.
    #[inline(always)]
    pub(crate) fn new(first: usize, step: usize, len: usize) -> Self {
        Self { next: first, step, len, _of_this_thread: PhantomData }
    }
}

impl<C: Claim<Place = usize>> Iterator for GridStride<C> {
    type Item = C;

    #[inline(always)]
    fn next(&mut self) -> Option<C> {
        if self.next >= self.len {
            return None;
        }
        let index = self.next;
        // Near the end of the address space the sum may not fit: then nothing is left.
        self.next = index.saturating_add(self.step);
        Some(C::at(index))
    }
}

impl<C: Claim<Place = usize>> FusedIterator for GridStride<C> {}

/// Divides `width` x `height` places among all threads of a launch of at most two dimensions, however many there are: a
/// thread gets its own place, and those that lie whole launches further along x and along y. Row after row.
///
/// Sides over 2^32 - 1 count as that.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[kernel]
/// fn double(mut image: DisjointMut2<f32>) {
///     for cell in thread::grid_stride_2d(image.width(), image.height()) {
///         if let Some(value) = image.get_mut(cell) {
///             *value *= 2.0;
///         }
///     }
/// }
/// ```
#[inline(always)]
pub fn grid_stride_2d(width: usize, height: usize) -> GridStride2d {
    let ([x, y], [step_x, step_y, _]) = (thread::index_2d(), launch_threads());
    PlaceStride::new([y, x], [step_y, step_x], [height, width])
}

/// Divides `width` x `height` x `depth` places among all threads of a launch, however many there are, as
/// [`grid_stride_2d`] does. Plane after plane.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[kernel]
/// fn double(mut volume: DisjointMut3<f32>) {
///     for cell in thread::grid_stride_3d(volume.width(), volume.height(), volume.depth()) {
///         if let Some(value) = volume.get_mut(cell) {
///             *value *= 2.0;
///         }
///     }
/// }
/// ```
#[inline(always)]
pub fn grid_stride_3d(width: usize, height: usize, depth: usize) -> GridStride3d {
    let ([x, y, z], [step_x, step_y, step_z]) = (thread::index_3d(), launch_threads());
    PlaceStride::new([z, y, x], [step_z, step_y, step_x], [depth, height, width])
}

/// The claims that [`grid_stride_2d`] gives to a thread.
pub type GridStride2d = PlaceStride<Unique2d, 2>;

/// The claims that [`grid_stride_3d`] gives to a thread.
pub type GridStride3d = PlaceStride<Unique3d, 3>;

/// The claims in `D` dimensions that a thread gets, the last index running fastest.
#[derive(Debug)]
pub struct PlaceStride<C, const D: usize> {
    /// The thread's first place.
    first: [u32; D],
    next: [u32; D],
    step: [u32; D],
    size: [u32; D],
    /// Neither `Send` nor `Sync`.
    _of_this_thread: PhantomData<*const C>,
}

impl<C, const D: usize> PlaceStride<C, D> {
    /// `first`, which belongs to the caller, and the places that are whole launches of `step` threads further.
    #[inline(always)]
    fn new(first: [u32; D], step: [u64; D], size: [usize; D]) -> Self {
        let clamp = |side: u64| if side > u32::MAX as u64 { u32::MAX } else { side as u32 };
        let (step, size) = (step.map(clamp), size.map(|side| clamp(side as u64)));
        let mut next = first;
        // A row without a place for this thread is none, and a plane without a row.
        for axis in 1..D {
            if first[axis] >= size[axis] {
                next[0] = u32::MAX;
            }
        }
        Self { first, next, step, size, _of_this_thread: PhantomData }
    }
}

impl<C: Claim<Place = [u32; D]>, const D: usize> Iterator for PlaceStride<C, D> {
    type Item = C;

    #[inline(always)]
    fn next(&mut self) -> Option<C> {
        let place = self.next;
        if place[0] >= self.size[0] {
            return None;
        }
        for axis in (1..D).rev() {
            // A sum over 32 bits becomes the largest number, which is outside of every side.
            let further = place[axis].saturating_add(self.step[axis]);
            if further < self.size[axis] {
                self.next[axis] = further;
                return Some(C::at(place));
            }
            self.next[axis] = self.first[axis];
        }
        self.next[0] = place[0].saturating_add(self.step[0]);
        Some(C::at(place))
    }
}

impl<C: Claim<Place = [u32; D]>, const D: usize> FusedIterator for PlaceStride<C, D> {}
