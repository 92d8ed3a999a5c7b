//! What is told of the kernels of an image.

use serde::{Deserialize, Serialize};

use crate::codegen::Module;
use crate::rewrite::Kernel;

/// One kernel of an image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelReport {
    /// Its symbol.
    pub symbol: String,
    /// What it needs, one entry an architecture that has it; empty when there was no ptxas to ask.
    pub resources: Vec<ArchReport>,
}

/// What a kernel needs on one architecture.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchReport {
    /// The architecture, for example `sm_90a`.
    pub arch: String,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes of static shared memory of a block.
    pub shared_bytes: u32,
    /// Bytes of stack of a thread.
    pub stack_bytes: u32,
    /// Bytes of spilled registers, stores and loads added up.
    pub spill_bytes: u32,
}

/// Joins the kernels with what ptxas said of them.
pub fn kernels(kernels: &[Kernel], modules: &[Module]) -> Vec<KernelReport> {
    let report = |kernel: &Kernel| KernelReport {
        symbol: kernel.symbol.clone(),
        resources: modules
            .iter()
            .filter_map(|module| {
                let (_, r) = module.resources.iter().find(|(symbol, _)| *symbol == kernel.symbol)?;
                Some(ArchReport {
                    arch: module.arch.to_string(),
                    registers: r.registers,
                    shared_bytes: r.shared_bytes,
                    stack_bytes: r.stack_bytes,
                    spill_bytes: r.spill_bytes,
                })
            })
            .collect(),
    };
    kernels.iter().map(report).collect()
}

/// One warning for each kernel that spills or has a stack and is not allowed to by its symbol's start.
pub fn spill_warnings(kernels: &[KernelReport], allowed: &[String]) -> Vec<String> {
    let mut warnings = Vec::new();
    for kernel in
        kernels.iter().filter(|kernel| !allowed.iter().any(|prefix| kernel.symbol.starts_with(prefix)))
    {
        let bad: Vec<String> = kernel
            .resources
            .iter()
            .filter(|r| r.spill_bytes > 0 || r.stack_bytes > 0)
            .map(|r| {
                format!("{}: {} bytes of spills, {} bytes of stack", r.arch, r.spill_bytes, r.stack_bytes)
            })
            .collect();
        if !bad.is_empty() {
            warnings.push(format!(
                "kernel `{}` uses local memory, which is slow ({})",
                kernel.symbol,
                bad.join("; ")
            ));
        }
    }
    warnings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_warning_a_kernel_and_none_where_allowed() {
        let needs = |arch: &str, stack_bytes, spill_bytes| ArchReport {
            arch: arch.to_owned(),
            registers: 8,
            shared_bytes: 0,
            stack_bytes,
            spill_bytes,
        };
        let kernels = [
            KernelReport { symbol: "good".into(), resources: vec![needs("sm_80", 0, 0)] },
            KernelReport {
                symbol: "bad".into(),
                resources: vec![needs("sm_80", 8, 0), needs("sm_90a", 0, 4)],
            },
            KernelReport { symbol: "known".into(), resources: vec![needs("sm_80", 8, 8)] },
        ];
        assert_eq!(
            spill_warnings(&kernels, &["known".to_owned()]),
            ["kernel `bad` uses local memory, which is slow (sm_80: 0 bytes of spills, 8 bytes of stack; \
              sm_90a: 4 bytes of spills, 0 bytes of stack)"]
        );
    }
}
