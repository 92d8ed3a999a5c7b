//! Facts about the embedded GPU image.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use warpsmith::IMAGE;
use warpsmith::bench::size::format_bytes;
use warpsmith::module::spec::{CodeKind, KernelRecord, KernelResources, Packed};

/// Describes the image: `gpu-kernels 0.1.0: sm_80 PTX (0.8 MiB), sm_90a cubin (0.7 MiB), compressed, in 8 modules; 350
/// kernel instances`.
pub fn describe() -> String {
    let mut sizes: BTreeMap<String, usize> = BTreeMap::new();
    for form in IMAGE.modules().iter().flat_map(|module| module.forms) {
        let suffix = if form.is_arch_specific { "a" } else { "" };
        let kind = if matches!(form.kind, CodeKind::Cubin(_)) { "cubin" } else { "PTX" };
        let bytes = match form.code {
            Packed::Plain(bytes) => bytes.len(),
            Packed::Lzma { stream, .. } => stream.len(),
        };
        *sizes.entry(format!("sm_{}{suffix} {kind}", form.arch)).or_default() += bytes;
    }
    let forms: Vec<String> =
        sizes.iter().map(|(form, bytes)| format!("{form} ({})", format_bytes(*bytes as u64))).collect();
    format!(
        "{} {}: {}, compressed, in {} modules; {} kernel instances",
        IMAGE.name(),
        IMAGE.spec().package.version,
        forms.join(", "),
        IMAGE.modules().len(),
        IMAGE.kernels().len()
    )
}

/// Returns the architectures for which resource data exists, in ascending order.
pub fn archs() -> Vec<u32> {
    let all: BTreeSet<u32> =
        IMAGE.kernels().iter().flat_map(|kernel| kernel.resources).map(|r| r.arch).collect();
    all.into_iter().collect()
}

/// Returns the resources of every kernel on an architecture, keyed by symbol.
pub fn resources(arch: u32) -> HashMap<&'static str, KernelResources> {
    let on = |kernel: &KernelRecord| kernel.resources.iter().find(|r| r.arch == arch).copied();
    IMAGE.kernels().iter().filter_map(|kernel| Some((kernel.symbol, on(kernel)?))).collect()
}
