//! Requirements on the PTX that the pipeline produces.

use std::sync::OnceLock;

use crate::common::{build, function, ptx, texts};
use warpsmith_builder::{BuiltImage, PtxBuilder};

/// The fixture image, built once for all tests of this file.
fn image() -> &'static BuiltImage {
    static IMAGE: OnceLock<BuiltImage> = OnceLock::new();
    IMAGE.get_or_init(|| build("facts", &PtxBuilder::new("kernels")).unwrap())
}

fn barriers(ptx: &str, kernel: &str) -> usize {
    function(ptx, kernel).matches("bar.sync").count()
}

#[test]
fn versions_suit_old_drivers() {
    assert!(ptx(image(), "sm_80").contains(".version 7.4\n.target sm_80\n"));
    assert!(ptx(image(), "sm_90a").contains(".version 8.0\n.target sm_90a\n"));
}

#[test]
fn bounds_checks_and_panics_bring_no_formatting() {
    for arch in ["sm_80", "sm_90a"] {
        let ptx = ptx(image(), arch);
        for name in ["4core3fmt", "rust_begin_unwind", "assert_failed_inner", ".local"] {
            assert!(!ptx.contains(name), "{arch}: {name}");
        }
        assert!(function(&ptx, "checked__f32").contains("panic_bounds_check"));
    }
}

/// Returns the remaining panics of a kernel, with the text of the fixture's source line instead of its number.
fn panics(image: &BuiltImage, kernel: &str) -> Vec<(String, String)> {
    let source = include_str!("../fixtures/kernels/src/lib.rs");
    let kernel = image.kernels.iter().find(|known| known.symbol == kernel).unwrap();
    let panics = kernel.panics.iter().map(|panic| {
        assert!(panic.file.ends_with("src/lib.rs") && panic.column > 1, "{panic}");
        (source.lines().nth(panic.line as usize - 1).unwrap().trim().to_owned(), panic.what.clone())
    });
    panics.collect()
}

#[test]
fn panics_that_are_left_are_listed_with_their_places() {
    let line = "y[i] = x[i] * 2.0 + x[i..][1];".to_owned();
    let bounds = (line.clone(), "index out of bounds".to_owned());
    let slice = (line, "slice range out of bounds".to_owned());
    let left = panics(image(), "checked__f32");
    assert!(
        left.contains(&bounds) && left.iter().all(|panic| *panic == bounds || *panic == slice),
        "{left:?}"
    );
    let texts: Vec<String> = panics(image(), "panics").into_iter().map(|(_, what)| what).collect();
    for text in ["a plain message", "an expectation", "assertion `left == right` failed"] {
        assert!(texts.iter().any(|known| known == text), "{text:?} is not in {texts:?}");
    }
    for kernel in ["guarded", "halves", "shared"] {
        assert!(panics(image(), kernel).is_empty(), "{kernel}");
    }
}

#[test]
fn a_panic_left_in_no_panic_fails() {
    let error = build("unproven", &PtxBuilder::new("kernels").feature("unproven")).unwrap_err().to_string();
    let source = include_str!("../fixtures/kernels/src/lib.rs");
    for (line, text) in
        [("y[n] = half(", "index out of bounds"), ("&x[..n / 2]", "slice range out of bounds")]
    {
        let number = 1 + source.lines().position(|known| known.trim().starts_with(line)).unwrap();
        let place = format!("src/lib.rs:{number}:");
        assert!(error.lines().any(|line| line.contains(&place) && line.contains(text)), "{place} {error}");
    }
    assert!(error.contains("`unproven`: ") && !error.contains("`checked__f32`"), "{error}");
}

#[test]
fn panic_texts_arrive() {
    let texts = texts(&ptx(image(), "sm_80"));
    for text in [
        "a plain message\0",
        "panic with a formatted message: n is {}, not {}\0",
        "an expectation\0",
        "called `Option::unwrap()` on a `None` value\0",
        "called `Result::unwrap()` on an `Err` value\0",
        "assertion `left == right` failed\0",
        "an own message\0",
        "attempt to divide by zero\0",
        "n must be more than three\0",
    ] {
        assert!(texts.iter().any(|t| t == text), "{text:?} is not in {texts:#?}");
    }
}

#[test]
fn launch_bounds_are_kept() {
    let ptx = ptx(image(), "sm_80");
    let checked = function(&ptx, "checked__f32");
    assert!(checked.contains(".maxntid 256") && checked.contains(".minnctapersm 2"), "{checked}");
    assert!(!function(&ptx, "halves").contains(".maxntid"));
}

#[test]
fn recorded_launches_become_directives() {
    assert!(!ptx(image(), "sm_80").contains("shaped"));
    let ptx = ptx(image(), "sm_90a");
    let shaped = function(&ptx, "shaped");
    for directive in
        [".reqntid 16, 8, 1", ".minnctapersm 2", ".explicitcluster", ".reqnctapercluster 2, 1, 1"]
    {
        assert!(shaped.contains(directive), "{directive}: {shaped}");
    }
    assert!(!shaped.contains(".maxntid") && !ptx.contains("__warpsmith_launch"), "{shaped}");
}

#[test]
fn no_pointer_is_computed_from_one_at_an_unknown_distance() {
    let ptx = ptx(image(), "sm_80");
    let distances = function(&ptx, "distances");
    for wrong in ["400]", "-400", "-4]", ", -4;"] {
        assert!(!distances.contains(wrong), "{wrong}: {distances}");
    }
}

