//! Grid-stride iterators that yield claims. [`grid_stride`] divides indices among all threads of a launch of any size;
//! [`grid_stride_2d`] and [`grid_stride_3d`] divide coordinates.
//!
//! Each iterator starts at an index that belongs to the caller and advances by the launch size. By point 1 of the
//! parent module's documentation, all items of the iterator therefore belong to the caller.

use core::iter::FusedIterator;
use core::marker::PhantomData;

use super::claims::{Unique2d, Unique3d, launch_threads};
use super::{UniqueIndex, linear_in_launch};
use crate::thread;

/// A claim that can be created from its index. The trait is private, so that only this library can create claims
/// through it.
pub trait Claim {
    /// Creates the claim to an index, which must belong to the caller.
    fn at(index: usize) -> Self;
}

/// Divides `0..len` among all threads of a launch, regardless of its size. In a launch with S threads, thread t
/// receives t, t + S, t + 2S, ….
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

/// Iterator over the claims that [`grid_stride`] assigns to a thread, or that [`block::stride`](crate::block::stride)
/// assigns to a block.
///
/// See the example of [`grid_stride`].
#[derive(Debug)]
pub struct GridStride<C = UniqueIndex> {
    next: usize,
    step: usize,
    len: usize,
    /// Makes the type neither `Send` nor `Sync`.
    _of_this_thread: PhantomData<*const C>,
}

impl<C> GridStride<C> {
    /// Iterates over `first`, which must belong to the caller, and every `step`th index after it. `step` must be the
    /// launch size.
    #[inline(always)]
    pub(crate) fn new(first: usize, step: usize, len: usize) -> Self {
        Self { next: first, step, len, _of_this_thread: PhantomData }
    }
}

impl<C: Claim> Iterator for GridStride<C> {
    type Item = C;

    #[inline(always)]
    fn next(&mut self) -> Option<C> {
        if self.next >= self.len {
            return None;
        }
        let index = self.next;
        // Near the end of the address space the sum may overflow. The sum then saturates, which ends the iteration.
        self.next = index.saturating_add(self.step);
        Some(C::at(index))
    }
}

impl<C: Claim> FusedIterator for GridStride<C> {}

/// Divides `rows` x `columns` coordinates among all threads of a launch with at most two dimensions, regardless of its
/// size. A thread receives its own coordinates, and all coordinates that are a multiple of the launch size away from
/// them along x and y. Coordinates are visited in row-major order.
///
/// Sides above 2^32 - 1 are clamped to this maximum.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[kernel]
/// fn double(mut image: DisjointMut2<f32>) {
///     for cell in thread::grid_stride_2d(image.rows(), image.columns()) {
///         if let Some(value) = image.get_mut(cell) {
///             *value *= 2.0;
///         }
///     }
/// }
/// ```
#[inline(always)]
pub fn grid_stride_2d(rows: usize, columns: usize) -> GridStride2d {
    let ([x, y], [step_x, step_y, _]) = (thread::index_2d(), launch_threads());
    GridStride2d::new(Axis::new(y, step_y, rows), Axis::new(x, step_x, columns))
}

/// Divides `planes` x `rows` x `columns` coordinates among all threads of a launch, as [`grid_stride_2d`] does in two
/// dimensions. Planes are visited in order, and each plane in row-major order.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[kernel]
/// fn double(mut volume: DisjointMut3<f32>) {
///     for cell in thread::grid_stride_3d(volume.planes(), volume.rows(), volume.columns()) {
///         if let Some(value) = volume.get_mut(cell) {
///             *value *= 2.0;
///         }
///     }
/// }
/// ```
#[inline(always)]
pub fn grid_stride_3d(planes: usize, rows: usize, columns: usize) -> GridStride3d {
    let ([x, y, z], [step_x, step_y, step_z]) = (thread::index_3d(), launch_threads());
    let [plane, row] = [Axis::new(z, step_z, planes), Axis::new(y, step_y, rows)];
    GridStride3d::new(plane, row, Axis::new(x, step_x, columns))
}

/// The indices that one thread visits along one axis.
#[derive(Debug)]
struct Axis {
    /// The thread's first index.
    first: u32,
    next: u32,
    step: u32,
    size: u32,
}

impl Axis {
    #[inline(always)]
    fn new(first: u32, step: u64, size: usize) -> Self {
        let clamp = |side: u64| if side > u32::MAX as u64 { u32::MAX } else { side as u32 };
        Self { first, next: first, step: clamp(step), size: clamp(size as u64) }
    }

    #[inline(always)]
    fn is_at_end(&self) -> bool {
        self.next >= self.size
    }

