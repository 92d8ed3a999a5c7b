//! Report on the kernels of an image.

use gpu_spec::{AbiParam, ParamKind};
use serde::{Deserialize, Serialize};

use crate::codegen::Module;
use crate::error::Error;
use crate::panic_paths::PanicPath;
use crate::parts::Part;
use crate::rewrite::Kernel;

/// One kernel of an image.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelReport {
    /// Symbol of the kernel.
    pub symbol: String,
    /// Package that defines the kernel; empty if `#[kernel]` did not record the package.
    pub package: String,
    /// Names of the const parameters, as far as `#[kernel]` recorded them.
    #[serde(default)]
    pub consts: Vec<String>,
    /// Part of the image that contains the kernel.
    pub part: String,
    /// Stack per thread in bytes, callees included, on the architecture that needs the most. The value is 0 if ptxas is
    /// not available. `None` if the size is unknown before the kernel runs, because the kernel recurses or makes
    /// indirect calls.
    pub stack: Option<u32>,
    /// Stack in bytes requested with `#[kernel(stack = BYTES)]`, or 0 if no stack size is requested.
    pub requested_stack: u32,
    /// Maximum number of threads per block from its launch bounds.
    pub max_block: Option<u32>,
    /// Block dimensions that every launch must have.
    pub block: Option<[u32; 3]>,
    /// Cluster dimensions that every launch must have.
    pub cluster: Option<[u32; 3]>,
    /// Minimum compute capability, as `10 * major + minor`. 0 means any compute capability.
    pub min_arch: u32,
    /// True if the kernel runs only on exactly that compute capability.
    pub is_arch_specific: bool,
    /// Bytes per element for each of the kernel's arrays in dynamic shared memory.
    pub dynamic_shared: Vec<u32>,
    /// Resources, with one entry per architecture that has the kernel. The list is empty if ptxas is not available.
    pub resources: Vec<ArchReport>,
    /// Remaining panics on any architecture.
    pub panics: Vec<PanicPath>,
}

/// Resources of a kernel on one architecture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchReport {
    /// Architecture name, for example `sm_90a`.
    pub arch: String,
    /// Compute capability as a number, `10 * major + minor`.
    pub capability: u32,
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Stack frame per thread, in bytes.
    pub stack_bytes: u32,
    /// Sum of spill stores and spill loads, in bytes.
    pub spill_bytes: u32,
}

/// Combines the kernels with the facts about their code. `modules` contains the modules of each of `parts`.
pub fn kernels(kernels: &[Kernel], parts: &[Part], modules: &[Vec<Module>]) -> Vec<KernelReport> {
    let is_dynamic = |param: &&AbiParam| param.kind == ParamKind::Shared as u32;
    let report = |kernel: &Kernel| {
        // A kernel that other kernels launch is also in the linked part, which comes last.
        let part = parts.iter().position(|part| part.has(kernel)).unwrap_or(0);
        let modules = modules.get(part).map_or(&[][..], |modules| modules);
        let params = kernel.abi.iter().flat_map(|abi| &abi.params);
        let mut report = KernelReport {
            symbol: kernel.symbol.clone(),
            package: kernel.abi.as_ref().map_or_else(String::new, |abi| abi.package.clone()),
            consts: kernel.abi.as_ref().map_or_else(Vec::new, |abi| abi.consts.clone()),
            part: parts.get(part).map_or_else(String::new, |part| part.name.clone()),
            stack: Some(0),
            requested_stack: kernel.stack,
            max_block: Some(kernel.max_threads).filter(|threads| *threads > 0),
            block: kernel.block,
            cluster: kernel.cluster,
            min_arch: kernel.min_arch,
            is_arch_specific: kernel.is_arch_specific,
            dynamic_shared: params.filter(is_dynamic).map(|param| param.size).collect(),
            ..KernelReport::default()
        };
        for module in modules {
            let found = module.facts.panics.iter().filter(|(symbol, _)| *symbol == kernel.symbol);
            report.panics.extend(found.flat_map(|(_, panics)| panics).cloned());
            let found = module.facts.resources.iter().find(|(symbol, _)| *symbol == kernel.symbol);
            if let Some((_, r)) = found {
                report.stack = report.stack.map(|stack| stack.max(r.cumulative_stack).max(r.stack_bytes));
                report.resources.push(ArchReport {
                    arch: module.arch.to_string(),
                    capability: module.arch.capability(),
                    registers: r.registers,
                    shared_bytes: r.shared_bytes,
                    stack_bytes: r.stack_bytes,
                    spill_bytes: r.spill_bytes,
                });
            }
        }
        if modules.iter().any(|module| module.facts.unknown_stacks.contains(&kernel.symbol)) {
            report.stack = None;
        }
        report.panics.sort();
        report.panics.dedup();
        report
    };
    kernels.iter().map(report).collect()
}

