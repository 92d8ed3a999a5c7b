//! [`PtxBuilder`]: the entry point for build scripts.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use crate::KernelReport;
use crate::arch::Arch;
use crate::cache::{self, Cache};
use crate::codegen::{self, Job, Module, Options};
use crate::compile::{self, Compiled, Request};
use crate::debug_info::{self, DebugInfo};
use crate::device_runtime;
use crate::error::Error;
use crate::fingerprint::{Fingerprint, Record};
use crate::image::{self, Packages};
use crate::image_report::ImageReport;
use crate::link;
use crate::manifest::{self, Manifest};
use crate::packages::{self, Package};
use crate::parts;
use crate::ready_made;
use crate::sources::{self, Sources};
use crate::targets::{self, Targets};
use crate::toolchain::{self, CudaTools, DeviceToolchain};

/// Environment variables that affect the build; if one of them changes, the build script runs again.
const WATCHED_VARIABLES: [&str; 11] = [
    debug_info::VARIABLE,
    "WARPSMITH_DEVICE_RUSTC",
    "WARPSMITH_LLVM_BIN",
    "WARPSMITH_CUDA_TOOLS",
    "WARPSMITH_DATA_DIR",
    targets::VARIABLE,
    "WARPSMITH_KEEP_IR",
    cache::VARIABLE,
    "CUDA_HOME",
    "CUDA_PATH",
    "DOCS_RS",
];

/// Variables that matter only while no image exists. If they were always watched, builds from an editor and from a
/// terminal could invalidate each other's image, for example because their `PATH` differs.
const WATCHED_WITHOUT_IMAGE: [&str; 5] =
    ["WARPSMITH_SKIP_GPU_IMAGE", REQUIRE, "RUSTUP_HOME", "CARGO_HOME", "PATH"];

/// Environment variable that makes a missing image an error, and makes a development build compile for all
/// architectures.
const REQUIRE: &str = "WARPSMITH_REQUIRE_GPU_IMAGE";

/// Compiles a kernel crate into a GPU image that the host crate embeds.
///
/// ```no_run
/// // build.rs
/// fn main() -> Result<(), warpsmith_builder::Error> {
///     warpsmith_builder::PtxBuilder::new("my-kernels").build()?;
///     Ok(())
/// }
/// ```
///
/// Without a device toolchain, or without an NVIDIA library that a kernel needs, the host crate still builds. A single
/// warning states what to install, and the image is empty and records the reason. `WARPSMITH_REQUIRE_GPU_IMAGE=1` turns
/// that into an error.
///
/// A release build compiles for all architectures. A development build compiles for the architectures of this machine's
/// CUDA devices. `WARPSMITH_GPU_ARCHS` overrides both.
#[derive(Debug, Clone)]
pub struct PtxBuilder {
    path: PathBuf,
    archs: Vec<Arch>,
    features: Vec<String>,
    default_features: bool,
    cfgs: Vec<String>,
    alloc: bool,
    one_module: bool,
    fma: bool,
    debug_info: DebugInfo,
    library: bool,
    jump_threading: bool,
    spills_allowed: Vec<String>,
    ready_made: Option<(String, PathBuf)>,
}

/// Folders that a build uses.
#[derive(Debug, Clone)]
pub struct Folders {
    /// Folder of the host package. The kernel crate's path is relative to it.
    pub manifest_dir: PathBuf,
    /// Output folder of the image.
    pub out_dir: PathBuf,
    /// Cargo's target folder; the kernel crate's output goes into its `gpu` subfolder.
    pub target_dir: PathBuf,
}

impl Folders {
    /// Returns the folders of the running build script.
    ///
    /// # Errors
    /// Returns [`Error::NotInBuildScript`] if cargo's variables are not set.
    pub fn of_build_script() -> Result<Folders, Error> {
        let read = |name| env::var_os(name).map(PathBuf::from).ok_or(Error::NotInBuildScript(name));
        let (manifest_dir, out_dir) = (read("CARGO_MANIFEST_DIR")?, read("OUT_DIR")?);
        let target_dir = toolchain::target_dir_of(&out_dir);
        Ok(Folders { manifest_dir, out_dir, target_dir })
    }
}

