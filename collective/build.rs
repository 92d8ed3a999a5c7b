//! Compiles the kernels in `kernels/` for the GPU. A package from a registry carries them ready-made.

use warpsmith_builder::{Error, PtxBuilder};

fn main() -> Result<(), Error> {
    // Without contraction their results have the bits of the Host backend.
    PtxBuilder::new("kernels")
        .ready_made("warpsmith-collective-kernels", "image")
        .fma(false)
        // The sixteen lanes of several ranks are more than there are registers.
        .allow_spills("reduce__i8_")
        .allow_spills("reduce__u8_")
        .build()?;
    Ok(())
}
