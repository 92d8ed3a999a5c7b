//! Machine code of the GEMM and attention kernels for architectures that load their PTX for `sm_80`.

use std::fmt::Write as _;
use std::process::Command;

use crate::common::{folders, ptx_of};
use crate::wgmma::tensor_image;
use warpsmith_builder::toolchain;

/// Architectures that every supported ptxas knows.
const ARCHS: [&str; 4] = ["sm_80", "sm_86", "sm_89", "sm_90"];
/// Architectures that CUDA 12.8 and later know.
const LATER_ARCHS: [&str; 2] = ["sm_100", "sm_120"];

/// Bytes of stack for sizes that a kernel needs before and after its main loop, but not in it. The loop has 255
/// registers and no spills.
const MAX_STACK: u32 = 16;

/// Bytes of stack for GEMM of FP8, whose conversion to `f16` needs registers.
const MAX_FP8_STACK: u32 = 80;

/// Bytes of stack for addresses of heads of 128 elements. Without these spills, attention would be slower.
const MAX_ATTENTION_STACK: u32 = 40;

/// Bytes of stack for addresses and sizes in attention gradients, whose accumulators take half of the registers.
const MAX_BACKWARD_STACK: u32 = 56;

/// Bytes of stack for skinny GEMM with quantized weights on `sm_100` and `sm_120`, where two blocks per SM limit a
/// thread to 128 registers. The code for earlier architectures does not spill.
const MAX_SKINNY_STACK: u32 = 40;

/// Bytes of stack for mixed-input GEMM, whose sums and prefetched operands take most of the registers.
const MAX_MIXED_STACK: u32 = 128;

/// Returns the module with these kernels, but without those for `f16`, whose code differs from that for `bf16` in a few
/// instructions.
fn of_kernels(ptx: &str, has: fn(&str) -> bool) -> String {
    let mut entries = ptx.split("\n.visible .entry ");
    let mut text = entries.next().unwrap_or_default().to_owned();
    for entry in entries.filter(|entry| {
        entry.split('(').next().is_some_and(|symbol| !symbol.contains("__f16") && has(symbol))
    }) {
        write!(text, "\n.visible .entry {entry}").unwrap();
    }
    text
}

#[test]
fn products_with_mma_compile_for_all_architectures_with_few_spills() {
    compiles(".mma.", |symbol| !symbol.contains("__F8E4M3"), 25, MAX_STACK);
    compiles(".mma.", |symbol| symbol.contains("__F8E4M3"), 4, MAX_FP8_STACK);
}

#[test]
fn attention_for_decoding_compiles_for_all_architectures_without_spills() {
    compiles(".attention_decode.", |_| true, 11, 0);
}

#[test]
fn skinny_products_compile_for_all_architectures_with_few_spills() {
    compiles(".skinny.", |_| true, 50, MAX_SKINNY_STACK);
}

#[test]
fn mixed_input_products_compile_for_all_architectures_with_few_spills() {
    compiles(".mixed.", |_| true, 24, MAX_MIXED_STACK);
}

#[test]
fn dequantization_and_routing_compile_for_all_architectures_without_spills() {
    compiles(".dequantize.", |_| true, 4, 0);
    compiles(".experts.", |_| true, 4, 0);
}

#[test]
fn rotary_append_compiles_for_all_architectures_without_spills() {
    compiles(".rotary_append.", |_| true, 4, 0);
}

#[test]
fn attention_with_mma_compiles_for_all_architectures_with_few_spills() {
    compiles(".attention_mma.", |_| true, 8, MAX_ATTENTION_STACK);
}

#[test]
fn attention_backward_with_mma_compiles_for_all_architectures_with_few_spills() {
    compiles(".attention_backward_mma.", |_| true, 10, MAX_BACKWARD_STACK);
}

/// Fails if one of the `count` kernels that `has` selects in a module does not compile for an architecture, or uses
/// more than `max_stack` bytes of stack.
fn compiles(module: &str, has: fn(&str) -> bool, count: usize, max_stack: u32) {
    let ptxas = toolchain::find_cuda_tools().ptxas.expect("ptxas is installed").path;
    let input = folders("architectures").out_dir.join(format!("kernels{module}ptx"));
    std::fs::write(&input, of_kernels(&ptx_of(tensor_image(), "sm_80", module), has)).unwrap();
    let help = Command::new(&ptxas).arg("--help").output().unwrap().stdout;
    let help = String::from_utf8_lossy(&help);
    let later = LATER_ARCHS.into_iter().filter(|arch| help.contains(&format!("'{arch}'")));
    let compile = |arch: &str| {
        let output = input.with_extension(format!("{arch}.cubin"));
        Command::new(&ptxas).args(["-v", "-arch", arch, "-o"]).arg(output).arg(&input).output().unwrap()
    };
    std::thread::scope(|scope| {
        let archs: Vec<&str> = ARCHS.into_iter().chain(later).collect();
        let outputs: Vec<_> = archs.iter().map(|&arch| (arch, scope.spawn(move || compile(arch)))).collect();
        for (arch, output) in outputs {
            let output = output.join().unwrap();
            let report = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{arch}: {report}");
            let of_kernels: Vec<&str> =
                report.lines().filter(|line| line.contains("bytes stack frame")).collect();
            assert_eq!(of_kernels.len(), count, "{arch}: {report}");
            for line in of_kernels {
                let stack: u32 = line.trim().split(' ').next().and_then(|bytes| bytes.parse().ok()).unwrap();
                assert!(stack <= max_stack, "{arch}: {line}");
            }
        }
    });
}
