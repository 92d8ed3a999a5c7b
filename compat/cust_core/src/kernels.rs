//! Registry of the program's `cuda_std` kernels, in which `cust` looks up kernels to run them on the emulated device.

pub use gpu_spec::KernelSpec;
pub use linkme;

/// Host forms of the kernels in all crates that the program uses. The `#[kernel]` macro of `cuda_std` adds entries.
#[linkme::distributed_slice]
pub static CUDA_STD_KERNELS: [fn() -> &'static KernelSpec];
