//! [`ImageSpec`]: the GPU image of a kernel crate, written by the builder and read by the runtime.
//!
//! An image contains the kernels of a kernel crate and its dependencies, divided into parts. For the driver, a part is
//! one module (of the fat binary), in one or more forms. The runtime unpacks and loads a part when the first of its
//! kernels is looked up. The kernel records are the contract between host and image. A kernel type is found in an image
//! only if the record of its symbol has the same package, version, module and parameters.

pub use crate::kernel::AbiParam;
use crate::kernel::KernelInfo;

/// Separator in the symbols that `#[kernel]` emits, between the symbol of a kernel and a suffix that is unique in the
/// program. The builder removes the separator and the suffix. If several kernels have the same symbol, the builder
/// appends their modules (see [`qualified`]).
pub const ENTRY_MARK: &str = ".entry.";

/// Encodes a Rust name as part of a symbol, which contains only ASCII letters, digits, `_` and `$`: `größe` becomes
/// `gr$f6$$df$e`.
pub fn symbol_of(name: &str) -> impl Iterator<Item = char> {
    name.chars().flat_map(|c| {
        let is_plain = c.is_ascii_alphanumeric() || c == '_';
        // The escape is `\u{f6}`, for example.
        let number = c.escape_unicode().filter(|c| !matches!(c, '\\' | 'u'));
        let number = number.map(|c| if matches!(c, '{' | '}') { '$' } else { c });
        is_plain.then_some(c).into_iter().chain(number.filter(move |_| !is_plain))
    })
}

/// Returns the qualified symbol of a kernel that shares its symbol with another kernel of the image. The path of its
/// module follows the symbol, crate first, as in `scale$kernels$half`.
pub fn qualified(symbol: &str, module: &str) -> impl Iterator<Item = char> {
    let path = module.split("::").flat_map(|part| core::iter::once('$').chain(symbol_of(part)));
    symbol.chars().chain(path)
}

/// Symbol prefix of a constant in the GPU code that records the origin of a kernel, as
/// `PACKAGE VERSION RUST::MODULE::PATH` in bytes. The kernel's symbol follows the prefix. The builder reads the
/// constant and removes it from the PTX.
pub const ORIGIN_PREFIX: &str = "__warpsmith_origin.";

/// Symbol prefix of a constant in the GPU code that makes a remaining panic in a kernel a build error. The kernel's
/// symbol follows the prefix. The builder reads and removes it like the constant of [`ORIGIN_PREFIX`].
pub const NO_PANIC_PREFIX: &str = "__warpsmith_no_panic.";

/// A GPU image.
#[derive(Debug, Clone, Copy)]
pub struct ImageSpec {
    /// Kernel crate of the image.
    pub package: Package,
    /// Other packages whose kernels may be in the image. Only read if there is no code, because otherwise the kernel
    /// records name the packages.
    pub dependencies: &'static [Package],
    /// Source locations of its packages, as far as known. A kernel of the same package that was compiled in another
    /// location belongs to a different package.
    pub sources: &'static [Source],
    /// Reason why there is no code; `None` if there is code.
    pub missing: Option<&'static str>,
    /// Toolchain of the image.
    pub compilers: Compilers,
    /// Code of the image; empty if there is none.
    pub parts: &'static [ImagePart],
    /// Kernels, sorted by symbol.
    pub kernels: &'static [KernelRecord],
    /// NVIDIA's device runtime, `libcudadevrt.a`, for parts that must be linked with it; `None` without such parts.
    pub device_runtime: Option<Packed>,
}

/// A package: name and version, as in its manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Package {
    /// Package name, with `-` as in the manifest.
    pub name: &'static str,
    /// Package version.
    pub version: &'static str,
}

/// Location of a package when it was compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The located package.
    pub package: Package,
    /// Hash (see [`hash`]) of the path of the package's folder, with symbolic links resolved; several hashes if the
    /// folder was moved.
    pub folders: &'static [u64],
}

/// Toolchains of an image and of the program that contains it, for example
/// `rustc 1.96.0 (ac68faa20 2026-05-25), LLVM 22.1.8`; empty if unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compilers {
    /// Toolchain of the GPU code.
    pub device: &'static str,
    /// Toolchain of the host program.
    pub host: &'static str,
}

/// One module of an image.
#[derive(Debug, Clone, Copy)]
pub struct ImagePart {
    /// Rust module of its kernels, for example `elementwise`; the kernel crate's name for kernels of its root.
    pub name: &'static str,
    /// True if its code is relocatable and must be linked with the device runtime when it is loaded. This applies to
    /// kernels that launch kernels or set a graph's conditions.
    pub is_linked: bool,
    /// Code forms, at least one.
    pub forms: &'static [CodeForm],
}