/// Result of a build.
#[derive(Debug, Clone, Default)]
pub struct BuiltImage {
    /// Generated file that the host crate includes.
    pub file: PathBuf,
    /// PTX and cubin files of all parts, including files that are not embedded. The list is empty if no image was
    /// built.
    pub modules: Vec<PathBuf>,
    /// Kernels, with their resources on each architecture.
    pub kernels: Vec<KernelReport>,
    /// Reason for a missing image, or `None` if the image exists.
    pub reason: Option<String>,
    /// True if the link step was skipped because nothing had changed.
    pub reused: bool,
    /// Warnings for the user.
    pub warnings: Vec<String>,
    /// Files that the image depends on.
    pub watched: Vec<PathBuf>,
}

impl PtxBuilder {
    /// Creates a builder for the kernel crate in the folder `path`, relative to the package's folder.
    pub fn new(path: impl Into<PathBuf>) -> PtxBuilder {
        PtxBuilder {
            path: path.into(),
            archs: vec![Arch::SM_80, Arch::SM_90A],
            features: Vec::new(),
            default_features: true,
            cfgs: Vec::new(),
            alloc: false,
            one_module: false,
            fma: true,
            debug_info: DebugInfo::Lines,
            library: false,
            jump_threading: false,
            spills_allowed: Vec::new(),
            ready_made: None,
        }
    }

    /// Sets the architectures to compile for; the default is [`Arch::SM_80`] and [`Arch::SM_90A`].
    pub fn archs(mut self, archs: impl IntoIterator<Item = Arch>) -> PtxBuilder {
        self.archs = archs.into_iter().collect();
        self
    }

    /// Disables the default features of the kernel crate, so that only features enabled with [`feature`](Self::feature)
    /// remain.
    pub fn no_default_features(mut self) -> PtxBuilder {
        self.default_features = false;
        self
    }

    /// Enables the cargo feature `name` of the kernel crate.
    pub fn feature(mut self, name: impl Into<String>) -> PtxBuilder {
        self.features.push(name.into());
        self
    }

    /// Compiles the kernel crate, but not its dependencies, with `--cfg cfg`.
    pub fn cfg(mut self, cfg: impl Into<String>) -> PtxBuilder {
        self.cfgs.push(cfg.into());
        self
    }

    /// Also compiles `alloc`, for a kernel crate with a global allocator. Otherwise only `core` is available.
    pub fn alloc(mut self) -> PtxBuilder {
        self.alloc = true;
        self
    }

    /// Puts all kernels into one module, for programs that load the code as a file. By default, the kernels of each
    /// Rust module form a module of the image, so that a program loads only the modules it uses.
    pub fn one_module(mut self) -> PtxBuilder {
        self.one_module = true;
        self
    }

    /// Sets whether `a * b + c` may be contracted to one `fma`, which rounds once. This is faster and more accurate
    /// than two roundings, but not bit-identical to the CPU. Contraction is on by default.
    pub fn fma(mut self, on: bool) -> PtxBuilder {
        self.fma = on;
        self
    }

    /// Sets the debug information of the code; the default is [`DebugInfo::Lines`]. `WARPSMITH_GPU_DEBUG` (`none`,
    /// `lines` or `full`) overrides it.
    pub fn debug_info(mut self, debug_info: DebugInfo) -> PtxBuilder {
        self.debug_info = debug_info;
        self
    }

    /// Omits debug information unless `WARPSMITH_GPU_DEBUG` requests it, and never turns off optimization. Use this for
    /// kernel libraries: users debug their own kernels, and line information makes an image 50 % larger.
    #[doc(hidden)]
    pub fn library(mut self) -> PtxBuilder {
        self.library = true;
        self
    }

    /// Suppresses the warning for kernels whose symbol starts with `prefix` and that spill registers or use a large
    /// stack.
    pub fn allow_spills(mut self, prefix: impl Into<String>) -> PtxBuilder {
        self.spills_allowed.push(prefix.into());
        self
    }

    /// If the kernel crate `name` is absent, uses the image that [`export_image`](crate::export_image) wrote to
    /// `folder` (relative to the package's folder). Packages from a registry need this, because their kernel crate is a
    /// separate package.
    pub fn ready_made(mut self, name: impl Into<String>, folder: impl Into<PathBuf>) -> PtxBuilder {
        self.ready_made = Some((name.into(), folder.into()));
        self
    }

