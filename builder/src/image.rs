//! The generated file that a host crate includes: an expression of tuples and arrays, without type names, so
//! that builder and runtime share no crate.

use std::fmt::Write as _;
use std::path::Path;

use crate::codegen::Module;
use crate::rewrite::Kernel;

/// The file's text: `(package, modules, kernels, reason)`.
///
/// A module is `(capability, "ptx" or "cubin", architecture specific, bytes)`; a kernel is its symbol and,
/// per architecture, `(capability, registers, static shared, stack, spill)` in bytes but for the registers.
pub fn text(package: &str, modules: &[Module], kernels: &[Kernel], reason: &str) -> String {
    let mut text = format!("(\n    {package:?},\n    &[\n");
    for module in modules {
        if let Some(cubin) = &module.cubin {
            entry(&mut text, module, "cubin", cubin);
        }
        entry(&mut text, module, "ptx", &module.ptx);
    }
    text.push_str("    ] as &[(u32, &str, bool, &[u8])],\n    &[\n");
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
    let _ = writeln!(text, "    ] as &[(&str, &[(u32, u32, u32, u32, u32)])],\n    {reason:?},\n)");
    text
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
            text("my-kernels", &[], &[], "no \"toolchain\""),
            "(\n    \"my-kernels\",\n    &[\n    ] as &[(u32, &str, bool, &[u8])],\n    &[\n    ] as \
             &[(&str, &[(u32, u32, u32, u32, u32)])],\n    \"no \\\"toolchain\\\"\",\n)\n"
        );
    }

    #[test]
    fn cubin_first_and_resources_by_architecture() {
        let resources = Resources { registers: 24, shared_bytes: 64, stack_bytes: 0, spill_bytes: 4 };
        let module = Module {
            arch: Arch::SM_90A,
            ptx: "/out/k.sm_90a.ptx".into(),
            cubin: Some("/out/k.sm_90a.cubin".into()),
            resources: vec![("sum".to_owned(), resources)],
        };
        let kernel = Kernel { symbol: "sum".to_owned(), min_arch: 0 };
        let text = text("k", &[module], &[kernel], "");
        let cubin =
            text.find("(90u32, \"cubin\", true, include_bytes!(\"k.sm_90a.cubin\") as &[u8])").unwrap();
        let ptx = text.find("(90u32, \"ptx\", true, include_bytes!(\"k.sm_90a.ptx\") as &[u8])").unwrap();
        assert!(cubin < ptx);
        assert!(text.contains("(\"sum\", &[(90u32, 24u32, 64u32, 0u32, 4u32), ] as"), "{text}");
    }
}
