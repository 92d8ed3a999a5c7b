//! Compiles the crate in `gpu/` for the GPU.

use warpsmith_builder::{Error, PtxBuilder};

fn main() -> Result<(), Error> {
    PtxBuilder::new("gpu")
        // Printing passes its values to the driver in memory: 16 bytes of stack.
        .allow_spills("diagnose_print")
        // They spill on purpose.
        .allow_spills("digest_chains")
        .allow_spills("format_floats")
        .allow_spills("numbered_hashes")
        .build()?;
    Ok(())
}
