//! [`ImageSpec`]: the GPU image of a kernel crate, which the builder writes and the runtime reads.
//!
//! An image contains the kernels of a kernel crate and its dependencies, divided into modules, each available in one or
//! more code forms. The runtime unpacks and loads a module at the first lookup of one of its kernels. The kernel
//! records form the contract between host and image. A lookup of a kernel type in an image succeeds only if the record
//! of its symbol has the same package, version, module and parameters.

pub use crate::kernel::AbiParam;
use crate::kernel::KernelInfo;

/// Separator in the symbols that `#[kernel]` emits. The separator precedes a suffix that is unique in the program. The
/// builder removes the separator and the suffix. If several kernels have the same symbol, the builder appends their
/// module paths (see [`qualified`]).
pub const ENTRY_MARK: &str = ".entry.";

/// Encodes a Rust name as part of a symbol. The result contains only ASCII letters, digits, `_` and `$`: `größe`
/// becomes `gr$f6$$df$e`.
pub fn symbol_of(name: &str) -> impl Iterator<Item = char> {
    name.chars().flat_map(|c| {
        let is_plain = c.is_ascii_alphanumeric() || c == '_';
        // For example, the escape is `\u{f6}`.
        let number = c.escape_unicode().filter(|c| !matches!(c, '\\' | 'u'));
        let number = number.map(|c| if matches!(c, '{' | '}') { '$' } else { c });
        is_plain.then_some(c).into_iter().chain(number.filter(move |_| !is_plain))
    })
}

/// Returns the qualified symbol of a kernel that has the same symbol as another kernel of the image. The path of the
/// kernel's module, starting with the crate, follows the symbol, as in `scale$kernels$half`.
pub fn qualified(symbol: &str, module: &str) -> impl Iterator<Item = char> {
    let path = module.split("::").flat_map(|part| core::iter::once('$').chain(symbol_of(part)));
    symbol.chars().chain(path)
}

/// Symbol prefix of a constant in the GPU code that records the origin of a kernel, as the bytes of `PACKAGE VERSION
/// RUST::MODULE::PATH`, and, if the instance has const arguments, ` CONST,CONST`: the names of the const parameters. The
/// kernel's symbol follows the prefix. The builder reads the constant and removes it from the
/// PTX.
pub const ORIGIN_PREFIX: &str = "__warpsmith_origin.";

/// Symbol prefix of a constant in the GPU code that makes a remaining panic in a kernel a build error. The kernel's
/// symbol follows the prefix. The builder reads and removes this constant like the constant of [`ORIGIN_PREFIX`].
pub const NO_PANIC_PREFIX: &str = "__warpsmith_no_panic.";

/// A GPU image.
#[derive(Debug, Clone, Copy)]
pub struct ImageSpec {
    /// The kernel crate from which the image was built.
    pub package: Package,
    /// Other packages whose kernels may be in the image. The list is read only for an image without code, because
    /// otherwise the kernel records name the packages.
    pub dependencies: &'static [Package],
    /// Known source locations of the image's packages. If a kernel's package has the same name but was compiled in a
    /// different location, it is a different package.
    pub sources: &'static [Source],
    /// Reason why the image contains no code, or `None` if it contains code.
    pub missing: Option<&'static str>,
    /// Toolchains with which the image was built.
    pub compilers: Compilers,
    /// The code of the image. The list is empty if the image contains no code.
    pub modules: &'static [ImageModule],
    /// The kernels, sorted by symbol.
    pub kernels: &'static [KernelRecord],
    /// NVIDIA's device runtime, `libcudadevrt.a`, for modules that must be linked with it, or `None` if none requires
    /// it.
    pub device_runtime: Option<Packed>,
}

/// A package's name and version, as in its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Package {
    /// Package name. The name contains `-`, as in the manifest.
    pub name: &'static str,
    /// Package version.
    pub version: &'static str,
}

/// The location at which a package was compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The located package.
    pub package: Package,
    /// Hash (see [`hash`]) of the path of the package's folder, with symbolic links resolved. There are several hashes
    /// if the folder was moved.
    pub folders: &'static [u64],
}

/// The toolchains of an image and of the program that contains it, such as `rustc 1.96.0 (ac68faa20 2026-05-25), LLVM
/// 22.1.8`. The string of an unknown toolchain is empty.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compilers {
    /// Toolchain that compiled the GPU code.
    pub device: &'static str,
    /// Toolchain that compiled the host program.
    pub host: &'static str,
}

/// One module of an image.
#[derive(Debug, Clone, Copy)]
pub struct ImageModule {
    /// Rust module of the kernels, such as `elementwise`. For kernels in the crate root, this is the name of the
    /// kernel crate.
    pub name: &'static str,
    /// True if the code is relocatable and must be linked with the device runtime when it is loaded. This is the case
    /// for kernels that set a graph's conditions.
    pub is_linked: bool,
    /// The forms of the code. There is at least one form.
    pub forms: &'static [CodeForm],
}

/// A module's code for one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeForm {
    /// Architecture, as `10 * major + minor`.
    pub arch: u32,
    /// True if the code runs only on that architecture (such as `sm_90a`).
    pub is_arch_specific: bool,
    /// The kind of code: PTX or machine code.
    pub kind: CodeKind,
    /// Code bytes.
    pub code: Packed,
    /// Hash of the code.
    pub hash: u64,
}

