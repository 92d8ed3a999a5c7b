//! Compiles `kernels` to PTX.

use cuda_builder::{CudaBuilder, NvvmArch};

fn main() {
    println!("cargo::rerun-if-changed=kernels");

    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").unwrap());
    CudaBuilder::new("kernels").arch(NvvmArch::Compute80).copy_to(out.join("kernels.ptx")).build().unwrap();
}