    /// Leaves rustc's jump threading enabled, although it duplicates barriers. Use this only in tests of the pipeline.
    #[doc(hidden)]
    pub fn jump_threading(mut self, on: bool) -> PtxBuilder {
        self.jump_threading = on;
        self
    }

    /// Builds the image from a build script, and prints cargo's directives for paths to watch and for warnings.
    ///
    /// # Errors
    /// Returns an [`Error`], whose message can be shown to users unchanged.
    pub fn build(&self) -> Result<BuiltImage, Error> {
        let folders = Folders::of_build_script()?;
        let mut is_whole = true;
        let built = match self.import(&folders)? {
            Some(built) => built,
            None => {
                // Code that other programs load from a file must be generated even on a machine without a GPU.
                let targets = match self.one_module {
                    true => Targets::Archs(self.archs.clone()),
                    false => Targets::choose(&self.archs)?,
                };
                is_whole = targets == Targets::Archs(self.archs.clone());
                let built = self.build_for(&folders, &targets)?;
                WATCHED_VARIABLES.iter().for_each(|name| println!("cargo:rerun-if-env-changed={name}"));
                built
            }
        };
        list_image(&built.file, &folders.out_dir)?;
        if built.reason.is_none() && !is_whole {
            println!("cargo:rerun-if-env-changed={REQUIRE}");
        }
        if built.reason.is_some() {
            WATCHED_WITHOUT_IMAGE.iter().for_each(|name| println!("cargo:rerun-if-env-changed={name}"));
        }
        for path in &built.watched {
            println!("cargo:rerun-if-changed={}", path.display());
        }
        for warning in &built.warnings {
            println!("cargo:warning={}", warning.replace('\n', " "));
        }
        Ok(built)
    }

    /// Builds the image for all architectures of this builder into `folders`, without printing anything. This is
    /// [`PtxBuilder::build`] without cargo.
    ///
    /// # Errors
    /// Returns the same errors as [`PtxBuilder::build`].
    pub fn build_in(&self, folders: &Folders) -> Result<BuiltImage, Error> {
        self.build_for(folders, &Targets::Archs(self.archs.clone()))
    }

    /// Imports the ready-made image of a package from a registry. Returns `None` if the kernel crate is present.
    fn import(&self, folders: &Folders) -> Result<Option<BuiltImage>, Error> {
        let Some((name, ready_made)) = &self.ready_made else { return Ok(None) };
        if folders.manifest_dir.join(&self.path).join("Cargo.toml").is_file() {
            return Ok(None);
        }
        let ready_made = folders.manifest_dir.join(ready_made);
        if let Some(file) = ready_made::import(&ready_made, &name.replace('-', "_"), &folders.out_dir)? {
            let watched = vec![ready_made.join(file.file_name().unwrap_or_default())];
            return Ok(Some(BuiltImage { file, watched, ..BuiltImage::default() }));
        }
        let reason = "this package was packed without its GPU image; run `cargo xtask package` in its repository to \
                      pack it with the image";
        if is_set(REQUIRE) {
            return Err(Error::ImageRequired { reason: reason.to_owned() });
        }
        let warning = format!("{name} has no GPU image (the emulated device works): {reason}");
        let package = Package { name: name.clone(), version: String::new() };
        let packages = Packages { package: &package, dependencies: &[], sources: &[] };
        let mut built = without_image(folders, &name.replace('-', "_"), &packages, reason, vec![warning])?;
        built.watched = vec![folders.manifest_dir.join("Cargo.toml")];
        Ok(Some(built))
    }

    fn build_for(&self, folders: &Folders, targets: &Targets) -> Result<BuiltImage, Error> {
        let started = SystemTime::now();
        let manifest = Manifest::of(&folders.manifest_dir.join(&self.path))?;
        let sources = sources::of(&manifest, &folders.target_dir)?;
        let kernels = KernelCrate { manifest, sources };
        let mut built = self.build_crate(folders, &kernels, targets)?;
        let report = ImageReport::new(&built, &kernels.manifest, folders, started);
        built.watched.extend(report.save(folders, &kernels.manifest.library_name())?);
        Ok(built)
    }

