//! Rust-CUDA's builder on [`warpsmith_builder`]: a build script written for it compiles kernels to PTX when its manifest
//! names this package.
//!
//! ```toml
//! [build-dependencies]
//! cuda_builder = { package = "warpsmith-cuda-builder", version = "0.1" }
//! ```
//!
//! ```no_run
//! // build.rs
//! use cuda_builder::{CudaBuilder, NvvmArch};
//!
//! fn main() {
//!     let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").unwrap());
//!     CudaBuilder::new("kernels")
//!         .arch(NvvmArch::Compute80)
//!         .copy_to(out.join("kernels.ptx"))
//!         .build()
//!         .unwrap();
//! }
//! ```
//!
//! No CUDA toolkit and no nightly compiler are needed, but the device toolchain of Warpsmith. Without it the build succeeds
//! with a warning that says what to install, and the PTX file says so too: loading it fails.
//!
//! # Options
//!
//! | option | here |
//! | --- | --- |
//! | [`copy_to`](CudaBuilder::copy_to), [`arch`](CudaBuilder::arch), [`fma_contraction`](CudaBuilder::fma_contraction) | the same; the default architecture is compute capability 8.0 |
//! | [`build_args`](CudaBuilder::build_args) | `--features` is passed on; others have no effect |
//! | [`optix`](CudaBuilder::optix), architectures of one family (`Compute100f`) | an error |
//! | the others | a warning of the build when they ask for something else than what happens |

mod arch;
mod error;

use std::path::{Path, PathBuf};

use warpsmith_builder::{BuiltImage, PtxBuilder};

pub use arch::NvvmArch;
pub use error::CudaBuilderError;

/// How much debug information PTX has. Here always none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebugInfo {
    /// None.
    None,
    /// The lines of the source.
    LineTables,
    /// Lines and variables.
    Full,
}

/// An intermediate form to keep. `WARPSMITH_KEEP_IR=1` in the environment keeps all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmitOption {
    /// LLVM's text form.
    LlvmIr,
    /// LLVM's bitcode.
    Bitcode,
}

/// Compiles a kernel crate to PTX.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct CudaBuilder {
    path_to_crate: PathBuf,
    /// Whether to optimise. Kernels always are.
    pub release: bool,
    /// The file to write.
    pub ptx_file_copy_path: Option<PathBuf>,
    /// Whether PTX has line numbers. It has none.
    pub generate_line_info: bool,
    /// Whether to optimise. Kernels always are.
    pub nvvm_opts: bool,
    /// The least compute capability that the PTX runs on.
    pub arch: NvvmArch,
    /// Whether denormal `f32` numbers become zero. They do not.
    pub ftz: bool,
    /// Whether square roots are approximate. They are not.
    pub fast_sqrt: bool,
    /// Whether divisions are approximate. They are not.
    pub fast_div: bool,
    /// Whether `a * b + c` may be one operation that rounds once.
    pub fma_contraction: bool,
    /// The intermediate form to keep.
    pub emit: Option<EmitOption>,
    /// Whether the code is for OptiX. It cannot be.
    pub optix: bool,
    /// Whether calls of `libm` become calls of libdevice.
    pub override_libm: bool,
    /// Debug information.
    pub debug: DebugInfo,
    /// Arguments for cargo, of which `--features` counts.
    pub build_args: Vec<String>,
    /// Where to keep the final LLVM IR.
    pub final_module_path: Option<PathBuf>,
    /// Whether statics that do not change lie in constant memory. They do where `#[address_space(constant)]` says so.
    pub use_constant_memory_space: bool,
}

