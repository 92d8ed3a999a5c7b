//! Registry of the program's `cuda_std` kernels, in which `cust` looks up the kernels to run on the emulated device.

pub use gpu_spec::KernelSpec;
pub use linkme;

/// Host form of each kernel whose crate the program uses. The `#[kernel]` macro of `cuda_std` adds entries.
#[linkme::distributed_slice]
pub static CUDA_STD_KERNELS: [fn() -> &'static KernelSpec];
