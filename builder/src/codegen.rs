//! From the linked module to the PTX and cubin of one part for one architecture.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arch::Arch;
use crate::error::Error;
use crate::link::{self, Linked, Reporters};
use crate::panic_paths::{self, PanicPath};
use crate::parts::Part;
use crate::ptx::Ptx;
use crate::ptxas::{self, Resources};
use crate::rewrite::Kernel;
use crate::toolchain::{CudaTools, LlvmTools};
use crate::tools;

/// The code of a part for one architecture.
#[derive(Debug, Clone)]
pub struct Module {
    /// The architecture.
    pub arch: Arch,
    /// The PTX file.
    pub ptx: PathBuf,
    /// The cubin, when the architecture requests one and ptxas is available.
    pub cubin: Option<PathBuf>,
    /// The symbols of its kernels.
    pub kernels: Vec<String>,
    /// The resources of each kernel, by symbol; empty without ptxas.
    pub resources: Vec<(String, Resources)>,
    /// The symbols of the kernels whose stack is not known.
    pub unknown_stacks: Vec<String>,
    /// The panics that are left in each kernel, by symbol.
    pub panics: Vec<(String, Vec<PanicPath>)>,
}

/// How to generate code.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether `a * b + c` may become one `fma`, rounded once.
    pub fma: bool,
}

/// Kernels loop over small arrays whose length is a constant. Only when such a loop is unrolled entirely does
/// the array live in registers, so that is done far beyond LLVM's usual limit; partial unrolling stays as it is.
const UNROLLING: [&str; 2] = ["-unroll-threshold=5000", "-unroll-partial-threshold=75"];

/// The input that all parts and architectures share.
pub struct Job<'a> {
    /// The LLVM tools.
    pub llvm: &'a LlvmTools,
    /// ptxas.
    pub cuda: &'a CudaTools,
    /// The module to start from.
    pub linked: &'a Linked,
    /// How.
    pub options: Options,
    /// For intermediate files.
    pub work: &'a Path,
    /// For the outputs.
    pub out: &'a Path,
}

/// Optimises the kernels of `part` that `arch` has, and writes `STEM.sm_XX.ptx` (and `.cubin`). `None` when it has none.
pub fn generate(job: &Job<'_>, arch: Arch, part: &Part) -> Result<Option<Module>, Error> {
    let Job { llvm, cuda, linked, options, work, out } = *job;
    let name = &part.stem;
    let input = format!("{name} for {arch}");
    let cpu = [format!("-mcpu={arch}"), format!("-mattr=+ptx{}", arch.ptx())];
    let kernels: Vec<&Kernel> = linked
        .kernels
        .iter()
        .filter(|kernel| kernel.min_arch <= arch.capability() && part.has(kernel))
        .collect();
    if kernels.is_empty() {
        return Ok(None);
    }

    let optimise = |reporters: Reporters| {
        let public = work.join(format!("public.{name}.{arch}.{reporters:?}"));
        link::write_public(&public, kernels.iter().copied(), reporters)?;
        let optimised = work.join(format!("optimised.{name}.{arch}.{reporters:?}.ll"));
        let mut command = Command::new(llvm.tool("opt"));
        command.args(&cpu).args(UNROLLING);
        match reporters {
            Reporters::Private => command.args(["-strip-debug", "-passes=internalize,globaldce,default<O3>"]),
            Reporters::Public => {
                command.args(linked.diverging.iter().map(|name| format!("-force-attribute={name}:nomerge")));
                command.arg("-passes=internalize,globaldce,forceattrs,default<O3>")
            }
        };
        command.args(["-S", "-o"]).arg(&optimised);
        tools::run(command.arg(link::public_list(&public)).arg(&linked.bitcode), &input)?;
        let ir = link::read(&optimised)?;
        Ok::<_, Error>((optimised, ir))
    };
    let (optimised, ir) = optimise(Reporters::Private)?;
    let mut panics = Vec::new();
    if panic_paths::has_reporters(&ir) {
        let (_, ir) = optimise(Reporters::Public)?;
        panics = panic_paths::find(&ir, kernels.iter().map(|kernel| &*kernel.symbol));
    }

    let ptx = out.join(format!("{name}.{arch}.ptx"));
    let mut command = Command::new(llvm.tool("llc"));
    command.args(&cpu).args(["-O3", "-o"]).arg(&ptx);
    command.arg(format!("-fp-contract={}", if options.fma { "fast" } else { "off" }));
    tools::run(command.arg(&optimised), &input)?;
    let text = link::read(&ptx)?;
    crate::externs::check(&text, linked)?;
    let read = Ptx::read(&text);
    read.check_parameters(&linked.kernels)?;
    let unknown = kernels.iter().filter(|kernel| read.has_unknown_stack(&kernel.symbol));

    let mut module = Module {
        arch,
        ptx,
        cubin: None,
        unknown_stacks: unknown.map(|kernel| kernel.symbol.clone()).collect(),
        kernels: kernels.iter().map(|kernel| kernel.symbol.clone()).collect(),
        resources: Vec::new(),
        panics,
    };
    if let Some(ptxas) = &cuda.ptxas {
        let cubin = out.join(format!("{name}.{arch}.cubin"));
        module.resources = ptxas::assemble(ptxas, arch, part.is_linked, &module.ptx, &cubin)?;
        if arch.has_cubin() {
            module.cubin = Some(cubin);
        } else if cubin.exists() {
            std::fs::remove_file(&cubin).map_err(Error::io("cannot remove", &cubin))?;
        }
    }
    Ok(Some(module))
}

/// Generates all parts for all architectures, on one thread per core: [`Module`]s by part.
pub fn generate_all(job: &Job<'_>, parts: &[Part], archs: &[Arch]) -> Result<Vec<Vec<Module>>, Error> {
    let all: Vec<(usize, Arch)> =
        (0..parts.len()).flat_map(|part| archs.iter().map(move |&arch| (part, arch))).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let Some(&(part, arch)) = all.get(index) else { return Ok(done) };
            done.extend(generate(job, arch, &parts[part])?.map(|module| (index, part, module)));
        }
    };
    let threads = std::thread::available_parallelism().map_or(1, usize::from).min(all.len());
    let mut done = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, Result<Vec<_>, Error>>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        threads.into_iter().map(join).collect::<Result<Vec<_>, Error>>()
    })?
    .concat();
    done.sort_by_key(|(index, ..)| *index);
    let mut modules = vec![Vec::new(); parts.len()];
    done.into_iter().for_each(|(_, part, module)| modules[part].push(module));
    Ok(modules)
}
