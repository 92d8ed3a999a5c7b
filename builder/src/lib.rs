//! Compiles a crate of Rust kernels to PTX and cubin, from a host crate's build script.
//!
//! ```no_run
//! // build.rs
//! use warpsmith_builder::{Arch, Error, PtxBuilder};
//!
//! fn main() -> Result<(), Error> {
//!     PtxBuilder::new("my-kernels").archs([Arch::SM_80, Arch::SM_90A]).build()?;
//!     Ok(())
//! }
//! ```
//!
//! This compiles the crate in `my-kernels/` and writes `OUT_DIR/my_kernels_image.rs`, with the binaries next to it;
//! `warpsmith::include_image!("my_kernels")` embeds them. `docs/how-rust-becomes-gpu-code.md` explains the pipeline.
//! Its steps, in order:
//!
//! | module | job |
//! | --- | --- |
//! | [`toolchain`] | finds rustc, the LLVM tools, ptxas and libdevice |
//! | `targets` | selects the architectures of this build |
//! | `manifest`, `packages` | reads manifests and lock files |
//! | `sources` | records which folder the kernels of a package come from |
//! | `compile` | runs the inner cargo: compiles the crate's graph to LLVM bitcode |
//! | `link` | links it into one module, rewrites it (`rewrite`) and reduces it to what kernels reach |
//! | `device_runtime` | finds the kernels that need NVIDIA's device runtime |
//! | `parts` | assigns kernels to modules |
//! | `codegen` | for each part and architecture: `opt`, the remaining panics (`panic_paths`) and the calls that lead to them (`line_table`), `llc`, corrections (`directives`, `narrow`, …) and checks of the PTX (`ptx`, `externs`), ptxas |
//! | `image` | writes the file that the host crate includes, and the compressed code |
//! | `image_report` | stores the properties of each image's kernels in the target folder, for `warpsmith kernels -p` |
//! | `fingerprint` | skips all steps except `compile` if nothing has changed |
//! | `ready_made` | exports and imports images that a package ships instead of its kernels |
//! | [`setup`] | installs what `toolchain` looks for |
#![deny(missing_docs)]

#[cfg(test)]
#[path = "../../runtime/tests/common/alone.rs"]
mod alone;
mod arch;
mod builder;
mod cache;
mod callees;
mod callers;
mod codegen;
mod compile;
mod debug_info;
mod device_runtime;
mod directives;
mod error;
mod externs;
mod fingerprint;
#[cfg(any(test, feature = "fuzzing"))]
#[doc(hidden)]
pub mod fuzzed;
mod image;
mod image_report;
mod line_table;
mod link;
mod local_atomics;
mod manifest;
mod narrow;
mod no_code;
mod packages;
mod panic_paths;
mod parts;
mod ptx;
mod ptxas;
mod ready_made;
mod recursion;
mod report;
mod rewrite;
pub mod setup;
mod sources;
mod targets;
pub mod toolchain;
mod tools;
mod wrapping;

pub use arch::Arch;
pub use builder::{BuiltImage, Folders, PtxBuilder};
pub use cache::Cache;
pub use debug_info::DebugInfo;
pub use error::Error;
pub use image_report::ImageReport;
pub use line_table::CallSite;
pub use panic_paths::PanicPath;
pub use ready_made::export as export_image;
pub use report::{ArchReport, KernelReport};
pub use rewrite::RewriteError;
