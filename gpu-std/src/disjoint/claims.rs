//! Claims (index tokens) in two and three dimensions: [`Unique2d`] and [`Unique3d`].
//!
//! The parent module explains why a claim is unique. Claims in two or three dimensions also require a launch in which x
//! and y (and z) distinguish all threads. A kernel whose view needs such claims declares this requirement
//! ([`gpu_spec::Claims`]), and the runtime rejects other launches.

use core::marker::PhantomData;

use crate::thread;

macro_rules! claim {
    (
        $(#[$doc:meta])*
        $name:ident: $dimensions:literal, $claims:ident,
        [$($(#[$side_doc:meta])* $side:ident: $axis:literal),*]
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $($side: u32,)*
            /// Makes the type neither `Send` nor `Sync`.
            _of_this_thread: PhantomData<*const ()>,
        }

        impl $name {
            /// Creates the claim to coordinates that must belong to the calling thread. Along each axis, the coordinate
            /// modulo the launch's number of threads must equal the thread's index.
            #[inline(always)]
            pub(super) fn at([$($side),*]: [u32; $dimensions]) -> Self {
                Self { $($side,)* _of_this_thread: PhantomData }
            }

            /// Returns the coordinates of the element.
            #[doc = concat!("`[", $(stringify!($side), ", ",)* "]`, the slowest first.")]
            #[inline(always)]
            pub fn get(self) -> [usize; $dimensions] {
                [$(self.$side as usize),*]
            }

            $(
                $(#[$side_doc])*
                #[inline(always)]
                pub fn $side(self) -> usize {
                    self.$side as usize
                }
            )*

            /// Returns the stored coordinates.
            #[inline(always)]
            pub(super) fn raw(self) -> [u32; $dimensions] {
                [$(self.$side),*]
            }

            /// Returns whether the coordinates belong to the calling thread (see point 2 of the parent module's
            /// documentation).
            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            pub(super) fn is_own(self) -> bool {
                let (own, threads) = (thread::index_3d(), launch_threads());
                gpu_spec::Claims::$claims.allow(thread::grid_dim(), thread::block_dim())
                    && [$((self.$side, $axis)),*].into_iter().all(|(index, axis): (u32, usize)| {
                        u64::from(index) % threads[axis] == u64::from(own[axis])
                    })
            }
        }
    };
}

claim! {
    /// Coordinates that are unique to one thread in a launch of at most two dimensions. These coordinates are the
    /// thread's claim to its element of a [`DisjointMut2`](crate::DisjointMut2).
    Unique2d: 2, Plane, [
        /// The element's row, which is the thread's index along y.
        row: 1,
        /// The element's column, which is the thread's index along x.
        column: 0
    ]
}

claim! {
    /// Coordinates that are unique to one thread in a launch. These coordinates are the thread's claim to its element
    /// of a [`DisjointMut3`](crate::DisjointMut3).
    Unique3d: 3, Volume, [
        /// The element's plane, which is the thread's index along z.
        plane: 2,
        /// The element's row, which is the thread's index along y.
        row: 1,
        /// The element's column, which is the thread's index along x.
        column: 0
    ]
}

/// Returns the number of threads in the launch along x, y and z.
#[inline(always)]
pub(super) fn launch_threads() -> [u64; 3] {
    let along = |blocks: u32, threads: u32| u64::from(blocks) * u64::from(threads);
    [
        along(thread::grid_dim_x(), thread::block_dim_x()),
        along(thread::grid_dim_y(), thread::block_dim_y()),
        along(thread::grid_dim_z(), thread::block_dim_z()),
    ]
}

/// Returns the calling thread's claim in a launch of at most two dimensions. The claim's column is the x index from
/// [`index_2d`](crate::thread::index_2d), and its row is the y index.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[kernel]
/// fn gradient(mut out: DisjointMut2<f32>) {
///     let cell = thread::unique_2d();
///     if let Some(out) = out.get_mut(cell) {
///         *out = (cell.row() + cell.column()) as f32;
///     }
/// }
/// ```
#[inline(always)]
pub fn unique_2d() -> Unique2d {
    let [x, y] = thread::index_2d();
    Unique2d::at([y, x])
}

/// Returns the calling thread's claim in the launch. The claim's column is the x index from
/// [`index_3d`](crate::thread::index_3d), its row is the y index, and its plane is the z index.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[kernel]
/// fn fade(volume: Slice3<f32>, mut out: DisjointMut3<f32>) {
///     let cell = thread::unique_3d();
///     if let Some(out) = out.get_mut(cell) {
///         *out = 0.5 * volume[cell];
///     }
/// }
/// ```
#[inline(always)]
pub fn unique_3d() -> Unique3d {
    let [x, y, z] = thread::index_3d();
    Unique3d::at([z, y, x])
}
