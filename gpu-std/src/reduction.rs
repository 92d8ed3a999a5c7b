//! Deterministic single-launch reductions of whole arrays. The last block to finish combines the partial results of all
//! blocks.
//!
//! [`#[reduction]`](macro@crate::reduction) generates a reduction kernel from an associative operator. The generated
//! kernels call [`reduce`], which you can also call from handwritten kernels with your own [`Reduction`].
//!
//! The order in which values are combined depends only on the length, the address of the first element modulo `VECTOR`,
//! and the launch configuration. Each block folds a strided share of the input. Each thread folds its elements into
//! several independent values, one per vector lane. A fixed tree of warp shuffles and shared memory combines the
//! threads' values. Thread 0 of each block writes the block's value to the workspace and increments the counter of
//! finished blocks. The block that completes the count combines the values of all blocks in index order. Lanes and
//! threads do not follow the element order, so the operator must be commutative as well as associative, or must use the
//! index.
//!
//! # Example
//! The Euclidean norm of an array:
//!
//! ```
//! use gpu_std::prelude::*;
//! use gpu_std::reduction::{Reduction, reduce_into, workspace_bytes};
//! # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
//!
//! struct Norm;
//!
//! impl Reduction for Norm {
//!     type Item = f32;
//!     type Partial = f32;
//!     type Output = f32;
//!
//!     fn identity() -> f32 {
//!         0.0
//!     }
//!     fn fold(partial: f32, x: f32, _index: u64) -> f32 {
//!         partial + x * x
//!     }
//!     fn combine(a: f32, b: f32) -> f32 {
//!         a + b
//!     }
//!     fn finish(partial: f32) -> f32 {
//!         partial.sqrt()
//!     }
//! }
//!
//! /// # Safety
//! /// The requirements of [`reduce_into`] apply.
//! #[kernel]
//! unsafe fn norm(x: &[f32], workspace: *mut u64, result: *mut f32) {
//!     // SAFETY: guaranteed by the caller.
//!     unsafe { reduce_into::<Norm, 4, 16>(x, workspace, result) }
//! }
//!
//! # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
//! # let stream = Device::emulated(0)?.default_stream();
//! # let module = stream.device().load(&IMAGE)?;
//! let x = DeviceBuffer::from_host(&stream, &[3.0_f32, 4.0])?;
//! let mut workspace = DeviceBuffer::<u64>::zeros(&stream, workspace_bytes(4, 2) / 8)?;
//! let mut result = DeviceBuffer::<f32>::zeros(&stream, 1)?;
//! let launch = Launch::grid_block(2, 64);
//! // SAFETY: the workspace is zeroed and large enough for two blocks.
//! unsafe { module.kernel::<norm>()?.launch_unsafe(&stream, launch, (&x, &mut workspace, &mut result))? };
//! assert_eq!(result.to_host()?, [5.0]);
//! # Ok::<(), warpsmith_runtime::Error>(())
//! ```

use core::mem::size_of;

use crate::atomic::{Atomic, Ordering, scope::Device};
use crate::element::KernelType;
use crate::vectorized::{Split, each, for_each, lanes, load, with_lanes};
use crate::{shared_array, thread, warp};

#[cfg(not(target_arch = "nvptx64"))]
pub use crate::family::Reduce;

/// The partial value (accumulator) of a reduction. The value can be of any [`KernelType`] that has no padding and at
/// most [`MAX_BYTES`] bytes.
///
/// See the [example](self#example).
pub trait Partial: Copy {
    /// Returns the value from the lane that is `delta` higher. All lanes in `mask` must call this method.
    fn shuffle_down(self, mask: u32, delta: u32) -> Self;
}

impl<T: KernelType> Partial for T {
    #[inline(always)]
    fn shuffle_down(self, mask: u32, delta: u32) -> Self {
        warp::shuffle_down(mask, self, delta)
    }
}

/// A reduction, defined by its types and operations.
///
/// See the [example](self#example).
pub trait Reduction {
    /// Type of an element.
    type Item: Copy;
    /// Type of a partial value.
    type Partial: Partial;
    /// Type of the result.
    type Output: Copy;

