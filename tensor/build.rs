//! Compiles the kernels in `kernels/`. Most of them need instructions that only `sm_90a` supports. The published
//! package contains the compiled kernels.

use warpsmith_builder::{Arch, Error, PtxBuilder};

fn main() -> Result<(), Error> {
    PtxBuilder::new("kernels")
        .library()
        .archs([Arch::SM_80, Arch::SM_90A])
        // These kernels spill a few sizes that only the code before and after the main loop needs. Those of FP8 also
        // spill a few registers for its conversion.
        .allow_spills("matmul_mma")
        // These kernels spill a few sizes and operands, because sums and operands take most of the registers.
        .allow_spills("matmul_mixed")
        // Heads of 128 elements spill a few addresses, which each iteration reloads once.
        .allow_spills("attention_mma")
        // These kernels spill addresses and sizes, because their accumulators take half of the registers.
        .allow_spills("attention_backward_mma")
        .ready_made("warpsmith-tensor-kernels", "image")
        .build()?;
    Ok(())
}
