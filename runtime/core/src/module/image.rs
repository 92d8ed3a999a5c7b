//! [`GpuImage`]: GPU code as the builder leaves it, and which form of it a device takes.

use crate::device::DeviceId;
use crate::error::{Error, Result};

/// One form of the code as the builder writes it: architecture (`10 * major + minor`), `"ptx"` or `"cubin"`,
/// whether it is for that architecture only (`sm_90a`), bytes.
pub type BinaryTuple = (u32, &'static str, bool, &'static [u8]);
/// A kernel as the builder writes it: symbol, and for each architecture the figures of [`KernelResources`].
pub type KernelTuple = (&'static str, &'static [(u32, u32, u32, u32, u32)]);
/// An image as the builder writes it: name, forms, kernels, and why there is no code (empty if there is).
pub type ImageTuple = (&'static str, &'static [BinaryTuple], &'static [KernelTuple], &'static str);

/// The part of an image that is linked with NVIDIA's device runtime: its forms, the symbols of the kernels that are in
/// it alone, and the library `libcudadevrt.a`.
pub type LinkedTuple = (&'static [BinaryTuple], &'static [&'static str], &'static [u8]);

/// The compilers as the builder writes them, with their versions: of the GPU code, and of the program that holds it. Empty
/// where they are not known.
pub type CompilersTuple = (&'static str, &'static str);

/// The kernels of a package, compiled for some architectures. It lies in a static, written by the facade's
/// `include_image!` from what the builder made.
///
/// ```
/// use warpsmith_runtime::GpuImage;
///
/// static IMAGE: GpuImage = GpuImage::new(("my-kernels", &[], &[], "no device toolchain was found"));
/// assert!(IMAGE.missing().is_some());
/// ```
#[derive(Debug)]
pub struct GpuImage {
    name: &'static str,
    binaries: &'static [BinaryTuple],
    kernels: &'static [KernelTuple],
    reason: &'static str,
    linked: LinkedTuple,
    compilers: CompilersTuple,
}

/// One form of an image's code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Binary {
    /// The architecture, as `10 * major + minor`.
    pub arch: u32,
    /// Machine code if true, else PTX.
    pub is_cubin: bool,
    /// Whether it is for that architecture only (`sm_90a`).
    pub is_arch_specific: bool,
    /// The code.
    pub code: &'static [u8],
}

/// What `ptxas` reported of a kernel for an architecture.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KernelResources {
    /// The architecture, as `10 * major + minor`.
    pub arch: u32,
    /// Registers (of 32 bits) a thread.
    pub registers: u32,
    /// Static shared memory in bytes a block.
    pub static_shared: u32,
    /// Stack in bytes a thread.
    pub stack: u32,
    /// Bytes of registers spilled to memory, a thread.
    pub spills: u32,
}

impl GpuImage {
    /// An image without kernels that launch kernels.
    pub const fn new(image: ImageTuple) -> Self {
        Self::built((image, (&[], &[], &[]), ("", "")))
    }

    /// An image from what the builder wrote.
    pub const fn built(
        ((name, binaries, kernels, reason), linked, compilers): (ImageTuple, LinkedTuple, CompilersTuple),
    ) -> Self {
        Self { name, binaries, kernels, reason, linked, compilers }
    }

