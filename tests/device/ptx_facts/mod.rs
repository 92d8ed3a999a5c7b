//! Requirements on the PTX in the embedded image, for speed and for correct barriers.
//!
//! The tests fail without an image: a build without the device toolchain has no PTX to check.

mod linked;
mod tiles;

use std::collections::{BTreeMap, HashMap};

use warpsmith::module::spec::{CodeKind, KernelRecord, Packed, StackUse};
use warpsmith::module::unpack;
use warpsmith::{GpuImage, IMAGE};

/// The images: of the product, and of tests and examples.
const IMAGES: [&GpuImage; 2] = [&IMAGE, &test_kernels::IMAGE];

/// Fails with the reason if an image is empty.
fn assert_images() {
    for image in IMAGES {
        assert_eq!(image.missing(), None, "{} is what these tests look at", image.name());
    }
}

/// PTX of the kernels that are not linked with the device runtime: per architecture, a map from symbol to body. PTX of
/// newer architectures exists only for kernels that older architectures do not support.
fn ptx() -> BTreeMap<u32, HashMap<String, String>> {
    assert_images();
    let mut found: BTreeMap<u32, HashMap<String, String>> = BTreeMap::new();
    let plain = IMAGES.iter().flat_map(|image| image.modules()).filter(|module| !module.is_linked);
    for form in plain.flat_map(|module| module.forms) {
        if let CodeKind::Ptx(_) = form.kind {
            let code = unpack(&form.code).expect("the code is as it was packed");
            let text = std::str::from_utf8(&code).expect("PTX is text");
            found.entry(form.arch).or_default().extend(entries(text));
        }
    }
    assert_eq!(found.keys().copied().collect::<Vec<_>>(), [80, 90]);
    found
}

/// Entries of a PTX module.
fn entries(text: &str) -> HashMap<String, String> {
    text.split(".visible .entry ")
        .skip(1)
        .map(|entry| {
            let symbol = entry.split('(').next().expect("an entry has a name").trim();
            let end = entry.find("\n}").expect("an entry ends");
            (symbol.to_owned(), entry[..end].to_owned())
        })
        .collect()
}

/// Runs `check` on each instance of a kernel in the PTX for sm_80, and checks the number of instances.
fn for_each(prefix: &str, instances: usize, check: impl Fn(&str, &str)) {
    let mut found = 0;
    for (symbol, body) in &ptx()[&80] {
        if symbol.strip_prefix(prefix).is_some_and(|rest| rest.starts_with("__")) {
            found += 1;
            check(&format!("{symbol} for sm_80"), body);
        }
    }
    assert_eq!(found, instances, "instances of {prefix} for sm_80");
}

/// Returns true if some line is such an instruction on 16 bytes.
fn moves_16_bytes(body: &str, instruction: &str) -> bool {
    body.lines().map(str::trim).any(|line| {
        line.starts_with(instruction)
            && [".v4.b32", ".v4.u32", ".v4.f32", ".v2.b64", ".v2.u64", ".v2.f64", ".b128"]
                .iter()
                .any(|width| line.contains(width))
    })
}

fn count(body: &str, instruction: &str) -> usize {
    body.lines().filter(|line| line.trim().starts_with(instruction)).count()
}

/// ptxas miscompiles a store of the low half of a floating-point register: it stores the number converted to an
/// integer.
#[test]
fn stores_are_of_whole_registers() {
    let is_part = |line: &&str| {
        let Some((store, values)) = line.trim().split_once(']') else { return false };
        let is_of = |types: &[&str]| types.iter().any(|bits| store.contains(bits));
        store.starts_with("st.") && is_of(&[".b8 ", ".b16 ", ".b32 "]) && values.contains("%rd")
    };
    let mut stores = 0;
    for (arch, entries) in ptx() {
        for (symbol, body) in entries {
            let text = body.replace('\t', " ");
            stores += text.matches("st.").count();
            assert_eq!(text.lines().find(is_part), None, "{symbol} for sm_{arch}");
        }
    }
    assert!(stores > 1000, "{stores}");
}

