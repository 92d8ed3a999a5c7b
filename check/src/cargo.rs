//! Runs cargo with a rustc wrapper and reads the findings.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use crate::finding::Finding;
use crate::wrapper::{FLAGS, INNER, VARIABLE};
use crate::{Error, Outcome};

/// Options for building, running and checking a program.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// Arguments for cargo, starting with the subcommand, for example `test` or `run --example smooth`.
    pub cargo: Vec<String>,
    /// True to stop each launch at its first finding.
    pub first: bool,
    /// Maximum number of findings per launch; `None` for the default of 100.
    pub limit: Option<u32>,
    /// Number of additional runs of the program with seeded block orders. The first run executes the blocks in
    /// ascending order.
    pub seeds: u32,
    /// True to redirect the program's standard output to standard error.
    pub output_to_stderr: bool,
    /// True if the program itself compares the findings with the expected ones. In this case, no findings are
    /// collected.
    pub expects_findings: bool,
    /// Folder in which cargo is started; `None` for the current folder.
    pub folder: Option<PathBuf>,
    /// The compiler; `None` for the value of `RUSTC` in the environment, or `rustc`.
    pub rustc: Option<PathBuf>,
}

/// Builds the program with instrumented kernels and runs it.
///
/// # Errors
/// Returns [`Error`]. Faults in kernels and a failure of cargo are not errors.
pub fn run(options: &Options) -> Result<Outcome, Error> {
    let name = options.cargo.join(" ");
    if cfg!(not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))) {
        return Err(Error::Machine(name));
    }
    let (root, target) = workspace(options)?;
    let target = target.join("check");
    let file_error = |path: &Path| {
        let path = path.to_path_buf();
        move |source| Error::File { path, source }
    };
    std::fs::create_dir_all(&target).map_err(file_error(&target))?;
    probe(options, &target, &name)?;
    let report = target.join(format!("findings-{}.jsonl", std::process::id()));
    let mut outcome = Outcome { findings: Vec::new(), failure: None, runs: 0 };
    for seed in 0..=options.seeds {
        std::fs::write(&report, "").map_err(file_error(&report))?;
        let status = start(options, &root, &target, &report, seed)?;
        outcome.runs += 1;
        let text = std::fs::read_to_string(&report).map_err(file_error(&report))?;
        let before = outcome.findings.len();
        for finding in text.lines().filter_map(|line| serde_json::from_str::<Finding>(line).ok()) {
            if !outcome.findings.iter().any(|other| other.is_same(&finding)) {
                outcome.findings.push(finding);
            }
        }
        if !status.success() {
            outcome.failure.get_or_insert(status);
            // A program that does not compile, or that fails for a different reason, fails in every block order.
            if outcome.findings.len() == before {
                break;
            }
        }
    }
    // The report has already been read, so a leftover file does no harm.
    let _ = std::fs::remove_file(&report);
    Ok(outcome)
}

fn cargo(options: &Options) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    if let Some(folder) = &options.folder {
        command.current_dir(folder);
    }
    command
}

fn start(
    options: &Options,
    root: &Path,
    target: &Path,
    report: &Path,
    seed: u32,
) -> Result<ExitStatus, Error> {
    let wrapper =
        std::env::current_exe().map_err(|source| Error::Start { program: "warpsmith".to_owned(), source })?;
    let mut command = cargo(options);
    command.args(&options.cargo);
    if let Some(inner) = std::env::var_os("RUSTC_WRAPPER") {
        command.env(INNER, inner);
    }
    command.env(VARIABLE, "1").env("RUSTC_WRAPPER", wrapper).env("CARGO_TARGET_DIR", target);
    command.env("WARPSMITH_CHECK", if options.first { "first" } else { "1" });
    command.env("WARPSMITH_CHECK_ROOT", root);
    if !options.expects_findings {
        command.env("WARPSMITH_CHECK_REPORT", report);
    }
    // Without caching, each buffer is a separate allocation that is surrounded by red zones.
    command.env("WARPSMITH_NO_MEMORY_CACHING", "1");
    if let Some(rustc) = &options.rustc {
        command.env("RUSTC", rustc);
    }
    if let Some(limit) = options.limit {
        command.env("WARPSMITH_CHECK_LIMIT", limit.to_string());
    }
    if seed != 0 {
        command.env("WARPSMITH_EMULATOR_SEED", seed.to_string());
    }
    if options.output_to_stderr {
        command.stdout(io::stderr());
    }
    command.status().map_err(|source| Error::Start { program: "cargo".to_owned(), source })
}

