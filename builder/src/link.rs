//! Links the bitcode of the dependency graph into one module, rewrites the module, and reduces it to what the kernels
//! reach.
//!
//! This step does not depend on the architecture, so it runs only once.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::callers::Callers;
use crate::codegen::Options;
use crate::device_runtime::DeviceRuntime;
use crate::error::Error;
use crate::panic_paths;
use crate::rewrite::{self, Kernel, Rewritten};
use crate::toolchain::{CudaTools, LlvmTools, SETUP_COMMAND};
use crate::tools;

/// Symbol of the mailbox, which the host looks up in every module.
pub const MAILBOX: &str = "__warpsmith_mailbox";

/// Passes that inline functions marked `alwaysinline` and then remove unused code.
pub const INLINED: &str = "always-inline,function(sroa,early-cse),globaldce";

/// Linked module from which the code of all architectures is generated.
#[derive(Debug)]
pub struct Linked {
    /// Path of the module's bitcode.
    pub bitcode: PathBuf,
    /// Path of the reduced module as text, before libdevice is linked and without line tables. Used to look up callers.
    pub reachable: PathBuf,
    /// Functions that do not return and that therefore lead to panics.
    pub diverging: Vec<String>,
    /// Kernels of the module.
    pub kernels: Vec<Kernel>,
    /// Statics that the host accesses by name.
    pub visible: Vec<String>,
    /// Target and declarations of the mailbox and [`Linked::visible`], and their addresses. Each part's module starts
    /// with this text.
    pub declarations: (String, String),
    /// Kernels that need NVIDIA's device runtime.
    pub device_runtime: DeviceRuntime,
}

/// Unpacks the bitcode of each library into `work`, and returns the members in the order of the libraries, dependencies
/// first.
pub fn extract(llvm: &LlvmTools, rlibs: &[PathBuf], work: &Path) -> Result<Vec<PathBuf>, Error> {
    let mut members = Vec::new();
    for (number, rlib) in rlibs.iter().enumerate() {
        let name = rlib.file_stem().unwrap_or_default().to_string_lossy();
        let folder = work.join(format!("{number}-{name}"));
        std::fs::create_dir_all(&folder).map_err(Error::io("cannot create", &folder))?;
        let mut command = Command::new(llvm.tool("llvm-ar"));
        command.arg("x").arg(rlib).current_dir(&folder);
        tools::run(&mut command, &rlib.display().to_string())?;
        let entries = std::fs::read_dir(&folder).map_err(Error::io("cannot read", &folder))?;
        let mut objects: Vec<PathBuf> = entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "o"))
            .collect();
        objects.sort();
        members.extend(objects);
    }
    Ok(members)
}

/// Links `members` of `package`, rewrites the result, and reduces it.
pub fn link(
    llvm: &LlvmTools,
    cuda: &CudaTools,
    package: &str,
    members: &[PathBuf],
    options: Options,
    work: &Path,
) -> Result<Linked, Error> {
    let linked = work.join("linked.ll");
    let mut command = Command::new(llvm.tool("llvm-link"));
    command.arg("-S").arg("-o").arg(&linked).args(members);
    tools::run(&mut command, package).map_err(duplicate_symbol)?;

    let ir = read(&linked)?;
    let rewritten = rewrite::rewrite(&ir, options.fma)?;
    if rewritten.kernels.is_empty() {
        return Err(Error::NoKernels { package: package.to_owned() });
    }
    let rewritten_file = work.join("rewritten.ll");
    write(&rewritten_file, &rewritten.ir)?;

    let reduced = work.join("reachable.bc");
    let reachable = work.join("reachable.ll");
    let public = work.join("public");
    write_public(&public, &rewritten.kernels, &rewritten.visible, Reporters::Public)?;
    let mut command = llvm.passes("opt");
    // The parts are inlined later, in parallel. Without libdevice, inlining happens now, because the undefined
    // functions that remain afterwards show whether libdevice is needed.
    let passes = match cuda.libdevice {
        Some(_) => "-passes=internalize,globaldce".to_owned(),
        None => format!("-passes=internalize,globaldce,{INLINED}"),
    };
    command.args([&passes, "-o"]).arg(&reduced).arg(public_list(&public));
    tools::run(command.arg(&rewritten_file), package)?;

    let bitcode = work.join("module.bc");
    // Link only the functions of libdevice that are needed.
    let mut link = Command::new(llvm.tool("llvm-link"));
    link.args(["--only-needed", "--internalize", "--suppress-warnings", "-o"]).arg(&bitcode).arg(&reduced);
    link.args(&cuda.libdevice);
    let mut disassemble = llvm.passes("opt");
    disassemble
        .args(["-passes=strip-dead-debug-info", "-strip-debug", "-S", "-o"])
        .arg(&reachable)
        .arg(&reduced);
    std::thread::scope(|scope| {
        let linked = scope.spawn(|| tools::run(&mut link, package));
        tools::run(&mut disassemble, package)?;
        linked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })?;
    let ir = read(&reachable)?;
    if cuda.libdevice.is_none()
        && let Some(function) = first_libdevice_function(&ir)
    {
        return Err(no_libdevice(&function, &reachable, &rewritten.kernels, cuda)?);
    }
    let device_runtime = DeviceRuntime::of(&ir, &rewritten.kernels);
    if let (Some((kernel, function)), None) = (&device_runtime.first, &cuda.cudadevrt) {
        let (kernel, function) = (kernel.clone(), function.clone());
        return Err(Error::NoDeviceRuntime { kernel, function, how: how_to_install(cuda) });
    }
    let diverging = panic_paths::diverging(&ir);
    let Rewritten { kernels, visible, .. } = rewritten;
    let declarations = declarations(&ir, &visible);
    Ok(Linked { bitcode, reachable, diverging, kernels, visible, declarations, device_runtime })
}

