//! GEMM kernels: rules that the compiled code keeps, and code that the builder rejects.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use crate::common::{build, function, ptx};
use warpsmith_builder::{Arch, BuiltImage, Error, PtxBuilder};

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
fn serialized_wgmma_has_cause_and_remedy() {
    for (feature, kernel, cause, remedy) in [
        ("wgmma-touches", "`wgmma_touches` for sm_90a", "(C75", "access accumulators"),
        ("wgmma-diverges", "`wgmma_diverges` for sm_90a", "(C7520)", "warp-uniform values"),
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

/// Returns the registers that a line names.
fn registers(line: &str) -> BTreeSet<&str> {
    let is_part = |c: char| c == '%' || c == '_' || c.is_ascii_alphanumeric();
    line.split(|c| !is_part(c)).filter(|word| word.starts_with('%')).collect()
}

/// The kernels of `warpsmith-tensor`, built once.
pub fn tensor_image() -> &'static BuiltImage {
    static IMAGE: OnceLock<BuiltImage> = OnceLock::new();
    IMAGE.get_or_init(|| {
        let archs = [Arch::SM_80, Arch::SM_90A];
        build("tensor", &PtxBuilder::new("../../../tensor/kernels").archs(archs)).unwrap()
    })
}

/// The GEMM kernels keep the rules that make accumulators safe: see `gpu_std::tensor::wgmma`.
#[test]
fn nothing_touches_accumulators_in_flight() {
    let (image, text) = (tensor_image(), ptx(tensor_image(), "sm_90a"));
    let mut code = text.lines().filter_map(|line| line.split("//").next());
    assert!(!code.any(|line| line.contains(".local") || line.contains("call")), "memory or calls");
    let of_large_tiles = |symbol: &str| {
        ["matmul__", "matmul_tn__", "matmul_integers__"].iter().any(|family| symbol.starts_with(family))
    };
    let kernels = || image.kernels.iter().filter(|kernel| of_large_tiles(&kernel.symbol));
    assert_eq!(kernels().count(), 22);
    for kernel in kernels() {
        let needs = &kernel.resources[0];
        assert_eq!((needs.registers, needs.spill_bytes, needs.stack_bytes), (168, 0, 0), "{}", kernel.symbol);
        let body = function(&text, &kernel.symbol);
        let map = format!(".param .align 64 .b8 {}_param_0[128]", kernel.symbol);
        assert!(body.contains(&map) && body.contains("cvta.param"), "{}", kernel.symbol);

        // Bits 4 to 17 of both tiles' addresses: the bits of the block's rank in its cluster are not part of a
        // descriptor.
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

/// In-flight batches of `wgmma`, oldest first, by the registers that they own; and the registers of the batch being
/// issued.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Flight<'a> {
    batches: Vec<BTreeSet<&'a str>>,
    issued: BTreeSet<&'a str>,
    /// Fragments that were waited for: a comment names them next.
    fragments: BTreeSet<&'a str>,
}

impl<'a> Flight<'a> {
    /// Processes a line; returns the violation, if any.
    fn pass(&mut self, line: &'a str) -> Result<(), String> {
        let (code, comment) = line.split_once("//").unwrap_or((line, ""));
        if let Some((_, product)) = code.split_once("wgmma.mma_async") {
            // Accumulators, and fragments if there are any. Descriptors have 64 bits.
            self.issued.extend(registers(product).into_iter().filter(|name| !name.starts_with("%rd")));
            // A `wgmma` with both operands in shared memory may accumulate onto the results of earlier batches.
            let has_fragments = product.matches('{').count() > 1;
            let is_free = |batch: &BTreeSet<&str>| {
                batch.is_disjoint(&self.issued) || (!has_fragments && *batch == self.issued)
            };
            if !self.batches.iter().all(is_free) {
                return Err("a product of what an earlier batch owns".to_owned());
            }
        } else if code.contains("wgmma.commit_group") {
            self.batches.push(std::mem::take(&mut self.issued));
        } else if let Some((_, left)) = code.split_once("wgmma.wait_group.sync.aligned ") {
            let left: usize = left.trim().trim_end_matches(';').parse().unwrap();
            let done = self.batches.len().saturating_sub(left);
            let waited_for = registers(comment);
            let pending = self.batches.split_off(done);
            for batch in std::mem::replace(&mut self.batches, pending) {
                let is_over = |name: &&&str| !self.batches.iter().any(|batch| batch.contains(**name));
                self.fragments.extend(batch.difference(&waited_for).filter(is_over));
            }
        } else if code.is_empty() && !self.fragments.is_empty() {
            self.fragments.retain(|name| !registers(comment).contains(name));
        } else if !code.contains("wgmma.fence") {
            let touched = registers(code);
            if self
                .batches
                .iter()
                .chain([&self.issued, &self.fragments])
                .any(|batch| !batch.is_disjoint(&touched))
            {
                return Err("registers touched in flight".to_owned());
            }
        }
        Ok(())
    }
}

/// Follows each path through a function until it reaches a label again with the same state in flight. Returns the
/// maximum number of batches in flight.
fn check_all_ways(name: &str, body: &str) -> usize {
    let lines: Vec<&str> = body.lines().map(str::trim).collect();
    let label = |line: &str| line.split("//").next().unwrap().trim().strip_suffix(':').map(str::to_owned);
    let labels: BTreeMap<String, usize> =
        lines.iter().enumerate().filter_map(|(i, line)| Some((label(line)?, i))).collect();
    let mut seen = BTreeSet::new();
    let mut ways = vec![(0, Flight::default())];
    let mut most = 0;
    while let Some((first, mut flight)) = ways.pop() {
        for (i, line) in lines.iter().enumerate().skip(first) {
            if label(line).is_some() && !seen.insert((i, flight.clone())) {
                break;
            }
            flight.pass(line).unwrap_or_else(|wrong| panic!("{name}: {wrong}: {line}"));
            most = most.max(flight.batches.len());
            if let Some((condition, target)) = line.split_once("bra") {
                let target = target.trim_start_matches(".uni").trim().trim_end_matches(';');
                ways.push((labels[target], flight.clone()));
                if !condition.starts_with('@') {
                    break;
                }
            } else if *line == "ret;" {
                assert!(flight == Flight::default(), "{name} ends with `wgmma` in flight");
                break;
            }
        }
    }
    most
}

/// Checks that no kernel of these families touches in-flight registers or spills. Each kernel uses at most
/// `max_registers` registers per thread and has at most `batches` batches in flight.
fn families_keep_the_rules(families: &[&str], count: usize, (max_registers, batches): (u32, usize)) {
    let text = ptx(tensor_image(), "sm_90a");
    let is_of = |symbol: &str| families.iter().any(|family| symbol.starts_with(family));
    let kernels = tensor_image().kernels.iter().filter(|kernel| is_of(&kernel.symbol));
    assert_eq!(kernels.clone().count(), count, "{families:?}");
    for kernel in kernels {
        let (name, needs) = (&kernel.symbol, &kernel.resources[0]);
        assert_eq!((needs.spill_bytes, needs.stack_bytes), (0, 0), "{name}");
        assert!(needs.registers <= max_registers, "{name} has {} registers", needs.registers);
        assert_eq!(check_all_ways(name, function(&text, name)), batches, "{name}");
    }
}

/// Attention has two accumulators, and fragments, in flight at a time.
#[test]
fn nothing_touches_what_attention_has_in_flight() {
    families_keep_the_rules(&["attention__"], 6, (168, 2));
    families_keep_the_rules(&["attention_backward_queries", "attention_backward_keys"], 8, (168, 2));
}

#[test]
fn nothing_touches_what_blocks_of_a_tile_have_in_flight() {
    families_keep_the_rules(&["matmul_non_persistent", "matmul_grouped"], 44, (168, 2));
    families_keep_the_rules(&["matmul_tf32x3", "matmul_scaled"], 2, (168, 2));
}

#[test]
fn registers_touched_in_flight_are_found() {
    let product =
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%r1, %r2}, {%r3, %r4}, %rd1, p, 1, 1, 1;";
    let commit = "wgmma.commit_group.sync.aligned;";
    let found = |line: &'static str| {
        let mut flight = Flight::default();
        [product, commit].into_iter().chain([line]).try_for_each(|line| flight.pass(line)).is_err()
    };
    assert!(found("mov.b32 %r9, %r2;") && found("mov.b32 %r3, 0;") && found(product));
    let unnamed = "wgmma.wait_group.sync.aligned 0; // %r1 %r2 %r3";
    let mut flight = Flight::default();
    for line in [product, commit, unnamed, "// %r3 %r9"] {
        flight.pass(line).unwrap();
    }
    assert!(
        flight.pass("mov.b32 %r4, 0;").is_err()
            && flight.pass("// %r4").is_ok()
            && flight == Flight::default()
    );
    assert!(!found("mov.b32 %r9, %rd1;") && !found("wgmma.wait_group.sync.aligned 1; // %r1 %r2"));
}
