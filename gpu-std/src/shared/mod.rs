//! Shared memory of a block. It is fast, small, and uninitialized when the block starts.
//!
//! | item | used as | meaning |
//! | --- | --- | --- |
//! | [`Shared`] | a kernel parameter | an array that safe code writes and reads collectively |
//! | [`DoubleBuffer`] | a kernel parameter | two arrays, one of which is read while the other is written |
//! | [`Padded`] | the array type of a parameter | rows padded to avoid bank conflicts in column reads |
//! | [`shared_array!`](crate::shared_array), [`SharedStatic`] | unsafe code | a raw pointer to static shared memory |
//! | [`dynamic`] | unsafe code | a raw pointer to dynamic shared memory |
//! | [`copy_async`] | unsafe code | copies from global memory that take no registers |
//!
//! The length of a `Shared` or `DoubleBuffer` is fixed, as in `Shared<[f32; 256]>`, or set at launch, as in
//! `Shared<[f32]>`.
//!
//! With raw pointers, the kernel must order its accesses with barriers. Reading unwritten memory is undefined behavior.
//! On the emulated device, the unwritten bytes are 0xA5.
//!
//! # Why `Shared` and `DoubleBuffer` are sound
//! Regardless of each thread's control flow, no thread writes an element while another thread may read or write it.
//!
//! 1. *One value per thread and array.* The kernel entry that `#[kernel]` generates reserves the memory and passes the
//!    function one value that represents the memory. The memory is a static that no other code can name. Arrays with a
//!    launch-time length are adjacent in dynamic shared memory. The runtime requests as much dynamic shared memory as
//!    the lengths of these arrays require. All threads receive the same lengths, because they are arguments of the
//!    launch. The value is neither `Clone` nor `Copy`, cannot be created in safe code, and does not outlive the kernel.
//!    Because operations take `&mut`, a thread uses the value for one operation at a time. The value is neither `Send`
//!    nor `Sync`. A macro in the function's body could not guarantee this, because a loop or a recursive function can
//!    reach the same source location again.
//! 2. *One barrier per array.* A block has 16 hardware barriers. [`sync_threads`](crate::thread::sync_threads) and
//!    everything built on it use barrier 0, and each array uses one of the others. A barrier completes when every
//!    thread of the block that has not returned has arrived. Therefore, the n-th arrival of each thread at the barrier
//!    of an array coincides with the n-th arrival of all other threads *at the same array*. A thread that waits at
//!    another array or at `sync_threads` is not counted.
//! 3. *Phases.* In every thread, the first operation on a [`Shared`] arrives once, at its end. Each later operation
//!    arrives at its start and at its end. Before arrival 1, and between arrivals 2k and 2k + 1, a thread writes its
//!    elements. Between arrivals 2k + 1 and 2k + 2, a thread may hold references. These references borrow the value,
//!    which the next operation borrows mutably, so they have ended when that operation starts. By point 2, all threads
//!    are between the same two arrivals at any time. For a [`DoubleBuffer`], every operation arrives once, at its end.
//!    After arrival n, writes access array n modulo 2, and references point to the other array.
//! 4. *One division of the elements.* While threads write, element i is accessed only by thread i modulo the block
//!    size. This division depends only on the array's innermost elements, not on the operation or the number of
//!    indices.
//! 5. *Returned threads.* A thread that has returned holds no reference and writes nothing, so the other threads need
//!    not wait for it. Its elements keep their previous bytes, which are a valid value of every [`SharedData`] type.
//!    Shared memory belongs to the device, so it always contains some bytes.
//! 6. *Panics.* On a GPU, a panic ends the launch. On the emulated device, a function called by an operation may panic
//!    between two arrivals, and the kernel may catch the panic. All further operations on the array then panic.
//!
//! The emulated device reports more faults than soundness requires. It also reports a thread that reaches the same
//! array from a different source location than the other threads, or that has returned. In these cases, the contents of
//! the array would be arbitrary.

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

/// Shared memory for a `T`, one per block. `#[address_space(shared)]` turns a static into this type. The memory is
/// aligned to at least 16 bytes, so that it can be read in vectors.
///
/// See the example of [`address_space`](macro@crate::address_space).
#[repr(C, align(16))]
pub struct SharedStatic<T> {
    /// On the host, only the address is used, to identify the block's memory.
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: the type only returns raw pointers, and using those is unsafe.
unsafe impl<T> Sync for SharedStatic<T> {}

impl<T> SharedStatic<T> {
    /// Creates the value of a static that a macro places in shared memory. Any other static is in ordinary memory.
    #[doc(hidden)]
    pub const fn new() -> Self {
        Self { value: UnsafeCell::new(MaybeUninit::uninit()) }
    }

