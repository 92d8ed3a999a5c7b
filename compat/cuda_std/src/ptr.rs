//! Address spaces of pointers.

/// Where memory lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum AddressSpace {
    /// The device's, of all threads.
    Global,
    /// A block's.
    Shared,
    /// The device's, read only.
    Constant,
    /// A thread's.
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

/// Whether a pointer leads into an address space. On the emulated device, which has none, an error that says so.
///
/// # Panics
///
/// On the emulated device.
///
/// # Safety
///
/// It points to a `T`.
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
        /// On the emulated device, which has no address spaces.
        ///
        /// # Safety
        ///
        /// It points to a `T` in that address space.
        #[crate::gpu_only]
        #[inline(always)]
        pub unsafe fn $name<T>(pointer: *const T, address_space: AddressSpace) -> *const T {
            let from = pointer;
            let to: *const T;
            macro_rules! convert {
                ($space:literal) => {
                    // SAFETY: the instruction computes a number.
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
    /// A generic pointer as an address in its address space, for inline assembly.
    convert_generic_to_specific_address_space: "to.";
    /// An address in an address space as a generic pointer.
    convert_specific_address_space_to_generic: "";
}
