//! Compiles the corpus in `gpu/` for the GPU.

use warpsmith_builder::{Error, PtxBuilder};

fn main() -> Result<(), Error> {
    PtxBuilder::new("gpu")
        // Printing passes its values to the driver in memory.
        .allow_spills("prints")
        .build()?;
    Ok(())
}