#[test]
fn bulk_accesses_are_16_bytes_wide() {
    for (kernel, instances, stores) in [("copy", 32, true), ("axpy", 32, true), ("reduce_sum", 14, false)] {
        for_each(kernel, instances, |name, body| {
            if !name.split(' ').next().is_some_and(|symbol| symbol.ends_with("_16")) {
                return;
            }
            assert!(moves_16_bytes(body, "ld.global"), "{name} loads no vectors of 16 bytes:\n{body}");
            assert!(
                !stores || moves_16_bytes(body, "st.global"),
                "{name} stores no vectors of 16 bytes:\n{body}"
            );
        });
    }
}

#[test]
fn items_are_loaded_before_they_are_used() {
    // axpy<f32, 4, 16> must have 8 consecutive vector loads somewhere: 4 of x and 4 of y, with no store in between.
    let body = &ptx()[&80]["axpy__f32_4_16"];
    let mut most = 0;
    let mut in_flight = 0;
    for line in body.lines().map(str::trim) {
        if line.starts_with("st.global") {
            in_flight = 0;
        } else if moves_16_bytes(line, "ld.global") {
            in_flight += 1;
            most = most.max(in_flight);
        }
    }
    assert!(most >= 8, "axpy__f32_4_16 has {most} loads in flight:\n{body}");
}

#[test]
fn reductions_use_shared_memory_and_keep_their_barriers() {
    for (kernel, instances) in [
        ("reduce_sum", 14),
        ("reduce_prod", 7),
        ("reduce_min", 8),
        ("reduce_max", 8),
        ("reduce_argmin", 8),
        ("reduce_argmax", 8),
    ] {
        for_each(kernel, instances, |name, body| {
            assert!(count(body, "ld.shared") > 0 && count(body, "st.shared") > 0, "{name}:\n{body}");
            // One barrier in each of the two block-wide combinations, and one for the vote on which block is last.
            let instructions = ["bar.sync", "bar.red", "barrier.sync", "barrier.red", "barrier.cta"];
            let barriers = body.lines().filter(|line| instructions.iter().any(|name| line.contains(name)));
            assert_eq!(barriers.count(), 3, "{name}:\n{body}");
        });
    }
}

/// Returns true if a kernel may use the stack. Diagnostic kernels and kernels of unknown stack size may use it. So may
/// functions with a libdevice table on the stack, and local arrays of a kernel or of a registry crate.
fn may_use_stack(symbol: &str) -> bool {
    let is_unknown = |record: &KernelRecord| record.symbol == symbol && record.stack == StackUse::Unknown;
    symbol.starts_with("diagnose_")
        || symbol.starts_with("evaluate_")
        || ["methods", "decimals", "random_medians", "turned", "sort_arrays", "local_atomics"]
            .contains(&symbol)
        || IMAGES.iter().flat_map(|image| image.kernels()).any(is_unknown)
}

#[test]
fn elementwise_kernels_need_no_barrier_or_stack() {
    for (arch, entries) in ptx() {
        for (symbol, body) in &entries {
            assert!(
                may_use_stack(symbol) || !body.contains(".local"),
                "{symbol} for sm_{arch} uses local memory:\n{body}"
            );
            let elementwise = [
                "copy",
                "fill",
                "cast",
                "cast_to_signed",
                "cast_to_bool",
                "axpy",
                "add",
                "mul",
                "fma",
                "relu",
                "gelu",
                "sigmoid",
                "exp",
            ];
            if elementwise.iter().any(|kernel| symbol.starts_with(&format!("{kernel}__"))) {
                assert!(
                    !body.contains("bar.") && !body.contains("barrier."),
                    "{symbol} has a barrier:\n{body}"
                );
            }
        }
    }
}

#[test]
fn the_grid_barrier_is_one_atomic_addition() {
    let entries = &ptx()[&80];
    for (symbol, barriers) in [("grid_sync_rounds", 2), ("grid_sync_chain", 2)] {
        let body = &entries[symbol];
        for (instruction, times) in
            [("atom.release.gpu.add.u32", 1), ("ld.acquire.gpu.b32", 1), ("barrier.sync", barriers)]
        {
            assert_eq!(count(body, instruction), times, "{instruction} in {symbol}:\n{body}");
        }
    }
}

