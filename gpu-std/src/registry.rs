//! Registry of all kernels of the program, collected by the linker. The runtime, the tuner and the command-line tool
//! list these kernels.
//!
//! A kernel crate is linked into the program if the program uses any of the crate's items; `use my_kernels as _;` is
//! enough.

use gpu_spec::KernelInfo;

/// All kernel instances, in unspecified order. `#[kernel]` adds to this list.
#[linkme::distributed_slice]
pub static KERNELS: [&'static KernelInfo];

/// Returns all kernel instances in the program.
///
/// ```
/// for kernel in gpu_std::registry::kernels() {
///     println!("{} {}", kernel.package, kernel.symbol);
/// }
/// ```
pub fn kernels() -> impl Iterator<Item = &'static KernelInfo> {
    KERNELS.iter().copied()
}
