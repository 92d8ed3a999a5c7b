//! Emulator functions that the device library calls on the host if the feature `emulated` is enabled.
//!
//! Without this feature, stubs with the same names and signatures allow kernel crates to compile for a host that
//! launches the kernels on a GPU. The stub of a function that only kernels can call panics.

#[cfg(feature = "emulated")]
pub use warpsmith_emulator::{check, collective, copies, output, shared, thread};

#[cfg(not(feature = "emulated"))]
pub use self::absent::{check, collective, copies, output, shared, thread};

/// Host entry point of a kernel, which the emulated device calls.
#[cfg(feature = "emulated")]
#[macro_export]
#[doc(hidden)]
macro_rules! __host_entry {
    ($entry:path) => {
        $entry
    };
}

/// Host entry point that panics. It does not name the kernel, so rustc does not compile kernels for the host.
#[cfg(not(feature = "emulated"))]
#[macro_export]
#[doc(hidden)]
macro_rules! __host_entry {
    ($entry:path) => {
        $crate::__private::absent_entry
    };
}

#[cfg(not(feature = "emulated"))]
#[allow(dead_code, reason = "the feature `glam` and the target say which are used")]
mod absent {
    /// Defines stubs of functions that only run in a kernel.
    macro_rules! kernels_only {
        (unsafe $($name:ident($($parameter:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
            /// # Safety
            /// Any call is sound because the stub only panics.
            pub unsafe fn $name($(_: $type),*) $(-> $result)? {
                crate::host::not_emulated()
            }
        )*};
        ($(fn $name:ident($($parameter:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
            pub fn $name($(_: $type),*) $(-> $result)? {
                crate::host::not_emulated()
            }
        )*};
    }

    pub mod thread {
        kernels_only! {
            fn thread_index() -> [u32; 3];
            fn linear_index() -> u32;
            fn block_index() -> [u32; 3];
            fn block_dim() -> [u32; 3];
            fn grid_dim() -> [u32; 3];
            fn cluster_dim() -> [u32; 3];
            fn dynamic_shared_bytes() -> u32;
            fn cluster_rank() -> u32;
            fn is_cooperative() -> bool;
            fn lane() -> u32;
            fn warp_lanes() -> u32;
        }

        /// Returns zeros, because kernels do not run on the host, so no debugger stops in them.
        pub fn running_indices() -> ([u32; 3], [u32; 3]) {
            ([0; 3], [0; 3])
        }
    }

    pub mod collective {
        pub struct BarrierResult {
            pub count: u32,
            pub and: bool,
            pub or: bool,
        }

        pub struct WarpValues {
            pub mask: u32,
            pub values: [u64; 32],
        }

        kernels_only! {
            fn barrier(predicate: bool) -> BarrierResult;
            fn array_barrier(number: u32, operation: &'static str);
            fn part_barrier(number: u32, threads: u32);
            fn group_barrier();
            fn grid_barrier();
            fn cluster_sync(operation: &'static str);
            fn cluster_arrive(operation: &'static str);
            fn cluster_wait(operation: &'static str);
            fn warp_exchange(mask: u32, operation: &'static str, value: u64) -> WarpValues;
            fn warp_lane(mask: u32, operation: &'static str, value: u64, lane: u32) -> u64;
            fn active_mask() -> u32;
        }

        pub fn spin_hint() {
            core::hint::spin_loop();
        }
    }

    pub mod shared {
        kernels_only! {
            fn static_memory(site: *const u8, bytes: usize, align: usize) -> *mut u8;
            fn dynamic_memory() -> *mut u8;
            fn dynamic_array(site: *const u8, offset: u32, bytes: usize, align: usize) -> *mut u8;
            fn map_shared(pointer: *const u8, rank: u32) -> *mut u8;
            fn shared_rank(pointer: *const u8) -> u32;
        }
    }

    pub mod copies {
        use gpu_spec::TensorMapData;

        kernels_only! {
            unsafe
            init(barrier: *mut u64, arrivals: u32);
            arrive(barrier: *mut u64, bytes: u32);
            wait(barrier: *mut u64, parity: u32);
            load(map: &TensorMapData, at: &[u32], shared: *mut u8, bytes: u32, barrier: *mut u64);
            store(map: &TensorMapData, at: &[u32], shared: *mut u8, bytes: u32);
            delay(shared: *mut u8, bytes: u32);
        }
        kernels_only! {
            fn commit_copies();
            fn wait_copies(leaving: Option<usize>);
            fn commit_stores();
            fn wait_stores();
        }
    }

    pub mod output {
        kernels_only! {
            fn print(text: &str);
        }
    }

    /// Stubs of the checker's functions, which do nothing.
    pub mod check {
        use core::ffi::c_void;
        use core::sync::atomic::Ordering;

        pub enum Operation {
            Load,
            Store,
            Update,
        }

        pub enum Scope {
            Block,
            Device,
        }

        pub fn atomic_access<T>(_: *mut T, _: Operation, _: Ordering, _: Scope) {}

        pub fn fence(_: Ordering, _: Scope) {}

        pub fn unchecked<R>(f: impl FnOnce() -> R) -> R {
            f()
        }

        kernels_only! {
            unsafe
            read_argument(args: *const *const c_void, index: usize, to: *mut u8, bytes: usize);
        }
    }
}

/// Panics because a device library function was called on the host.
#[cfg(not(feature = "emulated"))]
#[track_caller]
fn not_emulated() -> ! {
    panic!("kernels run only on a GPU: this program was built without the feature `emulated`")
}

/// # Safety
/// Any call is sound because the stub only panics.
#[cfg(not(feature = "emulated"))]
pub unsafe fn absent_entry(_: *const *const core::ffi::c_void) {
    not_emulated()
}
