//! The rustc wrapper, which adds the instrumentation to crates that contain kernels.

use std::ffi::OsString;
use std::process::{Command, ExitCode, ExitStatus};

/// Environment variable that makes a process act as the rustc wrapper.
pub(crate) const VARIABLE: &str = "WARPSMITH_CHECK_WRAPPER";
/// Environment variable that contains the user's own rustc wrapper, if any.
pub(crate) const INNER: &str = "WARPSMITH_CHECK_INNER_WRAPPER";

/// Additional rustc flags for instrumented crates. All of these flags are stable, but LLVM does not guarantee the names
/// of its passes.
pub(crate) const FLAGS: [&str; 11] = [
    "-Cpasses=forceattrs function(tsan)",
    "-Cllvm-args=-force-attribute=sanitize_thread",
    "-Cllvm-args=-tsan-instrument-func-entry-exit=0",
    // The device library reports its own atomics, together with their scope.
    "-Cllvm-args=-tsan-instrument-atomics=0",
    // For `x += 1`, one call reports both the read and the write.
    "-Cllvm-args=-tsan-compound-read-before-write=1",
    // No later pass may turn a call to the instrumentation into a jump, because the call would lose its location.
    "-Clto=off",
    // Nor may two such calls be merged, because the merged call would have no location.
    "-Cllvm-args=-sink-common-insts=0",
    "-Cllvm-args=-hoist-common-insts=0",
    "-Cllvm-args=-enable-tail-merge=0",
    "-Cdebuginfo=line-tables-only",
    CHECK,
];
/// Additional rustc flag for all crates. Without this flag, cargo strips release builds if the profile has no debug
/// information.
const KEEP_LINES: &str = "-Cstrip=none";
/// Flag for instrumented crates and for the emulator, whose functions must not be inlined into those crates.
const CHECK: &str = "--cfg=warpsmith_check";

/// If [`crate::run`] started this process as a rustc wrapper, runs as the wrapper and returns its exit code.
pub fn wrapper() -> Option<ExitCode> {
    std::env::var_os(VARIABLE)?;
    let mut arguments = std::env::args_os().skip(1);
    let rustc = arguments.next()?;
    let arguments = without_lto(arguments.collect());
    let mut command = match std::env::var_os(INNER).filter(|inner| !inner.is_empty()) {
        Some(inner) => {
            let mut command = Command::new(inner);
            command.arg(&rustc);
            command
        }
        None => Command::new(&rustc),
    };
    command.args(&arguments).arg(KEEP_LINES);
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

/// Returns the values of a rustc flag.
fn values<'a, S: AsRef<str>>(arguments: &'a [S], flag: &'static str) -> impl Iterator<Item = &'a str> {
    let pairs =
        arguments.windows(2).filter(move |pair| pair[0].as_ref() == flag).map(|pair| pair[1].as_ref());
    pairs.chain(
        arguments.iter().filter_map(move |argument| argument.as_ref().strip_prefix(flag)?.strip_prefix('=')),
    )
}

/// Returns the arguments without flags for link-time optimization, because this optimization would also instrument the
/// emulator.
fn without_lto(arguments: Vec<OsString>) -> Vec<OsString> {
    let is_lto = |value: &str| value == "lto" || value.starts_with("lto=") || value == "linker-plugin-lto";
    let mut kept: Vec<OsString> = Vec::with_capacity(arguments.len());
    for argument in arguments {
        let text = argument.to_string_lossy();
        if kept.last().is_some_and(|last| last == "-C") && is_lto(&text) {
            kept.pop();
        } else if !text.strip_prefix("-C").is_some_and(is_lto) {
            kept.push(argument);
        }
    }
    kept
}

fn is_emulator<S: AsRef<str>>(arguments: &[S]) -> bool {
    values(arguments, "--crate-name").any(|name| name == "warpsmith_emulator")
}

/// Returns true if rustc is compiling the device library or a host crate that depends on it.
fn has_kernels<S: AsRef<str>>(arguments: &[S]) -> bool {
    let after = |flag| values(arguments, flag);
    let is_host = !after("--target").any(|target| target.contains("nvptx"));
    let is_tool = after("--crate-type").any(|kind| kind == "proc-macro")
        || after("--crate-name").any(|name| name.starts_with("build_script_"));
    let is_library = after("--crate-name").any(|name| name == "gpu_std");
    let depends = after("--extern").any(|library| {
        // The argument may have the form `noprelude:name=path`.
        let name = library.split('=').next().unwrap_or_default();
        matches!(name.rsplit(':').next(), Some("gpu_std" | "cuda_std" | "warpsmith"))
    });
    is_host && !is_tool && (is_library || depends)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn optimization_across_crates_is_left_out() {
        let of = |line: &str| without_lto(line.split(' ').map(OsString::from).collect()).join(" ".as_ref());
        let of = |line: &str| of(line).into_string().unwrap();
        assert_eq!(of("--crate-name a -C lto -C opt-level=3 -Clto=fat b"), "--crate-name a -C opt-level=3 b");
        assert_eq!(of("-C linker-plugin-lto -C lto=thin -C embed-bitcode=no"), "-C embed-bitcode=no");
        assert_eq!(of("lto -C linker=x"), "lto -C linker=x");
    }

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
