//! Memory: the device's heap, and how much shared memory a launch has.
//!
//! `Box`, `Vec` and `String` work in kernels: they allocate from the device's heap, of 8 MiB unless the host changes that
//! (`Context` limit `MALLOC_HEAP_SIZE`). Allocation is slow there: prefer memory of the launch.

pub use gpu_std::shared::dynamic_bytes as dynamic_smem_size;

/// The device's `malloc` and `free` as Rust's global allocator. On the host the standard library's is used.
#[derive(Debug)]
pub struct CUDAAllocator;

#[cfg(target_arch = "nvptx64")]
mod device {
    use alloc::alloc::{GlobalAlloc, Layout};
    use core::ffi::c_void;

    use super::CUDAAllocator;

    unsafe extern "C" {
        /// Linked in by the driver.
        fn malloc(size: usize) -> *mut c_void;
        /// Linked in by the driver.
        fn free(pointer: *mut c_void);
    }

    /// What the device's `malloc` aligns to.
    const ALIGN: usize = 16;

    // SAFETY: `malloc` returns distinct memory aligned to 16 bytes, or null; more alignment is refused.
    unsafe impl GlobalAlloc for CUDAAllocator {
        unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
            if layout.align() > ALIGN {
                return core::ptr::null_mut();
            }
            // SAFETY: it takes any size.
            unsafe { malloc(layout.size()).cast() }
        }

        unsafe fn dealloc(&self, pointer: *mut u8, _: Layout) {
            // SAFETY: `alloc` returned it.
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

    /// What rustc defines when it links a program: a program that has a global allocator may use it.
    #[rustc_std_internal_symbol]
    fn __rust_no_alloc_shim_is_unstable_v2() {}
}

/// Bytes of shared memory of the block, static and dynamic, rounded up to what the hardware allocates. On the emulated
/// device the dynamic part.
#[inline(always)]
pub fn total_smem_size() -> u32 {
    #[cfg(target_arch = "nvptx64")]
    {
        let bytes;
        // SAFETY: it reads a register that does not change.
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