    fn build_crate(
        &self,
        folders: &Folders,
        kernels: &KernelCrate,
        targets: &Targets,
    ) -> Result<BuiltImage, Error> {
        let package = kernels.manifest.to_package().name;
        if is_set("DOCS_RS") {
            let reason = "documentation builds have no GPU image";
            return kernels.without_image(folders, reason, Vec::new());
        }
        if is_set("WARPSMITH_SKIP_GPU_IMAGE") {
            let reason =
                "the image was skipped because WARPSMITH_SKIP_GPU_IMAGE is set; unset it and build again";
            return kernels.without_image(folders, reason, Vec::new());
        }
        toolchain::check_variables()?;
        let setup = toolchain::SETUP_COMMAND;
        let search = toolchain::find_device_toolchain();
        let Some(tools) = &search.found else {
            let reason = format!(
                "no compiler for GPU code was found; install one with: {setup} (a command of the package \
                 warpsmith-cli)"
            );
            if is_set(REQUIRE) {
                return Err(Error::ImageRequired {
                    reason: format!("{reason}\nsearched:\n{}", search.explain()),
                });
            }
            return kernels.without_image(folders, &reason, vec![without(&package, &reason)]);
        };
        let archs = match targets {
            Targets::Archs(archs) => archs,
            Targets::Check(reason) => return self.only_check(folders, kernels, tools, reason),
        };
        let cuda = toolchain::find_cuda_tools();
        match self.with_tools(folders, kernels, tools, &cuda, archs) {
            Err(error @ (Error::NoLibdevice { .. } | Error::NoDeviceRuntime { .. })) if !is_set(REQUIRE) => {
                let text = error.to_string();
                let reason = format!("{}; install it with: {setup}", text.lines().next().unwrap_or_default());
                let mut built = kernels.without_image(folders, &reason, vec![without(&package, &reason)])?;
                let sources = ["Cargo.toml", "src"].map(|name| kernels.manifest.folder().join(name));
                built.watched.extend(sources.into_iter().filter(|path| path.exists()));
                Ok(built)
            }
            result => result,
        }
    }

    /// Compiles the kernels with rustc only, to check them, and creates an image without code. Kernels of dependencies
    /// are not checked, because their authors have checked them.
    fn only_check(
        &self,
        folders: &Folders,
        kernels: &KernelCrate,
        tools: &DeviceToolchain,
        reason: &str,
    ) -> Result<BuiltImage, Error> {
        if is_of_a_dependency(&folders.manifest_dir) {
            return kernels.without_image(folders, reason, Vec::new());
        }
        let _lock = compile::lock(&kernels.sources.gpu_target)?;
        let compiled = self.compile(folders, kernels, tools)?;
        let mut built = kernels.without_image(folders, reason, Vec::new())?;
        built.watched = compiled.sources;
        Ok(built)
    }

    fn compile(
        &self,
        folders: &Folders,
        kernels: &KernelCrate,
        tools: &DeviceToolchain,
    ) -> Result<Compiled, Error> {
        let request = Request {
            manifest: &kernels.manifest,
            target_dir: &kernels.sources.gpu_target,
            lock_dir: &folders.out_dir.join("lock"),
            features: &self.features,
            default_features: self.default_features,
            cfgs: &self.cfgs,
            alloc: self.alloc,
            jump_threading: self.jump_threading,
            full_debug_info: self.debug_info.of_build(self.library)? == DebugInfo::Full,
        };
        compile::compile(tools, &request)
    }