    /// Returns a pointer to the calling block's memory.
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

/// Reserves shared memory for `[T; N]` and returns a `*mut T` to it. The pointer is the same in all threads of a block.
///
/// Each source location has a separate array, aligned to at least 16 bytes. As in any static, neither the element type
/// nor the length can depend on a generic parameter of the kernel. For such a type or length, use a
/// [`Shared`](crate::shared::Shared) parameter, which also needs no `unsafe`, or reserve `[u128; N]` and cast the
/// pointer.
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

// SAFETY: the builder makes this static the block's dynamic shared memory, and no other item has this name.
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

// SAFETY: as above. The static has a separate name so that only kernels that need the alignment contain it.
#[cfg(target_arch = "nvptx64")]
#[unsafe(no_mangle)]
#[unsafe(link_section = ".shared.dynamic")]
static __warpsmith_dynamic_shared_tiles: DynamicTiles = DynamicTiles(UnsafeCell::new([]));

/// Returns a pointer to the dynamic shared memory that the launch requested with `Launch::shared(bytes)`. The pointer
/// is the same in all threads of a block. The size of this memory is [`dynamic_bytes`]. The pointer is aligned to 16
/// bytes.
///
/// In a kernel with parameters `Shared<[T]>` or `DoubleBuffer<[T]>`, the memory starts with these arrays, which safe
/// code uses. The memory requested with `Launch::shared` follows these arrays. (On the emulated device, these arrays
/// are stored elsewhere.)
///
/// ```
/// use gpu_std::prelude::*;
/// use gpu_std::shared::{dynamic, dynamic_bytes};
/// # use warpsmith_runtime::{Device, DeviceBuffer, GpuImage, Launch};
///
/// /// Reverses the numbers of each block.
/// ///
/// /// # Safety
/// /// The launch must provide 4 bytes of shared memory per thread, and `x` must have one number per thread.
/// #[kernel]
/// unsafe fn reverse(x: *mut u32) {
///     let (own, count) = (thread::linear_in_block() as usize, block::threads() as usize);
///     assert!(dynamic_bytes() as usize >= 4 * count);
///     let tile = dynamic::<u32>();
///     // SAFETY: guaranteed by the caller. A barrier separates the writes of the tile from the reads.
///     unsafe {
///         tile.add(own).write(x.add(grid::rank()).read());
///         block::sync_threads();
///         x.add(grid::rank()).write(tile.add(count - 1 - own).read());
///     }
/// }
///
/// # static IMAGE: GpuImage = GpuImage::without_code(env!("CARGO_PKG_NAME"), env!("CARGO_PKG_VERSION"), "example");
/// # let stream = Device::emulated(0)?.default_stream();
/// # let module = stream.device().load(&IMAGE)?;
/// let mut x = DeviceBuffer::from_host(&stream, &[1_u32, 2, 3, 4])?;
/// // SAFETY: there are 4 numbers, and 4 bytes per thread.
/// unsafe { module.kernel::<reverse>()?.launch_unsafe(&stream, Launch::linear(4, 4).shared(16), (&mut x,))? };
/// assert_eq!(x.to_host()?, [4, 3, 2, 1]);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
///
/// # Panics
/// Does not compile for a `T` whose alignment exceeds 16 bytes.
#[inline(always)]
pub fn dynamic<T>() -> *mut T {
    const { assert!(align_of::<T>() <= 16, "dynamic shared memory is aligned to 16 bytes") };
    gpu_or_host!(__warpsmith_dynamic_shared.0.get().cast(), emulated::dynamic_memory().cast())
}

/// Returns a pointer like [`dynamic`], but aligned to 1024 bytes, as swizzled tiles of [`tensor`](crate::tensor)
/// require.
///
/// See the example of [`dynamic`].
#[inline(always)]
pub fn dynamic_aligned<T>() -> *mut T {
    gpu_or_host!(__warpsmith_dynamic_shared_tiles.0.get().cast(), emulated::dynamic_memory().cast())
}

/// Returns the number of bytes of dynamic shared memory that the launch requested, including the memory of its arrays.
///
/// See the example of [`dynamic`].
#[inline(always)]
pub fn dynamic_bytes() -> u32 {
    gpu_or_host!(crate::nvvm::dynamic_smem_size(), thread::dynamic_shared_bytes())
}