#[test]
fn clusters_have_their_instructions_where_there_are_any() {
    for (arch, entries) in ptx() {
        for (symbol, barriers, maps) in
            [("cluster_sync_rounds", 1, 0), ("cluster_sync_chain", 3, 1), ("cluster_histogram", 2, 1)]
        {
            assert_eq!(entries.contains_key(symbol), arch >= 90, "{symbol} for sm_{arch}");
            let Some(body) = entries.get(symbol) else { continue };
            for (instruction, times) in
                [("barrier.cluster.arrive", barriers), ("barrier.cluster.wait", barriers), ("mapa", maps)]
            {
                assert_eq!(
                    count(body, instruction),
                    times,
                    "{instruction} in {symbol} for sm_{arch}:\n{body}"
                );
            }
        }
        for symbol in ["spin_dependent", "empty_dependent", "spin_plain", "empty"] {
            assert_eq!(entries.contains_key(symbol), arch == 80, "{symbol} for sm_{arch}");
            let dependent = entries.get(symbol).is_some_and(|body| body.contains("griddepcontrol"));
            assert!(!dependent, "{symbol} for sm_{arch}");
        }
        let others = entries.iter().filter(|(symbol, _)| !symbol.contains("cluster"));
        for (symbol, body) in others {
            assert!(!body.contains("barrier.cluster") && !body.contains("mapa"), "{symbol} for sm_{arch}");
        }
    }
}

#[test]
fn required_blocks_and_clusters_are_directives() {
    for (arch, entries) in ptx() {
        for (symbol, block) in [
            ("add_planes", "16, 16, 1"),
            ("heat_step", "32, 8, 1"),
            ("mirror__16", "16, 8, 1"),
            ("mirror__32", "32, 8, 1"),
            ("smooth_planes", "8, 4, 4"),
        ] {
            let Some(body) = entries.get(symbol) else { continue };
            assert!(body.contains(&format!(".reqntid {block}")), "{symbol} for sm_{arch}:\n{body}");
            assert!(!body.contains("%ntid"), "the block of {symbol} is no constant for sm_{arch}:\n{body}");
        }
        assert_eq!(entries.contains_key("cluster_ranks"), arch >= 90);
        let Some(body) = entries.get("cluster_ranks") else { continue };
        assert!(body.contains(".reqntid 32, 1, 1") && body.contains(".reqnctapercluster 2, 1, 1"), "{body}");
    }
}

#[test]
fn kernels_of_planes_cannot_panic_and_check_once() {
    let entries = &ptx()[&80];
    for symbol in [
        "add_planes",
        "heat_step",
        "add_everywhere",
        "normalize_rows",
        "mirror__16",
        "mirror__32",
        "smooth_planes",
    ] {
        let body = &entries[symbol];
        assert!(!body.contains("call") && !body.contains("trap"), "{symbol} can panic:\n{body}");
    }
    // All bounds checks of all three views share one branch, and addresses need no 64-bit multiplication.
    let body = &entries["add_planes"];
    assert_eq!((count(body, "@%p"), count(body, "bra.uni")), (1, 0), "{body}");
    assert_eq!((count(body, "setp"), count(body, "mul.lo.s64")), (6, 0), "{body}");
    let body = &entries["heat_step"];
    assert_eq!(count(body, "ld.global"), 5, "{body}");
}

