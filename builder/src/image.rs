//! Writes the file that a host crate includes: a `gpu_spec::image::ImageSpec`, with the compressed code in separate
//! files.
//!
//! The file uses the types of `gpu_spec::image`, which the facade's `include_image!` brings into scope.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use gpu_spec::AbiParam;
use gpu_spec::image::{MAX_WINDOW, hash};
use lzma_rust2::{DICT_SIZE_MIN, LzmaOptions, LzmaWriter};

use crate::arch::Arch;
use crate::codegen::{self, Module};
use crate::directives::without_comments;
use crate::error::Error;
use crate::packages::Package;
use crate::parts::Part;
use crate::report::KernelReport;
use crate::rewrite::Kernel;

/// Compression preset of LZMA. The window covers a whole module, because the instances of a kernel resemble each other.
const PRESET: u32 = 6;

/// Toolchains, with versions, that compile an image and the program that embeds it. An unknown toolchain is an empty
/// string.
#[derive(Debug, Default)]
pub struct Compilers<'a> {
    /// Toolchain of the GPU code: rustc and LLVM.
    pub device: &'a str,
    /// Toolchain of the host package.
    pub host: &'a str,
}

/// Packages of an image.
pub struct Packages<'a> {
    /// Package of the kernels.
    pub package: &'a Package,
    /// The package's dependencies, if the image contains no code.
    pub dependencies: &'a [Package],
    /// Packages with the hashes of their source folders.
    pub sources: &'a [(Package, Vec<u64>)],
}

/// Code of an image.
pub struct Code<'a> {
    /// Parts of the image.
    pub parts: &'a [Part],
    /// Modules of each part.
    pub modules: &'a [Vec<Module>],
    /// Kernels of all parts.
    pub kernels: &'a [Kernel],
    /// Report of each kernel.
    pub reports: &'a [KernelReport],
    /// Version of ptxas. The value is empty if ptxas is not available.
    pub ptxas: &'a str,
    /// Path of libcudadevrt, if any part must be linked with it.
    pub device_runtime: Option<&'a Path>,
}

/// Returns the source of an image that contains no code but records the reason.
pub fn without_code(packages: &Packages<'_>, compilers: &Compilers<'_>, reason: &str) -> String {
    format!(
        "{}    missing: Some({reason:?}),\n    compilers: {},\n    modules: &[],\n    kernels: &[],\n    \
         device_runtime: None,\n}}\n",
        head(packages),
        of_compilers(compilers)
    )
}

/// Returns the lines about packages. The source folders are on a separate line, which [`ready_made`](crate::ready_made)
/// empties.
fn head(packages: &Packages<'_>) -> String {
    let of =
        |package: &Package| format!("Package {{ name: {:?}, version: {:?} }}", package.name, package.version);
    let dependencies: Vec<String> = packages.dependencies.iter().map(of).collect();
    let known = packages.sources.iter().filter(|(package, _)| !package.version.is_empty());
    let sources: Vec<String> = known
        .map(|(package, folders)| format!("Source {{ package: {}, folders: &{folders:?} }}", of(package)))
        .collect();
    format!(
        "ImageSpec {{\n    package: {},\n    dependencies: &[{}],\n    sources: &[{}],\n",
        of(packages.package),
        dependencies.join(", "),
        sources.join(", ")
    )
}

