//! [`ImageSpec`]: the GPU image of a kernel crate, as the builder writes it and the runtime reads it.
//!
//! An image holds the kernels of a kernel crate and of its dependencies, in parts. A part is one module for the
//! driver, in one or more forms; it is unpacked and loaded when the first of its kernels is looked up. The kernel
//! records are the contract: a kernel type is looked up in an image only if the record of its symbol has the same
//! package, version, module and parameters.

pub use crate::kernel::AbiParam;
use crate::kernel::KernelInfo;

/// In the symbols that `#[kernel]` writes: between the symbol of a kernel and a text that no other kernel of the program has.
/// The builder removes both. Where several kernels have one symbol, it is followed by their modules: [`qualified`].
pub const ENTRY_MARK: &str = ".entry.";

/// A Rust name as a part of a symbol, which has ASCII letters, digits and `_` only: `größe` is `gr$f6$$df$e`.
pub fn symbol_of(name: &str) -> impl Iterator<Item = char> {
    name.chars().flat_map(|c| {
        let is_plain = c.is_ascii_alphanumeric() || c == '_';
        // `\u{f6}`
        let number = c.escape_unicode().filter(|c| !matches!(c, '\\' | 'u'));
        let number = number.map(|c| if matches!(c, '{' | '}') { '$' } else { c });
        is_plain.then_some(c).into_iter().chain(number.filter(move |_| !is_plain))
    })
}

/// The symbol of a kernel that shares its name with another symbol of the image: with the path of its module, the crate first,
/// as in `scale$kernels$half`.
pub fn qualified(symbol: &str, module: &str) -> impl Iterator<Item = char> {
    let path = module.split("::").flat_map(|part| core::iter::once('$').chain(symbol_of(part)));
    symbol.chars().chain(path)
}

/// Before the symbol of a kernel: the symbol of a constant in the GPU code that says where the kernel is from, as
/// `PACKAGE VERSION RUST::MODULE::PATH` in bytes. The builder reads it, and leaves none in the PTX.
pub const ORIGIN_PREFIX: &str = "__warpsmith_origin.";

/// Before the symbol of a kernel: the symbol of a constant in the GPU code, which is there if a panic that is left in the
/// kernel is a build error. Read and removed as those of [`ORIGIN_PREFIX`].
pub const NO_PANIC_PREFIX: &str = "__warpsmith_no_panic.";

/// A GPU image.
#[derive(Debug, Clone, Copy)]
pub struct ImageSpec {
    /// The kernel crate.
    pub package: Package,
    /// Packages whose kernels may be in the image besides. Read only where there is no code: with code, the kernel
    /// records have the packages.
    pub dependencies: &'static [Package],
    /// Where its packages were, as far as it is known: a kernel of one of them that was compiled elsewhere is another
    /// package's.
    pub sources: &'static [Source],
    /// Why there is no code; `None` when there is.
    pub missing: Option<&'static str>,
    /// Its toolchain.
    pub compilers: Compilers,
    /// The code; empty when there is none.
    pub parts: &'static [ImagePart],
    /// The kernels, sorted by symbol.
    pub kernels: &'static [KernelRecord],
    /// NVIDIA's device runtime, `libcudadevrt.a`, with which linked parts are linked; `None` without such parts.
    pub device_runtime: Option<Packed>,
}

/// A package: name and version, as its manifest has them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Package {
    /// The name, with `-` where the manifest has it.
    pub name: &'static str,
    /// The version.
    pub version: &'static str,
}

/// Where a package was when it was compiled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Source {
    /// The package.
    pub package: Package,
    /// The [`hash`] of the path of its folder, without links; several if it was moved.
    pub folders: &'static [u64],
}

/// The toolchains of an image and of the program that holds it, for example `rustc 1.96.0 (ac68faa20 2026-05-25), LLVM
/// 22.1.8`; empty where it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Compilers {
    /// Of the GPU code.
    pub device: &'static str,
    /// Of the program.
    pub host: &'static str,
}

/// One module of an image.
#[derive(Debug, Clone, Copy)]
pub struct ImagePart {
    /// The Rust module of its kernels, for example `elementwise`; the kernel crate's name for those of its root.
    pub name: &'static str,
    /// Whether its code is relocatable, and linked with the device runtime when it is loaded: that of kernels that
    /// launch kernels or set a graph's conditions.
    pub is_linked: bool,
    /// Its forms, at least one.
    pub forms: &'static [CodeForm],
}