/// Returns the root of the workspace and its target folder.
fn workspace(options: &Options) -> Result<(PathBuf, PathBuf), Error> {
    let mut command = cargo(options);
    command.args(["metadata", "--no-deps", "--format-version=1"]);
    let mut arguments = options.cargo.iter().take_while(|argument| *argument != "--");
    while let Some(argument) = arguments.next() {
        if argument == "--manifest-path" {
            command.args(arguments.next().map(|path| format!("--manifest-path={path}")));
        } else if argument.starts_with("--manifest-path=") {
            command.arg(argument);
        }
    }
    let output = command.output().map_err(|source| Error::Start { program: "cargo".to_owned(), source })?;
    let said = || String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if !output.status.success() {
        return Err(Error::Workspace(said()));
    }
    let metadata: serde_json::Value =
        serde_json::from_slice(&output.stdout).map_err(|error| Error::Workspace(error.to_string()))?;
    let folder = |key: &str| metadata[key].as_str().map(PathBuf::from);
    folder("workspace_root").zip(folder("target_directory")).ok_or_else(|| Error::Workspace(said()))
}

/// Checks that the compiler can instrument code, by compiling a function that writes to memory.
fn probe(options: &Options, target: &Path, name: &str) -> Result<(), Error> {
    let named = options.rustc.clone().or_else(|| std::env::var_os("RUSTC").map(PathBuf::from));
    let rustc = named.unwrap_or_else(|| "rustc".into());
    let start_error = |source| Error::Start { program: rustc.display().to_string(), source };
    let new = || {
        let mut command = Command::new(&rustc);
        if let Some(folder) = &options.folder {
            command.current_dir(folder);
        }
        command
    };
    let object = target.join(format!("probe-{}.o", std::process::id()));
    let mut command = new();
    command.args(["-", "--crate-name=probe", "--crate-type=lib", "--emit=obj", "-Copt-level=1", "-o"]);
    command.arg(&object).args(FLAGS).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(start_error)?;
    if let Some(mut input) = child.stdin.take() {
        let _ = input.write_all(b"#[unsafe(no_mangle)] pub fn probe(x: &mut u32) { *x = 1 }");
    }
    let output = child.wait_with_output().map_err(start_error)?;
    let code = std::fs::read(&object).unwrap_or_default();
    let _ = std::fs::remove_file(&object);
    let symbol = b"__tsan_write4";
    if output.status.success() && code.windows(symbol.len()).any(|window| window == symbol) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let message = said.lines().find(|line| !line.trim().is_empty()).unwrap_or("it has no effect").to_owned();
    let version = new().arg("--version").output().map_err(start_error)?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    Err(Error::Compiler { version, message, command: name.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(target_os = "linux")]
    fn this_compiler_instruments() {
        probe(&Options::default(), &std::env::temp_dir(), "test").unwrap();
    }

    /// Creates options whose compiler is a shell script.
    #[cfg(unix)]
    fn with_compiler(name: &str, script: &str) -> (PathBuf, Options) {
        use std::os::unix::fs::PermissionsExt;
        let folder = std::env::temp_dir().join(format!("warpsmith-check-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let rustc = folder.join("rustc");
        std::fs::write(&rustc, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&rustc, PermissionsExt::from_mode(0o755)).unwrap();
        (folder, Options { rustc: Some(rustc), ..Options::default() })
    }

    #[test]
    #[cfg(unix)]
    fn a_compiler_without_the_pass_is_an_error() {
        let version = r#"[ "$1" = --version ] && { echo "rustc 1.99.0 (other)"; exit; }; cat > /dev/null"#;
        let refuses = format!("{version}; echo \"error: unknown pass name 'tsan'\" >&2; exit 1");
        for (name, script, said) in
            [("refuses", &*refuses, "unknown pass name 'tsan'"), ("ignores", version, "it has no effect")]
        {
            let (folder, options) = with_compiler(name, script);
            let error = probe(&options, &folder, "test --lib").unwrap_err().to_string();
            std::fs::remove_dir_all(&folder).unwrap();
            for part in [
                "rustc 1.99.0 (other) cannot instrument",
                said,
                "`cargo test --lib` runs the kernels unchecked",
            ] {
                assert!(error.contains(part), "{error}");
            }
        }
    }

    #[test]
    fn a_compiler_that_is_not_there_is_named() {
        let options = Options { rustc: Some("/nowhere/rustc".into()), ..Options::default() };
        let error = probe(&options, &std::env::temp_dir(), "test").unwrap_err();
        assert!(error.to_string().contains("cannot start `/nowhere/rustc`"), "{error}");
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn a_folder_without_package_is_an_error() {
        let folder = Some(PathBuf::from("/"));
        let error =
            run(&Options { cargo: vec!["test".to_owned()], folder, ..Options::default() }).unwrap_err();
        assert!(error.to_string().contains("Cargo.toml"), "{error}");
    }
}
