//! The embedded GPU image, as facts for people.

use std::collections::{BTreeSet, HashMap};

use warpsmith::bench::size::format_bytes;
use warpsmith::{IMAGE, KernelResources};

/// `gpu-kernels: sm_80 PTX (1.2 MiB), sm_90a cubin (0.9 MiB); 350 kernels`.
pub fn describe() -> String {
    let forms: Vec<String> = IMAGE
        .binaries()
        .map(|form| {
            let suffix = if form.is_arch_specific { "a" } else { "" };
            let kind = if form.is_cubin { "cubin" } else { "PTX" };
            format!("sm_{}{suffix} {kind} ({})", form.arch, format_bytes(form.code.len() as u64))
        })
        .collect();
    format!("{}: {}; {} kernel instances", IMAGE.name(), forms.join(", "), IMAGE.kernels().count())
}

/// The architectures there are figures for, ascending.
pub fn archs() -> Vec<u32> {
    let all: BTreeSet<u32> = IMAGE.kernels().flat_map(|(_, list)| list.into_iter().map(|r| r.arch)).collect();
    all.into_iter().collect()
}

/// What every kernel needs on an architecture, by symbol.
pub fn resources(arch: u32) -> HashMap<&'static str, KernelResources> {
    let on = |list: Vec<KernelResources>| list.into_iter().find(|r| r.arch == arch);
    IMAGE.kernels().filter_map(|(symbol, list)| Some((symbol, on(list)?))).collect()
}
