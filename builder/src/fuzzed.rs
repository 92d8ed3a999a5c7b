//! Properties that must hold for any output of the compilers, for the fuzz targets and the tests that replay their
//! corpora.

use gpu_spec::{AbiParam, ParamKind};

use crate::arch::Arch;
use crate::device_runtime::DeviceRuntime;
use crate::ptx::Ptx;
use crate::rewrite::{self, Abi, Kernel};
use crate::{externs, parts, ptxas};

/// Checks the rewrite of LLVM IR: its size stays bounded, and each kernel is in a part.
pub fn rewrite(bytes: &[u8]) {
    let Ok(ir) = str::from_utf8(bytes) else { return };
    let Ok(rewritten) = rewrite::rewrite(ir, true) else { return };
    // The longest text that replaces a single line is the body of a panic entry point.
    assert!(rewritten.ir.len() < 4096 + 64 * ir.len(), "{} bytes of {}", rewritten.ir.len(), ir.len());
    assert!(rewritten.kernels.iter().all(|kernel| ir.contains(&kernel.symbol)));
    let runtime = DeviceRuntime::of(&rewritten.ir, &rewritten.kernels);
    let parts =
        parts::divide(&rewritten.ir, "fuzzed", &rewritten.kernels, &runtime, &[Arch::SM_80, Arch::SM_90A]);
    for kernel in &rewritten.kernels {
        assert!(parts.iter().any(|part| part.has(kernel)), "{kernel:?} is in no part");
    }
}

/// Checks PTX, and the report of `ptxas -v`.
pub fn ptx(bytes: &[u8]) {
    let Ok(text) = str::from_utf8(bytes) else { return };
    let params = [(ParamKind::Slice, 4, 4), (ParamKind::Pointer, 2, 2), (ParamKind::Value, 12, 4)];
    let params = params.map(|(kind, size, align)| AbiParam::new(kind, size, align, 0)).to_vec();
    let abi = Some(Abi { params, ..Abi::default() });
    let kernel = Kernel { symbol: "k".to_owned(), abi, ..Kernel::default() };
    let ptx = Ptx::read(text);
    if !text.contains(".entry") && !text.contains(".func") {
        assert!(ptx.check_parameters(std::slice::from_ref(&kernel)).is_ok() && !ptx.has_unknown_stack("k"));
    }
    let _ = (ptx.check_parameters(&[kernel]), ptx.has_unknown_stack("k"));
    assert!(externs::missing(text).len() <= text.lines().count());
    assert!(ptxas::parse(text).kernels.len() <= text.lines().count());
}

#[cfg(test)]
#[path = "../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use super::replay::replay;

    #[test]
    fn seeds_of_ir_break_nothing() {
        replay("rewrite", super::rewrite);
    }

    #[test]
    fn seeds_of_ptx_break_nothing() {
        replay("ptx", super::ptx);
    }
}