/// A part's code for one architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodeForm {
    /// The architecture, as `10 * major + minor`.
    pub arch: u32,
    /// Whether it is for that architecture only (`sm_90a`).
    pub is_arch_specific: bool,
    /// Its kind.
    pub kind: CodeKind,
    /// The code.
    pub code: Packed,
    /// A hash of the code.
    pub hash: u64,
}

/// PTX, or machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodeKind {
    /// PTX of this version, as `10 * major + minor`.
    Ptx(u32),
    /// Machine code by this version of `ptxas`, for example `13.0.88`.
    Cubin(&'static str),
}

/// Bytes, compressed or as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Packed {
    /// As they are.
    Plain(&'static [u8]),
    /// A raw DEFLATE stream.
    Deflate {
        /// The stream.
        stream: &'static [u8],
        /// Length in bytes of what it unpacks to.
        len: usize,
    },
}

/// One kernel of an image.
#[derive(Debug, Clone, Copy)]
pub struct KernelRecord {
    /// Its symbol.
    pub symbol: &'static str,
    /// Index of the part that it is looked up in.
    pub part: usize,
    /// Its parameters; `None` for one that was not written with `#[kernel]`.
    pub abi: Option<KernelAbi>,
    /// The stack that a thread needs, as far as it is known.
    pub stack: StackUse,
    /// Bytes of stack a thread that `#[kernel(stack = BYTES)]` requests; 0 without it.
    pub requested_stack: u32,
    /// The block that every launch must have, as `#[kernel(block(16, 16))]` says.
    pub block: Option<[u32; 3]>,
    /// The cluster that every launch must have, as `#[kernel(cluster(2))]` says.
    pub cluster: Option<[u32; 3]>,
    /// Its resources, one entry for each architecture that it is assembled for; empty where there was no `ptxas`.
    pub resources: &'static [KernelResources],
    /// The panics that the compiler could not prove away, on any architecture.
    pub panics: &'static [PanicPlace],
}

/// A panic that a kernel can reach, on one way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct PanicPlace {
    /// The source file, as the compiler names it; empty where the place is not known.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// What goes wrong, for example `index out of bounds`.
    pub what: &'static str,
    /// The calls that lead to the place, from the innermost to that in the kernel; empty where the place is in the kernel.
    pub calls: &'static [CallPlace],
}

/// A call that leads to a panic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct CallPlace {
    /// The source file, as the compiler names it.
    pub file: &'static str,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

/// The origin of a kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelAbi {
    /// The package that defines it.
    pub package: Package,
    /// The path of its Rust module, the crate first.
    pub module: &'static str,
    /// Its parameters, in the source's order, as the device compiler laid them out.
    pub params: &'static [AbiParam],
}

/// The stack that a kernel's threads need, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StackUse {
    /// At most this many bytes on every architecture, callees included; 0 where there was no `ptxas` to measure it.
    Known(u32),
    /// Not known before it runs: it recurses, or calls through a pointer.
    Unknown,
}

/// The report of `ptxas` on a kernel for an architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelResources {
    /// The architecture, as `10 * major + minor`.
    pub arch: u32,
    /// Registers (of 32 bits) a thread.
    pub registers: u32,
    /// Static shared memory in bytes a block.
    pub static_shared: u32,
    /// Stack frame in bytes a thread, without that of callees.
    pub stack: u32,
    /// Bytes of registers spilled to memory, a thread.
    pub spills: u32,
}

impl ImageSpec {
    /// An image without code, for the emulated device.
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

    /// The record of the kernel with this symbol.
    pub fn kernel(&self, symbol: &str) -> Option<&'static KernelRecord> {
        let index = self.kernels.binary_search_by(|record| record.symbol.cmp(symbol)).ok()?;
        self.kernels.get(index)
    }

    /// The record of a kernel: that of its symbol, unless several kernels have that name.
    pub fn kernel_of(&self, kernel: &KernelInfo) -> Option<&'static KernelRecord> {
        let qualified =
            |record: &&KernelRecord| record.symbol.chars().eq(qualified(kernel.symbol, kernel.module));
        self.kernel(kernel.symbol).or_else(|| self.kernels.iter().find(qualified))
    }
}

/// FNV-1a, which is the same in every build.
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