    /// Returns the identity: the partial value of zero elements.
    fn identity() -> Self::Partial;
    /// Accumulates element `index`. For each partial value, calls have increasing indices.
    fn fold(partial: Self::Partial, value: Self::Item, index: u64) -> Self::Partial;
    /// Accumulates the elements of a vector whose first element is `index`. By default, each element goes into its own
    /// partial value. An implementation may leave some partial values unchanged, because all of them are combined at
    /// the end.
    #[inline(always)]
    fn fold_vector<const N: usize>(partials: &mut [Self::Partial; N], vector: [Self::Item; N], index: u64) {
        each::<N>(|lane| partials[lane] = Self::fold(partials[lane], vector[lane], index + lane as u64));
    }
    /// Combines the partial values of two disjoint sets of elements.
    fn combine(a: Self::Partial, b: Self::Partial) -> Self::Partial;
    /// Converts the partial value of all elements to the result.
    fn finish(partial: Self::Partial) -> Self::Output;
}

/// Maximum size of a partial value, in bytes.
pub const MAX_BYTES: usize = 256;

/// Returns the workspace size in bytes of a reduction in a grid of `blocks` blocks, where each partial value has
/// `value_bytes` bytes. The workspace must be aligned to 16 bytes, or to the alignment of the value if that is larger.
/// Its first 16 bytes must be zero before the first use. Every launch leaves these bytes zero, so launches on one
/// stream can share the workspace. Launches that may overlap must not share a workspace.
pub const fn workspace_bytes(value_bytes: usize, blocks: usize) -> usize {
    HEADER_BYTES + value_bytes.next_multiple_of(16) * blocks
}

/// Size of the workspace's header, which precedes the blocks' partial values. The header starts with the counter of
/// finished blocks.
const HEADER_BYTES: usize = 16;

/// Reduces `input`. Returns `Some` with the value in exactly one thread of the launch, and `None` in all others.
///
/// See the [example](self#example).
///
/// # Safety
/// The launch must be one-dimensional. `workspace` must meet the requirements of [`workspace_bytes`] for the blocks of
/// the grid. Nothing else may use the workspace until the launch ends.
#[inline(always)]
pub unsafe fn reduce<R: Reduction, const ITEMS: usize, const VECTOR: usize>(
    input: &[R::Item],
    workspace: *mut u64,
) -> Option<R::Partial> {
    const { assert!(size_of::<R::Partial>() <= MAX_BYTES && align_of::<R::Partial>() <= 16) };
    let share =
        with_lanes!(lanes::<R::Item>(VECTOR), N => block_combine::<R>(thread_share::<R, ITEMS, N>(input)));
    let blocks = thread::grid_dim_x();
    let first_thread = thread::thread_idx_x() == 0;
    if blocks == 1 {
        return first_thread.then_some(share);
    }

    let mut is_last = false;
    // SAFETY: by this function's contract, only this launch uses the header.
    let finished = unsafe { Atomic::<u32, Device>::from_ptr(workspace.cast()) };
    // SAFETY: the partial values follow the header and are aligned to 16 bytes.
    let partials: *mut R::Partial = unsafe { workspace.byte_add(HEADER_BYTES).cast() };
    if first_thread {
        // SAFETY: slot `block_idx_x` belongs to this block.
        unsafe { partials.add(thread::block_idx_x() as usize).write(share) };
        // Releases this block's partial value, and acquires the partial values of the blocks that were counted earlier.
        is_last = finished.fetch_add(1, Ordering::AcqRel) == blocks - 1;
    }
    // The barrier makes the writes that thread 0 acquired visible to the whole block. It also prevents `block_combine`
    // from overwriting shared memory slots that are still being read.
    if !thread::sync_threads_or(is_last) {
        return None;
    }
    // SAFETY: according to the counter, every block has written its partial value.
    let total = unsafe { combine_partials::<R>(partials) };
    if first_thread {
        finished.store(0, Ordering::Relaxed);
    }
    first_thread.then_some(total)
}

/// Writes the [finished](Reduction::finish) result of [`reduce`] to `result`.
///
/// See the [example](self#example).
///
/// # Safety
/// The caller must uphold the safety contract of [`reduce`]. `result` must be valid for one value, and nothing else may
/// use it until the launch ends.
#[inline(always)]
pub unsafe fn reduce_into<R: Reduction, const ITEMS: usize, const VECTOR: usize>(
    input: &[R::Item],
    workspace: *mut u64,
    result: *mut R::Output,
) {
    // SAFETY: guaranteed by this function's contract.
    if let Some(total) = unsafe { reduce::<R, ITEMS, VECTOR>(input, workspace) } {
        // SAFETY: only one thread reaches this line, and `result` is valid.
        unsafe { result.write(R::finish(total)) };
    }
}

