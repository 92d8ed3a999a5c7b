//! From the linked module to the PTX and cubin of one architecture; of kernels that need NVIDIA's device runtime
//! apart from the others.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::arch::Arch;
use crate::device_runtime::Part;
use crate::error::Error;
use crate::link::{self, Linked};
use crate::ptxas::{self, Resources};
use crate::toolchain::{CudaTools, LlvmTools};
use crate::tools;

/// What one architecture gave, for one of its modules.
#[derive(Debug, Clone)]
pub struct Module {
    /// The architecture.
    pub arch: Arch,
    /// Which kernels.
    pub part: Part,
    /// The PTX file.
    pub ptx: PathBuf,
    /// The cubin, when the architecture asks for one and ptxas is there.
    pub cubin: Option<PathBuf>,
    /// What each kernel needs, by symbol; empty without ptxas. A kernel that is in both modules is told of in one.
    pub resources: Vec<(String, Resources)>,
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

/// What all architectures have in common.
pub struct Job<'a> {
    /// The LLVM tools.
    pub llvm: &'a LlvmTools,
    /// ptxas.
    pub cuda: &'a CudaTools,
    /// The module to start from.
    pub linked: &'a Linked,
    /// How.
    pub options: Options,
    /// The start of the outputs' file names.
    pub name: &'a str,
    /// For intermediate files.
    pub work: &'a Path,
    /// For the outputs.
    pub out: &'a Path,
}

/// Optimises the job's module for `arch` and writes `NAME.sm_XX.ptx` (and `.cubin`), or `NAME.linked.sm_XX.ptx`.
pub fn generate(job: &Job<'_>, arch: Arch, part: Part) -> Result<Module, Error> {
    let Job { llvm, cuda, linked, options, name, work, out } = *job;
    let name = match part {
        Part::Plain => name.to_owned(),
        Part::Linked => format!("{name}.linked"),
    };
    let input = format!("{name} for {arch}");
    let cpu = [format!("-mcpu={arch}"), format!("-mattr=+ptx{}", arch.ptx())];

    let public = work.join(format!("public.{name}.{arch}"));
    link::write_public(&public, &linked.kernels, |kernel| {
        kernel.min_arch <= arch.capability() && linked.device_runtime.has(part, &kernel.symbol)
    })?;
    let optimised = work.join(format!("optimised.{name}.{arch}.bc"));
    let mut command = Command::new(llvm.tool("opt"));
    command
        .args(&cpu)
        .args(UNROLLING)
        .args(["-passes=internalize,globaldce,default<O3>", "-o"])
        .arg(&optimised);
    tools::run(command.arg(link::public_list(&public)).arg(&linked.bitcode), &input)?;

    let ptx = out.join(format!("{name}.{arch}.ptx"));
    let mut command = Command::new(llvm.tool("llc"));
    command.args(&cpu).args(["-O3", "-o"]).arg(&ptx);
    command.arg(format!("-fp-contract={}", if options.fma { "fast" } else { "off" }));
    tools::run(command.arg(&optimised), &input)?;
    crate::externs::check(&link::read(&ptx)?, linked)?;

    let mut module = Module { arch, part, ptx, cubin: None, resources: Vec::new() };
    if let Some(ptxas) = &cuda.ptxas {
        let cubin = out.join(format!("{name}.{arch}.cubin"));
        module.resources = ptxas::assemble(ptxas, arch, part, &module.ptx, &cubin)?;
        module
            .resources
            .retain(|(symbol, _)| part == Part::Plain || !linked.device_runtime.has(Part::Plain, symbol));
        if arch.has_cubin() {
            module.cubin = Some(cubin);
        } else {
            std::fs::remove_file(&cubin).map_err(Error::io("cannot remove", &cubin))?;
        }
    }
    Ok(module)
}
