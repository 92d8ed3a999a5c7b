//! Whole builds: what is reused, what the generated file is, and how mistakes are reported.

use std::path::PathBuf;
use std::process::Command;

use crate::common::{build, folders, scratch_crate};
use warpsmith_builder::{Arch, Error, PtxBuilder};

const HANDLER: &str = "#[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n";

/// Builds a crate with `source` for one architecture.
fn build_source(test: &str, source: &str) -> Result<warpsmith_builder::BuiltImage, Error> {
    let folder = scratch_crate(test, &format!("{HANDLER}{source}"));
    build(test, &PtxBuilder::new(folder).archs([Arch::SM_80]))
}

fn error_of(test: &str, source: &str) -> String {
    build_source(test, source).expect_err("the build should fail").to_string()
}

const KERNEL: &str =
    "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k(y: *mut f32) { unsafe { *y = VALUE } }\n";

#[test]
fn nothing_is_done_twice() {
    let first = KERNEL.replace("VALUE", "1.0");
    build_source("reuse", &first).unwrap();
    let again = build_source("reuse", &first).unwrap();
    assert!(again.reused);
    assert_eq!(again.kernels.len(), 1);

    let changed = build_source("reuse", &KERNEL.replace("VALUE", "2.0")).unwrap();
    assert!(!changed.reused);
    assert!(crate::common::ptx(&changed, "sm_80").contains("1073741824"), "2.0 is not in the PTX");

    std::fs::remove_file(&changed.modules[0]).unwrap();
    assert!(!build_source("reuse", &KERNEL.replace("VALUE", "2.0")).unwrap().reused);
    let folder = scratch_crate("reuse", &format!("{HANDLER}{}", KERNEL.replace("VALUE", "2.0")));
    assert!(!build("reuse", &PtxBuilder::new(folder).archs([Arch::SM_90])).unwrap().reused);
}

#[test]
fn sources_manifest_and_tools_are_watched() {
    let image = build("watched", &PtxBuilder::new("kernels")).unwrap();
    let crate_dir = folders("watched").manifest_dir.join("kernels");
    for file in ["src/lib.rs", "Cargo.toml"] {
        assert!(image.watched.contains(&crate_dir.join(file)), "{file}: {:?}", image.watched);
    }
    assert!(image.watched.iter().any(|path| path.ends_with("rustc")));
    for path in &image.watched {
        assert!(path.exists(), "{} makes cargo build every time", path.display());
    }
}

/// The generated file is one expression of the type that the runtime takes.
#[test]
fn the_generated_file_compiles() {
    let image = build("generated", &PtxBuilder::new("kernels")).unwrap();
    let program = folders("generated").out_dir.join("main.rs");
    let source = format!(
        "type Binaries = &'static [(u32, &'static str, bool, &'static [u8])];\n\
         type Image = (&'static str, Binaries, \
         &'static [(&'static str, &'static [(u32, u32, u32, u32, u32)])], &'static str);\n\
         type Linked = (Binaries, &'static [&'static str], &'static [u8]);\n\
         type Compilers = (&'static str, &'static str);\n\
         static ALL: (Image, Linked, Compilers) = include!({:?});\n\
         static IMAGE: Image = ALL.0;\n\
         fn main() {{ println!(\"{{}} {{}} {{}} {{:?}}\", IMAGE.0, IMAGE.1.len(), IMAGE.2.len(), IMAGE.3); }}\n",
        image.file
    );
    std::fs::write(&program, source).unwrap();
    let binary = program.with_extension("bin");
    let rustc = std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
    let compiled = Command::new(rustc).arg(&program).arg("-o").arg(&binary).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&binary).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "fixture-kernels 3 9 \"\"\n");
}

#[test]
fn a_crate_that_says_no_std_itself_builds() {
    let folder = scratch_crate("no-std", &format!("#![no_std]\n{HANDLER}{}", KERNEL.replace("VALUE", "1.0")));
    build("no-std", &PtxBuilder::new(folder).archs([Arch::SM_80])).unwrap();
}

