//! Reports operations for which LLVM cannot generate GPU code, together with their source locations.
//!
//! On such an operation, LLVM aborts with a stack trace of its own functions.

use crate::callers::Callers;
use crate::error::Error;
use crate::line_table::LineTable;
use crate::rewrite::{Kernel, text};

/// LLVM intrinsics that compile to calls into the C library, which does not exist on a GPU.
const OF_A_LIBRARY: [&str; 19] = [
    "sin", "cos", "sincos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh", "exp", "exp2",
    "exp10", "log", "log2", "log10", "pow", "powi",
];

/// Replaces the error of an `llc` crash with one that names the operation and its location. `ir` generates the module
/// that crashed, with its line table.
pub fn explain(error: Error, kernels: &[Kernel], ir: impl FnOnce() -> Result<String, Error>) -> Error {
    let Error::Tool { message, .. } = &error else { return error };
    let Some((function, reason)) = crash(message) else { return error };
    match ir() {
        Ok(ir) => in_function(&ir, function, reason, kernels),
        Err(_) => error,
    }
}

/// Returns the function on which LLVM crashed, and its message.
fn crash(message: &str) -> Option<(&str, &str)> {
    let reason = message.lines().find_map(|line| line.strip_prefix("LLVM ERROR: "))?;
    let (_, function) = message.split_once(" on function '@")?;
    Some((function.split('\'').next()?, reason))
}

fn in_function(ir: &str, function: &str, reason: &str, kernels: &[Kernel]) -> Error {
    let mut lines = LineTable::default();
    ir.lines().filter(|line| line.starts_with('!')).for_each(|line| lines.read(line));
    let mut body = ir
        .lines()
        .skip_while(|line| !(line.starts_with("define ") && is_of(line, function)))
        .skip(1)
        .take_while(|line| *line != "}");
    let found = body.find_map(|line| Some((operation(line)?, line)));
    let places = found.map_or_else(Vec::new, |(_, line)| lines.frames(line));
    Error::NoCode {
        kernel: Callers::of(ir).kernel_reaching(function, kernels).unwrap_or_else(|| function.to_owned()),
        what: found.map_or_else(|| format!("what it does ({reason})"), |(what, _)| format!("`{what}`")),
        places: places.iter().map(|place| format!("\n  at {place}")).collect(),
    }
}

fn is_of(header: &str, function: &str) -> bool {
    text::function(header).is_some_and(|(name, _)| name.trim_matches('"') == function)
}

/// Returns the operation of an instruction for which no code can be generated: an intrinsic, or an operation on a type
/// that GPUs do not support.
fn operation(line: &str) -> Option<&str> {
    if let Some(at) = line.find("@llvm.") {
        let name = line[at + 1..].split('(').next()?;
        return OF_A_LIBRARY.contains(&name.split('.').nth(1)?).then_some(name);
    }
    line.contains(" fp128 ").then_some("f128")
}

#[cfg(test)]
mod tests {
    use super::*;

    const CRASH: &str = "LLVM ERROR: unsupported library call operation\nPLEASE submit a bug report\nStack dump:\n\
                         0.\tProgram arguments: llc\n1.\tRunning pass 'Function Pass Manager' on module 'x.ll'.\n\
                         2.\tRunning pass 'NVPTX DAG->DAG Pattern Instruction Selection' on function '@helper'\n";

    #[test]
    fn kernel_operation_and_line_are_named() {
        let ir = "define ptx_kernel void @k() {\n  call void @helper()\n  ret void\n}\n\
                  define internal void @helper() {\n  %1 = call float @llvm.fabs.f32(float %x), !dbg !9\n  \
                  %2 = call float @llvm.sin.f32(float %1), !dbg !3\n  ret void\n}\n\
                  !1 = !DIFile(filename: \"src/lib.rs\", directory: \"/k\")\n\
                  !2 = distinct !DISubprogram(name: \"helper\", scope: !1, file: !1, line: 3)\n\
                  !3 = !DILocation(line: 7, column: 5, scope: !2)\n";
        let kernels = [Kernel { symbol: "k".to_owned(), ..Kernel::default() }];
        let error = Error::Tool { tool: "llc".to_owned(), input: "k".to_owned(), message: CRASH.to_owned() };
        let text = explain(error, &kernels, || Ok(ir.to_owned())).to_string();
        assert!(text.starts_with("kernel `k`: LLVM cannot generate GPU code for `llvm.sin.f32`"), "{text}");
        assert!(text.contains("src/lib.rs:7:5") && !text.contains("Stack dump"), "{text}");
    }

    #[test]
    fn other_failures_stay() {
        let error =
            Error::Tool { tool: "llc".to_owned(), input: "k".to_owned(), message: "no such file".to_owned() };
        assert_eq!(explain(error, &[], || unreachable!()).to_string(), "llc failed on k:\nno such file");
    }
}