    /// The package the kernels are of.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Why there is no GPU code; `None` when there is.
    pub fn missing(&self) -> Option<&'static str> {
        match (self.binaries.is_empty(), self.reason) {
            (false, _) => None,
            (true, "") => Some("the builder made none"),
            (true, reason) => Some(reason),
        }
    }

    /// What compiled the GPU code to PTX: `rustc 1.96.0 (ac68faa20 2026-05-25), LLVM 22.1.8`. `None` for an image without code
    /// and for one that the builder did not make.
    pub fn device_compiler(&self) -> Option<&'static str> {
        Some(self.compilers.0).filter(|compiler| !compiler.is_empty())
    }

    /// What compiled the program that holds the image, and with it the kernels as the emulated device runs them: rustc and
    /// LLVM, as [`Self::device_compiler`]. `None` for an image that the builder did not make.
    pub fn host_compiler(&self) -> Option<&'static str> {
        Some(self.compilers.1).filter(|compiler| !compiler.is_empty())
    }

    /// Every form of the code, but of kernels that launch kernels or set a graph's conditions.
    pub fn binaries(&self) -> impl Iterator<Item = Binary> {
        self.binaries.iter().map(Binary::of)
    }

    /// Every form of the code of kernels that launch kernels or set a graph's conditions, and of what they launch. It
    /// is relocatable, and linked with NVIDIA's device runtime when it is loaded.
    pub fn linked_binaries(&self) -> impl Iterator<Item = Binary> {
        self.linked.0.iter().map(Binary::of)
    }

    /// Whether a kernel launches kernels or sets a graph's conditions, and so is in [`Self::linked_binaries`] alone.
    pub fn is_linked(&self, symbol: &str) -> bool {
        self.linked.1.contains(&symbol)
    }

    pub(super) fn forms(&self) -> &'static [BinaryTuple] {
        self.binaries
    }

    pub(super) fn linked_forms(&self) -> &'static [BinaryTuple] {
        self.linked.0
    }

    /// NVIDIA's device runtime, `libcudadevrt.a`, with which [`Self::linked_binaries`] are linked; empty if there are
    /// none.
    pub fn device_runtime(&self) -> &'static [u8] {
        self.linked.2
    }

    /// The symbol of every kernel that some form of the code has, with its resources on each architecture.
    pub fn kernels(&self) -> impl Iterator<Item = (&'static str, Vec<KernelResources>)> {
        self.kernels.iter().map(|(symbol, figures)| {
            let resources = figures.iter().map(|&(arch, registers, static_shared, stack, spills)| {
                KernelResources { arch, registers, static_shared, stack, spills }
            });
            (*symbol, resources.collect())
        })
    }

    /// Those of `forms` that a device of this capability takes, the best first: machine code for exactly this
    /// architecture, then PTX from the newest architecture down, of versions that the driver compiles.
    ///
    /// Errors with [`Error::NoImage`], [`Error::NoImageForDevice`] or [`Error::DriverTooOld`] when there is none.
    pub(crate) fn candidates(
        &self,
        forms: &[BinaryTuple],
        device: DeviceId,
        capability: (u32, u32),
        max_ptx: Option<u32>,
        driver_version: &str,
    ) -> Result<Vec<Binary>> {
        let image = || self.name.to_owned();
        if let Some(reason) = self.missing() {
            return Err(Error::NoImage { image: image(), reason: reason.to_owned() });
        }
        let arch = 10 * capability.0 + capability.1;
        let mut fitting: Vec<Binary> = forms
            .iter()
            .map(Binary::of)
            .filter(|binary| {
                if binary.is_cubin || binary.is_arch_specific {
                    binary.arch == arch
                } else {
                    binary.arch <= arch
                }
            })
            .collect();
        if fitting.is_empty() {
            return Err(Error::NoImageForDevice { image: image(), device, capability, has: list(forms) });
        }
        fitting
            .sort_by_key(|binary| std::cmp::Reverse((binary.is_cubin, binary.arch, binary.is_arch_specific)));
        let too_new = |binary: &Binary| match (binary.ptx_version(), max_ptx) {
            (Some(needs), Some(has)) if needs > has => Some((needs, has)),
            _ => None,
        };
        let least = fitting.iter().filter_map(too_new).min();
        fitting.retain(|binary| too_new(binary).is_none());
        match least {
            Some((needs, has)) if fitting.is_empty() => Err(Error::DriverTooOld {
                image: image(),
                needs,
                has,
                driver_version: driver_version.to_owned(),
            }),
            _ => Ok(fitting),
        }
    }
}

/// `sm_80 PTX, sm_90a cubin`.
fn list(forms: &[BinaryTuple]) -> String {
    let form = |binary: Binary| {
        let suffix = if binary.is_arch_specific { "a" } else { "" };
        format!("sm_{}{suffix} {}", binary.arch, if binary.is_cubin { "cubin" } else { "PTX" })
    };
    forms.iter().map(Binary::of).map(form).collect::<Vec<_>>().join(", ")
}

