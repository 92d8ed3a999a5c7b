//! Devices, memory, streams, events, modules, launches and graphs: the host side of GPU kernels written in Rust.
//!
//! The same program runs on a GPU through the CUDA driver, which is found when the program runs, and on an
//! emulated GPU on any machine. Safe code cannot free or overwrite memory that a stream still uses, nor launch a
//! kernel with arguments or a shape that it does not take.
//!
//! | crate | what it holds |
//! | --- | --- |
//! | [`driver`] | the trait behind which a machine hides, for CUDA and for the emulator |
//! | [`warpsmith_core`], re-exported here | devices, memory, streams, events, copies, modules, launches, graphs, the seam |
//! | `emulated` | GPUs emulated on the CPU, with the feature of that name |
//! | [`library`] | cuBLAS, cuDNN, cuFFT, cuRAND and cuSPARSE, each a feature: `blas`, `dnn`, `fft`, `rand`, `sparse` |
//!
//! ```
//! use warpsmith_runtime::{Device, DeviceBuffer};
//!
//! # fn main() -> Result<(), warpsmith_runtime::Error> {
//! let device = Device::best()?;
//! let stream = device.default_stream();
//! let x = DeviceBuffer::from_host(&stream, &[1.0f32, 2.0, 3.0])?;
//! let mut y = DeviceBuffer::zeros(&stream, 3)?;
//! y.copy_from(&x)?;
//! assert_eq!(y.to_host()?, [1.0, 2.0, 3.0]);
//! # Ok(())
//! # }
//! ```
#![deny(missing_docs)]

pub use warpsmith_core::*;
#[cfg(feature = "emulated")]
#[cfg_attr(docsrs, doc(cfg(feature = "emulated")))]
pub use warpsmith_emulated as emulated;

/// NVIDIA's libraries, a feature each. They are loaded when a program first uses them.
// One by one, so that the compiler can say which feature one needs.
pub mod library {
    #[cfg(any(feature = "blas", feature = "dnn"))]
    pub use warpsmith_libraries::PlanCache;
    #[cfg(feature = "blas")]
    pub use warpsmith_libraries::blas;
    #[cfg(feature = "dnn")]
    pub use warpsmith_libraries::dnn;
    #[cfg(feature = "fft")]
    pub use warpsmith_libraries::fft;
    #[cfg(feature = "rand")]
    pub use warpsmith_libraries::rand;
    #[cfg(feature = "sparse")]
    pub use warpsmith_libraries::sparse;
    #[cfg(any(
        feature = "blas",
        feature = "dnn",
        feature = "fft",
        feature = "rand",
        feature = "sparse"
    ))]
    pub use warpsmith_libraries::{LibraryError, Vendor, VendorVersion};
}
