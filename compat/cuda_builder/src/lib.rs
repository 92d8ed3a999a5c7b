//! Rust-CUDA's builder, implemented with [`warpsmith_builder`]. A build script written for Rust-CUDA compiles its
//! kernels to PTX if its manifest names this package instead.
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
//! Compiling requires Warpsmith's device toolchain, but neither a CUDA toolkit nor a nightly compiler. Without this
//! toolchain, the build succeeds with a warning that names the tools to install. In this case, the PTX file contains
//! the same message, and loading it fails.
//!
//! # Options
//!
//! | option | in this crate |
//! | --- | --- |
//! | [`copy_to`](CudaBuilder::copy_to), [`arch`](CudaBuilder::arch), [`fma_contraction`](CudaBuilder::fma_contraction) | the same, but the default architecture is compute capability 8.0 |
//! | [`build_args`](CudaBuilder::build_args) | `--features` is passed on; other arguments have no effect |
//! | [`optix`](CudaBuilder::optix), family-specific architectures (`Compute100f`) | an error |
//! | all others | a build warning if they request something that is not supported |

mod arch;
mod error;

use std::path::{Path, PathBuf};

use warpsmith_builder::{BuiltImage, PtxBuilder};

pub use arch::NvvmArch;
pub use error::CudaBuilderError;

/// Amount of debug information in PTX. This crate never generates any.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DebugInfo {
    /// No debug information.
    None,
    /// Line tables.
    LineTables,
    /// Line tables and variables.
    Full,
}

/// Intermediate form to keep. If `WARPSMITH_KEEP_IR=1` is set in the environment, all intermediate forms are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EmitOption {
    /// LLVM IR as text.
    LlvmIr,
    /// LLVM bitcode.
    Bitcode,
}

