//! Compiles the kernels in `kernels/` for the one architecture that has their instructions. A package from a registry carries
//! them ready-made.

use warpsmith_builder::{Arch, Error, PtxBuilder};

fn main() -> Result<(), Error> {
    PtxBuilder::new("kernels")
        .archs([Arch::SM_90A])
        .ready_made("warpsmith-tensor-kernels", "image")
        .build()?;
    Ok(())
}
