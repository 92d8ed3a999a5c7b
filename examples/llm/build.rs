//! Compiles the crate in `kernels/` for the GPU.

use warpsmith_builder::{Error, PtxBuilder};

fn main() -> Result<(), Error> {
    PtxBuilder::new("kernels").build()?;
    Ok(())
}
