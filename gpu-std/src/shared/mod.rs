//! Memory that the threads of a block share: fast, small, and uninitialised when the block starts.
//!
//! | | for | what it gives |
//! | --- | --- | --- |
//! | [`Shared`] | a kernel's parameter | an array that safe code writes together and reads together |
//! | [`DoubleBuffer`] | a kernel's parameter | two, of which one is read while the other is written |
//! | [`Padded`] | the array of one | rows with a gap after each, to be read by columns |
//! | [`shared_array!`](crate::shared_array), [`SharedStatic`] | unsafe code | a raw pointer to a fixed amount |
//! | [`dynamic`] | unsafe code | a raw pointer to what the launch requested |
//! | [`copy_async`] | unsafe code | copies from global memory that take no registers |
//!
//! The length of the first two is fixed, `Shared<[f32; 256]>`, or comes with the launch, `Shared<[f32]>`.
//!
//! With raw pointers the kernel must order its accesses by barriers, and reading memory that has not been written is
//! undefined (on the emulated device every byte is 0xA5 then).
//!
//! # Why `Shared` and `DoubleBuffer` are sound
//!
//! No thread writes an element that another may read or write, whatever way each thread takes through the kernel.
//!
//! 1. *One value for each thread and array.* The entry that `#[kernel]` writes reserves the memory, in a static that
//!    nothing else names or, for arrays whose length comes with the launch, one after the other in dynamic memory, of which
//!    the runtime requests as much as their lengths need; and passes the function one value for it. All threads get the
//!    same lengths, which are arguments of the launch. The value is neither `Clone` nor `Copy`, cannot be
//!    made in safe code, and lives no longer than the kernel; by `&mut` a thread uses it for one operation at a time. It
//!    is neither `Send` nor `Sync`. A macro in the function's body could not promise that: in a loop or a recursive
//!    function the same place in the source is reached again.
//! 2. *A barrier of its own.* A block has 16 hardware barriers. [`sync_threads`](crate::thread::sync_threads) and all
//!    that is built on it use number 0, each array one of the others. A barrier is complete when every thread of the
//!    block that has not returned has come to it, so the n-th arrival of each thread at the barrier of an array meets the
//!    n-th arrival of all others *at the same array*: a thread at another array, or at `sync_threads`, is not counted.
//! 3. *Phases.* In every thread the operations on a [`Shared`] arrive in the same pattern, which does not depend on which
//!    operations they are: once at the end of the first, then at the begin and at the end of each. Before arrival 1, and
//!    between arrivals 2k and 2k + 1, a thread writes its elements; between 2k + 1 and 2k + 2 it may hold references,
//!    which borrow the value that the next operation borrows mutably, so they are gone when it begins. By point 2 all
//!    threads are between the same two arrivals. For a [`DoubleBuffer`] every operation arrives once, at its end, and
//!    after arrival n writes go to the array n modulo 2 while references are to the other.
//! 4. *One division of the elements.* While threads write, element i is touched by thread i modulo the block's size only.
//!    That depends on the array's innermost elements, not on the operation or on how many indices it uses.
//! 5. *Returned threads.* A thread that has returned holds no reference and writes nothing, so the others need not wait
//!    for it. Its elements keep what was there before: any bytes, which are a value of every [`SharedData`]. Shared
//!    memory is the device's, and always holds some bytes.
//! 6. *Panics.* On a GPU a panic ends the launch. On the emulated device a function that an operation calls may panic
//!    between two arrivals, and the kernel may catch that; the array then refuses every other operation.
//!
//! The emulated device reports more than soundness needs: a thread that comes to the same array at another place in the
//! source than the others, and one that has returned, are faults, because what the array holds then is chance.

mod array;
mod copy;
mod data;
mod double;
mod own;
mod padded;

pub use array::Shared;
pub use copy::{commit_copies, copy_async, wait_copies, wait_copies_leaving};
pub use data::{SharedArray, SharedData};
pub use double::DoubleBuffer;
pub use padded::Padded;

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

#[cfg(not(target_arch = "nvptx64"))]
use crate::host::{shared as emulated, thread};