/// Returns the target of the module `ir`, the declarations of the mailbox and of `statics`, and their addresses.
fn declarations(ir: &str, statics: &[String]) -> (String, String) {
    let mut text: String =
        ir.lines().filter(|line| line.starts_with("target ")).flat_map(|line| [line, "\n"]).collect();
    let mut names = String::new();
    for line in ir.lines().filter_map(|line| line.strip_prefix('@')) {
        let Some((name, rest)) = rewrite::text::symbol(line) else { continue };
        if name != MAILBOX && !statics.iter().any(|known| known == name) {
            continue;
        }
        let space = rest.split(" global ").next().and_then(|before| before.split("addrspace(").nth(1));
        let space = space.and_then(|rest| rest.split(')').next()).unwrap_or("0");
        // The declared type does not matter, because the definition has the actual type.
        text.push_str(&format!("@{name} = external addrspace({space}) global i8\n"));
        names.push_str(&match space {
            "0" => format!("ptr @{name}, "),
            _ => format!("ptr addrspacecast (ptr addrspace({space}) @{name} to ptr), "),
        });
    }
    (text, names)
}

/// Writes to `to` the functions that `kernels` need, and the statics that the host accesses. The run time of the tools
/// then depends on the size of the part, not on the size of the whole module.
pub fn take_part<'a>(
    llvm: &LlvmTools,
    linked: &Linked,
    kernels: impl IntoIterator<Item = &'a Kernel>,
    to: &Path,
) -> Result<(), Error> {
    let (declarations, mut names) = linked.declarations.clone();
    // Otherwise, the file's path would become the module's name, and the bitcode would contain that path.
    let mut roots = format!("source_filename = \"part\"\n{declarations}");
    let mut count = names.matches(", ").count();
    for kernel in kernels {
        roots.push_str(&format!("declare ptx_kernel void @{}()\n", kernel.symbol));
        names.push_str(&format!("ptr @{}, ", kernel.symbol));
        count += 1;
    }
    // Only used symbols are linked. Nothing uses this global, so the first pass removes it.
    let names = names.trim_end_matches(", ");
    roots.push_str(&format!("@__warpsmith_wanted = constant [{count} x ptr] [{names}]\n"));
    let wanted = to.with_extension("wanted.ll");
    write(&wanted, &roots)?;
    let mut command = Command::new(llvm.tool("llvm-link"));
    command.args(["--only-needed", "--suppress-warnings", "-o"]).arg(to).arg(&wanted).arg(&linked.bitcode);
    tools::run(&mut command, &to.display().to_string())?;
    Ok(())
}

/// Linkage of the panic reporters. LLVM removes parameters from reporters that are private to a module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reporters {
    /// Private to the module, as in the shipped code.
    Private,
    /// Visible outside the module, so that every call keeps its location argument and its own line.
    Public,
}