/// Compresses the code into files in `out`, and returns the source of the image and the paths of these files.
pub fn with_code(
    packages: &Packages<'_>,
    compilers: &Compilers<'_>,
    code: &Code<'_>,
    out: &Path,
) -> Result<(String, Vec<PathBuf>), Error> {
    let mut files = Vec::new();
    let mut text = head(packages);
    let _ =
        write!(text, "    missing: None,\n    compilers: {},\n    modules: &[\n", of_compilers(compilers));
    let forms: Vec<(usize, Form<'_>)> = code
        .modules
        .iter()
        .enumerate()
        .flat_map(|(part, modules)| forms(modules).into_iter().map(move |form| (part, form)))
        .collect();
    let packed = codegen::in_parallel(&forms, |(_, form)| {
        let (path, bytes) = match form.cubin {
            Some(cubin) => (cubin, read(cubin)?),
            None => (form.ptx, without_comments(&read(form.ptx)?)),
        };
        Ok((hash(&bytes), pack(&bytes, path, out)?))
    })?;
    let mut packed = forms.into_iter().zip(packed).peekable();
    for (number, part) in code.parts.iter().enumerate() {
        let _ = writeln!(
            text,
            "        ImageModule {{ name: {:?}, is_linked: {}, forms: &[",
            part.name, part.is_linked
        );
        while let Some(((_, form), (hash, (packed, file)))) = packed.next_if(|((of, _), _)| *of == number) {
            let kind = match form.cubin {
                Some(_) => format!("CodeKind::Cubin({:?})", code.ptxas),
                None => format!("CodeKind::Ptx({})", form.arch.ptx()),
            };
            files.push(file);
            let _ = writeln!(
                text,
                "            CodeForm {{ arch: {}, is_arch_specific: {}, kind: {kind}, hash: {hash:#x}, code: {packed} }},",
                form.arch.capability(),
                form.arch.is_specific(),
            );
        }
        text.push_str("        ] },\n");
    }
    text.push_str("    ],\n    kernels: &[\n");
    let mut kernels: Vec<(&Kernel, &KernelReport)> = code.kernels.iter().zip(code.reports).collect();
    kernels.sort_by(|a, b| a.0.symbol.cmp(&b.0.symbol));
    for (kernel, report) in kernels {
        // A kernel that other kernels launch is also in the linked part, which comes last.
        let part = code.parts.iter().position(|part| part.has(kernel)).unwrap_or(0);
        record(&mut text, kernel, report, part);
    }
    text.push_str("    ],\n    device_runtime: ");
    match code.device_runtime {
        Some(library) => {
            let (packed, file) = pack(&read(library)?, library, out)?;
            files.push(file);
            let _ = write!(text, "Some({packed})");
        }
        None => text.push_str("None"),
    }
    text.push_str(",\n}\n");
    Ok((text, files))
}

/// Writes a macro that maps the names of the images in `out` to the images, for `include_image!`.
pub fn list(out: &Path, names: &[String]) -> Result<(), Error> {
    let mut text = "macro_rules! warpsmith_image {\n".to_owned();
    for name in names {
        let _ = writeln!(
            text,
            "    ({name:?}) => {{ include!(concat!(env!(\"OUT_DIR\"), \"/{name}_image.rs\")) }};"
        );
    }
    let known: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    let known = format!(
        "; build.rs builds {} (an image has the name of its kernel package, with `_` instead of `-`)",
        known.join(", ")
    );
    let _ = writeln!(
        text,
        "    ($name:tt) => {{ compile_error!(concat!(\"there is no image \", stringify!($name), {known:?})) }};\n}}"
    );
    let file = out.join("warpsmith_images.rs");
    std::fs::write(&file, text).map_err(Error::io("cannot write", &file))
}

fn of_compilers(compilers: &Compilers<'_>) -> String {
    format!("Compilers {{ device: {:?}, host: {:?} }}", compilers.device, compilers.host)
}

fn record(text: &mut String, kernel: &Kernel, report: &KernelReport, part: usize) {
    let _ = write!(text, "        KernelRecord {{ symbol: {:?}, module_index: {part}, abi: ", kernel.symbol);
    match &kernel.abi {
        Some(abi) => {
            let _ = write!(
                text,
                "Some(KernelAbi {{ package: Package {{ name: {:?}, version: {:?} }}, module: {:?}, params: &[",
                abi.package, abi.version, abi.module
            );
            for param in &abi.params {
                let AbiParam { kind, size, align, signature } = param;
                let _ = write!(
                    text,
                    "AbiParam {{ kind: {kind}, size: {size}, align: {align}, signature: {signature} }}, "
                );
            }
            text.push_str("] })");
        }
        None => text.push_str("None"),
    }
    let stack = match report.stack {
        Some(bytes) => format!("StackUse::Known({bytes})"),
        None => "StackUse::Unknown".to_owned(),
    };
    let _ = write!(
        text,
        ", stack: {stack}, requested_stack: {}, block: {:?}, cluster: {:?}, resources: &[",
        kernel.stack, kernel.block, kernel.cluster
    );
    for needs in &report.resources {
        let _ = write!(
            text,
            "KernelResources {{ arch: {}, registers: {}, static_shared: {}, stack: {}, spills: {} }}, ",
            needs.capability, needs.registers, needs.shared_bytes, needs.stack_bytes, needs.spill_bytes
        );
    }
    text.push_str("], panics: &[");
    for path in &report.panics {
        let _ = write!(
            text,
            "PanicPlace {{ file: {:?}, line: {}, column: {}, what: {:?}, calls: &[",
            path.file, path.line, path.column, path.what
        );
        for call in &path.calls {
            let (file, line, column) = (&call.file, call.line, call.column);
            let _ = write!(text, "CallPlace {{ file: {file:?}, line: {line}, column: {column} }}, ");
        }
        text.push_str("] }, ");
    }
    text.push_str("] },\n");
}

/// A form of a part's code: the cubin if it exists, otherwise the PTX.
struct Form<'a> {
    arch: Arch,
    cubin: Option<&'a Path>,
    ptx: &'a Path,
}

