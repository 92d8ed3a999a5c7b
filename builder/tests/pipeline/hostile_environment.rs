//! The environment of the outer build does not change the image.

use warpsmith_builder::{Arch, PtxBuilder};

use crate::alone::alone;
use crate::common::folders;

#[test]
fn settings_of_the_outer_build_stay_outside() {
    let flags = "-Zmir-enable-passes=+JumpThreading";
    let outer = alone!(
        "RUSTFLAGS" => flags,
        "CARGO_ENCODED_RUSTFLAGS" => flags,
        "CARGO_BUILD_RUSTFLAGS" => flags,
        "CARGO_TARGET_NVPTX64_NVIDIA_CUDA_RUSTFLAGS" => flags,
        "RUSTC_WRAPPER" => "/no/such/wrapper",
        "RUSTC_WORKSPACE_WRAPPER" => "/no/such/wrapper",
        "CARGO_BUILD_TARGET" => "no-such-target",
        "CARGO_TARGET_DIR" => "/no/such/target",
        "RUSTUP_TOOLCHAIN" => "no-such-toolchain",
        "CARGO_PROFILE_RELEASE_OPT_LEVEL" => "0",
        "CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS" => "true",
    );
    if outer.is_some() {
        return;
    }
    let image = PtxBuilder::new("kernels").archs([Arch::SM_80]).build_in(&folders("hostile")).unwrap();
    let ptx = std::fs::read_to_string(&image.modules[0]).unwrap();
    let start = ptx.find(".visible .entry threaded(").unwrap();
    let threaded = &ptx[start..start + ptx[start..].find("\n}").unwrap()];
    assert_eq!(threaded.matches("bar.sync").count(), 2, "{threaded}");
    assert!(!ptx.contains("attempt to add with overflow"));
}
