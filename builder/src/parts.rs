//! Divides the kernels of an image into parts; each part becomes one module of the image.
//!
//! The kernels of one Rust module below the crate root form a part, so that a program loads only the families that it
//! uses. There are three exceptions:
//!
//! - Kernels that need NVIDIA's device runtime form a separate part ([`crate::device_runtime`]).
//! - Kernels that are not compiled for every architecture are separated from kernels that are, so that a few forms of a
//!   part contain all its kernels.
//! - Kernels that share a mutable static are in one part, because each module has its own statics.

use std::collections::HashMap;

use crate::arch::Arch;
use crate::callers::Callers;
use crate::device_runtime::DeviceRuntime;
use crate::link::MAILBOX;
use crate::rewrite::{Kernel, text};

/// One module of an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// Name of the part, shown to users and used in file names.
    pub name: String,
    /// Stem of the part's file names.
    pub stem: String,
    /// True if the part is linked with the device runtime.
    pub is_linked: bool,
    /// Symbols of the part's kernels.
    pub kernels: Vec<String>,
}

impl Part {
    /// Returns true if the part contains the kernel.
    pub fn has(&self, kernel: &Kernel) -> bool {
        self.kernels.contains(&kernel.symbol)
    }
}

/// Divides the kernels of the module `ir` of the crate `crate_name`. Kernels that use the device runtime are in the last
/// part.
pub fn divide(
    ir: &str,
    crate_name: &str,
    kernels: &[Kernel],
    runtime: &DeviceRuntime,
    archs: &[Arch],
) -> Vec<Part> {
    let plain: Vec<&Kernel> = kernels.iter().filter(|kernel| !runtime.is_user(&kernel.symbol)).collect();
    let mut names: Vec<String> = Vec::new();
    let mut groups: Vec<usize> = Vec::new();
    for kernel in &plain {
        let name = name(kernel, crate_name, archs);
        let group = names.iter().position(|known| *known == name).unwrap_or_else(|| {
            names.push(name);
            names.len() - 1
        });
        groups.push(group);
    }
    for sharing in sharing(ir, &plain) {
        let into = sharing.iter().map(|&kernel| groups[kernel]).min().unwrap_or(0);
        let merged: Vec<usize> = sharing.iter().map(|&kernel| groups[kernel]).collect();
        groups.iter_mut().filter(|group| merged.contains(group)).for_each(|group| *group = into);
    }
    let stem = |name: &str| match name == crate_name {
        true => crate_name.to_owned(),
        false => {
            let plain = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
            format!("{crate_name}.{}", name.chars().map(plain).collect::<String>())
        }
    };
    let mut parts: Vec<Part> = names
        .into_iter()
        .enumerate()
        .map(|(group, name)| Part {
            stem: stem(&name),
            name,
            is_linked: false,
            kernels: plain
                .iter()
                .zip(&groups)
                .filter(|(_, of)| **of == group)
                .map(|(kernel, _)| kernel.symbol.clone())
                .collect(),
        })
        .filter(|part| !part.kernels.is_empty())
        .collect();
    if runtime.is_needed() {
        // No Rust module can have this name.
        let name = "device runtime".to_owned();
        let kernels = runtime.users.clone();
        parts.push(Part { stem: stem(&name), name, is_linked: true, kernels });
    }
    parts
}

/// Returns a single part that contains all kernels.
pub fn undivided(crate_name: &str, kernels: &[Kernel], runtime: &DeviceRuntime) -> Vec<Part> {
    let name = crate_name.to_owned();
    let kernels = kernels.iter().map(|kernel| kernel.symbol.clone()).collect();
    vec![Part { stem: name.clone(), name, is_linked: runtime.is_needed(), kernels }]
}

/// Returns the first module below the crate root, prefixed with the crate's name if it differs from the kernel crate.
/// Appends the architectures that have the kernel, unless all of them do.
fn name(kernel: &Kernel, crate_name: &str, archs: &[Arch]) -> String {
    let module = kernel.abi.as_ref().map_or(crate_name, |abi| &abi.module);
    let (of, rest) = module.split_once("::").unwrap_or((module, ""));
    let module = rest.split("::").next().unwrap_or_default();
    let mut name = match (of == crate_name, module) {
        (_, "") => of.to_owned(),
        (true, module) => module.to_owned(),
        (false, module) => format!("{of}::{module}"),
    };
    let (having, lacking): (Vec<&Arch>, Vec<&Arch>) = archs.iter().partition(|arch| kernel.is_in(**arch));
    if !lacking.is_empty() {
        name.push_str(&match having.iter().min() {
            None => " of no architecture".to_owned(),
            Some(arch) if kernel.is_arch_specific => format!(" for {arch}"),
            Some(minimum) => format!(" from sm_{}", minimum.capability()),
        });
    }
    name
}

