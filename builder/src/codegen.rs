//! Generates the PTX and cubin for one part and one architecture from the linked module.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::{Deserialize, Serialize};

use crate::arch::Arch;
use crate::cache::{Cache, Entry};
use crate::callees;
use crate::debug_info::DebugInfo;
use crate::directives;
use crate::error::Error;
use crate::fingerprint::Fingerprint;
use crate::image;
use crate::line_table;
use crate::link::{self, INLINED, Linked, Reporters};
use crate::local_atomics;
use crate::narrow;
use crate::no_code;
use crate::panic_paths::{self, PanicPath};
use crate::parts::Part;
use crate::ptx::Ptx;
use crate::ptxas::{self, Resources};
use crate::recursion;
use crate::rewrite::Kernel;
use crate::toolchain::{CudaTools, LlvmTools};
use crate::tools;
use crate::wrapping;

/// A part's code for one architecture.
#[derive(Debug, Clone)]
pub struct Module {
    /// Architecture of the code.
    pub arch: Arch,
    /// Path of the PTX file.
    pub ptx: PathBuf,
    /// Path of the cubin, if the architecture requests one and ptxas is available.
    pub cubin: Option<PathBuf>,
    /// Kernels of the module and their resources.
    pub facts: Facts,
}

/// A part's kernels for one architecture, and the tools' reports about them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Symbols of the kernels.
    pub kernels: Vec<String>,
    /// Resources of each kernel, by symbol. The map is empty if ptxas is not available.
    pub resources: Vec<(String, Resources)>,
    /// Symbols of the kernels whose stack size is unknown.
    pub unknown_stacks: Vec<String>,
    /// Symbols of the kernels that use `wgmma`.
    pub wgmma: Vec<String>,
    /// Reasons why ptxas serialized `wgmma`; see [`ptxas::Report::serialized`].
    pub serialized: Vec<(String, String)>,
    /// Remaining panics of each kernel, by symbol.
    pub panics: Vec<(String, Vec<PanicPath>)>,
}

/// Code generation options.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// True if `a * b + c` may be contracted to one `fma`, rounded once.
    pub fma: bool,
}

/// Kernels loop over small arrays of constant length. Such an array is kept in registers only if the loop is fully
/// unrolled, so the threshold for full unrolling is far above LLVM's default. Partial unrolling keeps its default.
const UNROLLING: [&str; 2] = ["-unroll-threshold=5000", "-unroll-partial-threshold=75"];

/// Disables straight-line strength reduction, which computes one pointer from another at an assumed constant distance.
/// LLVM 22 assumes that `sext(n + 100) - sext(n)` is 100, although `n + 100` may wrap. It also assumes that `sext(!c) -
/// sext(c)` is 1 for booleans, which occurs in core's small sort once its merge is unrolled: llvm/llvm-project#204278.
const MISCOMPILING: &str = "-opt-disable=slsr";

/// `__nvvm_reflect` value that makes libdevice's `sqrt` of `f32` correctly rounded. LLVM supplies the values for the
/// architecture and for preserving subnormals.
const REFLECTION: &str = "-nvvm-reflect-add=__CUDA_PREC_SQRT=1";

/// Expands casts between floats and integers of more than 64 bits into integer instructions, because no GPU library
/// implements these casts.
const WIDE_CASTS: &str = "-expand-fp-convert-bits=64";

/// Optimization passes for a build with full debug information. Variables stay in memory, where cuda-gdb finds them.
const UNOPTIMIZED: &str = "internalize,globaldce,always-inline,globaldce";

/// Input shared by all parts and architectures.
pub struct Job<'a> {
    /// LLVM tools.
    pub llvm: &'a LlvmTools,
    /// CUDA tools, such as ptxas.
    pub cuda: &'a CudaTools,
    /// Linked module to start from.
    pub linked: &'a Linked,
    /// Folder for intermediate files.
    pub work: &'a Path,
    /// Folder for output files.
    pub out: &'a Path,
    /// Cache of generated code, if enabled.
    pub cache: Option<&'a Cache>,
    /// Versions of the tools.
    pub tools: &'a str,
    /// Debug information of the code.
    pub debug: DebugInfo,
}

