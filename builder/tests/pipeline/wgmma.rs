//! Kernels of matrix products: what the compilers keep of them, and what the builder refuses.

use std::collections::BTreeSet;

use crate::common::{build, function, ptx};
use warpsmith_builder::{Arch, Error, PtxBuilder};

fn refused(feature: &str) -> String {
    let builder = PtxBuilder::new("kernels").archs([Arch::SM_90A]).feature(feature);
    let error = build(feature, &builder).unwrap_err();
    assert!(matches!(error, Error::Wgmma { .. }), "{error}");
    error.to_string()
}

#[test]
fn a_panic_beside_wgmma_is_named() {
    let error = refused("wgmma-panics");
    assert!(error.contains("`wgmma_panics` for sm_90a can panic"), "{error}");
    assert!(error.contains("src/wgmma.rs:") && error.contains("index out of bounds"), "{error}");
    assert!(!error.contains("`wgmma` for sm_90a can panic"), "{error}");
    assert!(error.contains("(C7510)") && error.contains("#[inline(always)]"), "{error}");
}

#[test]
fn serialised_wgmma_has_cause_and_remedy() {
    for (feature, kernel, cause, remedy) in [
        ("wgmma-touches", "`wgmma_touches` for sm_90a", "(C75", "touch accumulators"),
        ("wgmma-diverges", "`wgmma_diverges` for sm_90a", "(C7520)", "the same in the warp"),
    ] {
        let error = refused(feature);
        for part in [kernel, cause, remedy] {
            assert!(error.contains(part), "{part} is not in {error}");
        }
    }
}

#[test]
fn kernels_for_one_architecture_are_in_no_other() {
    let builder = PtxBuilder::new("kernels").archs([Arch::SM_80, Arch::SM_90A]).feature("wgmma");
    let image = build("wgmma", &builder).unwrap();
    let kernel = image.kernels.iter().find(|kernel| kernel.symbol == "wgmma").unwrap();
    let archs: Vec<&str> = kernel.resources.iter().map(|resources| &*resources.arch).collect();
    assert_eq!((archs, kernel.part.contains("for sm_90a")), (vec!["sm_90a"], true), "{}", kernel.part);
    assert!(!ptx(&image, "sm_80").contains("wgmma"));
    assert!(ptx(&image, "sm_90a").contains("wgmma.mma_async"));
}

/// The registers that a line names.
fn registers(line: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c == '%' || c == '_' || c.is_ascii_alphanumeric();
    line.split(|c| !is_part(c)).filter(|word| word.starts_with('%')).collect()
}

/// The product's own kernels keep the rules by which accumulators are safe: see `gpu_std::tensor::wgmma`.
#[test]
fn nothing_touches_accumulators_in_flight() {
    let builder = PtxBuilder::new("../../../tensor/kernels").archs([Arch::SM_90A]);
    let image = build("tensor", &builder).unwrap();
    let text = ptx(&image, "sm_90a");
    let mut code = text.lines().filter_map(|line| line.split("//").next());
    assert!(!code.any(|line| line.contains(".local") || line.contains("call")), "memory or calls");
    // What adds parts of sums multiplies nothing.
    let multiply = |symbol: &str| !symbol.starts_with("finish_parts");
    for kernel in image.kernels.iter().filter(|kernel| multiply(&kernel.symbol)) {
        let needs = &kernel.resources[0];
        assert_eq!((needs.registers, needs.spill_bytes, needs.stack_bytes), (168, 0, 0), "{}", kernel.symbol);
        let body = function(&text, &kernel.symbol);
        let map = format!(".param .align 64 .b8 {}_param_0[128]", kernel.symbol);
        assert!(body.contains(&map) && body.contains("cvta.param"), "{}", kernel.symbol);

        // Bits 4 to 17 of both tiles' addresses: those of the block's rank in its cluster are no part of a descriptor.
        assert_eq!(body.matches(", 4, 14;").count(), 2, "{}: the addresses of descriptors", kernel.symbol);

        let mut products = body.lines().filter(|line| line.contains("wgmma.mma_async"));
        let of = |line: &str| {
            line.split(['{', '}']).find(|list| list.matches(',').count() == 127).map(str::to_owned)
        };
        let list = products.next().and_then(of).expect("128 accumulators");
        assert!(products.all(|line| of(line).as_deref() == Some(&*list)), "moved between products");
        let accumulators = registers(&list);
        assert_eq!(accumulators.len(), 128);
        let mut in_flight = false;
        for line in body.lines().map(str::trim) {
            let ties = |line: &str| registers(line).is_superset(&accumulators);
            if line.starts_with("wgmma.fence") {
                assert!(ties(line), "the fence has no accumulators");
                in_flight = true;
            } else if line.starts_with("wgmma.wait_group.sync.aligned 0") {
                assert!(ties(line), "the wait has no accumulators");
                in_flight = false;
            } else if in_flight && !line.contains("wgmma.mma_async") {
                assert!(registers(line).is_disjoint(&accumulators), "touched in flight: {line}");
            }
        }
        assert_eq!(body.matches("wgmma.mma_async").count(), 4, "{}", kernel.symbol);
    }
}
