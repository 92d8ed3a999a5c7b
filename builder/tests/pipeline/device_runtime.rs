//! Kernels that set a graph's conditions: two modules, the second of which links with NVIDIA's device runtime.

use std::process::Command;
use std::sync::OnceLock;

use crate::common::{build, folders, ptx_of, scratch_crate};
use warpsmith_builder::{Arch, BuiltImage, PtxBuilder, toolchain};

const SOURCE: &str = r#"
#[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }

unsafe extern "C" {
    fn cudaGraphSetConditional(condition: u64, value: u32);
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn setter(condition: u64) {
    unsafe { cudaGraphSetConditional(condition, 1) }
}

#[unsafe(no_mangle)]
pub unsafe extern "ptx-kernel" fn plain(out: *mut u64) {
    unsafe { *out = 1 }
}
"#;

fn build_source(test: &str) -> BuiltImage {
    let folder = scratch_crate(test, SOURCE);
    build(test, &PtxBuilder::new(folder).archs([Arch::SM_80, Arch::SM_90A])).unwrap()
}

/// Built once for the tests that only inspect it.
fn image() -> &'static BuiltImage {
    static IMAGE: OnceLock<BuiltImage> = OnceLock::new();
    IMAGE.get_or_init(|| build_source("device-runtime"))
}

fn entries(ptx: &str) -> Vec<&str> {
    let mut names: Vec<&str> =
        ptx.split(".visible .entry ").skip(1).filter_map(|rest| rest.split('(').next()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

#[test]
fn kernels_that_set_conditions_have_a_module_of_their_own() {
    let image = image();
    for arch in ["sm_80", "sm_90a"] {
        let plain = ptx_of(image, arch, "scratch_device_runtime.sm_");
        let linked = ptx_of(image, arch, ".device-runtime.");
        assert_eq!(entries(&plain), ["plain"], "{plain}");
        assert_eq!(entries(&linked), ["setter"], "{linked}");
        assert!(!plain.contains("cuda"), "{plain}");
        assert!(linked.contains("cudaGraphSetConditional"));
    }
    let mut symbols: Vec<&str> = image.kernels.iter().map(|kernel| &*kernel.symbol).collect();
    symbols.sort_unstable();
    assert_eq!(symbols, ["plain", "setter"]);
    for kernel in &image.kernels {
        let archs: Vec<&str> = kernel.resources.iter().map(|resources| &*resources.arch).collect();
        assert_eq!(archs, ["sm_80", "sm_90a"], "{}", kernel.symbol);
    }
    let text = std::fs::read_to_string(&image.file).unwrap();
    assert!(text.contains("include_bytes!(\"scratch_device_runtime.libcudadevrt.a.lzma\")"), "{text}");
    assert!(text.contains("name: \"device runtime\", is_linked: true"), "{text}");
    for (symbol, index) in [("plain", 0), ("setter", 1)] {
        assert!(text.contains(&format!("symbol: {symbol:?}, module_index: {index},")), "{text}");
    }
    assert!(folders("device-runtime").out_dir.join("scratch_device_runtime.libcudadevrt.a").is_file());
}

/// Repeats, with the toolkit's linker, the link that the driver does when it loads the module.
#[test]
fn the_linked_module_links_with_the_device_runtime() {
    let image = image();
    let folders = folders("device-runtime");
    let tools = toolchain::find_cuda_tools();
    let nvlink = tools.ptxas.expect("ptxas is installed").path.with_file_name("nvlink");
    let cubin =
        image.modules.iter().find(|file| file.to_string_lossy().ends_with("device-runtime.sm_90a.cubin"));
    let output = folders.out_dir.join("linked.cubin");
    let mut command = Command::new(&nvlink);
    command.arg("-arch=sm_90a").arg(cubin.expect("sm_90a has a cubin")).args(tools.cudadevrt);
    let linked = command.arg("-o").arg(&output).output().expect("nvlink lies beside ptxas");
    let text = String::from_utf8_lossy(&linked.stderr).into_owned();
    assert!(linked.status.success() && output.is_file(), "{text}");
}

#[test]
fn a_second_build_reuses_the_modules() {
    let first = build_source("device-runtime-again");
    let again = build_source("device-runtime-again");
    assert!(again.reused);
    assert_eq!(first.modules, again.modules);
    assert!(again.modules.iter().all(|file| !file.to_string_lossy().ends_with(".a")));
}