/// Returns the forms that are worth embedding. If an architecture has a cubin and older PTX has the same kernels, the
/// PTX for that architecture is omitted. Only a driver that rejects the cubin would use that PTX, and such a driver can
/// use the older PTX instead.
fn forms(modules: &[Module]) -> Vec<Form<'_>> {
    let mut forms = Vec::new();
    for module in modules {
        let older = |other: &Module| {
            !other.arch.is_specific()
                && other.arch.capability() <= module.arch.capability()
                && other.arch != module.arch
                && other.facts.kernels == module.facts.kernels
        };
        forms.extend(module.cubin.iter().map(|cubin| Form {
            arch: module.arch,
            cubin: Some(cubin),
            ptx: &module.ptx,
        }));
        if module.cubin.is_none() || !modules.iter().any(older) {
            forms.push(Form { arch: module.arch, cubin: None, ptx: &module.ptx });
        }
    }
    forms
}

pub fn read(path: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(path).map_err(Error::io("cannot read", path))
}

/// Compresses `bytes`, the contents of the file `of`, into a file in `out`. Returns the expression that embeds this
/// file, and its path.
fn pack(bytes: &[u8], of: &Path, out: &Path) -> Result<(String, PathBuf), Error> {
    let name = format!("{}.lzma", of.file_name().unwrap_or_default().to_string_lossy());
    let file = out.join(&name);
    let packed = compress(bytes).map_err(Error::io("cannot compress", of))?;
    std::fs::write(&file, packed).map_err(Error::io("cannot write", &file))?;
    let len = bytes.len();
    Ok((format!("Packed::Lzma {{ stream: include_bytes!({name:?}), len: {len} }}"), file))
}