/// Code of a part for one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeForm {
    /// Architecture, as `10 * major + minor`.
    pub arch: u32,
    /// True if the code is for that architecture only (`sm_90a`).
    pub is_arch_specific: bool,
    /// Kind of code: PTX or machine code.
    pub kind: CodeKind,
    /// Code bytes.
    pub code: Packed,
    /// Hash of the code.
    pub hash: u64,
}

/// PTX or machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeKind {
    /// PTX of this version, as `10 * major + minor`.
    Ptx(u32),
    /// Machine code assembled by this version of `ptxas`, for example `13.0.88`.
    Cubin(&'static str),
}

/// Bytes, compressed or uncompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packed {
    /// Uncompressed bytes.
    Plain(&'static [u8]),
    /// A raw DEFLATE stream.
    Deflate {
        /// Compressed stream.
        stream: &'static [u8],
        /// Uncompressed length in bytes.
        len: usize,
    },
}

/// One kernel of an image.
#[derive(Debug, Clone, Copy)]
pub struct KernelRecord {
    /// Symbol of the kernel.
    pub symbol: &'static str,
    /// Index of the part that contains the kernel.
    pub part: usize,
    /// Origin and parameters; `None` for a kernel that was not written with `#[kernel]`.
    pub abi: Option<KernelAbi>,
    /// Stack that a thread needs, as far as known.
    pub stack: StackUse,
    /// Bytes of stack per thread requested by `#[kernel(stack = BYTES)]`; 0 without it.
    pub requested_stack: u32,
    /// Required block of every launch, from `#[kernel(block(16, 16))]`.
    pub block: Option<[u32; 3]>,
    /// Required cluster of every launch, from `#[kernel(cluster(2))]`.
    pub cluster: Option<[u32; 3]>,
    /// Resource use, one entry per architecture for which the kernel is assembled; empty if `ptxas` was not available.
    pub resources: &'static [KernelResources],
    /// Panics that the compiler could not rule out, on any architecture.
    pub panics: &'static [PanicPlace],
}

/// A panic that a kernel can reach, with one call path to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PanicPlace {
    /// Source file, as the compiler names it; empty if the location is unknown.
    pub file: &'static str,
    /// Line, 1-based.
    pub line: u32,
    /// Column, 1-based.
    pub column: u32,
    /// Reason of the panic, for example `index out of bounds`.
    pub what: &'static str,
    /// Calls that lead to the panic, from the innermost to the one in the kernel; empty if the panic is in the kernel
    /// itself.
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

/// Origin and parameters of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelAbi {
    /// Package that defines the kernel.
    pub package: Package,
    /// Path of its Rust module, crate first.
    pub module: &'static str,
    /// Parameters, in source order, as the device compiler laid them out.
    pub params: &'static [AbiParam],
}

/// Stack that a kernel's threads need, as far as known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackUse {
    /// At most this many bytes on every architecture, callees included; 0 if `ptxas` was not available to measure it.
    Known(u32),
    /// Unknown before execution, because the kernel recurses or calls through a pointer.
    Unknown,
}

/// Resource report of `ptxas` for a kernel and an architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelResources {
    /// Architecture, as `10 * major + minor`.
    pub arch: u32,
    /// Registers (32-bit) per thread.
    pub registers: u32,
    /// Static shared memory in bytes per block.
    pub static_shared: u32,
    /// Stack frame in bytes per thread, without callees.
    pub stack: u32,
    /// Bytes of registers spilled to local memory, per thread.
    pub spills: u32,
}

impl ImageSpec {
    /// Creates an image without code, for the emulated device.
    pub const fn without_code(package: Package, reason: &'static str) -> Self {
        Self {
            package,
            dependencies: &[],
            sources: &[],
            missing: Some(reason),
            compilers: Compilers { device: "", host: "" },
            parts: &[],
            kernels: &[],
            device_runtime: None,
        }
    }

    /// Returns the record of the kernel with this symbol.
    pub fn kernel(&self, symbol: &str) -> Option<&'static KernelRecord> {
        let index = self.kernels.binary_search_by(|record| record.symbol.cmp(symbol)).ok()?;
        self.kernels.get(index)
    }

    /// Returns the record of a kernel, by its symbol, or by its qualified symbol if several kernels share the symbol.
    pub fn kernel_of(&self, kernel: &KernelInfo) -> Option<&'static KernelRecord> {
        let qualified =
            |record: &&KernelRecord| record.symbol.chars().eq(qualified(kernel.symbol, kernel.module));
        self.kernel(kernel.symbol).or_else(|| self.kernels.iter().find(qualified))
    }
}

/// Computes the FNV-1a hash, which is the same in every build.
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
