//! [`GpuImage`]: GPU code as output by the builder, and the selection of the form that a device loads.

use std::borrow::Cow;

use gpu_spec::image::{CodeForm, CodeKind, ImagePart, ImageSpec, KernelRecord, Package, Packed};

use crate::device::DeviceId;
use crate::error::{Error, Result};

/// The kernels of a package, compiled for one or more architectures. The image is stored in a static, which
/// [`include_image!`] initializes from the builder's output.
///
/// ```
/// use warpsmith_runtime::GpuImage;
///
/// static IMAGE: GpuImage = GpuImage::without_code("my-kernels", "0.1.0", "no device toolchain was found");
/// assert!(IMAGE.missing().is_some());
/// ```
///
/// [`include_image!`]: crate::include_image
#[derive(Debug)]
pub struct GpuImage {
    spec: ImageSpec,
}

/// The [`GpuImage`] that `build.rs` built from a kernel crate, embedded in the program.
///
/// The argument is the kernel crate's name in Rust code, with `_` for `-`. The crate that uses the macro must have a
/// `build.rs` that calls `warpsmith_builder::PtxBuilder::new("path/of/the/kernel/crate").build()`.
///
/// ```ignore
/// static KERNELS: warpsmith::GpuImage = warpsmith::include_image!("my_kernels");
/// ```
#[macro_export]
macro_rules! include_image {
    ($crate_name:tt) => {{
        #[allow(unused_imports)]
        use $crate::module::spec::*;
        // The included file defines `warpsmith_image!`, which looks up the available images by name.
        #[macro_use]
        mod images {
            include!(concat!(
                env!(
                    "OUT_DIR",
                    "include_image! requires a build script, build.rs, that builds the image: \
                     `warpsmith_builder::PtxBuilder::new(\"kernels\").build()`"
                ),
                "/warpsmith_images.rs"
            ));
        }
        const SPEC: ImageSpec = warpsmith_image!($crate_name);
        // SAFETY: the builder wrote the file from the code that it describes.
        unsafe { $crate::GpuImage::new(SPEC) }
    }};
}

impl GpuImage {
    /// Creates an image from a spec.
    ///
    /// # Safety
    ///
    /// The records must describe the code. Each kernel must be in the part that its record names, must have been
    /// compiled from the package's kernel with that symbol, and must have the recorded parameters. Type-checked
    /// launches rely on this.
    pub const unsafe fn new(spec: ImageSpec) -> Self {
        Self { spec }
    }

    /// Creates an image that contains no code for the kernels of `package`, for use on the emulated device. `reason`
    /// states why there is no code.
    pub const fn without_code(package: &'static str, version: &'static str, reason: &'static str) -> Self {
        Self { spec: ImageSpec::without_code(Package { name: package, version }, reason) }
    }

    /// Returns the builder's complete output.
    pub fn spec(&self) -> &ImageSpec {
        &self.spec
    }

