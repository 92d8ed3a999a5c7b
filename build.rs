//! Compiles `gpu-kernels` for the GPU; `src/` embeds the result.

use warpsmith_builder::{Error, PtxBuilder};

fn main() -> Result<(), Error> {
    PtxBuilder::new("gpu-kernels")
        // Printing hands its values to the driver in memory: 16 bytes of stack.
        .allow_spills("diagnose_print")
        .build()?;
    Ok(())
}
