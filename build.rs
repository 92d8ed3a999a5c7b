//! Compiles `gpu-kernels` for the GPU; `src/` embeds the result. A package from a registry carries it ready-made.

use warpsmith_builder::{Error, PtxBuilder};

fn main() -> Result<(), Error> {
    PtxBuilder::new("gpu-kernels").ready_made("gpu-kernels", "image").build()?;
    Ok(())
}
