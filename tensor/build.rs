//! Compiles the kernels in `kernels/`, most of which `sm_90a` alone has the instructions for. A package from a registry carries
//! them ready-made.

use warpsmith_builder::{Arch, Error, PtxBuilder};

fn main() -> Result<(), Error> {
    PtxBuilder::new("kernels")
        .archs([Arch::SM_80, Arch::SM_90A])
        .ready_made("warpsmith-tensor-kernels", "image")
        .build()?;
    Ok(())
}
