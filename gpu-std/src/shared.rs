//! Memory that the threads of a block share: fast, small, and uninitialised when the block starts.
//!
//! [`shared_array!`](crate::shared_array) reserves a fixed amount, [`dynamic`] returns what the launch
//! requested. Both are raw pointers: the kernel must order its accesses by barriers,
//! and reading memory that has not been written is undefined (on the emulated device every byte is 0xA5 then).

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;

#[cfg(not(target_arch = "nvptx64"))]
use warpsmith_emulator::{shared as emulated, thread};

/// Shared memory for a `T`, one for each block: what `#[address_space(shared)]` makes of a static. Aligned to 16
/// bytes at least, so that it can be read in vectors.
#[repr(C, align(16))]
pub struct Shared<T> {
    /// On the host only the address counts: it names the place in the block's memory.
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: it only returns raw pointers; using them is unsafe.
unsafe impl<T> Sync for Shared<T> {}

impl<T> Shared<T> {
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
/// Each place in the source has its own array. Aligned to 16 bytes at least. In a generic kernel the element
/// type cannot be a generic parameter, as for any static: reserve `[u128; N]` and cast.
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
        static SHARED: $crate::shared::Shared<[$element; $count]> = $crate::shared::Shared::new();
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

/// The shared memory that the launch requested with `Launch::shared(bytes)`, the same in all threads of a block.
/// [`dynamic_bytes`] says how much there is. Aligned to 16 bytes.
///
/// # Panics
///
/// Does not compile for a `T` that needs more than 16 bytes of alignment.
#[inline(always)]
pub fn dynamic<T>() -> *mut T {
    const { assert!(align_of::<T>() <= 16, "dynamic shared memory is aligned to 16 bytes") };
    gpu_or_host!(__warpsmith_dynamic_shared.0.get().cast(), emulated::dynamic_memory().cast())
}

/// Bytes of shared memory that the launch requested.
#[inline(always)]
pub fn dynamic_bytes() -> u32 {
    gpu_or_host!(crate::nvvm::dynamic_smem_size(), thread::dynamic_shared_bytes())
}
