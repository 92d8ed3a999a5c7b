//! All kernels of the program, collected by the linker: what the runtime, the tuner and the command line list.
//!
//! A kernel crate counts as part of the program when something in the program uses it; `use my_kernels as _;`
//! is enough.

use gpu_spec::KernelInfo;

/// Every kernel instance, in no particular order; `#[kernel]` adds to it.
#[linkme::distributed_slice]
pub static KERNELS: [&'static KernelInfo];

/// Every kernel instance in the program.
///
/// ```
/// for kernel in gpu_std::registry::kernels() {
///     println!("{} {}", kernel.package, kernel.symbol);
/// }
/// ```
pub fn kernels() -> impl Iterator<Item = &'static KernelInfo> {
    KERNELS.iter().copied()
}
