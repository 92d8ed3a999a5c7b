//! [`CudaBuilderError`]: errors of the builder.

use std::path::PathBuf;

/// Reason why the kernels could not be compiled.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CudaBuilderError {
    /// The folder of the crate does not exist.
    #[error("there is no crate in {0:?}: pass its folder, relative to the package's folder")]
    CratePathDoesntExist(PathBuf),
    /// The PTX file cannot be written.
    #[error("cannot write the PTX file: {0}")]
    FailedToCopyPtxFile(#[source] std::io::Error),
    /// The compiler failed. The message contains the reason.
    #[error(transparent)]
    BuildFailed(warpsmith_builder::Error),
    /// An option is not supported.
    #[error("{0}")]
    Unsupported(String),
}
