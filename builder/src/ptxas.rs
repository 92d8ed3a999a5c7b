//! ptxas: assembles PTX and reports the resources of each kernel.

use std::path::Path;
use std::process::Command;

use crate::arch::Arch;
use crate::debug_info::DebugInfo;
use crate::error::Error;
use crate::toolchain::Ptxas;
use crate::tools;

/// Resources of a kernel on one architecture.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block, in bytes.
    pub shared_bytes: u32,
    /// Stack frame per thread, in bytes.
    pub stack_bytes: u32,
    /// Stack per thread including the frames of all callees, in bytes.
    pub cumulative_stack: u32,
    /// Sum of spill stores and spill loads, in bytes.
    pub spill_bytes: u32,
}

/// Report of ptxas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// Resources of each kernel, by symbol.
    pub kernels: Vec<(String, Resources)>,
    /// Messages C7508 to C7520: reasons why ptxas serialized a kernel's `wgmma` or ignored a warpgroup instruction.
    /// Each comes with the kernel's symbol, which is empty if the message does not name it.
    pub serialized: Vec<(String, String)>,
}

/// Assembles `ptx` into `cubin`, which is relocatable if it will be linked. PTX for an architecture that this ptxas no
/// longer supports is not assembled, so its kernels' resources are unknown.
pub fn assemble(
    ptxas: &Ptxas,
    arch: Arch,
    is_linked: bool,
    debug: DebugInfo,
    ptx: &Path,
    cubin: &Path,
) -> Result<Report, Error> {
    let mut command = Command::new(&ptxas.path);
    command.arg(format!("-arch={arch}")).arg("-v").arg(ptx).arg("-o").arg(cubin);
    match debug {
        DebugInfo::None => &mut command,
        DebugInfo::Lines => command.arg("-lineinfo"),
        DebugInfo::Full => command.arg("-g"),
    };
    if is_linked {
        command.arg("--compile-only");
    }
    let outputs = match tools::run(&mut command, &ptx.display().to_string()) {
        Err(Error::Tool { message, .. })
            if message.contains("is not defined for option 'gpu-name'") && !arch.has_cubin() =>
        {
            return Ok(Report::default());
        }
        outputs => outputs.map_err(|error| with_functions(error, ptx))?,
    };
    Ok(parse(&format!("{}\n{}", outputs.stdout, outputs.stderr)))
}

/// Adds to the error the kernels or functions that contain the PTX lines it names.
fn with_functions(error: Error, ptx: &Path) -> Error {
    let Error::Tool { tool, input, mut message } = error else { return error };
    let text = std::fs::read_to_string(ptx).unwrap_or_default();
    let mut named = Vec::new();
    for line in message.lines().filter_map(|line| line.split_once(", line ")) {
        let number: usize = line.1.split(';').next().unwrap_or_default().trim().parse().unwrap_or(0);
        let before = text.lines().take(number).filter_map(crate::ptx::header);
        named.extend(before.last().map(|name| format!("\n  line {number} is in `{name}`")));
    }
    named.dedup();
    message.extend(named);
    Error::Tool { tool, input, message }
}

/// Reads the report of `ptxas -v`.
pub fn parse(report: &str) -> Report {
    let mut kernels: Vec<(String, Resources)> = Vec::new();
    let mut serialized = Vec::new();
    // Properties of functions that are not kernels are also reported, under "Function properties for".
    let mut in_kernel = false;
    for line in report.lines() {
        if let Some(message) = serialization(line) {
            // The last quoted name is the name of the function, which is the kernel or a function that it calls.
            let name = message.rsplit('\'').nth(1).unwrap_or_default();
            serialized.push((name.to_owned(), message.to_owned()));
        } else if let Some((_, rest)) = line.split_once("Compiling entry function '") {
            let name = rest.split('\'').next().unwrap_or_default();
            kernels.push((name.to_owned(), Resources::default()));
        } else if let Some((_, name)) = line.split_once("Function properties for ") {
            in_kernel = kernels.last().is_some_and(|(kernel, _)| kernel == name.trim());
        } else if let Some((_, resources)) = kernels.last_mut() {
            if in_kernel && line.contains("bytes stack frame") {
                resources.stack_bytes = number_before(line, " bytes stack frame");
                resources.spill_bytes = number_before(line, " bytes spill stores")
                    .saturating_add(number_before(line, " bytes spill loads"));
            } else if line.contains("Used ") && line.contains(" registers") {
                resources.registers = number_before(line, " registers");
                resources.shared_bytes = number_before(line, " bytes smem");
                resources.cumulative_stack = number_before(line, " bytes cumulative stack size");
            }
        }
    }
    Report { kernels, serialized }
}

/// Returns the message of a line `ptxas info : (C7510) Potential Performance Loss: …`, with its number, C7508 to C7520.
fn serialization(line: &str) -> Option<&str> {
    let at = line.find("(C75")?;
    let number: u32 = line[at + 2..].split(')').next()?.parse().ok()?;
    (7508..=7520).contains(&number).then(|| line[at..].trim_end())
}

/// Returns the number that ends where `unit` starts, or 0 if there is no number.
fn number_before(line: &str, unit: &str) -> u32 {
    let Some(end) = line.find(unit) else { return 0 };
    let start = line[..end].trim_end_matches(|c: char| c.is_ascii_digit()).len();
    line[start..end].parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_is_read_kernel_by_kernel() {
        let report = "\
ptxas info    : 20 bytes gmem
ptxas info    : Compiling entry function 'sum' for 'sm_90a'
ptxas info    : Function properties for sum
    16 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
ptxas info    : Function properties for helper
    99 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 24 registers, used 1 barriers, 48 bytes cumulative stack size, 1024 bytes smem
ptxas info    : Compile time = 3.1 ms
ptxas info    : Compiling entry function 'copy' for 'sm_90a'
ptxas info    : Function properties for copy
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
";
        let sum = Resources {
            registers: 24,
            shared_bytes: 1024,
            stack_bytes: 16,
            cumulative_stack: 48,
            spill_bytes: 20,
        };
        let copy = Resources { registers: 8, ..Resources::default() };
        assert_eq!(parse(report).kernels, [("sum".to_owned(), sum), ("copy".to_owned(), copy)]);
        assert_eq!(parse(""), Report::default());
    }
}