/// Shared memory for a `T`, one for each block: what `#[address_space(shared)]` makes of a static. Aligned to 16
/// bytes at least, so that it can be read in vectors.
#[repr(C, align(16))]
pub struct SharedStatic<T> {
    /// On the host only the address counts: it names the place in the block's memory.
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: it only returns raw pointers; using them is unsafe.
unsafe impl<T> Sync for SharedStatic<T> {}

impl<T> SharedStatic<T> {
    /// For a static that the macros have placed in shared memory; anywhere else it is plain memory.
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self { value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// The calling block's memory.
    #[inline(always)]
    #[track_caller]
    pub fn as_mut_ptr(&self) -> *mut T {
        #[cfg(target_arch = "nvptx64")]
        {
            self.value.get().cast()
        }
        #[cfg(not(target_arch = "nvptx64"))]
        {
            let align = align_of::<Self>();
            emulated::static_memory(self.value.get().cast_const().cast(), size_of::<T>(), align).cast()
        }
    }
}

/// Reserves shared memory for `[T; N]` and gives a `*mut T` to it, the same in all threads of a block.
///
/// Each place in the source has its own array. Aligned to 16 bytes at least. In a generic kernel neither element type
/// nor length can be a generic parameter, as for any static: take a parameter [`Shared`](crate::shared::Shared), which
/// needs no `unsafe` either, or reserve `[u128; N]` and cast.
///
/// ```
/// use gpu_std::prelude::*;
///
/// /// Reverses the elements of each block.
/// #[kernel(launch_bounds(256))]
/// fn reverse(mut data: DisjointMut<f32>) {
///     let tile = shared_array![f32; 256];
///     let (own, count) = (thread::linear_in_block() as usize, block::threads() as usize);
///     let index = thread::unique_index();
///     if let Some(element) = data.get_mut(index) {
///         // SAFETY: `own` is below 256 by the launch bounds, and differs in every thread of the block.
///         unsafe { tile.add(own).write(*element) };
///     }
///     thread::sync_threads();
///     let mirrored = count - 1 - own;
///     if index.get() + mirrored < data.len() + own
///         && let Some(element) = data.get_mut(index)
///     {
///         // SAFETY: the thread `mirrored` has an element, which it wrote before the barrier.
///         *element = unsafe { tile.add(mirrored).read() };
///     }
/// }
/// ```
#[macro_export]
macro_rules! shared_array {
    ($element:ty; $count:expr) => {{
        #[cfg_attr(target_arch = "nvptx64", unsafe(link_section = ".shared"))]
        static SHARED: $crate::shared::SharedStatic<[$element; $count]> = $crate::shared::SharedStatic::new();
        SHARED.as_mut_ptr().cast::<$element>()
    }};
}

#[cfg(target_arch = "nvptx64")]
#[repr(C, align(16))]
struct DynamicMemory(UnsafeCell<[u8; 0]>);

#[cfg(target_arch = "nvptx64")]
// SAFETY: only its address is used.
unsafe impl Sync for DynamicMemory {}

// SAFETY: the builder makes this the block's dynamic shared memory; nothing else has the name.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".shared.dynamic")]
static __warpsmith_dynamic_shared: DynamicMemory = DynamicMemory(UnsafeCell::new([]));

#[cfg(target_arch = "nvptx64")]
#[repr(C, align(1024))]
struct DynamicTiles(UnsafeCell<[u8; 0]>);

#[cfg(target_arch = "nvptx64")]
// SAFETY: only its address is used.
unsafe impl Sync for DynamicTiles {}

// SAFETY: as above. Of another name, so that only kernels that need the alignment have it.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".shared.dynamic")]
static __warpsmith_dynamic_shared_tiles: DynamicTiles = DynamicTiles(UnsafeCell::new([]));

/// The shared memory that the launch requested with `Launch::shared(bytes)`, the same in all threads of a block.
/// [`dynamic_bytes`] says how much there is. Aligned to 16 bytes.
///
/// In a kernel with parameters `Shared<[T]>` or `DoubleBuffer<[T]>`, whose memory is safe to use, these arrays lie at its
/// begin, and what `Launch::shared` requests after them. (On the emulated device they lie elsewhere.)
///
/// # Panics
///
/// Does not compile for a `T` that needs more than 16 bytes of alignment.
#[inline(always)]
pub fn dynamic<T>() -> *mut T {
    const { assert!(align_of::<T>() <= 16, "dynamic shared memory is aligned to 16 bytes") };
    gpu_or_host!(__warpsmith_dynamic_shared.0.get().cast(), emulated::dynamic_memory().cast())
}

/// As [`dynamic`], aligned to 1024 bytes: what permuted tiles of [`tensor`](crate::tensor) need.
#[inline(always)]
pub fn dynamic_aligned<T>() -> *mut T {
    gpu_or_host!(__warpsmith_dynamic_shared_tiles.0.get().cast(), emulated::dynamic_memory().cast())
}

/// Bytes of shared memory that the launch requested, those of its arrays included.
#[inline(always)]
pub fn dynamic_bytes() -> u32 {
    gpu_or_host!(crate::nvvm::dynamic_smem_size(), thread::dynamic_shared_bytes())
}
