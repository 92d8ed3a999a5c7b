//! Without a device toolchain the host build goes on, unless the image is required.

use warpsmith_builder::PtxBuilder;

use crate::alone::only_alone;
use crate::common::folders;

#[test]
fn the_image_says_what_to_install() {
    only_alone!("WARPSMITH_DEVICE_RUSTC" => "/no/such/rustc");
    let folders = folders("no-toolchain");
    // SAFETY: no other thread of this process uses the environment.
    unsafe { std::env::remove_var("WARPSMITH_REQUIRE_GPU_IMAGE") };
    let built = PtxBuilder::new("kernels").build_in(&folders).unwrap();
    let reason = built.reason.unwrap();
    assert!(reason.contains("cargo xtask setup"), "{reason}");
    assert_eq!(built.warnings.len(), 1);
    assert!(
        built.warnings[0].starts_with("fixture-kernels is built without a GPU image"),
        "{:?}",
        built.warnings
    );
    assert!(built.modules.is_empty() && built.kernels.is_empty());
    let text = std::fs::read_to_string(&built.file).unwrap();
    assert!(text.contains(&format!("{reason:?}")), "{text}");
    assert!(built.watched.iter().all(|path| path.exists()), "{:?}", built.watched);

    // SAFETY: as above.
    unsafe { std::env::set_var("WARPSMITH_REQUIRE_GPU_IMAGE", "1") };
    let error = PtxBuilder::new("kernels").build_in(&folders).unwrap_err().to_string();
    assert!(
        error.contains("WARPSMITH_REQUIRE_GPU_IMAGE") && error.contains("/no/such/rustc: no such file"),
        "{error}"
    );
    assert!(error.contains("cargo xtask setup"), "{error}");

    // SAFETY: as above.
    unsafe { std::env::set_var("DOCS_RS", "1") };
    let documented = PtxBuilder::new("kernels").build_in(&folders).unwrap();
    assert!(documented.warnings.is_empty() && documented.reason.is_some());
}
