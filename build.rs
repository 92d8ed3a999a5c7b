//! Compiles `gpu-kernels` for the GPU; `src/` embeds the result.

use warpsmith_builder::{Error, PtxBuilder};

fn main() -> Result<(), Error> {
    PtxBuilder::new("gpu-kernels").build()?;
    Ok(())
}