/// Fails if a panic remains in a kernel marked `no_panic`.
pub fn check_panics(kernels: &[Kernel], reports: &[KernelReport]) -> Result<(), Error> {
    let mut panics = Vec::new();
    let left =
        kernels.iter().zip(reports).filter(|(kernel, report)| kernel.no_panic && !report.panics.is_empty());
    for (kernel, report) in left {
        panics.extend(report.panics.iter().map(|panic| format!("`{}`: {panic}", kernel.symbol)));
    }
    if panics.is_empty() { Ok(()) } else { Err(Error::Panics { panics }) }
}

/// Maximum local memory per thread in bytes, on every architecture.
const MAX_STACK: u32 = 512 << 10;

/// Stack size in bytes from which a kernel gets a warning. Panic paths and small arrays indexed at run time need less.
const LARGE_STACK: u32 = 1 << 10;

/// Fails if a kernel needs or requests more stack than a thread can allocate.
pub fn check_stacks(reports: &[KernelReport]) -> Result<(), Error> {
    let needed = |report: &KernelReport| report.stack.unwrap_or(0).max(report.requested_stack);
    let large = reports.iter().filter(|report| needed(report) > MAX_STACK);
    let kernels: Vec<String> =
        large.map(|report| format!("`{}`: {} bytes a thread", report.symbol, needed(report))).collect();
    if kernels.is_empty() { Ok(()) } else { Err(Error::Stack { kernels }) }
}

/// Fails if ptxas serializes the `wgmma` of a kernel, or spills registers of such a kernel. The kernel would work, but
/// at a fraction of its speed, and nothing else would indicate this.
pub fn check_wgmma(modules: &[Vec<Module>]) -> Result<(), Error> {
    let mut kernels = Vec::new();
    for module in modules.iter().flatten() {
        let of = |symbol: &String| format!("`{symbol}` for {}", module.arch);
        for symbol in &module.facts.wgmma {
            let panics = module.facts.panics.iter().filter(|(kernel, _)| kernel == symbol);
            let panics = panics.flat_map(|(_, panics)| panics);
            kernels.extend(
                panics.map(|panic| {
                    format!("{} can panic, and a panic is a function call: {panic}", of(symbol))
                }),
            );
            let resources = module.facts.resources.iter().find(|(kernel, _)| kernel == symbol);
            if let Some((_, r)) = resources.filter(|(_, r)| r.spill_bytes > 0 || r.stack_bytes > 0) {
                kernels.push(format!(
                    "{} spills {} bytes of registers and has {} bytes of stack: use fewer accumulators (at most 192 \
                     `f32` per thread with three warpgroups), index them with constants, and declare the block size",
                    of(symbol),
                    r.spill_bytes,
                    r.stack_bytes
                ));
            }
        }
        for (function, message) in &module.facts.serialized {
            let kernel = match module.facts.wgmma.contains(function) {
                true => of(function),
                false => format!("one of `{}` for {}", module.facts.wgmma.join("`, `"), module.arch),
            };
            kernels.push(format!("{kernel}: {message}\n    {}", remedy(message)));
        }
    }
    if kernels.is_empty() { Ok(()) } else { Err(Error::Wgmma { kernels }) }
}