macro_rules! options {
    ($($(#[$doc:meta])* $name:ident: $t:ty;)*) => { $(
        $(#[$doc])*
        pub fn $name(mut self, $name: $t) -> Self {
            self.$name = $name;
            self
        }
    )* };
}

impl CudaBuilder {
    /// A builder for the kernel crate in a folder, relative to the package's.
    pub fn new(path_to_crate_root: impl AsRef<Path>) -> Self {
        Self {
            path_to_crate: path_to_crate_root.as_ref().to_owned(),
            release: true,
            ptx_file_copy_path: None,
            generate_line_info: true,
            nvvm_opts: true,
            arch: NvvmArch::default(),
            ftz: false,
            fast_sqrt: false,
            fast_div: false,
            fma_contraction: true,
            emit: None,
            optix: false,
            override_libm: true,
            debug: DebugInfo::None,
            build_args: Vec::new(),
            final_module_path: None,
            use_constant_memory_space: false,
        }
    }

    options! {
        /// The least compute capability that the PTX runs on.
        arch: NvvmArch;
        /// Whether `a * b + c` may be one operation that rounds once. It may unless this says no.
        fma_contraction: bool;
        /// Whether PTX has line numbers: without effect.
        generate_line_info: bool;
        /// Whether to optimise: `false` is a warning.
        nvvm_opts: bool;
        /// Whether denormal numbers become zero: `true` is a warning.
        ftz: bool;
        /// Whether square roots are approximate: `true` is a warning.
        fast_sqrt: bool;
        /// Whether divisions are approximate: `true` is a warning.
        fast_div: bool;
        /// Whether the code is for OptiX: `true` is an error.
        optix: bool;
        /// Whether calls of `libm` become calls of libdevice: without effect. Functions of `GpuFloat` are libdevice's.
        override_libm: bool;
        /// Debug information: other than none is a warning.
        debug: DebugInfo;
        /// Whether statics that do not change lie in constant memory: `true` is a warning.
        use_constant_memory_space: bool;
    }

    /// Whether to optimise: `false` is a warning.
    pub fn release(mut self, release: bool) -> Self {
        (self.release, self.nvvm_opts) = (release, release);
        self
    }

    /// Writes the PTX to this file too.
    pub fn copy_to(mut self, path: impl AsRef<Path>) -> Self {
        self.ptx_file_copy_path = Some(path.as_ref().to_owned());
        self
    }

    /// Arguments for cargo: `--features a,b` counts, others are a warning.
    pub fn build_args(mut self, args: &[impl AsRef<str>]) -> Self {
        self.build_args.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Keeps LLVM's text form: a warning.
    pub fn emit_llvm_ir(mut self, emit_llvm_ir: bool) -> Self {
        self.emit = emit_llvm_ir.then_some(EmitOption::LlvmIr);
        self
    }

    /// Keeps LLVM's bitcode: a warning.
    pub fn emit_llvm_bitcode(mut self, emit_llvm_bitcode: bool) -> Self {
        self.emit = emit_llvm_bitcode.then_some(EmitOption::Bitcode);
        self
    }

    /// Keeps the final LLVM IR: a warning.
    pub fn final_module_path(mut self, path: impl AsRef<Path>) -> Self {
        self.final_module_path = Some(path.as_ref().to_owned());
        self
    }

    /// Compiles, from a build script, and gives the PTX file: that of [`copy_to`](Self::copy_to), if it was called.
    ///
    /// # Errors
    ///
    /// A crate that is not there, a compiler's error, an option that cannot be honoured, a file that cannot be written.
    pub fn build(self) -> Result<PathBuf, CudaBuilderError> {
        if !self.path_to_crate.is_dir() {
            return Err(CudaBuilderError::CratePathDoesntExist(self.path_to_crate));
        }
        if self.optix {
            return Err(CudaBuilderError::Unsupported(
                "optix(true): OptiX programs cannot be compiled; write the kernel for CUDA, or compile this crate with \
                 Rust-CUDA"
                    .to_owned(),
            ));
        }
        let (arch, too_old) = self.arch.target().map_err(CudaBuilderError::Unsupported)?;
        let (features, others) = features(&self.build_args);
        for warning in self.warnings(too_old, &others) {
            println!("cargo:warning=cuda_builder: {warning}");
        }
        // A program of Rust-CUDA was not warned about local memory; one that prints always uses it.
        let mut builder = PtxBuilder::new(&self.path_to_crate)
            .archs([arch])
            .fma(self.fma_contraction)
            .alloc()
            .one_module()
            .allow_spills("");
        for feature in features {
            builder = builder.feature(feature);
        }
        for feature in self.arch.target_features() {
            builder = builder.cfg(format!("target_feature=\"{feature}\""));
        }
        let built = builder.build().map_err(CudaBuilderError::BuildFailed)?;
        deliver(&built, self.ptx_file_copy_path)
    }

    /// What was asked for and does not happen.
    fn warnings(&self, too_old: bool, others: &[&str]) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |when: bool, text: &str| {
            if when {
                warnings.push(text.to_owned());
            }
        };
        warn(
            too_old,
            "kernels are compiled for compute capability 7.0 at least, and do not run on older GPUs: choose \
             NvvmArch::Compute70 or later",
        );
        warn(!self.release || !self.nvvm_opts, "kernels are always optimised: release(false) has no effect");
        warn(self.ftz, "ftz(true) has no effect: use gpu_std::math::fast, whose functions flush denormals");
        warn(self.fast_sqrt, "fast_sqrt(true) has no effect: call gpu_std::math::fast::sqrt");
        warn(self.fast_div, "fast_div(true) has no effect: call gpu_std::math::fast::div");
        let keeps = self.emit.is_some() || self.final_module_path.is_some();
        warn(keeps, "no LLVM IR is kept: set WARPSMITH_KEEP_IR=1 in the environment of the build");
        warn(self.debug != DebugInfo::None, "the PTX has no debug information");
        warn(
            self.use_constant_memory_space,
            "use_constant_memory_space has no effect: mark statics with #[address_space(constant)]",
        );
        warn(!others.is_empty(), &format!("build_args {others:?} have no effect: only --features does"));
        warnings
    }
}

/// The features that arguments of cargo name, and the other arguments.
fn features(args: &[String]) -> (Vec<&str>, Vec<&str>) {
    let (mut features, mut others) = (Vec::new(), Vec::new());
    let mut args = args.iter().map(String::as_str);
    while let Some(arg) = args.next() {
        let list = match arg.strip_prefix("--features=") {
            Some(list) => Some(list),
            None if arg == "--features" || arg == "-F" => args.next(),
            None => None,
        };
        match list {
            Some(list) => features.extend(list.split([',', ' ']).filter(|name| !name.is_empty())),
            None => others.push(arg),
        }
    }
    (features, others)
}

/// The PTX file of a build, copied to `to` if that is given.
fn deliver(built: &BuiltImage, to: Option<PathBuf>) -> Result<PathBuf, CudaBuilderError> {
    let failed = CudaBuilderError::FailedToCopyPtxFile;
    match built.modules.iter().find(|file| file.extension().is_some_and(|extension| extension == "ptx")) {
        Some(ptx) => match to {
            Some(to) => std::fs::copy(ptx, &to).map(|_| to).map_err(failed),
            None => Ok(ptx.clone()),
        },
        None => {
            // `include_str!` needs a file.
            let reason = built.reason.as_deref().unwrap_or("no PTX was made");
            let to = to.unwrap_or_else(|| built.file.with_extension("ptx"));
            std::fs::write(&to, format!("// No GPU code: {reason}\n")).map_err(failed)?;
            Ok(to)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_are_taken_from_cargo_arguments() {
        let args = ["--features", "a,b", "-Zx", "--features=c", "-F", "d"].map(str::to_owned);
        assert_eq!(features(&args), (vec!["a", "b", "c", "d"], vec!["-Zx"]));
        assert_eq!(features(&["--features".to_owned()]), (vec![], vec!["--features"]));
    }

    #[test]
    fn options_without_effect_are_warned_about() {
        assert!(CudaBuilder::new("k").warnings(false, &[]).is_empty());
        let all = CudaBuilder::new("k")
            .release(false)
            .ftz(true)
            .fast_sqrt(true)
            .fast_div(true)
            .emit_llvm_ir(true)
            .debug(DebugInfo::LineTables)
            .use_constant_memory_space(true)
            .warnings(true, &["-Zx"]);
        assert_eq!(all.len(), 9);
        assert!(all[0].contains("Compute70") && all[8].contains("-Zx"), "{all:?}");
    }

    #[test]
    fn a_missing_crate_is_named() {
        let error = CudaBuilder::new("no-such-crate").build().unwrap_err();
        assert!(error.to_string().contains("no-such-crate"), "{error}");
    }

    #[test]
    fn optix_is_an_error_that_says_why() {
        let error = CudaBuilder::new(".").optix(true).build().unwrap_err();
        assert!(error.to_string().contains("OptiX"), "{error}");
    }
}
