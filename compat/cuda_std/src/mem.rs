//! The device heap and the shared memory size of a launch.
//!
//! `Box`, `Vec` and `String` work in kernels. They allocate from the device heap, whose size is 8 MiB unless the host
//! changes the `Context` limit `MALLOC_HEAP_SIZE`. Allocation in kernels is slow, so prefer memory passed to the
//! launch.

pub use gpu_std::shared::dynamic_bytes as dynamic_smem_size;

/// Rust global allocator that calls the device's `malloc` and `free`. On the host, it uses the allocator of the
/// standard library.
#[derive(Debug)]
pub struct CUDAAllocator;

#[cfg(target_arch = "nvptx64")]
mod device {
    use alloc::alloc::{GlobalAlloc, Layout};
    use core::ffi::c_void;

    use super::CUDAAllocator;

    unsafe extern "C" {
        /// Allocation function of the device, which the driver provides when it links the module.
        fn malloc(size: usize) -> *mut c_void;
        /// Function that frees memory of the device heap. The driver provides this function when it links the module.
        fn free(pointer: *mut c_void);
    }

    /// Alignment that the device's `malloc` guarantees, in bytes.
    const ALIGN: usize = 16;

    // SAFETY: `malloc` returns null, or memory that does not overlap other allocations and is aligned to 16 bytes;
    // requests for larger alignments are rejected.
    unsafe impl GlobalAlloc for CUDAAllocator {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if layout.align() > ALIGN {
                return core::ptr::null_mut();
            }
            // SAFETY: `malloc` accepts any size.
            unsafe { malloc(layout.size()).cast() }
        }

        unsafe fn dealloc(&self, pointer: *mut u8, _: Layout) {
            // SAFETY: `alloc` returned the pointer.
            unsafe { free(pointer.cast()) }
        }
    }

    #[global_allocator]
    static ALLOCATOR: CUDAAllocator = CUDAAllocator;

    #[alloc_error_handler]
    fn out_of_memory(_: Layout) -> ! {
        panic!(
            "the device's heap is full: enlarge it on the host (cudaLimitMallocHeapSize), or allocate less"
        )
    }

    /// Symbol that rustc defines when it links a program. Code that uses a global allocator may reference this symbol.
    #[rustc_std_internal_symbol]
    fn __rust_no_alloc_shim_is_unstable_v2() {}
}

/// Returns the static and dynamic shared memory per block in bytes, rounded up to the allocation granularity of the
/// hardware. On the emulated device, returns only the dynamic shared memory.
#[inline(always)]
pub fn total_smem_size() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let bytes;
        // SAFETY: the instruction reads a register that does not change.
        unsafe {
            core::arch::asm!("mov.u32 {}, %total_smem_size;", out(reg32) bytes, options(pure, nomem, nostack))
        };
        bytes
    }
    #[cfg(not(target_arch = "nvptx64"))]
    {
        dynamic_smem_size()
    }
}
