//! Registry of all kernels of the program, collected by the linker. The runtime, the tuner and the command line list
//! it.
//!
//! A kernel crate is part of the program if the program uses any of its items; `use my_kernels as _;` is enough.

use gpu_spec::KernelInfo;

/// Every kernel instance, in unspecified order; `#[kernel]` adds to it.
#[linkme::distributed_slice]
pub static KERNELS: [&'static KernelInfo];

/// Returns every kernel instance in the program.
///
/// ```
/// for kernel in gpu_std::registry::kernels() {
///     println!("{} {}", kernel.package, kernel.symbol);
/// }
/// ```
pub fn kernels() -> impl Iterator<Item = &'static KernelInfo> {
    KERNELS.iter().copied()
}