    fn with_tools(
        &self,
        folders: &Folders,
        kernel_crate: &KernelCrate,
        tools: &DeviceToolchain,
        cuda: &CudaTools,
        archs: &[Arch],
    ) -> Result<BuiltImage, Error> {
        // Another build may replace the libraries once cargo has released its own lock.
        let lock = compile::lock(&kernel_crate.sources.gpu_target)?;
        let compiled = self.compile(folders, kernel_crate, tools)?;
        let package = compiled.package;
        let name = kernel_crate.manifest.library_name();
        let work = folders.out_dir.join(format!("{name}_ir"));
        let keep = is_set("WARPSMITH_KEEP_IR");

        let debug = self.debug_info.of_build(self.library)?;
        let mut fingerprint = Fingerprint::new();
        fingerprint.value(&format!("{self:?} {archs:?} {keep} {debug:?}"));
        fingerprint.value(&kernel_crate.sources);
        // The build script's own hash changes whenever the builder changes.
        if let Ok(program) = env::current_exe() {
            fingerprint.tool(&program);
        }
        let (device, host) = (tools.description(), toolchain::host_compiler().unwrap_or_default());
        let compilers = image::Compilers { device: &device, host: &host };
        fingerprint.value(&(&device, &host));
        for tool in ["llvm-link", "opt", "llc"] {
            fingerprint.tool(&tools.llvm.tool(tool));
        }
        cuda.ptxas.iter().for_each(|ptxas| fingerprint.tool(&ptxas.path));
        cuda.libdevice.iter().chain(&cuda.cudadevrt).for_each(|library| fingerprint.tool(library));
        for rlib in &compiled.rlibs {
            fingerprint.contents(rlib)?;
        }
        let fingerprint = fingerprint.finish();
        let record_file = folders.out_dir.join(format!("{name}.record"));
        let mut watched = compiled.sources;
        watched.extend(watched_tools(tools, cuda));
        let file = folders.out_dir.join(format!("{name}_image.rs"));
        let library = folders.out_dir.join(format!("{name}.libcudadevrt.a"));
        if let Some(record) = Record::reuse(&record_file, &fingerprint) {
            let is_code = |path: &PathBuf| path.extension().is_some_and(|e| e == "ptx" || e == "cubin");
            let modules = record.files.into_iter().filter(is_code).collect();
            return Ok(BuiltImage {
                file,
                modules,
                kernels: record.kernels,
                reason: None,
                reused: true,
                warnings: record.warnings,
                watched,
            });
        }

        remove_folder(&work)?;
        std::fs::create_dir_all(&work).map_err(Error::io("cannot create", &work))?;
        let members = link::extract(&tools.llvm, &compiled.rlibs, &work)?;
        drop(lock);
        let options = Options { fma: self.fma };
        let linked = link::link(&tools.llvm, cuda, &package, &members, options, &work)?;
        // The cache contains no intermediate files, so it is not used if the caller keeps these files.
        let cache = Cache::of_user().filter(|_| !keep);
        let ptxas = cuda.ptxas.as_ref().map_or_else(String::new, |ptxas| ptxas.version.to_string());
        let job = Job {
            llvm: &tools.llvm,
            cuda,
            linked: &linked,
            work: &work,
            out: &folders.out_dir,
            cache: cache.as_ref(),
            tools: &format!("{device} {ptxas}"),
            debug,
        };
        let runtime = &linked.device_runtime;
        let parts = match self.one_module {
            true => parts::undivided(&name, &linked.kernels, runtime),
            false => {
                let ir = link::read(&linked.reachable)?;
                parts::divide(&ir, &name, &linked.kernels, runtime, archs)
            }
        };
        let modules = codegen::generate_all(&job, &parts, archs)?;

        let library = cuda.cudadevrt.as_ref().filter(|_| runtime.is_needed()).map(|from| (from, library));
        if let Some((from, library)) = &library {
            device_runtime::copy_library(from, library)?;
        }
        let library = library.map(|(_, library)| library);
        let kernels = crate::report::kernels(&linked.kernels, &parts, &modules);
        crate::report::check_panics(&linked.kernels, &kernels)?;
        crate::report::check_stacks(&kernels)?;
        crate::report::check_wgmma(&modules)?;
        let code = image::Code {
            parts: &parts,
            modules: &modules,
            kernels: &linked.kernels,
            reports: &kernels,
            ptxas: &ptxas,
            device_runtime: library.as_deref(),
        };
        let of_crate = kernel_crate.manifest.to_package();
        let packages =
            Packages { package: &of_crate, dependencies: &[], sources: &kernel_crate.sources.packages };
        let (text, packed) = image::with_code(&packages, &compilers, &code, &folders.out_dir)?;
        link::write(&file, &text)?;
        let mut warnings = match is_of_others(folders) || debug == DebugInfo::Full {
            true => Vec::new(),
            false => crate::report::spill_warnings(&kernels, &self.spills_allowed),
        };
        warnings.extend(cuda.relative.iter().map(|place| format!("{}: {}", place.candidate, place.reason)));
        if cuda.ptxas.is_none() {
            warnings.push(format!(
                "ptxas was not found: {package} contains only PTX, which was neither assembled nor checked; install \
                 ptxas with: {}",
                toolchain::SETUP_COMMAND
            ));
        }
        if keep {
            warnings.push(format!("the intermediate files of {package} are in {}", work.display()));
        } else {
            remove_folder(&work)?;
        }
        let files_of =
            |module: &Module| module.cubin.iter().chain([&module.ptx]).cloned().collect::<Vec<_>>();
        let outputs: Vec<PathBuf> = modules.iter().flatten().flat_map(files_of).collect();
        let mut files = outputs.clone();
        files.extend(packed);
        files.extend(library);
        files.push(file.clone());
        let record = Record { fingerprint, files, warnings: warnings.clone(), kernels: kernels.clone() };
        record.save(&record_file)?;
        Ok(BuiltImage { file, modules: outputs, kernels, reason: None, reused: false, warnings, watched })
    }
}