fn remedy(message: &str) -> &'static str {
    match message {
        m if m.contains("setmaxnreg") => {
            "declare the block size: `#[kernel(block(384))]` or `launch_bounds(384, 1)`"
        }
        m if m.contains("function boundary") || m.contains("Extern calls") => {
            "a function call remains: mark called functions #[inline(always)], do not print, and avoid panics (index \
             with `get`, divide by a constant or a `NonZero`)"
        }
        m if m.contains("insufficient register") => {
            "use fewer accumulators or more threads: at most 192 `f32` per thread with three warpgroups"
        }
        m if m.contains("divergent") => {
            "branch only on warp-uniform values: pass warp indices through `warp::shuffle`"
        }
        _ => {
            "access accumulators and fragments only before the first `wgmma` of a batch and after waiting for the \
              batch"
        }
    }
}

/// Returns one warning for each kernel that spills, has a large stack, or has a stack of unknown size without
/// requesting one. Kernels whose symbol starts with an allowed prefix are exempt.
pub fn spill_warnings(kernels: &[KernelReport], allowed: &[String]) -> Vec<String> {
    let mut warnings = Vec::new();
    for kernel in
        kernels.iter().filter(|kernel| !allowed.iter().any(|prefix| kernel.symbol.starts_with(prefix)))
    {
        let bad: Vec<String> = kernel
            .resources
            .iter()
            .filter(|r| r.spill_bytes > 0 || r.stack_bytes >= LARGE_STACK)
            .map(|r| {
                format!("{}: {} bytes of spills, {} bytes of stack", r.arch, r.spill_bytes, r.stack_bytes)
            })
            .collect();
        if !bad.is_empty() {
            warnings.push(format!(
                "kernel `{}` uses local memory, which is slow ({})",
                kernel.symbol,
                bad.join("; ")
            ));
        }
        if kernel.stack.is_none() && kernel.requested_stack == 0 {
            warnings.push(format!(
                "kernel `{}` recurses or calls through a pointer, so its stack size is unknown; if the default stack \
                 limit is too small, write #[kernel(stack = BYTES)]",
                kernel.symbol
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_that_no_thread_can_have_is_an_error() {
        let kernel = |symbol: &str, stack, requested_stack| KernelReport {
            symbol: symbol.to_owned(),
            part: "k".to_owned(),
            stack,
            requested_stack,
            ..KernelReport::default()
        };
        assert!(check_stacks(&[kernel("most", Some(512 << 10), 0), kernel("unknown", None, 4096)]).is_ok());
        let kernels = [kernel("needs", Some(800_000), 0), kernel("requests", None, 600_000)];
        let text = check_stacks(&kernels).unwrap_err().to_string();
        assert!(
            text.contains("`needs`: 800000 bytes") && text.contains("`requests`: 600000 bytes"),
            "{text}"
        );
    }

    #[test]
    fn one_warning_a_kernel_and_none_where_allowed() {
        let needs = |arch: &str, stack_bytes, spill_bytes| ArchReport {
            arch: arch.to_owned(),
            capability: 80,
            registers: 8,
            shared_bytes: 0,
            stack_bytes,
            spill_bytes,
        };
        let kernel = |symbol: &str, stack, resources| KernelReport {
            symbol: symbol.to_owned(),
            part: "k".to_owned(),
            stack,
            resources,
            ..KernelReport::default()
        };
        let kernels = [
            kernel("good", Some(0), vec![needs("sm_80", 0, 0)]),
            kernel("small", Some(1023), vec![needs("sm_80", 1023, 0)]),
            kernel("bad", Some(1024), vec![needs("sm_80", 1024, 0), needs("sm_90a", 0, 4)]),
            kernel("known", Some(8), vec![needs("sm_80", 8, 8)]),
            kernel("deep", None, vec![]),
            KernelReport { requested_stack: 4096, ..kernel("asks", None, vec![]) },
        ];
        assert_eq!(
            spill_warnings(&kernels, &["known".to_owned()]),
            [
                "kernel `bad` uses local memory, which is slow (sm_80: 0 bytes of spills, 1024 bytes of stack; \
              sm_90a: 4 bytes of spills, 0 bytes of stack)",
                "kernel `deep` recurses or calls through a pointer, so its stack size is unknown; if the default \
                 stack limit is too small, write #[kernel(stack = BYTES)]"
            ]
        );
    }
}
