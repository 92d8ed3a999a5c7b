//! Claims in two and three dimensions: [`Unique2d`] and [`Unique3d`].
//!
//! The parent module says why a claim is unique. For these, the launch also has to be one in which x and y (and z)
//! distinguish all threads: a kernel with a view of them says so ([`gpu_spec::Claims`]), and the runtime refuses other
//! launches.

use core::iter::FusedIterator;
use core::marker::PhantomData;

use crate::thread;

macro_rules! claim {
    ($(#[$doc:meta])* $name:ident($($axis:ident: $at:literal),*), $get:ty) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name {
            $($axis: u32,)*
            /// Neither `Send` nor `Sync`.
            _of_this_thread: PhantomData<*const ()>,
        }

        impl $name {
            /// The place belongs to this thread: along each axis, its index modulo the launch's threads is the thread's.
            #[inline(always)]
            fn new($($axis: u32),*) -> Self {
                Self { $($axis,)* _of_this_thread: PhantomData }
            }

            /// The indices, x first.
            #[inline(always)]
            pub fn get(self) -> $get {
                ($(self.$axis as usize),*)
            }

            $(
                #[doc = concat!("The index along ", stringify!($axis), ".")]
                #[inline(always)]
                pub fn $axis(self) -> usize {
                    self.$axis as usize
                }
            )*

            /// The indices as they are.
            #[inline(always)]
            pub(super) fn raw(self) -> [u32; { [$($at),*].len() }] {
                [$(self.$axis),*]
            }

            /// Whether the place belongs to the calling thread: see point 2 of the parent module's documentation.
            #[cfg(not(target_arch = "nvptx64"))]
            #[inline(always)]
            pub(super) fn is_own(self) -> bool {
                let (own, threads) = (thread::index_3d(), launch_threads());
                gpu_spec::Claims::allow(Self::CLAIMS, thread::grid_dim(), thread::block_dim())
                    && [$(($at, self.$axis)),*].into_iter().all(|(axis, index): (usize, u32)| {
                        u64::from(index) % threads[axis] == u64::from(own[axis])
                    })
            }
        }
    };
}

claim! {
    /// A place that no other thread of a launch of at most two dimensions has: a thread's claim to its element of a
    /// [`DisjointMut2`](crate::DisjointMut2).
    Unique2d(x: 0, y: 1), (usize, usize)
}

claim! {
    /// A place that no other thread of a launch has: a thread's claim to its element of a
    /// [`DisjointMut3`](crate::DisjointMut3).
    Unique3d(x: 0, y: 1, z: 2), (usize, usize, usize)
}

#[cfg(not(target_arch = "nvptx64"))]
impl Unique2d {
    const CLAIMS: gpu_spec::Claims = gpu_spec::Claims::Plane;
}

#[cfg(not(target_arch = "nvptx64"))]
impl Unique3d {
    const CLAIMS: gpu_spec::Claims = gpu_spec::Claims::Volume;
}

/// All threads of the launch along each axis.
#[inline(always)]
fn launch_threads() -> [u64; 3] {
    let along = |blocks: u32, threads: u32| u64::from(blocks) * u64::from(threads);
    [
        along(thread::grid_dim_x(), thread::block_dim_x()),
        along(thread::grid_dim_y(), thread::block_dim_y()),
        along(thread::grid_dim_z(), thread::block_dim_z()),
    ]
}

/// The calling thread's x and y in the launch: what [`index_2d`](crate::thread::index_2d) gives.
///
/// ```
/// use gpu_std::prelude::*;
///
/// #[kernel]
/// fn gradient(mut out: DisjointMut2<f32>) {
///     let cell = thread::unique_2d();
///     if let Some(out) = out.get_mut(cell) {
///         *out = (cell.x() + cell.y()) as f32;
///     }
/// }
/// ```
#[inline(always)]
pub fn unique_2d() -> Unique2d {
    let [x, y] = thread::index_2d();
    Unique2d::new(x, y)
}

/// The calling thread's x, y and z in the launch: what [`index_3d`](crate::thread::index_3d) gives.
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
    Unique3d::new(x, y, z)
}

/// Divides `width` x `height` places among all threads of a launch of at most two dimensions, however many there are: a
/// thread gets its own x and y, and those that lie whole launches further in x and in y. Row after row.
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
    let clamp = |side: u64| if side > u32::MAX as u64 { u32::MAX } else { side as u32 };
    let ([x, y], [step_x, step_y, _]) = (thread::index_2d(), launch_threads());
    let (width, height) = (clamp(width as u64), clamp(height as u64));
    GridStride2d {
        first: x,
        // A row without a place for this thread is none.
        next: (x, if x < width { y } else { height }),
        step: (clamp(step_x), clamp(step_y)),
        size: (width, height),
        _of_this_thread: PhantomData,
    }
}

/// The places that [`grid_stride_2d`] gives to a thread.
#[derive(Debug)]
pub struct GridStride2d {
    /// The thread's first x.
    first: u32,
    next: (u32, u32),
    step: (u32, u32),
    size: (u32, u32),
    _of_this_thread: PhantomData<*const ()>,
}

impl Iterator for GridStride2d {
    type Item = Unique2d;

    #[inline(always)]
    fn next(&mut self) -> Option<Unique2d> {
        let (x, y) = self.next;
        if y >= self.size.1 {
            return None;
        }
        // A sum over 32 bits becomes the largest number, which is outside of every side.
        let right = x.saturating_add(self.step.0);
        self.next =
            if right < self.size.0 { (right, y) } else { (self.first, y.saturating_add(self.step.1)) };
        Some(Unique2d::new(x, y))
    }
}

impl FusedIterator for GridStride2d {}
