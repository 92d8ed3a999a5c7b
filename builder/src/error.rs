//! [`Error`]: build errors, whose messages state the remedy.

use std::fmt;
use std::path::PathBuf;

/// Reason why a GPU image could not be built.
///
/// `Debug` prints the same text as `Display`, because a build script whose `main` returns an error shows the `Debug`
/// text to its user.
#[derive(thiserror::Error)]
pub enum Error {
    /// The builder is used outside a build script.
    #[error("environment variable {0} is not set: call the builder from build.rs")]
    NotInBuildScript(&'static str),

    /// The path passed to the builder is not a crate.
    #[error(
        "no kernel crate at {path}: there is no Cargo.toml (the path is relative to the package's folder)"
    )]
    NoSuchCrate {
        /// Folder that was searched.
        path: PathBuf,
    },

    /// A manifest is not a package manifest.
    #[error("{} is not a package manifest: {message}", path.display())]
    Manifest {
        /// Path of the manifest.
        path: PathBuf,
        /// Problem with the manifest.
        message: String,
    },

    /// The package passed to the builder has no library.
    #[error(
        "the kernel crate `{package}` has no library: its kernels belong in {}, and the crate must be separate from the \
         host package",
        path.display()
    )]
    NoLibrary {
        /// Package name.
        package: String,
        /// Expected path of the library.
        path: PathBuf,
    },

    /// A variable that selects tools contains a relative path.
    #[error("{0}")]
    RelativePath(#[from] crate::toolchain::RelativePath),

    /// No device compiler was found, and `WARPSMITH_REQUIRE_GPU_IMAGE=1` requires an image.
    #[error("WARPSMITH_REQUIRE_GPU_IMAGE is set, but there is no GPU image: {reason}")]
    ImageRequired {
        /// Reason, and how to fix it.
        reason: String,
    },

    /// `WARPSMITH_GPU_DEBUG` has an invalid value.
    #[error("invalid value {0:?} for WARPSMITH_GPU_DEBUG: use none, lines or full")]
    UnknownDebugInfo(String),

    /// `WARPSMITH_GPU_ARCHS` has an invalid value.
    #[error(
        "WARPSMITH_GPU_ARCHS is {value:?}, and {word:?} is not an architecture: use all, native, none, or a list such as sm_80,sm_90a"
    )]
    BadArchs {
        /// Value of the variable.
        value: String,
        /// Invalid word in the value.
        word: String,
    },

    /// rustc or cargo rejected the kernel crate. The message contains their output.
    #[error(
        "the kernel crate `{package}` does not compile for the GPU:\n\n{diagnostics}{}",
        remedy(diagnostics)
    )]
    KernelCrate {
        /// Crate name.
        package: String,
        /// Output of cargo.
        diagnostics: String,
    },

    /// The kernel crate compiled but defines no kernel.
    #[error(
        "the kernel crate `{package}` has no kernels: mark at least one public function with #[kernel] \
         (and list its instances if it is generic)"
    )]
    NoKernels {
        /// Crate name.
        package: String,
    },

    /// Two crates of the graph define the same symbol.
    #[error(
        "two crates define the symbol `{symbol}`: kernels (and #[no_mangle] functions) in the kernel crate and its \
         dependencies share one namespace; rename one of them"
    )]
    DuplicateSymbol {
        /// Duplicate symbol.
        symbol: String,
    },

    /// The kernel crate performs an operation that GPUs do not support.
    #[error("{0}")]
    Rewrite(#[from] crate::rewrite::RewriteError),

    /// A called function is not defined anywhere.
    #[error("{} called on the GPU but not defined anywhere:{}", plural(unresolved.len()), list(unresolved))]
    Unresolved {
        /// Undefined symbols, one line each: the symbol, its callers, and the fix.
        unresolved: Vec<String>,
    },

    /// A PTX `.param` of an entry differs from the parameter that `#[kernel]` recorded and that a launch passes.
    #[error(
        "kernel `{kernel}`: {parameter} is {recorded} in the source but {found} in the PTX, so launches would pass \
         wrong arguments; use a parameter type with the same layout for both compilers (`repr(C)`, not zero-sized)"
    )]
    ParameterMismatch {
        /// Kernel name.
        kernel: String,
        /// The mismatched parameter, for example `parameter 2, a value,`.
        parameter: String,
        /// Parameters that `#[kernel]` recorded.
        recorded: String,
        /// Parameters of the PTX entry.
        found: String,
    },

    /// A kernel marked `no_panic` can panic.
    #[error(
        "the compiler cannot rule out {} in a `#[kernel(no_panic)]`:{}\nindex with `get`, use an iterator, compare \
         the index with the length first, or remove `no_panic`",
        if panics.len() == 1 { "a panic" } else { "panics" },
        list(panics)
    )]
    Panics {
        /// Panics, one line each: kernel, location and message.
        panics: Vec<String>,
    },

    /// ptxas would serialize a kernel's `wgmma` instructions, or spills the kernel's registers.
    #[error("the tensor cores would stall in {}:{}", if kernels.len() == 1 { "a kernel" } else { "kernels" }, list(kernels))]
    Wgmma {
        /// Affected kernels, one item each: kernel, architecture, cause and remedy.
        kernels: Vec<String>,
    },

    /// libdevice is required but missing.
    #[error(
        "kernel `{kernel}` calls `{function}`{}, but NVIDIA's libdevice.10.bc, which defines it, was not \
         found.\n{how}",
        if function.starts_with("__nv_fmod") { " (for `%` of floats)" } else { "" }
    )]
    NoLibdevice {
        /// Kernel that reaches the function.
        kernel: String,
        /// Missing `__nv_…` function.
        function: String,
        /// Searched locations, and how to install the library.
        how: String,
    },

    /// libcudadevrt is required but missing.
    #[error(
        "kernel `{kernel}` calls `{function}`, but NVIDIA's libcudadevrt.a, which defines it, was not found.\n{how}"
    )]
    NoDeviceRuntime {
        /// Kernel that reaches the function.
        kernel: String,
        /// Device-runtime function.
        function: String,
        /// Searched locations, and how to install the library.
        how: String,
    },

    /// libcudadevrt is truncated, or is a different file.
    #[error("{} is not a complete library: reinstall the CUDA tools, or set WARPSMITH_CUDA_TOOLS to another \
             installation", path.display())]
    DamagedDeviceRuntime {
        /// Path of the file.
        path: PathBuf,
    },

    /// LLVM cannot generate code for an operation on a GPU.
    #[error(
        "kernel `{kernel}`: LLVM cannot generate GPU code for {what}; use a function from gpu_std::math, or other \
         types{places}"
    )]
    NoCode {
        /// Kernel that reaches the operation.
        kernel: String,
        /// Unsupported operation.
        what: String,
        /// Source locations, one line each: the operation, and the calls that lead to it.
        places: String,
    },

    /// Kernels need more stack than a thread can allocate.
    #[error(
        "{} more stack than the GPU's maximum of 512 KiB per thread:{}\nput large arrays into buffers",
        if kernels.len() == 1 { "a kernel needs" } else { "kernels need" },
        list(kernels)
    )]
    Stack {
        /// Affected kernels, one line each: the kernel and its stack.
        kernels: Vec<String>,
    },

    /// A tool of the pipeline failed.
    #[error("{tool} failed on {input}:\n{message}")]
    Tool {
        /// Name of the tool, for example `opt`.
        tool: String,
        /// Input of the tool.
        input: String,
        /// Output of the tool.
        message: String,
    },

    /// An image report is damaged, or was written by a different version of the builder.
    #[error("the image report {} {problem}", path.display())]
    Report {
        /// Path of the report.
        path: PathBuf,
        /// Problem with the report, and its remedy.
        problem: String,
    },

    /// A file could not be read or written, or a tool could not be started.
    #[error("{what} {path}: {source}")]
    Io {
        /// Operation, for example `cannot read`.
        what: &'static str,
        /// Path of the file or tool.
        path: PathBuf,
        /// Error from the operating system.
        source: std::io::Error,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// Creates an [`Error::Io`] about `path`, for use with `map_err`.
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { what, path, source }
    }
}

/// Returns advice to add to rustc errors about missing crates of the target and computed constants.
fn remedy(diagnostics: &str) -> &'static str {
    let is_missing = |name: &str| {
        let crates = [
            "can't find crate for",
            "unresolved import",
            "unlinked crate",
            "unresolved module or unlinked crate",
        ];
        let named = |line: &str| crates.iter().any(|text| line.contains(&format!("{text} `{name}`")));
        let below = |line: &str| crates.iter().any(|text| line.contains(&format!("{text} `{name}::")));
        diagnostics.lines().any(|line| named(line) || below(line))
    };
    match (is_missing("std"), is_missing("alloc")) {
        (true, _) => "\nkernel crates are no_std: use core, or alloc through PtxBuilder::alloc",
        (_, true) => "\nalloc is available only in kernel crates whose build script calls PtxBuilder::alloc",
        _ if diagnostics.contains("generic parameters may not be used in const operations") => {
            "\na length cannot be computed from a const parameter: add a const parameter for the length, or use a \
             `Shared<[T]>`, whose length is a launch argument"
        }
        _ => "",
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "a function is" } else { "functions are" }
}

fn list(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}
