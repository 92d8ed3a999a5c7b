//! Compiles the kernels in `kernels/` for the GPU. The published package contains the compiled kernels.

use warpsmith_builder::{Error, PtxBuilder};

fn main() -> Result<(), Error> {
    // FMA contraction is disabled so that the results are bit-identical to the Host backend.
    PtxBuilder::new("kernels")
        .library()
        .ready_made("warpsmith-collective-kernels", "image")
        .fma(false)
        // The sixteen `i8` lanes of several ranks need more registers than are available.
        .allow_spills("reduce__i8_")
        .allow_spills("reduce__u8_")
        .build()?;
    Ok(())
}
