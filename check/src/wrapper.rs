//! The wrapper of rustc: adds the instrumentation to crates that contain kernels.

use std::ffi::OsString;
use std::process::{Command, ExitCode, ExitStatus};

/// Set for the processes that are to be the wrapper.
pub(crate) const VARIABLE: &str = "WARPSMITH_CHECK_WRAPPER";
/// The wrapper that the user has set, if any.
pub(crate) const INNER: &str = "WARPSMITH_CHECK_INNER_WRAPPER";

/// What rustc gets for a crate that is instrumented. All of it is stable; LLVM promises nothing of the names of its passes.
pub(crate) const FLAGS: [&str; 9] = [
    "-Cpasses=forceattrs function(tsan)",
    "-Cllvm-args=-force-attribute=sanitize_thread",
    "-Cllvm-args=-tsan-instrument-func-entry-exit=0",
    // The device library reports its atomics with their scope.
    "-Cllvm-args=-tsan-instrument-atomics=0",
    // `x += 1` reads: one call for both.
    "-Cllvm-args=-tsan-compound-read-before-write=1",
    // After it no pass may turn a call of the instrumentation into a jump, by which its place would be lost.
    "-Clto=off",
    "-Cdebuginfo=line-tables-only",
    "-Cstrip=none",
    CHECK,
];
/// Set for the crates that are instrumented, and for the emulator: its functions are not to be inlined into them.
const CHECK: &str = "--cfg=warpsmith_check";

/// Runs as the wrapper of rustc, if [`crate::run`] started this process as that, and returns its exit code.
pub fn wrapper() -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    let mut arguments = std::env::args_os().skip(1);
    let rustc = arguments.next()?;
    let arguments: Vec<OsString> = arguments.collect();
    let mut command = match std::env::var_os(INNER).filter(|inner| !inner.is_empty()) {
        Some(inner) => {
            let mut command = Command::new(inner);
            command.arg(&rustc);
            command
        }
        None => Command::new(&rustc),
    };
    command.args(&arguments);
    let lossy: Vec<_> = arguments.iter().map(|argument| argument.to_string_lossy()).collect();
    if has_kernels(&lossy) {
        command.args(FLAGS);
    } else if is_emulator(&lossy) {
        command.arg(CHECK);
    }
    match command.status() {
        Ok(status) => Some(code(status)),
        Err(error) => {
            eprintln!("error: cannot start `{}`: {error}", rustc.to_string_lossy());
            Some(ExitCode::FAILURE)
        }
    }
}

fn code(status: ExitStatus) -> ExitCode {
    status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from)
}

/// The values of a flag of rustc.
fn values<'a, S: AsRef<str>>(arguments: &'a [S], flag: &'static str) -> impl Iterator<Item = &'a str> {
    let pairs =
        arguments.windows(2).filter(move |pair| pair[0].as_ref() == flag).map(|pair| pair[1].as_ref());
    pairs.chain(
        arguments.iter().filter_map(move |argument| argument.as_ref().strip_prefix(flag)?.strip_prefix('=')),
    )
}

fn is_emulator<S: AsRef<str>>(arguments: &[S]) -> bool {
    values(arguments, "--crate-name").any(|name| name == "warpsmith_emulator")
}

/// Whether rustc is to compile the device library, or a crate for the host that depends on it.
fn has_kernels<S: AsRef<str>>(arguments: &[S]) -> bool {
    let after = |flag| values(arguments, flag);
    let is_host = !after("--target").any(|target| target.contains("nvptx"));
    let is_tool = after("--crate-type").any(|kind| kind == "proc-macro")
        || after("--crate-name").any(|name| name.starts_with("build_script_"));
    let is_library = after("--crate-name").any(|name| name == "gpu_std");
    let depends = after("--extern").any(|library| {
        // `noprelude:name=path`
        let name = library.split('=').next().unwrap_or_default();
        matches!(name.rsplit(':').next(), Some("gpu_std" | "cuda_std" | "warpsmith"))
    });
    is_host && !is_tool && (is_library || depends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_with_kernels_are_instrumented_and_no_others() {
        let of = |line: &str| has_kernels(&line.split(' ').collect::<Vec<_>>());
        assert!(of("--crate-name gpu_std --edition=2024 src/lib.rs --crate-type lib"));
        assert!(of("--crate-name user src/lib.rs --crate-type lib --extern gpu_std=/t/libgpu_std.rmeta"));
        assert!(of("--crate-name user --test --extern noprelude:warpsmith=/t/libwarpsmith.rlib"));
        assert!(of("--crate-name user --extern=gpu_std=/t/libgpu_std.rmeta"));
        assert!(!of("--crate-name warpsmith_emulator --extern gpu_spec=/t/libgpu_spec.rmeta"));
        assert!(!of("--crate-name build_script_build --extern warpsmith=/t/w.rlib"));
        assert!(!of("--crate-name build_script_main --extern warpsmith=/t/w.rlib"));
        assert!(!of("--crate-name gpu_macros --crate-type proc-macro --extern gpu_std=/t/x.rlib"));
        assert!(!of("--crate-name user --extern gpu_std=/t/x.rmeta --target nvptx64-nvidia-cuda"));
        assert!(!of("- --crate-name ___ --print=file-names"));
    }
}