    /// Advances by the launch size. A sum that overflows 32 bits saturates at the maximum, which is outside every side.
    #[inline(always)]
    fn advance(&mut self) {
        self.next = self.next.saturating_add(self.step);
    }

    /// Advances by the launch size, or resets the index to the first one if the end has been reached. Returns true
    /// after a reset.
    #[inline(always)]
    fn wraps(&mut self) -> bool {
        let further = self.next.saturating_add(self.step);
        let wraps = further >= self.size;
        self.next = if wraps { self.first } else { further };
        wraps
    }
}

/// Uses named fields because LLVM would move an array of two indices as one 64-bit number and split it in each
/// iteration.
macro_rules! place_stride {
    ($(#[$doc:meta])* $name:ident: $claim:ident, $slowest:ident, [$($side:ident),*], [$($fastest_first:ident),*]) => {
        $(#[$doc])*
        #[derive(Debug)]
        pub struct $name {
            $slowest: Axis,
            $($side: Axis,)*
            /// Makes the type neither `Send` nor `Sync`.
            _of_this_thread: PhantomData<*const ()>,
        }

        impl $name {
            #[inline(always)]
            fn new(mut $slowest: Axis, $($side: Axis),*) -> Self {
                // A thread without coordinates in one row has no coordinates in any row. The same is true of planes
                // without rows.
                if $($side.is_at_end())||* {
                    $slowest.next = $slowest.size;
                }
                Self { $slowest, $($side,)* _of_this_thread: PhantomData }
            }
        }

        impl Iterator for $name {
            type Item = $claim;

            #[inline(always)]
            fn next(&mut self) -> Option<$claim> {
                if self.$slowest.is_at_end() {
                    return None;
                }
                let claim = $claim::at([self.$slowest.next, $(self.$side.next),*]);
                if $(self.$fastest_first.wraps())&&* {
                    self.$slowest.advance();
                }
                Some(claim)
            }
        }

        impl FusedIterator for $name {}
    };
}

place_stride! {
    /// Iterator over the claims that [`grid_stride_2d`] assigns to a thread.
    GridStride2d: Unique2d, row, [column], [column]
}

place_stride! {
    /// Iterator over the claims that [`grid_stride_3d`] assigns to a thread.
    GridStride3d: Unique3d, plane, [row, column], [column, row]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns random numbers of all magnitudes, many of which are near the maximum.
    fn numbers() -> impl FnMut(u128) -> u128 {
        let seed = fastrand::u64(..);
        println!("seed {seed:#x}");
        let mut random = fastrand::Rng::with_seed(seed);
        move |most| match random.u32(..3) {
            0 => most.saturating_sub(u128::from(random.u64(..8))),
            1 => most >> random.u32(..64),
            _ => u128::from(random.u64(..)) % (most + 1),
        }
    }

    /// Returns a thread's first few indices, computed with exact arithmetic.
    fn exact(first: u128, step: u128, len: u128) -> Vec<u128> {
        (0..4).map(|round| first + round * step).take_while(|index| *index < len).collect()
    }

    #[test]
    fn strides_are_those_of_exact_arithmetic() {
        let mut number = numbers();
        for _ in 0..100_000 {
            // A launch has fewer than 2^63 threads, so each first index is below that limit.
            let step = number(isize::MAX as u128).max(1);
            let (first, len) = (number(step - 1), number(usize::MAX as u128));
            let stride = GridStride::<UniqueIndex>::new(first as usize, step as usize, len as usize);
            let found: Vec<u128> = stride.take(4).map(|index| index.get() as u128).collect();
            assert_eq!(found, exact(first, step, len), "{first} {step} {len}");
        }
    }

    #[test]
    fn places_are_those_of_exact_arithmetic() {
        let mut number = numbers();
        for _ in 0..100_000 {
            let mut side = || {
                let step = number(1 << 32).max(1);
                (number(step - 1), step, number(usize::MAX as u128))
            };
            let [rows, columns] = [side(), side()];
            let axis =
                |(first, step, size): (u128, u128, u128)| Axis::new(first as u32, step as u64, size as usize);
            // Sides that do not fit in 32 bits are clamped to the maximum.
            let along =
                |(first, step, size): (u128, u128, u128)| exact(first, step, size.min(u32::MAX.into()));
            let found = GridStride2d::new(axis(rows), axis(columns)).take(3);
            let found: Vec<[u128; 2]> = found.map(|cell| cell.get().map(|index| index as u128)).collect();
            let (rows, columns) = (along(rows), along(columns));
            let places = rows.iter().flat_map(|row| columns.iter().map(|column| [*row, *column]));
            // Each axis lists four indices, which suffice for three coordinates.
            let expected: Vec<_> = places.take(3).collect();
            assert_eq!(found, expected);
        }
    }
}
