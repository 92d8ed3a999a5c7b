//! Address spaces of pointers.

/// State space of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressSpace {
    /// Global memory of the device, which all threads share.
    Global,
    /// Shared memory of a block.
    Shared,
    /// Constant memory of the device, which kernels can only read.
    Constant,
    /// Local memory of a thread.
    Local,
}

#[cfg(target_arch = "nvptx64")]
mod llvm {
    use core::ffi::c_void;

    unsafe extern "C" {
        #[link_name = "llvm.nvvm.isspacep.global"]
        pub safe fn is_global(pointer: *const c_void) -> bool;
        #[link_name = "llvm.nvvm.isspacep.shared"]
        pub safe fn is_shared(pointer: *const c_void) -> bool;
        #[link_name = "llvm.nvvm.isspacep.const"]
        pub safe fn is_constant(pointer: *const c_void) -> bool;
        #[link_name = "llvm.nvvm.isspacep.local"]
        pub safe fn is_local(pointer: *const c_void) -> bool;
    }
}

/// Returns whether a pointer points into an address space. The emulated device does not distinguish address spaces.
///
/// # Panics
///
/// Panics on the emulated device.
///
/// # Safety
///
/// `pointer` must point to a `T`.
#[crate::gpu_only]
#[inline(always)]
pub unsafe fn is_in_address_space<T>(pointer: *const T, address_space: AddressSpace) -> bool {
    let pointer = pointer.cast();
    match address_space {
        AddressSpace::Global => llvm::is_global(pointer),
        AddressSpace::Shared => llvm::is_shared(pointer),
        AddressSpace::Constant => llvm::is_constant(pointer),
        AddressSpace::Local => llvm::is_local(pointer),
    }
}

macro_rules! conversion {
    ($($(#[$doc:meta])* $name:ident: $prefix:literal;)*) => { $(
        $(#[$doc])*
        ///
        /// # Panics
        ///
        /// Panics on the emulated device, which does not distinguish address spaces.
        ///
        /// # Safety
        ///
        /// `pointer` must point to a `T` in this address space.
        #[crate::gpu_only]
        #[inline(always)]
        pub unsafe fn $name<T>(pointer: *const T, address_space: AddressSpace) -> *const T {
            let from = pointer;
            let to: *const T;
            macro_rules! convert {
                ($space:literal) => {
                    // SAFETY: the instruction only computes an address.
                    unsafe {
                        core::arch::asm!(
                            concat!("cvta.", $prefix, $space, ".u64 {}, {};"),
                            out(reg64) to,
                            in(reg64) from,
                            options(pure, nomem, nostack)
                        )
                    }
                };
            }
            match address_space {
                AddressSpace::Global => convert!("global"),
                AddressSpace::Shared => convert!("shared"),
                AddressSpace::Constant => convert!("const"),
                AddressSpace::Local => convert!("local"),
            }
            to
        }
    )* };
}
conversion! {
    /// Converts a generic pointer to an address in its address space, for inline assembly.
    convert_generic_to_specific_address_space: "to.";
    /// Converts an address in an address space to a generic pointer.
    convert_specific_address_space_to_generic: "";
}
