//! Compiles the kernels in `kernels/`. Most of them need instructions that only `sm_90a` supports. The published
//! package contains the compiled kernels.

use warpsmith_builder::{Arch, Error, PtxBuilder};

fn main() -> Result<(), Error> {
    PtxBuilder::new("kernels")
        .library()
        .archs([Arch::SM_80, Arch::SM_90A])
        .ready_made("warpsmith-tensor-kernels", "image")
        .build()?;
    Ok(())
}
