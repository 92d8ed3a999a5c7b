//! The generated file that a host crate includes: an expression of tuples and arrays, without type names, so
//! that builder and runtime share no crate.

use std::fmt::Write as _;
use std::path::Path;

use crate::codegen::Module;
use crate::device_runtime::Part;
use crate::rewrite::Kernel;

/// What of an image has to do with NVIDIA's device runtime.
#[derive(Debug, Default)]
pub struct DeviceRuntimeFiles<'a> {
    /// The symbols of the kernels that need it, which are in the modules that are linked only.
    pub users: &'a [String],
    /// libcudadevrt.
    pub library: Option<&'a Path>,
}

/// What compiled an image and the program that holds it, with versions; empty where it is not known.
#[derive(Debug, Default)]
pub struct Compilers<'a> {
    /// Of the GPU code: rustc and LLVM.
    pub device: &'a str,
    /// Of the host package.
    pub host: &'a str,
}

/// The file's text: `((package, modules, kernels, reason), (linked modules, symbols, library), (compiler, host compiler))`.
///
/// A module is `(capability, "ptx" or "cubin", architecture specific, bytes)`; a kernel is its symbol and,
/// per architecture, `(capability, registers, static shared, stack, spill)` in bytes but for the registers. The
/// symbols are those of the kernels that are in the linked modules alone; the library is what these are linked with.
pub fn text(
    package: &str,
    modules: &[Module],
    kernels: &[Kernel],
    runtime: &DeviceRuntimeFiles<'_>,
    compilers: &Compilers<'_>,
    reason: &str,
) -> String {
    let mut text = format!("((\n    {package:?},\n");
    list(&mut text, modules, Part::Plain);
    text.push_str("    &[\n");
    for kernel in kernels {
        let _ = write!(text, "        ({:?}, &[", kernel.symbol);
        for module in modules {
            if let Some((_, r)) = module.resources.iter().find(|(symbol, _)| *symbol == kernel.symbol) {
                let _ = write!(
                    text,
                    "({}u32, {}u32, {}u32, {}u32, {}u32), ",
                    module.arch.capability(),
                    r.registers,
                    r.shared_bytes,
                    r.stack_bytes,
                    r.spill_bytes
                );
            }
        }
        text.push_str("] as &[(u32, u32, u32, u32, u32)]),\n");
    }
    let _ = writeln!(text, "    ] as &[(&str, &[(u32, u32, u32, u32, u32)])],\n    {reason:?},\n), (");
    list(&mut text, modules, Part::Linked);
    let _ = writeln!(text, "    &{:?} as &[&str],", runtime.users);
    match runtime.library {
        Some(library) => {
            let name = library.file_name().unwrap_or_default().to_string_lossy();
            let _ = writeln!(text, "    include_bytes!({name:?}) as &[u8],");
        }
        None => text.push_str("    &[] as &[u8],\n"),
    }
    let _ = writeln!(text, "), ({:?}, {:?}))", compilers.device, compilers.host);
    text
}

fn list(text: &mut String, modules: &[Module], part: Part) {
    text.push_str("    &[\n");
    for module in modules.iter().filter(|module| module.part == part) {
        if let Some(cubin) = &module.cubin {
            entry(text, module, "cubin", cubin);
        }
        entry(text, module, "ptx", &module.ptx);
    }
    text.push_str("    ] as &[(u32, &str, bool, &[u8])],\n");
}

fn entry(text: &mut String, module: &Module, kind: &str, file: &Path) {
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let (capability, specific) = (module.arch.capability(), module.arch.is_specific());
    let _ =
        writeln!(text, "        ({capability}u32, {kind:?}, {specific}, include_bytes!({name:?}) as &[u8]),");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arch::Arch;
    use crate::ptxas::Resources;

    #[test]
    fn an_image_without_modules_says_why() {
        assert_eq!(
            text(
                "my-kernels",
                &[],
                &[],
                &DeviceRuntimeFiles::default(),
                &Compilers { device: "", host: "rustc 1.95.0, LLVM 21.1.0" },
                "no \"toolchain\""
            ),
            "((\n    \"my-kernels\",\n    &[\n    ] as &[(u32, &str, bool, &[u8])],\n    &[\n    ] as \
             &[(&str, &[(u32, u32, u32, u32, u32)])],\n    \"no \\\"toolchain\\\"\",\n), (\n    &[\n    ] as \
             &[(u32, &str, bool, &[u8])],\n    &[] as &[&str],\n    &[] as &[u8],\n), (\"\", \"rustc 1.95.0, LLVM 21.1.0\"))\n"
        );
    }

    #[test]
    fn cubin_first_and_resources_by_architecture() {
        let resources = Resources { registers: 24, shared_bytes: 64, stack_bytes: 0, spill_bytes: 4 };
        let module = Module {
            arch: Arch::SM_90A,
            part: Part::Plain,
            ptx: "/out/k.sm_90a.ptx".into(),
            cubin: Some("/out/k.sm_90a.cubin".into()),
            resources: vec![("sum".to_owned(), resources)],
        };
        let linked = Module {
            part: Part::Linked,
            ptx: "/out/k.linked.sm_90a.ptx".into(),
            cubin: None,
            resources: Vec::new(),
            ..module.clone()
        };
        let kernel = Kernel { symbol: "sum".to_owned(), min_arch: 0 };
        let users = ["parent".to_owned()];
        let runtime = DeviceRuntimeFiles { users: &users, library: Some("/out/k.libcudadevrt.a".as_ref()) };
        let text = text(
            "k",
            &[module, linked],
            &[kernel],
            &runtime,
            &Compilers { device: "rustc 1.96.0, LLVM 22.1.8", host: "" },
            "",
        );
        let cubin =
            text.find("(90u32, \"cubin\", true, include_bytes!(\"k.sm_90a.cubin\") as &[u8])").unwrap();
        let ptx = text.find("(90u32, \"ptx\", true, include_bytes!(\"k.sm_90a.ptx\") as &[u8])").unwrap();
        assert!(cubin < ptx);
        let (plain, linked) = text.split_once("), (\n").unwrap();
        let (linked, compilers) = linked.split_once("), (").unwrap();
        assert_eq!(compilers, "\"rustc 1.96.0, LLVM 22.1.8\", \"\"))\n");
        assert!(
            !plain.contains("linked") && linked.contains("include_bytes!(\"k.linked.sm_90a.ptx\")"),
            "{text}"
        );
        assert!(
            linked
                .ends_with("&[\"parent\"] as &[&str],\n    include_bytes!(\"k.libcudadevrt.a\") as &[u8],\n")
        );
        assert!(text.contains("(\"sum\", &[(90u32, 24u32, 64u32, 0u32, 4u32), ] as"), "{text}");
    }
}