/// Returns, for each mutable static, the indices of the kernels that reach it, if several kernels do.
fn sharing(ir: &str, kernels: &[&Kernel]) -> Vec<Vec<usize>> {
    let callers = Callers::of(ir);
    let places: HashMap<&str, usize> =
        kernels.iter().enumerate().map(|(index, kernel)| (&*kernel.symbol, index)).collect();
    let changing = ir.lines().filter_map(|line| {
        let (name, rest) = text::symbol(line.strip_prefix('@')?)?;
        let is_global = rest.split(['{', '[', '"']).next()?.contains(" global ");
        (is_global && !rest.contains("addrspace(3)") && name != MAILBOX).then_some(name)
    });
    changing
        .map(|name| callers.reaching(name).into_iter().filter_map(|user| places.get(user).copied()).collect())
        .filter(|users: &Vec<usize>| users.len() > 1)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rewrite::Abi;

    fn kernel(symbol: &str, module: &str, min_arch: u32) -> Kernel {
        let abi = Abi { module: module.to_owned(), ..Abi::default() };
        Kernel { symbol: symbol.to_owned(), min_arch, abi: Some(abi), ..Kernel::default() }
    }

    /// Formats each part as `NAME: KERNEL KERNEL`.
    fn divided(ir: &str, kernels: &[Kernel]) -> Vec<String> {
        let runtime = DeviceRuntime::of(ir, kernels);
        let parts = divide(ir, "my_kernels", kernels, &runtime, &[Arch::SM_80, Arch::SM_90A]);
        parts.iter().map(|part| format!("{}: {}", part.name, part.kernels.join(" "))).collect()
    }

    #[test]
    fn a_part_is_a_module_below_the_root() {
        let kernels = [
            kernel("a", "my_kernels", 0),
            kernel("b", "my_kernels::copy", 0),
            kernel("c", "my_kernels::random::uniform", 80),
            kernel("d", "my_kernels::random", 90),
            Kernel { is_arch_specific: true, ..kernel("h", "my_kernels::random", 90) },
            Kernel { is_arch_specific: true, ..kernel("i", "my_kernels::random", 100) },
            kernel("e", "other::copy", 0),
            kernel("f", "my_kernels::copy", 0),
            Kernel { symbol: "g".to_owned(), ..Kernel::default() },
        ];
        assert_eq!(
            divided("", &kernels),
            [
                "my_kernels: a g",
                "copy: b f",
                "random: c",
                "random from sm_90: d",
                "random for sm_90a: h",
                "random of no architecture: i",
                "other::copy: e"
            ]
        );
    }

    #[test]
    fn kernels_that_share_a_changing_static_share_a_part() {
        let ir = "\
@COUNTER = internal global i32 0, align 4
@TABLE = internal unnamed_addr constant [2 x i8] c\"ab\", align 1
@TILE = internal addrspace(3) global [8 x i8] poison, align 4
@__warpsmith_mailbox = global ptr null
define ptx_kernel void @a() {
  call void @count()
}
define ptx_kernel void @b() {
  %1 = load i32, ptr @COUNTER
}
define ptx_kernel void @c() {
  %1 = load i8, ptr @TABLE
  %2 = load i8, ptr @TILE
  %3 = load ptr, ptr @__warpsmith_mailbox
}
define ptx_kernel void @d() {
  %1 = load i8, ptr @TABLE
  %2 = load i8, ptr @TILE
  %3 = load ptr, ptr @__warpsmith_mailbox
}
define void @count() {
  store i32 1, ptr @COUNTER
}
";
        let kernels = ["a", "b", "c", "d"].map(|name| kernel(name, &format!("my_kernels::of_{name}"), 0));
        assert_eq!(divided(ir, &kernels), ["of_a: a b", "of_c: c", "of_d: d"]);
    }
}