struct KernelCrate {
    manifest: Manifest,
    sources: Sources,
}

impl KernelCrate {
    fn without_image(
        &self,
        folders: &Folders,
        reason: &str,
        warnings: Vec<String>,
    ) -> Result<BuiltImage, Error> {
        let all = packages::of(&self.manifest);
        let packages =
            Packages { package: &all[0], dependencies: &all[1..], sources: &self.sources.packages };
        without_image(folders, &self.manifest.library_name(), &packages, reason, warnings)
    }
}

/// Creates an image that has no modules and records the reason.
fn without_image(
    folders: &Folders,
    name: &str,
    packages: &Packages<'_>,
    reason: &str,
    warnings: Vec<String>,
) -> Result<BuiltImage, Error> {
    let file = folders.out_dir.join(format!("{name}_image.rs"));
    let host = toolchain::host_compiler().unwrap_or_default();
    let compilers = image::Compilers { device: "", host: &host };
    link::write(&file, &image::without_code(packages, &compilers, reason))?;
    Ok(BuiltImage {
        file,
        reason: Some(reason.to_owned()),
        warnings,
        watched: toolchain::installation_signs(),
        ..BuiltImage::default()
    })
}

/// Adds an image to this build script's list, in which `include_image!` looks up images.
fn list_image(file: &Path, out: &Path) -> Result<(), Error> {
    static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
    let file = file.file_name().unwrap_or_default().to_string_lossy();
    let name = file.strip_suffix("_image.rs").unwrap_or(&file).to_owned();
    if !names.contains(&name) {
        names.push(name);
    }
    image::list(out, &names)
}

/// Returns the tools that the image depends on, and the paths at which a missing tool would appear.
fn watched_tools(tools: &DeviceToolchain, cuda: &CudaTools) -> Vec<PathBuf> {
    let mut watched = vec![tools.rustc.clone(), tools.llvm.tool("opt"), tools.llvm.tool("llc")];
    watched.extend(cuda.ptxas.iter().map(|ptxas| ptxas.path.clone()));
    watched.extend(cuda.libdevice.iter().chain(&cuda.cudadevrt).cloned());
    if !cuda.are_complete() {
        watched.extend(toolchain::installation_signs());
    }
    watched
}

fn without(package: &str, reason: &str) -> String {
    format!("{package} is built without a GPU image (the emulated device works): {reason}")
}

/// Returns true if the package appears to belong to a different workspace than the one being built. In that case, the
/// user cannot change its kernels.
fn is_of_others(folders: &Folders) -> bool {
    // Cargo does not report which workspace it builds, so the shell's working directory is used instead.
    let shell = env::var_os("PWD").map(PathBuf::from).filter(|folder| folder.is_absolute());
    let built =
        [shell.as_deref(), folders.target_dir.parent()].into_iter().flatten().find_map(manifest::root_of);
    let own = manifest::root_of(&folders.manifest_dir);
    is_of_a_dependency(&folders.manifest_dir)
        || built.is_some_and(|built| own.is_some_and(|own| own != built))
}

/// Returns true if cargo fetched the package in `folder` from a registry or a git repository.
fn is_of_a_dependency(folder: &Path) -> bool {
    let home = env::var_os("CARGO_HOME").map(PathBuf::from);
    let home = home.or_else(|| Some(env::home_dir()?.join(".cargo")));
    home.is_some_and(|home| folder.starts_with(home.join("registry")) || folder.starts_with(home.join("git")))
}

/// Returns true if an environment variable is set to a value other than the empty string or `0`.
fn is_set(name: &str) -> bool {
    env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0")
}

fn remove_folder(folder: &Path) -> Result<(), Error> {
    match std::fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::io("cannot remove", folder)(error))
        }
        _ => Ok(()),
    }
}