impl Binary {
    fn of(&(arch, kind, is_arch_specific, code): &BinaryTuple) -> Self {
        Self { arch, is_cubin: kind == "cubin", is_arch_specific, code }
    }

    /// Tells this code from other code, in later processes too. It reads all of the code, some gigabytes a second.
    pub(crate) fn fingerprint(&self) -> u64 {
        let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
        let (words, rest) = self.code.as_chunks::<8>();
        let hash =
            words.iter().fold(self.code.len() as u64, |hash, word| mix(hash, u64::from_le_bytes(*word)));
        rest.iter().fold(hash, |hash, byte| mix(hash, u64::from(*byte)))
    }

    /// What compiled it, as far as it says so: `PTX 8.7` or `ptxas 13.0.88`, and the architecture. Of machine code that says
    /// nothing, `ptxas` alone.
    ///
    /// ```
    /// use warpsmith_runtime::module::Binary;
    ///
    /// let code = b".version 8.7\n.target sm_90\n";
    /// let binary = Binary { arch: 90, is_cubin: false, is_arch_specific: false, code };
    /// assert_eq!(binary.toolchain(), "PTX 8.7 for sm_90");
    /// ```
    pub fn toolchain(&self) -> String {
        let tool = match (self.is_cubin, self.ptx_version()) {
            (false, Some(version)) => format!("PTX {}.{}", version / 10, version % 10),
            (false, None) => "PTX".to_owned(),
            (true, _) => match self.ptxas_version() {
                Some(version) => format!("ptxas {version}"),
                None => "ptxas".to_owned(),
            },
        };
        let suffix = if self.is_arch_specific { "a" } else { "" };
        format!("{tool} for sm_{}{suffix}", self.arch)
    }

