//! Compiles the kernels in `kernels/` for the GPU. A registry package contains precompiled kernels.

use warpsmith_builder::{Error, PtxBuilder};

fn main() -> Result<(), Error> {
    // Without FMA contraction the results are bit-identical to the Host backend.
    PtxBuilder::new("kernels")
        .library()
        .ready_made("warpsmith-collective-kernels", "image")
        .fma(false)
        // The sixteen lanes of several ranks exceed the available registers.
        .allow_spills("reduce__i8_")
        .allow_spills("reduce__u8_")
        .build()?;
    Ok(())
}
