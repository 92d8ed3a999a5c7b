//! What the outer build has in its environment does not change the image. In a process of its own, because it
//! changes the environment.

use std::path::Path;

use warpsmith_builder::{Arch, Folders, PtxBuilder};

#[test]
fn flags_wrappers_and_targets_of_the_outer_build_stay_outside() {
    let tmp = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let folders = Folders {
        manifest_dir: Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures"),
        out_dir: tmp.join("builder/hostile"),
        target_dir: tmp.parent().unwrap().to_path_buf(),
    };
    std::fs::create_dir_all(&folders.out_dir).unwrap();
    let flags = "-Zmir-enable-passes=+JumpThreading";
    for (name, value) in [
        ("RUSTFLAGS", flags),
        ("CARGO_ENCODED_RUSTFLAGS", flags),
        ("CARGO_BUILD_RUSTFLAGS", flags),
        ("CARGO_TARGET_NVPTX64_NVIDIA_CUDA_RUSTFLAGS", flags),
        ("RUSTC_WRAPPER", "/no/such/wrapper"),
        ("RUSTC_WORKSPACE_WRAPPER", "/no/such/wrapper"),
        ("CARGO_BUILD_TARGET", "no-such-target"),
        ("CARGO_TARGET_DIR", "/no/such/target"),
        ("RUSTUP_TOOLCHAIN", "no-such-toolchain"),
        ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0"),
        ("CARGO_PROFILE_RELEASE_OVERFLOW_CHECKS", "true"),
    ] {
        // SAFETY: the only test of this process; nothing else reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
    let image = PtxBuilder::new("kernels").archs([Arch::SM_80]).build_in(&folders).unwrap();
    let ptx = std::fs::read_to_string(&image.modules[0]).unwrap();
    let start = ptx.find(".visible .entry threaded(").unwrap();
    let threaded = &ptx[start..start + ptx[start..].find("\n}").unwrap()];
    assert_eq!(threaded.matches("bar.sync").count(), 2, "{threaded}");
    assert!(!ptx.contains("attempt to add with overflow"));
}