    /// The version of ptxas that machine code says it is of: after `release 13.0, V`, in a note of its own.
    fn ptxas_version(&self) -> Option<&str> {
        const BEFORE: &[u8] = b"Cuda compilation tools, release ";
        let start = self.code.windows(BEFORE.len()).position(|window| window == BEFORE)? + BEFORE.len();
        let text = &self.code[start..self.code.len().min(start + 32)];
        let version = text.split(|byte| *byte == b'V').nth(1)?;
        let len = version.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'.').count();
        std::str::from_utf8(&version[..len]).ok().filter(|version| !version.is_empty())
    }

    /// The version that PTX says it is of, as `10 * major + minor`; `None` for machine code.
    pub fn ptx_version(&self) -> Option<u32> {
        if self.is_cubin {
            return None;
        }
        let text = &self.code[..self.code.len().min(4096)];
        let line = text.split(|byte| *byte == b'\n').find_map(|line| line.strip_prefix(b".version"))?;
        let (major, minor) = std::str::from_utf8(line).ok()?.trim().split_once('.')?;
        Some(10 * major.parse::<u32>().ok()? + minor.parse::<u32>().ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OLD: &[u8] = b"//\n// Generated\n//\n.version 7.0\n.target sm_80\n";
    const NEW: &[u8] = b".version 8.7\n.target sm_90a\n";
    static IMAGE: GpuImage = GpuImage::new((
        "kernels",
        &[(80, "ptx", false, OLD), (90, "ptx", true, NEW), (90, "cubin", true, b"\x7fELF")],
        &[("axpy", &[(80, 24, 0, 0, 0)])],
        "",
    ));

    fn archs(capability: (u32, u32), max_ptx: u32) -> Vec<(u32, bool)> {
        let found =
            IMAGE.candidates(IMAGE.forms(), DeviceId::Cuda(0), capability, Some(max_ptx), "13.0").unwrap();
        found.iter().map(|binary| (binary.arch, binary.is_cubin)).collect()
    }

    #[test]
    fn best_form_comes_first() {
        assert_eq!(archs((9, 0), 90), [(90, true), (90, false), (80, false)]);
        assert_eq!(archs((9, 0), 86), [(90, true), (80, false)]);
        assert_eq!(archs((8, 0), 90), [(80, false)]);
        assert_eq!(archs((8, 9), 70), [(80, false)]);
        assert_eq!(archs((10, 0), 90), [(80, false)], "sm_90a runs on 9.0 only");
    }

    #[test]
    fn ptx_version_is_read() {
        assert_eq!(IMAGE.binaries().map(|b| b.ptx_version()).collect::<Vec<_>>(), [Some(70), Some(87), None]);
    }

    #[test]
    fn what_compiled_the_code_is_read_from_it() {
        let of = |is_cubin, code: &'static [u8]| {
            Binary { arch: 90, is_cubin, is_arch_specific: true, code }.toolchain()
        };
        assert_eq!(of(false, OLD), "PTX 7.0 for sm_90a");
        let cubin = b"\x7fELF\0ptxas\0Cuda compilation tools, release 13.0, V13.0.88\0Build cuda_13";
        assert_eq!(of(true, cubin), "ptxas 13.0.88 for sm_90a");
        for silent in
            [&b"\x7fELF"[..], b"Cuda compilation tools, release ", b"Cuda compilation tools, release 13.0"]
        {
            assert_eq!(of(true, silent), "ptxas for sm_90a");
        }
        assert_eq!(of(false, b"no version"), "PTX for sm_90a");
    }

    #[test]
    fn linked_forms_are_chosen_like_the_others_and_kept_apart() {
        static LINKED: GpuImage = GpuImage::built((
            ("kernels", &[(80, "ptx", false, OLD)], &[], ""),
            (&[(80, "ptx", false, OLD), (90, "cubin", true, b"\x7fELF")], &["parent"], b"!<arch>\n"),
            ("rustc 1.96.0, LLVM 22.1.8", ""),
        ));
        assert_eq!(
            (LINKED.device_compiler(), LINKED.host_compiler()),
            (Some("rustc 1.96.0, LLVM 22.1.8"), None)
        );
        assert_eq!((IMAGE.device_compiler(), IMAGE.host_compiler()), (None, None));
        assert!(LINKED.is_linked("parent") && !LINKED.is_linked("child") && !IMAGE.is_linked("axpy"));
        assert_eq!(LINKED.binaries().count(), 1);
        assert_eq!(LINKED.linked_binaries().map(|b| b.is_cubin).collect::<Vec<_>>(), [false, true]);
        let forms = LINKED.linked_forms();
        let found = LINKED.candidates(forms, DeviceId::Cuda(0), (9, 0), Some(90), "13.0").unwrap();
        assert_eq!(found.iter().map(|b| b.is_cubin).collect::<Vec<_>>(), [true, false]);
        assert_eq!(LINKED.device_runtime(), b"!<arch>\n");
    }

    #[test]
    fn fingerprints_tell_code_apart() {
        let of = |code: &'static [u8]| {
            Binary { arch: 90, is_cubin: true, is_arch_specific: false, code }.fingerprint()
        };
        let codes: [&[u8]; 6] = [b"", b"a", b"b", b"12345678", b"123456789", b"87654321"];
        let prints: std::collections::HashSet<u64> = codes.into_iter().map(of).collect();
        assert_eq!((prints.len(), of(OLD) == of(NEW), of(OLD)), (codes.len(), false, of(OLD)));
    }

    #[test]
    fn what_is_missing_is_said() {
        let error = |image: &GpuImage, capability, max_ptx| {
            image
                .candidates(image.forms(), DeviceId::Cuda(0), capability, max_ptx, "11.0")
                .unwrap_err()
                .to_string()
        };
        let text = error(&IMAGE, (8, 0), Some(65));
        assert!(
            text.contains("needs PTX 7.0") && text.contains("CUDA 11.0") && text.contains("PTX 6.5"),
            "{text}"
        );
        let text = error(&IMAGE, (7, 5), Some(90));
        assert!(text.contains("7.5") && text.contains("sm_80 PTX, sm_90a PTX, sm_90a cubin"), "{text}");
        let none = GpuImage::new(("kernels", &[], &[], "no toolchain"));
        let text = error(&none, (9, 0), Some(90));
        assert!(text.contains("no toolchain") && text.contains("cargo xtask setup"), "{text}");
    }
}