#[test]
fn rustc_errors_are_shown_as_they_are() {
    let error = error_of("type-error", "pub fn f() -> u32 { \"text\" }\n");
    assert!(
        error.starts_with("the kernel crate `scratch-type-error` does not compile for the GPU:"),
        "{error}"
    );
    assert!(error.contains("error[E0308]: mismatched types") && error.contains("src/lib.rs:2:"), "{error}");
}

#[test]
fn a_crate_without_kernels_is_an_error() {
    let error = error_of("no-kernels", "pub fn f() {}\n");
    assert!(error.contains("`scratch-no-kernels` has no kernels: mark at least one"), "{error}");
}

#[test]
fn a_shared_static_with_a_value_is_an_error() {
    let error = error_of(
        "shared-value",
        "#[unsafe(link_section = \".shared\")] static mut TILE: [u32; 4] = [1; 4];\n\
         #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k(y: *mut u32) { unsafe { *y = TILE[0] } }\n",
    );
    assert!(error.contains("TILE") && error.contains("MaybeUninit::uninit()"), "{error}");
}

#[test]
fn an_undefined_function_is_named_with_its_kernel() {
    let error = error_of(
        "undefined",
        "unsafe extern \"C\" { fn nowhere(x: f32) -> f32; }\n\
         #[inline(never)] unsafe fn middle(y: *mut f32) { unsafe { *y = nowhere(*y) } }\n\
         #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn fine(y: *mut f32) { unsafe { *y = 1.0 } }\n\
         #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn broken(y: *mut f32) { unsafe { middle(y) } }\n",
    );
    assert_eq!(
        error,
        "a function is called on the GPU but not defined anywhere:\n  `nowhere`, called by kernel `broken`"
    );
}

#[test]
fn panics_without_reporters_ask_for_gpu_std() {
    let error = error_of(
        "no-reporters",
        "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k(y: *mut f32, n: u32) \
         { assert!(n > 1); unsafe { *y = 1.0 } }\n",
    );
    assert!(error.contains("`__warpsmith_panic_str`, called by kernel `k`: gpu-std defines it"), "{error}");
}

#[test]
fn bad_assembly_is_reported_by_ptxas() {
    let error = error_of(
        "bad-asm",
        "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k() { unsafe { core::arch::asm!(\"no.such.thing;\") } }\n",
    );
    assert!(error.starts_with("ptxas failed on ") && error.contains("Unknown modifier '.such'"), "{error}");
}

#[test]
fn a_symbol_of_two_crates_is_named() {
    let helper = folders("duplicate-helper").out_dir.join("helper");
    std::fs::create_dir_all(helper.join("src")).unwrap();
    let manifest = "[package]\nname = \"helper\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    std::fs::write(helper.join("Cargo.toml"), manifest).unwrap();
    let twice = "#[unsafe(no_mangle)] pub extern \"C\" fn twice(x: u32) -> u32 { x * 2 }\n";
    std::fs::write(helper.join("src/lib.rs"), format!("#![no_std]\n{twice}")).unwrap();

    let kernel = "pub use helper as _;\n#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k() {}\n";
    let folder = scratch_crate("duplicate", &format!("{HANDLER}{twice}{kernel}"));
    let manifest = folder.join("Cargo.toml");
    let mut text = std::fs::read_to_string(&manifest).unwrap();
    text.push_str(&format!("[dependencies]\nhelper = {{ path = {helper:?} }}\n"));
    std::fs::write(&manifest, text).unwrap();
    let error = build("duplicate", &PtxBuilder::new(folder).archs([Arch::SM_80])).unwrap_err().to_string();
    assert!(error.starts_with("two crates define the symbol `twice`"), "{error}");
}

#[test]
fn a_missing_crate_is_an_error_with_its_path() {
    let error = build("missing", &PtxBuilder::new("no-such-crate")).unwrap_err();
    assert!(matches!(&error, Error::NoSuchCrate { path } if path.ends_with("no-such-crate")), "{error}");
}