/// Writes the symbols that stay visible: the kernels, `statics`, the mailbox, and public reporters.
pub fn write_public<'a>(
    path: &Path,
    kernels: impl IntoIterator<Item = &'a Kernel>,
    statics: &[String],
    reporters: Reporters,
) -> Result<(), Error> {
    let mut names: String = kernels.into_iter().map(|kernel| format!("{}\n", kernel.symbol)).collect();
    let reporters = rewrite::REPORTERS.iter().filter(|_| reporters == Reporters::Public);
    let statics = statics.iter().map(String::as_str);
    for name in [MAILBOX].into_iter().chain(statics).chain(reporters.map(|(name, _)| *name)) {
        names.push_str(name);
        names.push('\n');
    }
    write(path, &names)
}

/// Returns the `opt` option that names the file of [`write_public`].
pub fn public_list(path: &Path) -> String {
    format!("-internalize-public-api-file={}", path.display())
}

pub(crate) fn read(path: &Path) -> Result<String, Error> {
    std::fs::read_to_string(path).map_err(Error::io("cannot read", path))
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), Error> {
    std::fs::write(path, text).map_err(Error::io("cannot write", path))
}

fn duplicate_symbol(error: Error) -> Error {
    if let Error::Tool { message, .. } = &error
        && let Some((_, rest)) = message.split_once("Linking globals named '")
        && let Some((symbol, _)) = rest.split_once("': symbol multiply defined")
    {
        return Error::DuplicateSymbol { symbol: symbol.to_owned() };
    }
    error
}

fn first_libdevice_function(ir: &str) -> Option<String> {
    ir.lines()
        .filter(|line| line.starts_with("declare "))
        .filter_map(rewrite::text::function)
        .map(|(name, _)| name)
        // `__nvvm_…` functions are LLVM's own.
        .find(|name| name.starts_with("__nv_"))
        .map(str::to_owned)
}

fn no_libdevice(
    function: &str,
    reachable: &Path,
    kernels: &[Kernel],
    cuda: &CudaTools,
) -> Result<Error, Error> {
    let ir = read(reachable)?;
    let kernel = Callers::of(&ir).kernel_reaching(function, kernels).unwrap_or_else(|| "?".to_owned());
    let how = how_to_install(cuda);
    Ok(Error::NoLibdevice { kernel, function: function.to_owned(), how })
}

/// Describes how to install NVIDIA's libraries, and lists the searched locations.
fn how_to_install(cuda: &CudaTools) -> String {
    let looked: String =
        cuda.rejected.iter().map(|r| format!("\n  looked in {}: {}", r.candidate, r.reason)).collect();
    format!("Install it with: {SETUP_COMMAND}{looked}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toolchain::Rejected;

    #[test]
    fn a_duplicate_symbol_is_named() {
        let error = Error::Tool {
            tool: "llvm-link".to_owned(),
            input: "k".to_owned(),
            message: "error: Linking globals named 'axpy': symbol multiply defined!".to_owned(),
        };
        assert!(matches!(duplicate_symbol(error), Error::DuplicateSymbol { symbol } if symbol == "axpy"));
    }

    #[test]
    fn a_missing_libdevice_names_the_kernel_and_the_places() {
        let folder = std::env::temp_dir().join(format!("warpsmith-libdevice-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let reachable = folder.join("reachable.ll");
        let ir = "define ptx_kernel void @gelu() {\n  %1 = call float @__nv_erff(float 0.0)\n  ret void\n}\n\
                  declare float @__nv_erff(float)\n";
        std::fs::write(&reachable, ir).unwrap();
        let rejected = Rejected { candidate: "/usr/local/cuda".into(), reason: "no such folder".into() };
        let cuda = CudaTools { rejected: vec![rejected], ..CudaTools::default() };
        let kernels = [Kernel { symbol: "gelu".to_owned(), ..Kernel::default() }];
        let error = no_libdevice("__nv_erff", &reachable, &kernels, &cuda).unwrap().to_string();
        std::fs::remove_dir_all(&folder).unwrap();
        assert!(error.starts_with("kernel `gelu` calls `__nv_erff`, but NVIDIA's libdevice"), "{error}");
        assert!(
            error.contains("warpsmith setup") && error.contains("/usr/local/cuda: no such folder"),
            "{error}"
        );
    }

    #[test]
    fn libdevice_is_wanted_only_for_its_own_functions() {
        let ir = "declare i32 @__nvvm_reflect(ptr) #1\ndeclare float @__nv_expf(float) #2\n";
        assert_eq!(first_libdevice_function(ir).as_deref(), Some("__nv_expf"));
        assert_eq!(first_libdevice_function("declare i32 @__nvvm_reflect(ptr)\n"), None);
    }
}