/// PTX or machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeKind {
    /// PTX with this ISA version, as `10 * major + minor`.
    Ptx(u32),
    /// Machine code assembled by this version of `ptxas`, such as `13.0.88`.
    Cubin(&'static str),
}

/// Maximum size of the window of compressed code, in bytes.
pub const MAX_WINDOW: u32 = 64 << 20;

/// Bytes that are either compressed or uncompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packed {
    /// Uncompressed bytes.
    Plain(&'static [u8]),
    /// An LZMA stream with its header, whose window has at most [`MAX_WINDOW`] bytes.
    Lzma {
        /// Compressed stream.
        stream: &'static [u8],
        /// Uncompressed length in bytes.
        len: usize,
    },
}

/// A record of one kernel in an image.
#[derive(Debug, Clone, Copy)]
pub struct KernelRecord {
    /// Symbol of the kernel.
    pub symbol: &'static str,
    /// Index in [`ImageSpec::modules`] of the module that contains the kernel's code.
    pub module_index: usize,
    /// Origin and parameters, or `None` for a kernel that was not written with `#[kernel]`.
    pub abi: Option<KernelAbi>,
    /// Stack size per thread, in bytes, if known.
    pub stack: StackUse,
    /// Stack size per thread that `#[kernel(stack = BYTES)]` requests, or 0 without this option.
    pub requested_stack: u32,
    /// Block size that every launch must have, from `#[kernel(block(16, 16))]`.
    pub block: Option<[u32; 3]>,
    /// Cluster size that every launch must have, from `#[kernel(cluster(2))]`.
    pub cluster: Option<[u32; 3]>,
    /// Resource use, with one entry per architecture for which the kernel was assembled. The list is empty if `ptxas`
    /// was not available.
    pub resources: &'static [KernelResources],
    /// Panics that the compiler could not rule out on at least one architecture.
    pub panics: &'static [PanicPlace],
}

/// A panic that a kernel can reach, with one of the call paths that lead to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PanicPlace {
    /// Source file as the compiler names it, or an empty string if the location is unknown.
    pub file: &'static str,
    /// Line, 1-based.
    pub line: u32,
    /// Column, 1-based.
    pub column: u32,
    /// Reason for the panic, such as `index out of bounds`.
    pub what: &'static str,
    /// Calls that lead to the panic, from the innermost call to the call in the kernel. The list is empty if the panic
    /// is in the kernel itself.
    pub calls: &'static [CallPlace],
}

/// A call that leads to a panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallPlace {
    /// Source file, as the compiler names it.
    pub file: &'static str,
    /// Line, 1-based.
    pub line: u32,
    /// Column, 1-based.
    pub column: u32,
}

/// The origin and the parameters of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelAbi {
    /// Package that defines the kernel.
    pub package: Package,
    /// Path of the Rust module that defines the kernel, starting with the crate.
    pub module: &'static str,
    /// Parameters in source order, as laid out by the device compiler.
    pub params: &'static [AbiParam],
}

/// Stack size per thread of a kernel, in bytes, if known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackUse {
    /// Maximum over all architectures, including callees. The number is 0 if `ptxas` was not available to measure it.
    Known(u32),
    /// The stack size is unknown before execution, because the kernel recurses or calls through a pointer.
    Unknown,
}

/// The resources that `ptxas` reports for one kernel on one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelResources {
    /// Architecture, as `10 * major + minor`.
    pub arch: u32,
    /// Number of 32-bit registers per thread.
    pub registers: u32,
    /// Static shared memory per block, in bytes.
    pub static_shared: u32,
    /// Stack frame per thread in bytes, excluding callees.
    pub stack: u32,
    /// Bytes per thread that are spilled from registers to local memory.
    pub spills: u32,
}

impl ImageSpec {
    /// Creates an image without code, for use on the emulated device.
    pub const fn without_code(package: Package, reason: &'static str) -> Self {
        Self {
            package,
            dependencies: &[],
            sources: &[],
            missing: Some(reason),
            compilers: Compilers { device: "", host: "" },
            modules: &[],
            kernels: &[],
            device_runtime: None,
        }
    }

    /// Returns the record of the kernel with this symbol.
    pub fn kernel(&self, symbol: &str) -> Option<&'static KernelRecord> {
        let index = self.kernels.binary_search_by(|record| record.symbol.cmp(symbol)).ok()?;
        self.kernels.get(index)
    }

    /// Returns the record of a kernel, found by its symbol, or by its qualified symbol if several kernels have the same
    /// symbol.
    pub fn kernel_of(&self, kernel: &KernelInfo) -> Option<&'static KernelRecord> {
        let qualified =
            |record: &&KernelRecord| record.symbol.chars().eq(qualified(kernel.symbol, kernel.module));
        self.kernel(kernel.symbol).or_else(|| self.kernels.iter().find(qualified))
    }
}

/// Computes an FNV-1a hash, which is the same in every build.
pub const fn hash(bytes: &[u8]) -> u64 {
    let (mut hash, mut next) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while next < bytes.len() {
        hash = (hash ^ bytes[next] as u64).wrapping_mul(0x100_0000_01b3);
        next += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_have_no_other_characters() {
        assert!(symbol_of("größe_2").eq("gr$f6$$df$e_2".chars()));
        assert!(symbol_of("x\u{1f980}").eq("x$1f980$".chars()));
        assert!(qualified("scale", "kernels::übung::b").eq("scale$kernels$$fc$bung$b".chars()));
    }
}