fn compress(bytes: &[u8]) -> io::Result<Vec<u8>> {
    let mut options = LzmaOptions::with_preset(PRESET);
    options.dict_size = u32::try_from(bytes.len()).unwrap_or(u32::MAX).clamp(DICT_SIZE_MIN, MAX_WINDOW);
    let mut writer = LzmaWriter::new_use_header(Vec::new(), &options, Some(bytes.len() as u64))?;
    writer.write_all(bytes)?;
    writer.finish()
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use lzma_rust2::LzmaReader;

    use super::*;
    use crate::codegen::Facts;

    #[test]
    fn an_image_without_code_says_why() {
        let package = |name: &str| Package { name: name.to_owned(), version: "0.1.0".to_owned() };
        let packages = Packages {
            package: &package("my-kernels"),
            dependencies: &[package("helpers")],
            sources: &[(package("my-kernels"), vec![1, 2])],
        };
        let compilers = Compilers { device: "", host: "rustc 1.95.0, LLVM 21.1.0" };
        let text = without_code(&packages, &compilers, "no \"toolchain\"");
        for part in [
            "package: Package { name: \"my-kernels\", version: \"0.1.0\" },",
            "dependencies: &[Package { name: \"helpers\", version: \"0.1.0\" }],",
            "sources: &[Source { package: Package { name: \"my-kernels\", version: \"0.1.0\" }, folders: &[1, 2] }],",
            "missing: Some(\"no \\\"toolchain\\\"\"),",
            "host: \"rustc 1.95.0, LLVM 21.1.0\"",
        ] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn images_are_found_by_their_names() {
        let folder = std::env::temp_dir().join(format!("warpsmith-list-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        list(&folder, &["heat_kernels".to_owned(), "other".to_owned()]).unwrap();
        let text = std::fs::read_to_string(folder.join("warpsmith_images.rs")).unwrap();
        std::fs::remove_dir_all(folder).unwrap();
        for words in [
            "(\"other\") =>",
            "/heat_kernels_image.rs",
            "builds \\\"heat_kernels\\\", \\\"other\\\" (an image",
        ] {
            assert!(text.contains(words), "{words}: {text}");
        }
    }

    fn module(arch: Arch, cubin: bool, kernels: &[&str]) -> Module {
        Module {
            arch,
            ptx: format!("/out/k.{arch}.ptx").into(),
            cubin: cubin.then(|| format!("/out/k.{arch}.cubin").into()),
            facts: Facts {
                kernels: kernels.iter().map(|kernel| (*kernel).to_owned()).collect(),
                ..Facts::default()
            },
        }
    }

    fn names(modules: &[Module]) -> Vec<String> {
        let name =
            |form: Form<'_>| format!("{} {}", form.arch, if form.cubin.is_some() { "cubin" } else { "PTX" });
        forms(modules).into_iter().map(name).collect()
    }

    #[test]
    fn ptx_beside_machine_code_needs_a_reason() {
        let (old, new) = (module(Arch::SM_80, false, &["k"]), module(Arch::SM_90A, true, &["k"]));
        assert_eq!(names(&[old.clone(), new.clone()]), ["sm_80 PTX", "sm_90a cubin"]);
        assert_eq!(names(std::slice::from_ref(&new)), ["sm_90a cubin", "sm_90a PTX"]);
        let more = module(Arch::SM_90A, true, &["k", "hopper"]);
        assert_eq!(names(&[old.clone(), more]), ["sm_80 PTX", "sm_90a cubin", "sm_90a PTX"]);
        let unassembled = module(Arch::SM_90A, false, &["k"]);
        assert_eq!(names(&[old, unassembled]), ["sm_80 PTX", "sm_90a PTX"]);
    }

    #[test]
    fn code_is_compressed_into_a_file() {
        let folder = std::env::temp_dir().join(format!("warpsmith-pack-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let code = b"add.f32 %f1, %f2, %f3;\n".repeat(1000);
        let (text, file) = pack(&code, Path::new("/out/k.sm_80.ptx"), &folder).unwrap();
        assert_eq!(text, "Packed::Lzma { stream: include_bytes!(\"k.sm_80.ptx.lzma\"), len: 23000 }");
        let packed = std::fs::read(file).unwrap();
        assert!(packed.len() < 100, "{}", packed.len());
        let mut unpacked = Vec::new();
        LzmaReader::new_mem_limit(&packed[..], 1 << 10, None).unwrap().read_to_end(&mut unpacked).unwrap();
        assert_eq!(unpacked, code);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
