//! Links the bitcode of the graph into one module, rewritten and reduced to what the kernels reach.
//!
//! This part is the same for every architecture and is done once.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::callers::Callers;
use crate::device_runtime::DeviceRuntime;
use crate::error::Error;
use crate::panic_paths;
use crate::rewrite::{self, Kernel};
use crate::toolchain::{CudaTools, LlvmTools, setup_command};
use crate::tools;

/// The one symbol besides the kernels that the host looks up.
pub const MAILBOX: &str = "__warpsmith_mailbox";

/// The module that the architectures start from.
#[derive(Debug)]
pub struct Linked {
    /// Its bitcode.
    pub bitcode: PathBuf,
    /// The text of the reduced module before libdevice was linked, for look-ups of callers.
    pub reachable: PathBuf,
    /// The functions that do not return, which panics go through.
    pub diverging: Vec<String>,
    /// Its kernels.
    pub kernels: Vec<Kernel>,
    /// Those that need NVIDIA's device runtime.
    pub device_runtime: DeviceRuntime,
}

/// Unpacks the bitcode of each library into `work`; dependencies' libraries first, in the order given.
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
    work: &Path,
) -> Result<Linked, Error> {
    let linked = work.join("linked.ll");
    let mut command = Command::new(llvm.tool("llvm-link"));
    command.arg("-S").arg("-o").arg(&linked).args(members);
    tools::run(&mut command, package).map_err(duplicate_symbol)?;

    let ir = read(&linked)?;
    let rewritten = rewrite::rewrite(&ir)?;
    if rewritten.kernels.is_empty() {
        return Err(Error::NoKernels { package: package.to_owned() });
    }
    let rewritten_file = work.join("rewritten.ll");
    write(&rewritten_file, &rewritten.ir)?;

    let reachable = work.join("reachable.ll");
    let public = work.join("public");
    write_public(&public, &rewritten.kernels, Reporters::Public)?;
    let mut command = Command::new(llvm.tool("opt"));
    command
        .args(["-passes=internalize,globaldce,always-inline,function(sroa,early-cse),globaldce", "-S", "-o"])
        .arg(&reachable)
        .arg(public_list(&public));
    tools::run(command.arg(&rewritten_file), package)?;

    let bitcode = work.join("module.bc");
    let mut command = Command::new(llvm.tool("llvm-link"));
    command
        .args(["--only-needed", "--internalize", "--suppress-warnings", "-o"])
        .arg(&bitcode)
        .arg(&reachable);
    let ir = read(&reachable)?;
    if let Some(function) = first_libdevice_function(&ir) {
        match &cuda.libdevice {
            Some(libdevice) => {
                command.arg(libdevice);
            }
            None => return Err(no_libdevice(&function, &reachable, &rewritten.kernels, cuda)?),
        }
    }
    let device_runtime = DeviceRuntime::of(&ir, &rewritten.kernels);
    if let (Some((kernel, function)), None) = (&device_runtime.first, &cuda.cudadevrt) {
        let (kernel, function) = (kernel.clone(), function.clone());
        return Err(Error::NoDeviceRuntime { kernel, function, how: how_to_install(&reachable, cuda) });
    }
    tools::run(&mut command, package)?;
    let diverging = panic_paths::diverging(&ir);
    Ok(Linked { bitcode, reachable, diverging, kernels: rewritten.kernels, device_runtime })
}

/// Whether the reporters of panics are private to a module, so that LLVM removes parameters from them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reporters {
    /// As in the code that runs.
    Private,
    /// Every call of them passes its location, and has its line.
    Public,
}

/// Writes the symbols that stay visible: those of the kernels, the mailbox, and public reporters.
pub fn write_public<'a>(
    path: &Path,
    kernels: impl IntoIterator<Item = &'a Kernel>,
    reporters: Reporters,
) -> Result<(), Error> {
    let mut names: String = kernels.into_iter().map(|kernel| format!("{}\n", kernel.symbol)).collect();
    let reporters = rewrite::REPORTERS.iter().filter(|_| reporters == Reporters::Public);
    for name in [MAILBOX].into_iter().chain(reporters.map(|(name, _)| *name)) {
        names.push_str(name);
        names.push('\n');
    }
    write(path, &names)
}

/// The option of `opt` that names the file of [`write_public`].
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
        // `__nvvm_…` is LLVM's own.
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
    let how = how_to_install(reachable, cuda);
    Ok(Error::NoLibdevice { kernel, function: function.to_owned(), how })
}

/// How to install NVIDIA's libraries, and the places searched.
fn how_to_install(folder: &Path, cuda: &CudaTools) -> String {
    let looked: String =
        cuda.rejected.iter().map(|r| format!("\n  looked in {}: {}", r.candidate, r.reason)).collect();
    format!("Install it with: {}{looked}", setup_command(folder))
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
        assert!(
            error.starts_with("kernel `gelu` calls `__nv_erff`, which is in NVIDIA's libdevice"),
            "{error}"
        );
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
