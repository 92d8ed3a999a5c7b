//! Call chains to a panic in a function of another module or crate.

use std::path::PathBuf;

use crate::common::{build, folders, scratch_crate};
use warpsmith_builder::{Arch, BuiltImage, DebugInfo, Error, PtxBuilder};

/// A library without any GPU code; panics are reported from its lines.
const LIBRARY: &str = "#![no_std]
pub fn pick(values: &[f32], at: usize) -> f32 {
    values[at]
}
#[track_caller]
pub fn first(values: &[f32]) -> f32 {
    *values.first().expect(\"no values\")
}
#[inline(never)]
pub fn apart(values: &[f32], at: usize) -> f32 {
    pick(values, at + 1)
}
";

const KERNELS: &str = "
#[panic_handler] fn panic(_: &core::panic::PanicInfo) -> ! { loop {} }
use core::panic::Location;
macro_rules! reporter { ($name:ident($($ty:ty),*)) => {
    #[cold]
    #[inline(never)]
    #[unsafe(no_mangle)]
    pub extern \"C\" fn $name($(_: $ty,)* _: &'static Location<'static>) -> ! {
        unsafe { core::arch::asm!(\"trap;\") };
        loop {}
    }
} }
reporter!(__warpsmith_panic_bounds_check(usize, usize));
reporter!(__warpsmith_panic_slice(u32, usize, usize, usize));
reporter!(__warpsmith_panic_str(*const u8, usize));
mod steps;
macro_rules! kernel { ($name:ident, $x:ident, $n:ident, $value:expr) => {
    #[unsafe(no_mangle)] pub unsafe extern \"ptx-kernel\" fn $name(x: *const f32, len: usize, $n: usize, y: *mut f32) {
        let $x = unsafe { core::slice::from_raw_parts(x, len) };
        unsafe { *y = $value };
    }
} }
kernel!(twice, x, n,
    helper::pick(x, n)
    + steps::third(x, n));
kernel!(tracked, x, n,
    helper::first(x));
kernel!(closure, x, n,
    (0..n).map(|i| helper::pick(x, i * 3)).sum());
kernel!(called, x, n,
    helper::apart(x, n));
kernel!(chosen, x, n,
    if n > 9 {
        helper::pick(x, n)
    } else {
        helper::pick(x, n + 1)
    });
";

const STEPS: &str = "
pub fn third(x: &[f32], n: usize) -> f32 {
    helper::pick(x, n * 3)
}
";

fn crates(test: &str, more: &str) -> PathBuf {
    let helper = folders(&format!("{test}-helper")).out_dir.join("helper");
    std::fs::create_dir_all(helper.join("src")).unwrap();
    let manifest = "[package]\nname = \"helper\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";
    std::fs::write(helper.join("Cargo.toml"), manifest).unwrap();
    std::fs::write(helper.join("src/help.rs"), LIBRARY).unwrap();
    std::fs::write(helper.join("src/lib.rs"), "#![no_std]\nmod help;\npub use help::*;\n").unwrap();
    let folder = scratch_crate(test, &format!("{KERNELS}{more}"));
    let manifest = folder.join("Cargo.toml");
    let text = std::fs::read_to_string(&manifest).unwrap();
    std::fs::write(&manifest, format!("{text}[dependencies]\nhelper = {{ path = {helper:?} }}\n")).unwrap();
    std::fs::write(folder.join("src/steps.rs"), STEPS).unwrap();
    folder
}

fn compile(test: &str, more: &str) -> Result<BuiltImage, Error> {
    build(test, &PtxBuilder::new(crates(test, more)).archs([Arch::SM_80]))
}

/// Returns the panics of a kernel; each location as the text of its line.
fn panics(image: &BuiltImage, kernel: &str) -> Vec<Vec<&'static str>> {
    let line = |file: &str, number: u32| {
        let sources = [("help.rs", LIBRARY), ("lib.rs", KERNELS), ("steps.rs", STEPS)];
        let (_, source) =
            sources.into_iter().find(|(name, _)| file.ends_with(name)).expect("a file of the user");
        source.lines().nth(number as usize - 1).unwrap().trim()
    };
    let kernel = image.kernels.iter().find(|known| known.symbol == kernel).unwrap();
    let panics = kernel.panics.iter().map(|panic| {
        let calls = panic.calls.iter().map(|call| line(&call.file, call.line));
        std::iter::once(line(&panic.file, panic.line)).chain(calls).collect()
    });
    panics.collect()
}

#[test]
fn calls_that_were_inlined_are_listed() {
    let image = compile("calls", "").unwrap();
    assert_eq!(
        panics(&image, "twice"),
        [
            vec!["values[at]", "helper::pick(x, n)"],
            vec!["values[at]", "helper::pick(x, n * 3)", "+ steps::third(x, n));"],
        ]
    );
    assert_eq!(panics(&image, "tracked"), [["helper::first(x));"]]);
    let line = "(0..n).map(|i| helper::pick(x, i * 3)).sum());";
    assert_eq!(panics(&image, "closure"), [["values[at]", line, line]]);
    assert_eq!(panics(&image, "called"), [["values[at]", "pick(values, at + 1)", "helper::apart(x, n));"]]);
    let chosen = panics(&image, "chosen");
    assert_eq!(
        chosen,
        [["values[at]", "helper::pick(x, n)"], ["values[at]", "helper::pick(x, n + 1)"]],
        "panics of two branches stay apart"
    );
}

#[test]
fn lines_do_not_change_the_code() {
    let of = |debug_info| {
        let builder = PtxBuilder::new(crates("lines", "")).archs([Arch::SM_80]).debug_info(debug_info);
        crate::common::ptx(&build("lines", &builder).unwrap(), "sm_80")
    };
    let (lines, none) = (of(DebugInfo::Lines), of(DebugInfo::None));
    // LLVM's comments name basic blocks, whose numbers depend on the line information.
    let code = |ptx: &str| -> Vec<String> {
        let lines = ptx.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
        let is_code =
            |line: &&str| !line.is_empty() && !line.starts_with(".loc") && !line.starts_with(".section");
        lines.filter(is_code).filter(|line| !line.starts_with(".file")).map(str::to_owned).collect()
    };
    assert_eq!(code(&lines), code(&none));
    assert!(lines.contains("steps.rs\"") && !lines.contains(", debug"), "{lines}");
    assert!(!none.contains(".loc"), "{none}");
}

#[test]
fn no_panic_names_the_calls() {
    let more = "#[unsafe(export_name = \"__warpsmith_no_panic.twice\")] static NO_PANIC: [u8; 1] = [1];\n";
    let error = compile("calls-denied", more).unwrap_err().to_string();
    let line = |source: &str, text: &str| 1 + source.lines().position(|line| line.contains(text)).unwrap();
    let call = line(KERNELS, "+ steps::third");
    let step = line(STEPS, "helper::pick");
    let place = error.find("help.rs:3:").unwrap_or_else(|| panic!("{error}"));
    let order =
        [format!("      called at src/steps.rs:{step}:"), format!("      called at src/lib.rs:{call}:")];
    order.iter().fold(place, |from, text| {
        from + error[from..].find(text.as_str()).unwrap_or_else(|| panic!("no {text} in {error}"))
    });
}
