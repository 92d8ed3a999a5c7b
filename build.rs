//! Compiles `gpu-kernels` for the GPU; `src/` embeds the result. A package from a registry carries it ready-made.

use warpsmith_builder::{Error, PtxBuilder};

fn main() -> Result<(), Error> {
    // The families of the kernels that are compiled for the host too.
    let families = ["histogram", "rows", "scan", "sort"]
        .into_iter()
        .filter(|family| std::env::var_os(format!("CARGO_FEATURE_{}", family.to_uppercase())).is_some());
    families
        .fold(PtxBuilder::new("gpu-kernels").no_default_features(), PtxBuilder::feature)
        .library()
        .ready_made("gpu-kernels", "image")
        // The device tests have the list of kernels that may spill: `tests/device/ptx_facts`.
        .allow_spills("")
        .build()?;
    Ok(())
}