    /// Returns the name of the package that contains the kernels.
    pub fn name(&self) -> &'static str {
        self.spec.package.name
    }

    /// Returns the reason why there is no GPU code; `None` if there is code.
    pub fn missing(&self) -> Option<&'static str> {
        match (self.spec.parts.is_empty(), self.spec.missing) {
            (false, _) => None,
            (true, reason) => Some(reason.unwrap_or("the builder produced no GPU code")),
        }
    }

    /// Returns the compiler that produced the PTX, for example `rustc 1.96.0 (ac68faa20 2026-05-25), LLVM 22.1.8`.
    /// Returns `None` for an image without code and for one that the builder did not build.
    pub fn device_compiler(&self) -> Option<&'static str> {
        Some(self.spec.compilers.device).filter(|compiler| !compiler.is_empty())
    }

    /// Returns the compiler of the program that contains the image, formatted as in [`Self::device_compiler`]. The same
    /// compiler has compiled the kernels for the emulated device. Returns `None` for an image that the builder did not
    /// build.
    pub fn host_compiler(&self) -> Option<&'static str> {
        Some(self.spec.compilers.host).filter(|compiler| !compiler.is_empty())
    }

    /// Returns the parts of the code.
    pub fn parts(&self) -> &'static [ImagePart] {
        self.spec.parts
    }

    /// Returns the kernels, sorted by symbol.
    pub fn kernels(&self) -> &'static [KernelRecord] {
        self.spec.kernels
    }

    /// Returns the forms of a part that a device of this capability can load, best first. Machine code for exactly this
    /// architecture comes first, followed by PTX for successively older architectures, if the driver can compile its
    /// PTX version.
    ///
    /// Returns [`Error::NoImage`], [`Error::NoImageForDevice`] or [`Error::DriverTooOld`] if there is no such form.
    pub(crate) fn candidates(
        &self,
        part: &ImagePart,
        device: DeviceId,
        capability: (u32, u32),
        max_ptx: Option<u32>,
        driver_version: &str,
    ) -> Result<Vec<&'static CodeForm>> {
        let image = || self.name().to_owned();
        let arch = 10 * capability.0 + capability.1;
        let is_exact = |form: &CodeForm| form.is_arch_specific || matches!(form.kind, CodeKind::Cubin(_));
        let mut fitting: Vec<&'static CodeForm> = part
            .forms
            .iter()
            .filter(|form| if is_exact(form) { form.arch == arch } else { form.arch <= arch })
            .collect();
        if fitting.is_empty() {
            return Err(Error::NoImageForDevice {
                image: image(),
                device,
                capability,
                has: list(part.forms),
            });
        }
        fitting.sort_by_key(|form| {
            std::cmp::Reverse((matches!(form.kind, CodeKind::Cubin(_)), form.arch, form.is_arch_specific))
        });
        let too_new = |form: &CodeForm| match (form.kind, max_ptx) {
            (CodeKind::Ptx(needs), Some(has)) if needs > has => Some((needs, has)),
            _ => None,
        };
        let minimum = fitting.iter().filter_map(|form| too_new(form)).min();
        fitting.retain(|form| too_new(form).is_none());
        match minimum {
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

/// Formats a list of forms, for example as `sm_80 PTX, sm_90a cubin`.
fn list(forms: &[CodeForm]) -> String {
    forms.iter().map(form_name).collect::<Vec<_>>().join(", ")
}

/// Formats a form, for example as `sm_90a cubin`.
fn form_name(form: &CodeForm) -> String {
    let suffix = if form.is_arch_specific { "a" } else { "" };
    let kind = if matches!(form.kind, CodeKind::Cubin(_)) { "cubin" } else { "PTX" };
    format!("sm_{}{suffix} {kind}", form.arch)
}

/// Returns the compiler of a form, for example `PTX 8.7 for sm_90` or `ptxas 13.0.88 for sm_90a`.
pub fn toolchain(form: &CodeForm) -> String {
    let tool = match form.kind {
        CodeKind::Ptx(version) => format!("PTX {}.{}", version / 10, version % 10),
        CodeKind::Cubin("") => "ptxas".to_owned(),
        CodeKind::Cubin(version) => format!("ptxas {version}"),
    };
    let suffix = if form.is_arch_specific { "a" } else { "" };
    format!("{tool} for sm_{}{suffix}", form.arch)
}

/// Decompresses packed bytes.
///
/// # Errors
/// Returns [`Error::DamagedImage`] if the result does not match the original bytes.
pub fn unpack(packed: &Packed) -> Result<Cow<'static, [u8]>> {
    match *packed {
        Packed::Plain(bytes) => Ok(Cow::Borrowed(bytes)),
        Packed::Deflate { stream, len } => {
            match miniz_oxide::inflate::decompress_to_vec_with_limit(stream, len) {
                Ok(bytes) if bytes.len() == len => Ok(Cow::Owned(bytes)),
                _ => Err(Error::DamagedImage),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn form(arch: u32, is_arch_specific: bool, kind: CodeKind) -> CodeForm {
        CodeForm { arch, is_arch_specific, kind, code: Packed::Plain(b""), hash: 1 }
    }

    const PART: ImagePart = ImagePart {
        name: "kernels",
        is_linked: false,
        forms: &[
            form(80, false, CodeKind::Ptx(70)),
            form(90, true, CodeKind::Ptx(87)),
            form(90, true, CodeKind::Cubin("13.0.88")),
        ],
    };
    const IMAGE: GpuImage = GpuImage::without_code("kernels", "0.1.0", "none");

    fn archs(capability: (u32, u32), max_ptx: u32) -> Vec<String> {
        let found = IMAGE.candidates(&PART, DeviceId::Cuda(0), capability, Some(max_ptx), "13.0").unwrap();
        found.into_iter().map(form_name).collect()
    }

    #[test]
    fn best_form_comes_first() {
        assert_eq!(archs((9, 0), 90), ["sm_90a cubin", "sm_90a PTX", "sm_80 PTX"]);
        assert_eq!(archs((9, 0), 86), ["sm_90a cubin", "sm_80 PTX"]);
        assert_eq!(archs((8, 0), 90), ["sm_80 PTX"]);
        assert_eq!(archs((8, 9), 70), ["sm_80 PTX"]);
        assert_eq!(archs((10, 0), 90), ["sm_80 PTX"], "sm_90a runs on 9.0 only");
    }

    #[test]
    fn a_form_says_what_compiled_it() {
        assert_eq!(
            PART.forms.iter().map(toolchain).collect::<Vec<_>>(),
            ["PTX 7.0 for sm_80", "PTX 8.7 for sm_90a", "ptxas 13.0.88 for sm_90a"]
        );
        assert_eq!(toolchain(&form(90, false, CodeKind::Cubin(""))), "ptxas for sm_90");
    }

    #[test]
    fn what_is_missing_is_said() {
        let error = |capability, max_ptx| {
            IMAGE.candidates(&PART, DeviceId::Cuda(0), capability, max_ptx, "11.0").unwrap_err().to_string()
        };
        let text = error((8, 0), Some(65));
        assert!(
            text.contains("needs PTX 7.0") && text.contains("CUDA 11.0") && text.contains("PTX 6.5"),
            "{text}"
        );
        let text = error((7, 5), Some(90));
        assert!(text.contains("7.5") && text.contains("sm_80 PTX, sm_90a PTX, sm_90a cubin"), "{text}");
    }

    #[test]
    fn damaged_code_is_an_error() {
        let stream = miniz_oxide::deflate::compress_to_vec(&[7; 1000], 6).leak();
        let deflate = |stream, len| unpack(&Packed::Deflate { stream, len });
        assert_eq!(*deflate(stream, 1000).unwrap(), [7; 1000]);
        for (stream, len) in [(&*stream, 999), (stream, 1001), (&stream[..3], 1000), (&[], 1000)] {
            assert!(matches!(deflate(stream, len), Err(Error::DamagedImage)), "{len}");
        }
    }
}
