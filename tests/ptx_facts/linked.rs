//! The part of the image that is linked with NVIDIA's device runtime: what is in it, and what is not in the rest.
//!
//! They fail when there is no image: a build without the device toolchain has nothing to look at.

use std::collections::BTreeSet;

use warpsmith::IMAGE;
use warpsmith::gpu_std::registry;

/// The PTX forms: architecture, whether linked, text.
fn ptx() -> Vec<(u32, bool, &'static str)> {
    assert_eq!(IMAGE.missing(), None, "the image is what these tests look at");
    let plain = IMAGE.binaries().map(|binary| (false, binary));
    let linked = IMAGE.linked_binaries().map(|binary| (true, binary));
    plain
        .chain(linked)
        .filter(|(_, binary)| !binary.is_cubin)
        .map(|(linked, binary)| (binary.arch, linked, std::str::from_utf8(binary.code).expect("PTX is text")))
        .collect()
}

/// The functions of the device runtime that a module calls.
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
        let expected: &[&str] = match linked {
            true => &[
                "__cudaCDP2GetLastError",
                "__cudaCDP2GetParameterBufferV2",
                "__cudaCDP2LaunchDeviceV2",
                "cudaGraphSetConditional",
            ],
            false => &[],
        };
        assert!(runtime_functions(text).iter().eq(expected), "sm_{arch}: {:?}", runtime_functions(text));
    }
}

#[test]
fn parameters_of_the_device_runtime_are_passed_as_c_passes_them() {
    for (arch, _, text) in ptx().into_iter().filter(|(_, linked, _)| *linked) {
        let start = text.find("__cudaCDP2GetParameterBufferV2").expect("it is declared");
        let declaration = &text[start..start + text[start..].find(')').expect("it ends")];
        let parameters: Vec<&str> = declaration.split(".param ").skip(1).collect();
        let forms = [".b64 ", ".align 4 .b8 ", ".align 4 .b8 ", ".b32 "];
        assert_eq!(parameters.len(), forms.len(), "sm_{arch}: {declaration}");
        for (parameter, form) in parameters.iter().zip(forms) {
            assert!(parameter.starts_with(form), "sm_{arch}: {declaration}");
        }
        assert_eq!(declaration.matches("[12]").count(), 2, "sm_{arch}: {declaration}");
    }
}

#[test]
fn each_part_has_the_kernels_that_it_should() {
    let launched = ["count_blocks", "diagnose_panic", "multiples", "nothing", "refine_row__4", "sum_up"];
    for (arch, linked, text) in ptx() {
        let entries = entries(text);
        for spec in registry::kernels().filter(|spec| spec.package == "gpu-kernels" && spec.min_arch <= arch)
        {
            let expected = match linked {
                true => IMAGE.is_linked(spec.symbol) || launched.contains(&spec.symbol),
                false => !IMAGE.is_linked(spec.symbol),
            };
            assert_eq!(
                entries.contains(spec.symbol),
                expected,
                "{} for sm_{arch}, linked: {linked}",
                spec.symbol
            );
        }
    }
    for kernel in ["refine_odd_rows", "halve", "go_deeper", "count_down", "set_from", "launch_many"] {
        assert!(IMAGE.is_linked(kernel), "{kernel}");
    }
    assert!(!IMAGE.is_linked("refine_row__4") && !IMAGE.is_linked("nothing"));
}

#[test]
fn the_linked_part_was_assembled() {
    let cubins: Vec<u32> =
        IMAGE.linked_binaries().filter(|binary| binary.is_cubin).map(|binary| binary.arch).collect();
    assert_eq!(cubins, [90]);
    let (_, resources) =
        IMAGE.kernels().find(|(symbol, _)| *symbol == "refine_odd_rows").expect("it is in the image");
    assert_eq!(resources.iter().map(|of| of.arch).collect::<Vec<_>>(), [80, 90]);
    assert!(resources.iter().all(|of| of.registers > 0));
}
