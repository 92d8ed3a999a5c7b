//! Without a device toolchain the host build succeeds, unless the image is required.

use warpsmith_builder::PtxBuilder;
use warpsmith_builder::toolchain::find_cuda_tools;

use crate::alone::only_alone;
use crate::common::{folders, scratch_crate};

#[test]
fn the_image_says_what_to_install() {
    only_alone!("WARPSMITH_DEVICE_RUSTC" => "/no/such/rustc");
    let folders = folders("no-toolchain");
    // SAFETY: no other thread of this process uses the environment.
    unsafe {
        std::env::remove_var("WARPSMITH_REQUIRE_GPU_IMAGE");
        std::env::remove_var("WARPSMITH_SKIP_GPU_IMAGE");
    }
    let built = PtxBuilder::new("kernels").build_in(&folders).unwrap();
    let reason = built.reason.unwrap();
    assert!(reason.contains("install one with: warpsmith setup"), "{reason}");
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
    assert!(error.contains("install one with: warpsmith setup"), "{error}");

    // SAFETY: as above.
    unsafe { std::env::set_var("DOCS_RS", "1") };
    let documented = PtxBuilder::new("kernels").build_in(&folders).unwrap();
    assert!(documented.warnings.is_empty() && documented.reason.is_some());
}

/// Builds a crate whose kernel calls libdevice, without NVIDIA's tools.
#[test]
fn a_missing_libdevice_is_a_warning_unless_required() {
    only_alone!(
        "WARPSMITH_CUDA_TOOLS" => "",
        "CUDA_HOME" => "",
        "CUDA_PATH" => "",
        "WARPSMITH_DATA_DIR" => "/no/such/data",
        "WARPSMITH_REQUIRE_GPU_IMAGE" => "",
        "WARPSMITH_SKIP_GPU_IMAGE" => "",
    );
    let source = "unsafe extern \"C\" { fn __nv_expf(x: f32) -> f32; }\n\
        #[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n\
        #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k(y: *mut f32) { unsafe { *y = __nv_expf(*y) } }\n";
    let folder = scratch_crate("no-libdevice", source);
    let folders = folders("no-libdevice");
    let built = PtxBuilder::new(&folder).build_in(&folders).unwrap();
    if let Some(libdevice) = find_cuda_tools().libdevice {
        // A toolkit in the folder that is always searched is used without being named.
        assert!(libdevice.starts_with("/usr/local/cuda"), "{}", libdevice.display());
        assert_eq!((built.reason, built.modules.is_empty()), (None, false));
        return;
    }
    let reason = built.reason.unwrap();
    assert!(reason.starts_with("kernel `k` calls `__nv_expf`, but NVIDIA's libdevice"), "{reason}");
    assert_eq!(built.warnings.len(), 1);
    assert!(built.warnings[0].contains("the emulated device works"), "{:?}", built.warnings);
    assert!(
        built.warnings[0].contains("warpsmith setup")
            && built.watched.iter().any(|path| path.ends_with("src"))
    );

    // SAFETY: no other thread of this process uses the environment.
    unsafe { std::env::set_var("WARPSMITH_REQUIRE_GPU_IMAGE", "1") };
    let error = PtxBuilder::new(&folder).build_in(&folders).unwrap_err().to_string();
    assert!(error.contains("`__nv_expf`") && error.contains("looked in"), "{error}");
}