/// Optimizes the kernels of `part` that are compiled for `arch`, and writes `STEM.sm_XX.ptx` (and `.cubin`). Returns
/// `None` if there are no such kernels. `bitcode` holds the part's kernels and everything they need.
fn generate(job: &Job<'_>, arch: Arch, part: &Part, bitcode: &Path) -> Result<Option<Module>, Error> {
    let Job { llvm, cuda, linked, work, out, .. } = *job;
    let name = &part.stem;
    let input = format!("{name} for {arch}");
    let cpu = [format!("-mcpu={arch}"), format!("-mattr=+ptx{}", arch.ptx())];
    let kernels: Vec<&Kernel> =
        linked.kernels.iter().filter(|kernel| kernel.is_in(arch) && part.has(kernel)).collect();
    if kernels.is_empty() {
        return Ok(None);
    }

    let ptx = out.join(format!("{name}.{arch}.ptx"));
    let key = key(job, arch, part, &kernels, bitcode)?;
    if let Some(Entry { facts, ptx: text, cubin }) = job.cache.and_then(|cache| cache.get(&key)) {
        let write =
            |path: &Path, bytes: &[u8]| std::fs::write(path, bytes).map_err(Error::io("cannot write", path));
        write(&ptx, &text)?;
        let cubin = cubin.map(|bytes| (out.join(format!("{name}.{arch}.cubin")), bytes));
        cubin.iter().try_for_each(|(path, bytes)| write(path, bytes))?;
        return Ok(Some(Module { arch, ptx, cubin: cubin.map(|(path, _)| path), facts }));
    }

    let optimize = |reporters: Reporters, kernels: &[&Kernel]| {
        let public = work.join(format!("public.{name}.{arch}.{reporters:?}"));
        link::write_public(&public, kernels.iter().copied(), &linked.visible, reporters)?;
        let optimized = work.join(format!("optimized.{name}.{arch}.{reporters:?}.ll"));
        let mut command = llvm.passes("opt");
        command.args(&cpu).args(UNROLLING).arg(REFLECTION);
        match reporters {
            Reporters::Private => {
                command.args((job.debug == DebugInfo::None).then_some("-strip-debug"));
                match job.debug {
                    DebugInfo::Full => command.arg(format!("-passes={UNOPTIMIZED}")),
                    _ => command.arg(format!("-passes=internalize,globaldce,{INLINED},default<O3>")),
                }
            }
            Reporters::Public => {
                command.args(linked.diverging.iter().map(|name| format!("-force-attribute={name}:nomerge")));
                command.arg(format!("-passes=internalize,globaldce,{INLINED},forceattrs,default<O3>"))
            }
        };
        command.args(["-S", "-o"]).arg(&optimized);
        tools::run(command.arg(link::public_list(&public)).arg(bitcode), &input)?;
        let ir = link::read(&optimized)?;
        Ok::<_, Error>((optimized, ir))
    };
    let (optimized, ir) = optimize(Reporters::Private, &kernels)?;
    let mut panics = Vec::new();
    let reporting = panic_paths::reporting(&ir, &kernels);
    if !reporting.is_empty() {
        let (_, ir) = optimize(Reporters::Public, &reporting)?;
        panics = panic_paths::find(&ir, reporting.iter().map(|kernel| &*kernel.symbol));
    }

    let has_lines = job.debug == DebugInfo::Lines;
    let ir = if has_lines { line_table::user_lines(&ir) } else { ir };
    if has_lines {
        link::write(&optimized, &ir)?;
    }
    local_atomics::replace(llvm, &optimized, &ir, &input)?;
    let mut command = llvm.passes("llc");
    let level = if job.debug == DebugInfo::Full { "-O1" } else { "-O3" };
    command.args(&cpu).args([level, MISCOMPILING, WIDE_CASTS, "-o"]).arg(&ptx);
    // Only the operations that the rewrite has marked are contracted.
    command.arg("-fp-contract=off");
    tools::run(command.arg(&optimized), &input).map_err(|error| {
        no_code::explain(error, &linked.kernels, || optimize(Reporters::Public, &kernels).map(|(_, ir)| ir))
    })?;
    let mut text = link::read(&ptx)?;
    if has_lines {
        text = directives::shorten(&text);
    }
    let text = [narrow::store_whole_registers, recursion::reconverge, callees::hide, wrapping::spell_out]
        .into_iter()
        .fold(text, |text, corrected: fn(&str) -> String| corrected(&text));
    link::write(&ptx, &text)?;
    crate::externs::check(&text, linked)?;
    let read = Ptx::read(&text);
    read.check_parameters(&linked.kernels)?;
    let those = |is: &dyn Fn(&str) -> bool| -> Vec<String> {
        kernels.iter().filter(|kernel| is(&kernel.symbol)).map(|kernel| kernel.symbol.clone()).collect()
    };
    let mut facts = Facts {
        unknown_stacks: those(&|kernel| read.has_unknown_stack(kernel)),
        kernels: those(&|_| true),
        wgmma: those(&|kernel| read.has_wgmma(kernel)),
        panics,
        ..Facts::default()
    };
    let mut cubin = None;
    if let Some(ptxas) = &cuda.ptxas {
        let file = out.join(format!("{name}.{arch}.cubin"));
        let report = ptxas::assemble(ptxas, arch, part.is_linked, job.debug, &ptx, &file)?;
        (facts.resources, facts.serialized) = (report.kernels, report.serialized);
        if arch.has_cubin() {
            cubin = Some(file);
        } else if file.exists() {
            std::fs::remove_file(&file).map_err(Error::io("cannot remove", &file))?;
        }
    }
    if let Some(cache) = job.cache {
        let cubin = cubin.as_deref().map(image::read).transpose()?;
        cache.put(&key, &Entry { facts: facts.clone(), ptx: text.into_bytes(), cubin });
    }
    Ok(Some(Module { arch, ptx, cubin, facts }))
}