#[test]
fn shared_memory_is_accessed_as_such() {
    let ptx = ptx(image(), "sm_80");
    assert!(ptx.contains(".extern .shared .align 16 .b8 __warpsmith_dynamic_shared[];"));
    for kernel in ["shared", "threaded"] {
        let shared = function(&ptx, kernel);
        assert!(
            shared.contains("TILE[1024]")
                && shared.contains("ld.shared.b32")
                && shared.contains("st.shared.b32")
        );
        for generic in ["\tld.b32", "\tst.b32"] {
            assert!(!shared.contains(generic), "{kernel}: {shared}");
        }
    }
}

#[test]
fn barriers_are_as_many_as_in_the_source() {
    for arch in ["sm_80", "sm_90a"] {
        let ptx = ptx(image(), arch);
        assert_eq!(barriers(&ptx, "shared"), 3, "{arch}");
        assert_eq!(barriers(&ptx, "threaded"), 2, "{arch}");
    }
}

/// Shows why the builder turns rustc's jump threading off. If this fails, rustc has learned about barriers.
#[test]
fn jump_threading_would_duplicate_barriers() {
    let image = build("threading", &PtxBuilder::new("kernels").jump_threading(true)).unwrap();
    assert!(barriers(&ptx(&image, "sm_80"), "threaded") > 2);
}

#[test]
fn half_precision_is_native() {
    let ptx = ptx(image(), "sm_80");
    let halves = function(&ptx, "halves");
    for instruction in ["fma.rn.f16", "fma.rn.bf16", "cvt.f32.f16", "cvt.rn.bf16.f32"] {
        assert!(halves.contains(instruction), "{instruction}: {halves}");
    }
    for software in ["shr", "setp", "bra", "call"] {
        assert!(!halves.contains(software), "{software}: {halves}");
    }
}

#[test]
fn libdevice_is_inlined_and_the_architecture_constant() {
    for (arch, constant, other) in
        [("sm_80", "0f42A00000", "0f42B40000"), ("sm_90a", "0f42B40000", "0f42A00000")]
    {
        let ptx = ptx(image(), arch);
        let math = function(&ptx, "math");
        assert!(math.contains("ex2.approx") && !math.contains("call"), "{math}");
        assert!(math.contains(constant) && !math.contains(other), "{math}");
        // Comments name the blocks of inlined functions.
        let code: Vec<&str> = ptx.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
        assert!(code.iter().all(|line| !line.contains("__nv")), "{arch}");
    }
}

#[test]
fn a_kernel_is_absent_below_its_architecture() {
    assert!(!ptx(image(), "sm_80").contains("hopper"));
    assert!(ptx(image(), "sm_90a").contains(".visible .entry hopper("));
    let hopper = image().kernels.iter().find(|kernel| kernel.symbol == "hopper").unwrap();
    assert!(hopper.resources.iter().all(|resources| resources.arch == "sm_90a"));
}

#[test]
fn new_instructions_are_in_new_ptx_only() {
    let (old, new) = (ptx(image(), "sm_80"), ptx(image(), "sm_90a"));
    for instruction in ["griddepcontrol", "barrier.cluster", "mapa"] {
        assert!(!old.contains(instruction), "{instruction} for sm_80");
    }
    let clusters = function(&new, "clusters");
    for (instruction, times) in
        [("barrier.cluster.arrive.aligned", 2), ("barrier.cluster.wait.aligned", 2), ("mapa.", 1)]
    {
        assert_eq!(clusters.matches(instruction).count(), times, "{instruction}: {clusters}");
    }
    let dependent = function(&new, "dependent");
    assert_eq!(dependent.matches("griddepcontrol.wait").count(), 1);
    let (wait, load) = (dependent.find("griddepcontrol.wait"), dependent.find("ld.global"));
    assert!(wait < load, "nothing is read before the wait: {dependent}");
}

#[test]
fn only_kernels_and_the_mailbox_are_visible() {
    let ptx = ptx(image(), "sm_90a");
    let mut visible: Vec<&str> = ptx
        .lines()
        .filter_map(|line| line.strip_prefix(".visible "))
        .map(|line| line.trim_end_matches(['(', ')', ';']).rsplit(' ').next().unwrap())
        .collect();
    visible.sort_unstable();
    visible.dedup();
    assert_eq!(
        visible,
        [
            "__warpsmith_mailbox[8]",
            "checked__f32",
            "clusters",
            "dependent",
            "distances",
            "guarded",
            "halves",
            "hopper",
            "math",
            "panics",
            "power",
            "shaped",
            "shared",
            "threaded"
        ]
    );
}

#[test]
fn contraction_is_an_option() {
    assert!(function(&ptx(image(), "sm_80"), "checked__f32").contains("fma.rn.f32"));
    let image = build("no-fma", &PtxBuilder::new("kernels").fma(false)).unwrap();
    let ptx = ptx(&image, "sm_80");
    let checked = function(&ptx, "checked__f32");
    assert!(!checked.contains("fma") && checked.contains("add.rn.f32"), "{checked}");
    // libdevice computes rounding errors with sums and products that must stay separate.
    let contracted = self::ptx(self::image(), "sm_80");
    assert_eq!(function(&ptx, "power"), function(&contracted, "power"));
}

#[test]
fn ptxas_reports_every_kernel() {
    for kernel in &image().kernels {
        assert!(!kernel.resources.is_empty(), "{} has no report: is ptxas installed?", kernel.symbol);
        for needs in &kernel.resources {
            assert!(needs.registers > 0, "{kernel:?}");
            assert_eq!((needs.stack_bytes, needs.spill_bytes), (0, 0), "{kernel:?}");
            let shared = match &*kernel.symbol {
                "shared" | "threaded" => 1024,
                "clusters" => 512,
                _ => 0,
            };
            assert_eq!(needs.shared_bytes, shared, "{kernel:?}");
        }
    }
    assert!(image().warnings.is_empty(), "{:?}", image().warnings);
}