/// Combines the partial values of all blocks of the grid, using all threads of the calling block. Only thread 0 of the
/// block returns the result. The caller must place a barrier between this function and [`block_combine`].
///
/// # Safety
/// `partials` must contain one value for each block of a one-dimensional grid. All of these values must have been
/// written, and the writes must be ordered before this call.
#[inline(always)]
unsafe fn combine_partials<R: Reduction>(partials: *const R::Partial) -> R::Partial {
    let mut total = R::identity();
    let mut i = thread::thread_idx_x();
    while i < thread::grid_dim_x() {
        // SAFETY: guaranteed by this function's contract.
        total = R::combine(total, unsafe { partials.add(i as usize).read() });
        i += thread::block_dim_x();
    }
    block_combine::<R>(total)
}

/// Folds this thread's share of the input, which is divided among all threads of the launch.
#[inline(always)]
fn thread_share<R: Reduction, const ITEMS: usize, const N: usize>(input: &[R::Item]) -> R::Partial {
    let (ptr, len) = (input.as_ptr(), input.len());
    let split = Split::new::<R::Item, N>(ptr, len);
    let mut lanes = [R::identity(); N];
    for_each::<[R::Item; N], ITEMS>(
        split.vectors,
        // SAFETY: vector i covers the `N` elements from `head + i * N` on, which are all below `tail`, and `Split`
        // aligns it.
        |i| unsafe { load(ptr.add(split.head + i * N)) },
        |i, vector| R::fold_vector(&mut lanes, vector, (split.head + i * N) as u64),
    );
    let mut partial = R::identity();
    // SAFETY: `edges` visits only indices below `len`.
    split.edges(len, |i| partial = R::fold(partial, unsafe { *ptr.add(i) }, i as u64));
    each::<N>(|lane| partial = R::combine(partial, lanes[lane]));
    partial
}

/// Combines the values of all threads of a one-dimensional block. Only thread 0 returns the result. The caller must
/// place a barrier between two calls.
#[inline(always)]
fn block_combine<R: Reduction>(value: R::Partial) -> R::Partial {
    let slots = slots::<R::Partial>();
    let (thread, threads) = (thread::thread_idx_x(), thread::block_dim_x());
    let (index, lane) = (thread / warp::WARP_SIZE, thread % warp::WARP_SIZE);
    let lanes = (threads - index * warp::WARP_SIZE).min(warp::WARP_SIZE);
    let total = warp_combine::<R>(value, lane, lanes);
    if threads <= warp::WARP_SIZE {
        return total;
    }
    if lane == 0 {
        // SAFETY: a block has at most 32 warps, and each has a slot of at least the size and alignment of a partial
        // value.
        unsafe { slots.byte_add(index as usize * slot_bytes::<R::Partial>()).write(total) };
    }
    thread::sync_threads();
    // All warps continue to avoid divergence, but only the first warp's result is used.
    let warps = threads.div_ceil(warp::WARP_SIZE);
    let value = if lane < warps {
        // SAFETY: warp `lane` wrote its slot before the barrier.
        unsafe { slots.byte_add(lane as usize * slot_bytes::<R::Partial>()).read() }
    } else {
        R::identity()
    };
    warp_combine::<R>(value, lane, lanes)
}

/// Combines the values of all lanes of a warp with `lanes` lanes. Lane 0 returns the result.
#[inline(always)]
fn warp_combine<R: Reduction>(mut value: R::Partial, lane: u32, lanes: u32) -> R::Partial {
    let mask = if lanes == warp::WARP_SIZE { warp::FULL_MASK } else { (1 << lanes) - 1 };
    let mut delta = warp::WARP_SIZE / 2;
    while delta > 0 {
        let other = value.shuffle_down(mask, delta);
        if lane + delta < lanes {
            value = R::combine(value, other);
        }
        delta /= 2;
    }
    value
}

/// Returns the size of a warp's slot in bytes, at least 16.
const fn slot_bytes<P>() -> usize {
    let bytes = size_of::<P>().next_power_of_two();
    if bytes < size_of::<u128>() { size_of::<u128>() } else { bytes }
}

/// Returns shared memory for 32 values, one per warp.
#[inline(always)]
fn slots<P>() -> *mut P {
    // A static cannot depend on `P`, so there is one static per size. The kernel contains only the static that it uses.
    match slot_bytes::<P>() {
        16 => shared_array![u128; 32].cast(),
        32 => shared_array![[u128; 2]; 32].cast(),
        64 => shared_array![[u128; 4]; 32].cast(),
        128 => shared_array![[u128; 8]; 32].cast(),
        _ => shared_array![[u128; 16]; 32].cast(),
    }
}
