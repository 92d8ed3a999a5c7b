//! Whole builds: what is reused, the form of the generated file, and how errors are reported.

use std::path::PathBuf;
use std::process::Command;

use crate::alone::only_alone;
use crate::common::{build, folders, image_types, ptx, scratch_crate};
use warpsmith_builder::{Arch, DebugInfo, Error, ImageReport, PtxBuilder};

/// Panic handler of a crate without gpu-std.
pub const HANDLER: &str = "#[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }\n";

/// Builds a crate with `source` for one architecture.
fn build_source(test: &str, source: &str) -> Result<warpsmith_builder::BuiltImage, Error> {
    let folder = scratch_crate(test, &format!("{HANDLER}{source}"));
    build(test, &PtxBuilder::new(folder).archs([Arch::SM_80]))
}

/// Returns the error of such a build.
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
fn generated_code_is_kept_for_other_builds() {
    let cache = folders("cache").out_dir.join("kept");
    only_alone!("WARPSMITH_IMAGE_CACHE" => cache.to_str().unwrap());
    let _ = std::fs::remove_dir_all(&cache);
    let entries =
        || std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect::<Vec<_>>();
    let source = |value| format!("{HANDLER}{}", KERNEL.replace("VALUE", value));
    let build = |test: &str, value| {
        std::fs::remove_dir_all(folders(test).out_dir).unwrap();
        let builder = PtxBuilder::new(scratch_crate("cache", &source(value))).archs([Arch::SM_80]);
        let image = build(test, &builder).unwrap();
        assert!(!image.reused);
        (ptx(&image, "sm_80"), image.kernels)
    };
    let first = build("cache-first", "1.0");
    let [entry] = &entries()[..] else { panic!("{:?}", entries()) };
    let long_ago = std::time::SystemTime::UNIX_EPOCH;
    let used = || std::fs::metadata(entry).unwrap().modified().unwrap();
    std::fs::File::options().append(true).open(entry).unwrap().set_modified(long_ago).unwrap();
    assert_eq!((build("cache-second", "1.0"), used() > long_ago, entries().len()), (first.clone(), true, 1));
    assert_ne!(build("cache-third", "2.0").0, first.0);
    assert_eq!(entries().len(), 2);
    // A damaged entry is regenerated.
    std::fs::write(entry, "damaged").unwrap();
    assert_eq!(build("cache-fourth", "1.0"), first);
    assert_ne!(std::fs::read(entry).unwrap(), b"damaged");
}

/// Returns the reports of the image that is built from the crate of `test`.
fn reports(test: &str) -> Vec<ImageReport> {
    let own = folders(test).out_dir.join("crate").canonicalize().unwrap();
    let reports = ImageReport::all(&folders(test).target_dir).unwrap();
    reports.into_iter().filter(|report| report.kernel_folder == own).collect()
}

