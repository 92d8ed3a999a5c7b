//! [`Error`]: what can go wrong in a build, said so that the reader knows what to do.

use std::fmt;
use std::path::PathBuf;

/// Why a GPU image could not be built.
///
/// `Debug` prints the same text as `Display`, because that is what a build script whose `main` returns an
/// error shows to its user.
#[derive(thiserror::Error)]
pub enum Error {
    /// The builder is used outside a build script.
    #[error("environment variable {0} is not set: call the builder from build.rs")]
    NotInBuildScript(&'static str),

    /// The path given to the builder is not a crate.
    #[error(
        "no kernel crate at {path}: there is no Cargo.toml (the path is relative to the package's folder)"
    )]
    NoSuchCrate {
        /// The places searched.
        path: PathBuf,
    },

    /// A manifest is not a package's.
    #[error("{} is not the manifest of a package: {message}", path.display())]
    Manifest {
        /// The manifest.
        path: PathBuf,
        /// What is wrong with it.
        message: String,
    },

    /// The package given to the builder has no library.
    #[error(
        "the kernel crate `{package}` has no library: its kernels go into {}, and the crate is one of its own, beside the \
         host package",
        path.display()
    )]
    NoLibrary {
        /// The package.
        package: String,
        /// The file that the library would be.
        path: PathBuf,
    },

    /// A variable that chooses tools has a relative path.
    #[error("{0}")]
    RelativePath(#[from] crate::toolchain::RelativePath),

    /// No compiler for the GPU side, and `WARPSMITH_REQUIRE_GPU_IMAGE=1` requires an image.
    #[error("WARPSMITH_REQUIRE_GPU_IMAGE is set, but there is no GPU image: {reason}")]
    ImageRequired {
        /// Why there is none, and what to do.
        reason: String,
    },

    /// `WARPSMITH_GPU_ARCHS` has a value that means nothing.
    #[error(
        "WARPSMITH_GPU_ARCHS is {value:?}, and {word:?} is no architecture: write all, native, none, or a list such as sm_80,sm_90a"
    )]
    BadArchs {
        /// The value.
        value: String,
        /// The word in it.
        word: String,
    },

    /// rustc or cargo refused the kernel crate; the text is theirs.
    #[error(
        "the kernel crate `{package}` does not compile for the GPU:\n\n{diagnostics}{}",
        remedy(diagnostics)
    )]
    KernelCrate {
        /// The crate.
        package: String,
        /// The output of cargo.
        diagnostics: String,
    },

    /// The kernel crate compiled but defines no kernel.
    #[error(
        "the kernel crate `{package}` has no kernels: mark at least one public function with #[kernel] \
         (and list its instances if it is generic)"
    )]
    NoKernels {
        /// The crate.
        package: String,
    },

    /// Two crates of the graph define the same symbol.
    #[error(
        "two crates define the symbol `{symbol}`: kernels (and #[no_mangle] functions) of the kernel crate \
         and its dependencies share one name space; rename one of them"
    )]
    DuplicateSymbol {
        /// The symbol.
        symbol: String,
    },

    /// The kernel crate does something the GPU has no way to do.
    #[error("{0}")]
    Rewrite(#[from] crate::rewrite::RewriteError),

    /// A function is called that nothing defines.
    #[error("{} called on the GPU but not defined anywhere:{}", plural(unresolved.len()), list(unresolved))]
    Unresolved {
        /// One line each: the symbol, its callers, and the fix.
        unresolved: Vec<String>,
    },

    /// A machine parameter of an entry is not the one that `#[kernel]` recorded, which is what a launch passes.
    #[error(
        "kernel `{kernel}`: {parameter} is {recorded} in the source and {found} in the PTX, so that launches would \
         pass wrong arguments; pass a type whose layout both compilers agree on (`repr(C)`, not of size 0)"
    )]
    ParameterMismatch {
        /// The kernel.
        kernel: String,
        /// The parameter, by its index.
        parameter: String,
        /// The parameters that `#[kernel]` recorded.
        recorded: String,
        /// The parameters of the entry.
        found: String,
    },

    /// A kernel that says `no_panic` can panic.
    #[error(
        "the compiler cannot rule out {} of a `#[kernel(no_panic)]`:{}\nindex with `get` or by an iterator, compare the \
         index with the length before, or leave `no_panic` out",
        if panics.len() == 1 { "a panic" } else { "panics" },
        list(panics)
    )]
    Panics {
        /// One line each: kernel, place and text.
        panics: Vec<String>,
    },

    /// A kernel's `wgmma` would run one after the other, or its registers are spilled.
    #[error("the tensor cores would wait in {}:{}", if kernels.len() == 1 { "a kernel" } else { "kernels" }, list(kernels))]
    Wgmma {
        /// One item each: kernel, architecture, cause and remedy.
        kernels: Vec<String>,
    },

    /// libdevice is needed and missing.
    #[error(
        "kernel `{kernel}` calls `{function}`{}, which is in NVIDIA's libdevice.10.bc, and that was not found.\n{how}",
        if function.starts_with("__nv_fmod") { " (for `%` of floats)" } else { "" }
    )]
    NoLibdevice {
        /// A kernel that reaches the function.
        kernel: String,
        /// The `__nv_…` function.
        function: String,
        /// The places searched and how to install it.
        how: String,
    },

    /// libcudadevrt is needed and missing.
    #[error(
        "kernel `{kernel}` calls `{function}`, which is in NVIDIA's libcudadevrt.a, and that was not found.\n{how}"
    )]
    NoDeviceRuntime {
        /// A kernel that reaches the function.
        kernel: String,
        /// The function of the device runtime.
        function: String,
        /// The places searched and how to install it.
        how: String,
    },

    /// A part of libcudadevrt is missing, or it is another file.
    #[error("{} is not a whole library: install the CUDA tools again, or name others in WARPSMITH_CUDA_TOOLS", path.display())]
    DamagedDeviceRuntime {
        /// The file.
        path: PathBuf,
    },

    /// LLVM has no instructions for an operation on a GPU.
    #[error(
        "kernel `{kernel}`: LLVM has no code for {what} on a GPU; use a function of gpu_std::math, or other types{places}"
    )]
    NoCode {
        /// A kernel that reaches the operation.
        kernel: String,
        /// The operation.
        what: String,
        /// Where it is in the source, one line each: the operation, and the calls that lead there.
        places: String,
    },

    /// Kernels need more stack than a thread can have.
    #[error(
        "{} more stack than a thread can have on a GPU, 512 KiB:{}\nput large arrays into buffers",
        if kernels.len() == 1 { "a kernel needs" } else { "kernels need" },
        list(kernels)
    )]
    Stack {
        /// One line each: the kernel and its stack.
        kernels: Vec<String>,
    },

    /// A tool of the pipeline failed.
    #[error("{tool} failed on {input}:\n{message}")]
    Tool {
        /// The tool, for example `opt`.
        tool: String,
        /// Its input.
        input: String,
        /// Its output.
        message: String,
    },

    /// A file could not be read or written, or a tool not started.
    #[error("{what} {path}: {source}")]
    Io {
        /// The operation, for example `cannot read`.
        what: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's answer.
        source: std::io::Error,
    },
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error {
    /// For `map_err`: an [`Error::Io`] about `path`.
    pub(crate) fn io(what: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(std::io::Error) -> Error {
        let path = path.into();
        move |source| Error::Io { what, path, source }
    }
}

/// What to add to errors of rustc that do not know of the target's crates.
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
        (_, true) => "\nalloc is compiled for kernel crates whose build script calls PtxBuilder::alloc",
        _ => "",
    }
}

fn plural(count: usize) -> &'static str {
    if count == 1 { "a function is" } else { "functions are" }
}

fn list(lines: &[String]) -> String {
    lines.iter().map(|line| format!("\n  {line}")).collect()
}
