//! The kernels of `cuda_std` in the program, by which `cust` finds what to run on the emulated device.

pub use gpu_spec::KernelSpec;
pub use linkme;

/// The host form of each kernel whose crate the program uses. `cuda_std`'s `#[kernel]` adds to it.
#[linkme::distributed_slice]
pub static CUDA_STD_KERNELS: [fn() -> &'static KernelSpec];
