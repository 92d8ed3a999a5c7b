//! Compiles the kernels in `kernels/`, most of which need instructions that only `sm_90a` has. A package from a
//! registry contains them precompiled.

use warpsmith_builder::{Arch, Error, PtxBuilder};

fn main() -> Result<(), Error> {
    PtxBuilder::new("kernels")
        .library()
        .archs([Arch::SM_80, Arch::SM_90A])
        .ready_made("warpsmith-tensor-kernels", "image")
        .build()?;
    Ok(())
}