/// Compiles a kernel crate to PTX.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct CudaBuilder {
    path_to_crate: PathBuf,
    /// True to optimize. This has no effect, because kernels are always optimized.
    pub release: bool,
    /// PTX file to write.
    pub ptx_file_copy_path: Option<PathBuf>,
    /// True to generate line numbers; not supported.
    pub generate_line_info: bool,
    /// True to optimize. This has no effect, because kernels are always optimized.
    pub nvvm_opts: bool,
    /// Minimum compute capability that the PTX supports.
    pub arch: NvvmArch,
    /// True to flush denormal `f32` numbers to zero; not supported.
    pub ftz: bool,
    /// True to use approximate square roots; not supported.
    pub fast_sqrt: bool,
    /// True to use approximate divisions; not supported.
    pub fast_div: bool,
    /// True to allow the compiler to contract `a * b + c` to one FMA, which rounds once.
    pub fma_contraction: bool,
    /// Intermediate form to keep.
    pub emit: Option<EmitOption>,
    /// True to compile for OptiX; not supported.
    pub optix: bool,
    /// True to replace calls to `libm` with calls to libdevice.
    pub override_libm: bool,
    /// Amount of debug information.
    pub debug: DebugInfo,
    /// Arguments for cargo; only `--features` has an effect.
    pub build_args: Vec<String>,
    /// File for the final LLVM IR.
    pub final_module_path: Option<PathBuf>,
    /// True to place immutable statics in constant memory. This has no effect: only statics with
    /// `#[address_space(constant)]` are placed in constant memory.
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
    /// Creates a builder for the kernel crate in a folder; a relative path is relative to the folder of the package.
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
        /// Sets the minimum compute capability that the PTX supports.
        arch: NvvmArch;
        /// Sets whether the compiler may contract `a * b + c` to one FMA, which rounds once. The default is true.
        fma_contraction: bool;
        /// Sets whether PTX contains line numbers. This has no effect.
        generate_line_info: bool;
        /// Sets whether kernels are optimized. `false` causes a warning.
        nvvm_opts: bool;
        /// Sets whether denormal numbers are flushed to zero. `true` causes a warning.
        ftz: bool;
        /// Sets whether square roots are approximate. `true` causes a warning.
        fast_sqrt: bool;
        /// Sets whether divisions are approximate. `true` causes a warning.
        fast_div: bool;
        /// Sets whether the code is compiled for OptiX. `true` causes an error.
        optix: bool;
        /// Sets whether calls to `libm` are replaced with calls to libdevice. This has no effect, because functions of
        /// `GpuFloat` always use libdevice.
        override_libm: bool;
        /// Sets the debug information. Any value other than `None` causes a warning.
        debug: DebugInfo;
        /// Sets whether immutable statics are placed in constant memory. `true` causes a warning.
        use_constant_memory_space: bool;
    }

    /// Sets whether kernels are optimized. `false` causes a warning.
    pub fn release(mut self, release: bool) -> Self {
        (self.release, self.nvvm_opts) = (release, release);
        self
    }

    /// Also writes the PTX to this file.
    pub fn copy_to(mut self, path: impl AsRef<Path>) -> Self {
        self.ptx_file_copy_path = Some(path.as_ref().to_owned());
        self
    }

    /// Sets arguments for cargo. Only `--features a,b` has an effect; other arguments cause a warning.
    pub fn build_args(mut self, args: &[impl AsRef<str>]) -> Self {
        self.build_args.extend(args.iter().map(|arg| arg.as_ref().to_owned()));
        self
    }

    /// Requests LLVM IR as text, which causes a warning.
    pub fn emit_llvm_ir(mut self, emit_llvm_ir: bool) -> Self {
        self.emit = emit_llvm_ir.then_some(EmitOption::LlvmIr);
        self
    }

    /// Requests LLVM bitcode, which causes a warning.
    pub fn emit_llvm_bitcode(mut self, emit_llvm_bitcode: bool) -> Self {
        self.emit = emit_llvm_bitcode.then_some(EmitOption::Bitcode);
        self
    }

    /// Requests the final LLVM IR, which causes a warning.
    pub fn final_module_path(mut self, path: impl AsRef<Path>) -> Self {
        self.final_module_path = Some(path.as_ref().to_owned());
        self
    }

    /// Compiles the kernels from a build script. Returns the path of the PTX file: the path passed to
    /// [`copy_to`](Self::copy_to), if it was called.
    ///
    /// # Errors
    /// Returns an error if the crate does not exist, the compiler fails, an option is not supported, or a file cannot
    /// be written.
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
        // Warnings about local memory are disabled, because Rust-CUDA does not issue any, and kernels that print always
        // use local memory.
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

    /// Returns a warning for each requested option that has no effect.
    fn warnings(&self, too_old: bool, others: &[&str]) -> Vec<String> {
        let mut warnings = Vec::new();
        let mut warn = |when: bool, text: &str| {
            if when {
                warnings.push(text.to_owned());
            }
        };
        warn(
            too_old,
            "kernels are compiled for compute capability 7.0 or higher, and do not run on older GPUs: choose \
             NvvmArch::Compute70 or later",
        );
        warn(!self.release || !self.nvvm_opts, "kernels are always optimized: release(false) has no effect");
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

/// Returns the features named by the cargo arguments and all other arguments.
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

/// Returns the path of the PTX file of a build; if `to` is specified, the file is copied there.
fn deliver(built: &BuiltImage, to: Option<PathBuf>) -> Result<PathBuf, CudaBuilderError> {
    let failed = CudaBuilderError::FailedToCopyPtxFile;
    match built.modules.iter().find(|file| file.extension().is_some_and(|extension| extension == "ptx")) {
        Some(ptx) => match to {
            Some(to) => std::fs::copy(ptx, &to).map(|_| to).map_err(failed),
            None => Ok(ptx.clone()),
        },
        None => {
            // `include_str!` requires a file even if there is no PTX.
            let reason = built.reason.as_deref().unwrap_or("no PTX was generated");
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
