//! The module of the image that is linked with NVIDIA's device runtime: its contents, and what the other modules must
//! not contain.
//!
//! The tests fail without an image: a build without the device toolchain has no PTX to check.

use std::collections::BTreeSet;

use test_kernels::IMAGE;
use warpsmith::gpu_std::registry;
use warpsmith::module::spec::CodeKind;
use warpsmith::module::unpack;

/// The PTX forms: architecture, whether it is linked, text.
fn ptx() -> Vec<(u32, bool, String)> {
    assert_eq!(IMAGE.missing(), None, "the image is what these tests look at");
    let forms =
        IMAGE.modules().iter().flat_map(|module| module.forms.iter().map(|form| (module.is_linked, form)));
    forms
        .filter(|(_, form)| matches!(form.kind, CodeKind::Ptx(_)))
        .map(|(linked, form)| {
            let code = unpack(&form.code).expect("the code is as it was packed").into_owned();
            (form.arch, linked, String::from_utf8(code).expect("PTX is text"))
        })
        .collect()
}

/// Returns true if a kernel is in the linked module.
fn is_linked(symbol: &str) -> bool {
    IMAGE.spec().kernel(symbol).is_some_and(|record| IMAGE.modules()[record.module_index].is_linked)
}

/// Functions of the device runtime that a module calls.
fn runtime_functions(text: &str) -> BTreeSet<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix(".extern .func "))
        .filter_map(|rest| rest.trim_end_matches(['(', ' ']).rsplit([' ', ')']).next())
        .filter(|name| name.starts_with("__cuda") || name.starts_with("cuda"))
        .collect()
}

fn entries(text: &str) -> BTreeSet<&str> {
    text.split(".visible .entry ")
        .skip(1)
        .map(|entry| entry.split('(').next().expect("an entry has a name").trim())
        .collect()
}

#[test]
fn only_the_linked_part_calls_the_device_runtime() {
    for (arch, linked, text) in ptx() {
        let expected: &[&str] = if linked { &["cudaGraphSetConditional"] } else { &[] };
        assert!(runtime_functions(&text).iter().eq(expected), "sm_{arch}: {:?}", runtime_functions(&text));
    }
}

#[test]
fn each_part_has_the_kernels_that_it_should() {
    for is_linked_part in [false, true] {
        let forms = ptx();
        let text: Vec<&str> = forms
            .iter()
            .filter(|(arch, linked, _)| *arch == 80 && *linked == is_linked_part)
            .map(|(.., text)| &**text)
            .collect();
        let entries: BTreeSet<&str> = text.iter().flat_map(|text| entries(text)).collect();
        for spec in
            registry::kernels().filter(|spec| spec.package == "test-kernels-gpu" && spec.min_arch <= 80)
        {
            let expected = is_linked(spec.symbol) == is_linked_part;
            let symbol = IMAGE.spec().kernel_of(spec).map_or(spec.symbol, |record| record.symbol);
            assert_eq!(entries.contains(symbol), expected, "{}, linked: {is_linked_part}", spec.symbol);
        }
    }
    for kernel in ["count_down", "set_from"] {
        assert!(is_linked(kernel), "{kernel}");
    }
}

#[test]
fn the_linked_part_was_assembled() {
    let module = IMAGE.modules().iter().find(|module| module.is_linked).expect("there is one");
    let is_cubin = |kind| matches!(kind, CodeKind::Cubin(_));
    let forms: Vec<(u32, bool)> = module.forms.iter().map(|form| (form.arch, is_cubin(form.kind))).collect();
    assert_eq!(forms, [(80, false), (90, true)]);
    let record = IMAGE.spec().kernel("count_down").expect("it is in the image");
    assert_eq!(record.resources.iter().map(|of| of.arch).collect::<Vec<_>>(), [80, 90]);
    assert!(record.resources.iter().all(|of| of.registers > 0));
    assert!(IMAGE.spec().device_runtime.is_some());
}