#[test]
fn an_image_has_a_report_fresh_and_from_the_caches() {
    let cache = folders("report").out_dir.join("kept");
    only_alone!("WARPSMITH_IMAGE_CACHE" => cache.to_str().unwrap());
    let _ = std::fs::remove_dir_all(&cache);
    let _ = std::fs::remove_dir_all(folders("report-again").out_dir);
    let folder = scratch_crate("report", &format!("{HANDLER}{}", KERNEL.replace("VALUE", "1.0")));
    let builder = PtxBuilder::new(&folder).archs([Arch::SM_80, Arch::SM_90A]);
    let image = build("report", &builder).unwrap();
    let file = image.watched.iter().find(|path| path.extension().is_some_and(|e| e == "json")).unwrap();
    let expected = |report: &ImageReport| {
        let archs: Vec<&str> = report.kernels[0].resources.iter().map(|r| r.arch.as_str()).collect();
        assert_eq!((report.package.as_str(), &archs[..]), ("scratch-report", &["sm_80", "sm_90a"][..]));
        assert!(report.kernels[0].resources.iter().all(|r| r.registers > 0));
        assert_eq!((&report.kernels, &report.reason, report.changed_source()), (&image.kernels, &None, None));
    };
    expected(&reports("report")[0]);

    // A report that was removed comes back with a build that does nothing else.
    std::fs::remove_file(file).unwrap();
    assert!(build("report", &builder).unwrap().reused);
    expected(&reports("report")[0]);

    // Another output folder takes the code from the user's cache, and has a report of its own.
    let again = build("report-again", &builder).unwrap();
    assert!(!again.reused);
    let both = reports("report");
    assert_eq!(both.len(), 2, "{both:?}");
    both.iter().for_each(expected);

    let source = folder.join("src/lib.rs");
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(1);
    std::fs::File::options().append(true).open(&source).unwrap().set_modified(later).unwrap();
    assert_eq!(reports("report")[0].changed_source(), Some(source.as_path()));
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

/// The generated file is one expression of the type that the runtime accepts.
#[test]
fn the_generated_file_compiles() {
    let image = build("generated", &PtxBuilder::new("kernels")).unwrap();
    let program = folders("generated").out_dir.join("main.rs");
    let source = format!(
        "#![allow(unused_imports)]\n{}static IMAGE: ImageSpec = include!({:?});\n\
         fn main() {{\n\
         for module in IMAGE.modules {{ for form in module.forms {{\n\
         let Packed::Lzma {{ stream, len }} = form.code else {{ panic!() }};\n\
         assert!(stream.len() < len && form.hash != 0);\n\
         println!(\"{{}}: {{}} {{:?}}\", module.name, form.arch, matches!(form.kind, CodeKind::Cubin(_)));\n\
         }} }}\n\
         let symbols: Vec<&str> = IMAGE.kernels.iter().map(|kernel| kernel.symbol).collect();\n\
         assert!(symbols.is_sorted() && IMAGE.kernel(\"hopper\").unwrap().module_index == 1);\n\
         println!(\"{{}} {{}} {{:?}}\", IMAGE.package.name, symbols.len(), IMAGE.missing);\n}}\n",
        image_types("image"),
        image.file
    );
    std::fs::write(&program, source).unwrap();
    let binary = program.with_extension("bin");
    let rustc = std::env::var_os("RUSTC").map_or_else(|| PathBuf::from("rustc"), PathBuf::from);
    let compiled =
        Command::new(rustc).args(["--edition=2024"]).arg(&program).arg("-o").arg(&binary).output().unwrap();
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&binary).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "fixture_kernels: 80 false\nfixture_kernels: 90 true\nfixture_kernels from sm_90: 90 true\n\
         fixture_kernels from sm_90: 90 false\nfixture-kernels 13 None\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[test]
fn a_crate_that_says_no_std_itself_builds() {
    let folder = scratch_crate("no-std", &format!("#![no_std]\n{HANDLER}{}", KERNEL.replace("VALUE", "1.0")));
    build("no-std", &PtxBuilder::new(folder).archs([Arch::SM_80])).unwrap();
}

#[test]
fn a_crate_may_turn_on_the_features_itself() {
    let attributes = "#![cfg_attr(target_arch = \"nvptx64\", no_std, feature(abi_ptx, stdarch_nvptx))]\n";
    let folder =
        scratch_crate("features", &format!("{attributes}{HANDLER}{}", KERNEL.replace("VALUE", "1.0")));
    build("features", &PtxBuilder::new(folder).archs([Arch::SM_80])).unwrap();
}

#[test]
fn default_features_can_be_turned_off() {
    let on = "#[cfg(feature = \"unwanted\")] compile_error!(\"its default features are on\");\n";
    let folder =
        scratch_crate("default-features", &format!("{on}{HANDLER}{}", KERNEL.replace("VALUE", "1.0")));
    let manifest = folder.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(manifest, text + "[features]\ndefault = [\"unwanted\"]\nunwanted = []\n").unwrap();
    let builder = PtxBuilder::new(folder).archs([Arch::SM_80]);
    build("default-features", &builder.clone().no_default_features()).unwrap();
    let error = build("default-features", &builder).unwrap_err().to_string();
    assert!(error.contains("its default features are on"), "{error}");
}

#[test]
fn rustc_errors_are_listed() {
    let source = "pub fn f() -> u32 { \"text\" }\npub fn g<const N: usize>() -> [u32; N + 1] { loop {} }\n";
    let error = error_of("type-error", source);
    assert!(
        error.starts_with("the kernel crate `scratch-type-error` does not compile for the GPU:"),
        "{error}"
    );
    let mismatch = "src/lib.rs:2:21: error[E0308]: mismatched types: expected `u32`, found `&str`\n";
    assert!(error.contains(mismatch) && error.contains("src/lib.rs:3:"), "{error}");
    assert!(error.contains("add a const parameter for the length"), "{error}");
    assert!(!error.contains("generic_const_exprs"), "{error}");
    let (_, file) = error.split_once("full messages are in ").unwrap();
    let full = std::fs::read_to_string(file.lines().next().unwrap()).unwrap();
    assert!(full.contains("2 | pub fn f() -> u32 { \"text\" }"), "{full}");
}

#[test]
fn a_crate_without_kernels_is_an_error() {
    let error = error_of("no-kernels", "pub fn f() {}\n");
    assert!(error.contains("`scratch-no-kernels` has no kernels: mark at least one"), "{error}");
}

#[test]
fn a_shared_static_with_a_value_is_refused() {
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
    assert!(error.contains(" is in `k`"), "{error}");
}

#[test]
fn crates_that_are_missing_have_a_remedy() {
    let alloc = error_of("needs-alloc", "extern crate alloc;\n");
    assert!(alloc.contains("E0463") && alloc.contains("PtxBuilder::alloc"), "{alloc}");
    for (test, source) in
        [("uses-std", "use std::vec::Vec;\n"), ("calls-std", "fn f() { std::process::exit(1) }\n")]
    {
        let error = error_of(test, source);
        assert!(
            error.ends_with("kernel crates are no_std: use core, or alloc through PtxBuilder::alloc"),
            "{error}"
        );
    }
}

#[test]
fn an_operation_without_code_is_named_with_its_line() {
    let source = "#![feature(core_intrinsics)]\n#![allow(internal_features)]\n".to_owned()
        + HANDLER
        + "#[inline(never)] fn wave(x: f32) -> f32 {\n    core::intrinsics::sinf32(x)\n}\n\
           #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k(y: *mut f32) { unsafe { *y = wave(*y) } }\n";
    let folder = scratch_crate("no-code", &source);
    let error = build("no-code", &PtxBuilder::new(folder).archs([Arch::SM_80])).unwrap_err().to_string();
    assert!(error.starts_with("kernel `k`: LLVM cannot generate GPU code for `llvm.sin.f32`"), "{error}");
    assert!(error.contains("src/lib.rs:5:5") && error.lines().count() < 5, "{error}");
}

#[test]
fn a_stack_that_no_thread_can_have_is_refused() {
    let source = |bytes: usize| {
        format!(
            "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k(y: *mut u8, n: usize) {{ unsafe {{ \
             let mut a = [0u8; {bytes}]; core::hint::black_box(&mut a); a[n % {bytes}] = 3; *y = a[*y as usize] }} }}\n"
        )
    };
    let error = error_of("stack", &source(800_000));
    assert!(error.starts_with("a kernel needs more stack") && error.contains("`k`: 8000"), "{error}");
    let warnings = |bytes| build_source("stack", &source(bytes)).unwrap().warnings;
    assert_eq!(warnings(300), Vec::<String>::new());
    assert!(warnings(40_000)[0].starts_with("kernel `k` uses local memory"));
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
fn a_missing_crate_is_named_by_path() {
    let error = build("missing", &PtxBuilder::new("no-such-crate")).unwrap_err();
    assert!(matches!(&error, Error::NoSuchCrate { path } if path.ends_with("no-such-crate")), "{error}");
}

/// Returns the records that `#[kernel]` writes for a kernel `k` with these parameters (kind, size, alignment; no
/// signature) and this module.
fn records(module: &str, params: &[[u32; 3]]) -> String {
    let numbers: Vec<u32> = params.iter().flat_map(|&[kind, size, align]| [kind, size, align, 0]).collect();
    let origin = format!("scratch 0.0.0 {module}");
    format!(
        "#[unsafe(export_name = \"__warpsmith_abi.k\")] pub static ABI: [u32; {}] = {numbers:?};\n\
         #[unsafe(export_name = \"__warpsmith_origin.k\")] pub static ORIGIN: [u8; {}] = *b{origin:?};\n",
        numbers.len(),
        origin.len()
    )
}

#[test]
fn records_are_compared_and_leave_the_code() {
    let kernel = "#[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k(x: *const f32, n: usize, y: [u32; 3]) \
                  { unsafe { *x.cast_mut() = (n as u32 + y[2]) as f32 } }\n";
    let right = [[1, 4, 4], [0, 12, 4]];
    let image =
        build_source("records", &format!("{kernel}{}", records("scratch_records::a::b", &right))).unwrap();
    assert!(!ptx(&image, "sm_80").contains("__warpsmith_"), "{}", ptx(&image, "sm_80"));
    assert_eq!(image.kernels[0].part, "a");
    let text = std::fs::read_to_string(&image.file).unwrap();
    assert!(text.contains("AbiParam { kind: 0, size: 12, align: 4, signature: 0 }"), "{text}");
    for (params, parts) in [
        (
            &[[1, 4, 4], [0, 16, 8]][..],
            ["parameter 1, a value,", "16 bytes aligned to 8", "12 bytes aligned to 4"],
        ),
        (&[[0, 0, 1], [1, 4, 4], [0, 12, 4]], ["parameter 0, a value,", "0 bytes aligned to 1", "8 bytes"]),
        (&[[1, 4, 4]], ["kernel parameter 2", "missing in the source", "12 bytes aligned to 4"]),
    ] {
        let error = error_of("records-wrong", &format!("{kernel}{}", records("scratch", params)));
        assert!(error.contains("kernel `k`") && parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn kernels_without_a_known_stack_are_reported() {
    let image = build_source(
        "stacks",
        "#[inline(never)] fn deep(n: u32) -> u32 { if n < 2 { n } else { deep(n - 1) ^ deep(n - 2).rotate_left(n) } }\n\
         #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn recursive(y: *mut u32) { unsafe { *y = deep(*y) } }\n\
         #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn plain(y: *mut u32) { unsafe { *y += 1 } }\n\
         #[unsafe(link_section = \".warpsmith,0,0,0,4096\")] #[unsafe(no_mangle)] \
         pub unsafe extern \"ptx-kernel\" fn indirect(y: *mut u32, f: fn(u32) -> u32) { unsafe { *y = f(*y) } }\n",
    )
    .unwrap();
    let of = |symbol: &str| image.kernels.iter().find(|kernel| kernel.symbol == symbol).unwrap();
    assert_eq!((of("recursive").stack, of("indirect").stack, of("plain").stack), (None, None, Some(0)));
    assert_eq!(of("indirect").requested_stack, 4096);
    let warned =
        |symbol: &str| image.warnings.iter().any(|warning| warning.contains(&format!("`{symbol}` recurses")));
    assert!(warned("recursive") && !warned("indirect") && !warned("plain"), "{:?}", image.warnings);
    let text = std::fs::read_to_string(&image.file).unwrap();
    assert!(text.contains("stack: StackUse::Unknown, requested_stack: 4096"), "{text}");
}

/// Unoptimized code needs a larger stack than the driver's default.
#[test]
fn kernels_for_debuggers_have_an_unknown_stack_without_a_warning() {
    let source = "#[inline(never)] fn deep(n: u32) -> u32 { if n < 2 { n } else { deep(n - 1) ^ deep(n - 2) } }\n\
        #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn recursive(y: *mut u32) { unsafe { *y = deep(*y) } }\n";
    let folder = scratch_crate("stacks-debug", &format!("{HANDLER}{source}"));
    let builder = PtxBuilder::new(folder).archs([Arch::SM_80]).debug_info(DebugInfo::Full);
    let image = build("stacks-debug", &builder).unwrap();
    assert_eq!(image.kernels[0].stack, None);
    assert_eq!(image.warnings, [""; 0]);
}

#[test]
fn atomics_of_core_keep_their_ordering() {
    let image = build_source(
        "atomics",
        "use core::sync::atomic::{AtomicU32, Ordering::*};\n\
         #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn k(y: &AtomicU32) {\n\
         y.fetch_add(1, AcqRel); y.store(2, Release);\n\
         let _ = y.compare_exchange(2, 3, Acquire, Relaxed); y.fetch_or(y.load(Acquire), Relaxed); }\n",
    )
    .unwrap();
    let text = ptx(&image, "sm_80");
    let places: Vec<usize> = [
        "fence.acq_rel.sys;",
        "atom.global.add.u32",
        "fence.acq_rel.sys;",
        "st.release.sys",
        "atom.acquire.sys",
        "ld.acquire.sys",
        "atom.global.or.b32",
    ]
    .iter()
    .scan(0, |from, wanted| {
        let at =
            *from + text[*from..].find(wanted).unwrap_or_else(|| panic!("no {wanted} in order in {text}"));
        *from = at + 1;
        Some(at)
    })
    .collect();
    assert_eq!(places.len(), 7);
    assert_eq!(text.matches("fence.").count(), 2, "{text}");
}