/// Returns the cache key of a part: a hash of everything that its code depends on.
fn key(job: &Job<'_>, arch: Arch, part: &Part, kernels: &[&Kernel], bitcode: &Path) -> Result<String, Error> {
    let Linked { diverging, visible, .. } = job.linked;
    let mut key = Fingerprint::new();
    key.value(&env!("WARPSMITH_BUILDER_SOURCES"));
    key.value(&format!(
        "{} {arch} {} {kernels:?} {diverging:?} {visible:?} {:?}",
        job.tools, part.is_linked, job.debug
    ));
    key.contents(bitcode)?;
    Ok(key.finish())
}

/// Generates all parts for all architectures; returns the [`Module`]s by part.
pub fn generate_all(job: &Job<'_>, parts: &[Part], archs: &[Arch]) -> Result<Vec<Vec<Module>>, Error> {
    let split: Vec<(u64, PathBuf)> = in_parallel(parts, |part| {
        let bitcode = job.work.join(format!("{}.bc", part.stem));
        let kernels = job.linked.kernels.iter().filter(|kernel| part.has(kernel));
        link::take_part(job.llvm, job.linked, kernels, &bitcode)?;
        let about = std::fs::metadata(&bitcode).map_err(Error::io("cannot read", &bitcode))?;
        Ok((about.len(), bitcode))
    })?;
    let mut all: Vec<(usize, usize)> =
        (0..parts.len()).flat_map(|part| (0..archs.len()).map(move |arch| (part, arch))).collect();
    // The largest parts are started first, because a large part that is started last would leave other cores idle.
    all.sort_by_key(|&(part, _)| std::cmp::Reverse(split[part].0));
    let mut done = in_parallel(&all, |&(part, arch)| {
        let module = generate(job, archs[arch], &parts[part], &split[part].1)?;
        Ok((part, arch, module))
    })?;
    done.sort_by_key(|&(part, arch, _)| (part, arch));
    let mut modules = vec![Vec::new(); parts.len()];
    done.into_iter().for_each(|(part, _, module)| modules[part].extend(module));
    Ok(modules)
}

/// Applies `work` to each item, with one thread per core. The results are in the order of the items.
pub(crate) fn in_parallel<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R, Error> + Sync,
) -> Result<Vec<R>, Error> {
    let next = AtomicUsize::new(0);
    let run = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else { return Ok(done) };
            done.push((index, work(item)?));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(items.len());
    let done: Vec<Result<Vec<(usize, R)>, Error>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect()
    });
    let mut results = Vec::new();
    for of_thread in done {
        results.extend(of_thread?);
    }
    results.sort_by_key(|(index, _)| *index);
    Ok(results.into_iter().map(|(_, result)| result).collect())
}