/// Returns true if a kernel may spill registers:
/// - Norms of long rows have 64 registers, of which 32 hold elements. On sm_90, where cluster barriers take some
///   registers, a few values that are the same for all rows are on the stack. So are functions of f64, which need more
///   registers. More registers would leave one block per SM instead of two.
/// - Sums of rows of u32 spill 8 bytes on sm_80.
/// - Scans of 8-byte elements keep almost all values of two tiles in 64 registers, so that four blocks fit.
/// - Passes of a sort, and comparing selections, of u32 on sm_80 spill 8 bytes.
/// - Even histograms of floats keep the elements of two tiles in 80 registers, so that three blocks fit.
fn may_spill(symbol: &str, arch: u32) -> bool {
    let is_norm = symbol.starts_with("norm__") && symbol.ends_with("_8");
    let is_backward = symbol.starts_with("norm_backward__") && symbol.ends_with("_4");
    let is_double = ["softmax__f64", "norm__f64", "add_rms_norm__f64", "norm_backward__f64"]
        .iter()
        .any(|of| symbol.starts_with(of));
    let is_narrow = [
        "sum_rows__u32",
        "prod_rows__u32",
        "min_rows__f64",
        "max_rows__f64",
        "radix_pass__u32",
        "compact_compared__u32_5_16",
    ]
    .contains(&symbol);
    let is_pairs = symbol == "radix_pass_pairs__u32_u32";
    // Two sums per element of a vector.
    let is_mean = symbol == "mean_rows__bf16";
    let is_histogram =
        ["f32", "f64", "f16", "bf16"].iter().any(|of| symbol.starts_with(&format!("histogram_even__{of}_")));
    let is_parameters = symbol.starts_with("norm_backward_parameters__") && symbol.contains("f16_");
    let is_wide_scan = ["scan_sum__", "scan_min__", "scan_max__"].iter().any(|of| symbol.starts_with(of))
        && symbol.contains("64_");
    is_double
        || is_wide_scan
        || is_histogram
        || is_mean
        || is_norm
        || arch == 90 && (is_backward || is_pairs)
        || arch == 80 && (is_narrow || is_parameters)
}

#[test]
fn no_kernel_spills() {
    assert_images();
    for record in IMAGES.iter().flat_map(|image| image.kernels()) {
        for of in record.resources.iter().filter(|of| !may_spill(record.symbol, of.arch)) {
            assert_eq!(of.spills, 0, "{} for sm_{} spills", record.symbol, of.arch);
            assert!(
                may_use_stack(record.symbol) || of.stack == 0,
                "{} for sm_{} has {} bytes of stack",
                record.symbol,
                of.arch,
                of.stack
            );
        }
    }
}

#[test]
fn pointers_of_calls_are_hidden_from_ptxas() {
    let mut count = 0;
    for (arch, entries) in ptx() {
        for (symbol, body) in &entries {
            let is_call = |line: &&str| line.trim_start().starts_with("call") && line.contains("prototype_");
            for call in body.lines().filter(is_call) {
                assert!(call.contains(" %callee,"), "{symbol} for sm_{arch}: {call}");
                count += 1;
            }
        }
    }
    assert!(count > 0, "`call_in_turn` calls through pointers");
}

#[test]
fn every_registered_kernel_is_in_its_image() {
    assert_images();
    for image in IMAGES {
        let package = if image.name() == "warpsmith-gpu-kernels" {
            "warpsmith-gpu-kernels"
        } else {
            "test-kernels-gpu"
        };
        assert_eq!(image.name(), package);
        let mut count = 0;
        for spec in warpsmith::gpu_std::registry::kernels().filter(|spec| spec.package == package) {
            let record = image.spec().kernel_of(spec).expect(spec.symbol);
            let abi = record.abi.as_ref().expect(spec.symbol);
            assert_eq!((abi.package.name, abi.package.version), (spec.package, spec.version));
            assert!(
                spec.params.iter().map(|param| param.abi()).eq(abi.params.iter().copied()),
                "{}",
                spec.symbol
            );
            count += 1;
        }
        assert_eq!(count, image.kernels().len(), "{package} has kernels that the registry does not know");
    }
}

#[test]
fn the_product_image_is_small_and_in_parts() {
    assert_images();
    let embedded: usize = IMAGE
        .modules()
        .iter()
        .flat_map(|module| module.forms)
        .map(|form| match form.code {
            Packed::Plain(bytes) => bytes.len(),
            Packed::Lzma { stream, .. } => stream.len(),
        })
        .sum();
    assert!(embedded <= 2_700_000, "{embedded} bytes of GPU code");
    assert!(
        IMAGE.spec().device_runtime.is_none(),
        "libcudadevrt is for kernels that set a graph's conditions"
    );
    let names: Vec<&str> = IMAGE.modules().iter().map(|module| module.name).collect();
    assert!(["copy", "elementwise", "random", "reduce"].iter().all(|name| names.contains(name)), "{names:?}");
    for module in IMAGE.modules() {
        let archs: Vec<u32> = module.forms.iter().map(|form| form.arch).collect();
        assert_eq!(archs, [80, 90], "{}: PTX for all, and machine code", module.name);
    }
}
