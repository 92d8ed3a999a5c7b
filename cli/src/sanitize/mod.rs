//! `warpsmith sanitize`: runs a program under NVIDIA's compute-sanitizer, and lists its reports as `warpsmith check`
//! lists findings.
//!
//! The report goes to a file, so the program's own output passes through unchanged.

mod finding;
mod place;
mod program;
mod report;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::print_json;

use self::report::Report;
use crate::args::SanitizeArgs;
use crate::child;

/// Maximum number of reports that compute-sanitizer writes. Repeated reports are grouped afterwards.
const REPORTS: u32 = 10_000;

/// Runs the program, and prints the findings to standard error, or as JSON to standard output.
pub fn run(args: &SanitizeArgs) -> Result<(), Failure> {
    let [name, arguments @ ..] = &args.program[..] else {
        return Err(Failure::Use("no program is given".to_owned()));
    };
    let sanitizer = program::sanitizer()?;
    let target = program::executable(name)?;
    let log = Log::new()?;
    let mut command = Command::new(&sanitizer);
    command.args(["--tool", args.tool.name(), "--strip-paths", "no", "--print-limit", &REPORTS.to_string()]);
    if args.tool == Tool::Memcheck {
        // Settings other than `explicit` also report calls that the driver makes internally.
        command.args(["--report-api-errors", "explicit"]);
        command.args(args.leaks.then_some(["--leak-check", "full"]).into_iter().flatten());
    }
    command.arg("--log-file").arg(log.path()).arg(&target).args(arguments);
    // Each buffer is then a separate allocation, so compute-sanitizer can detect accesses beyond its end.
    command.env("WARPSMITH_NO_MEMORY_CACHING", "1");
    if args.json {
        command.stdout(io::stderr());
    }
    child::end_with_this_process(&mut command);
    let status = child::run(&mut command)
        .map_err(|error| Failure::Use(format!("cannot run `{}`: {error}", sanitizer.display())))?;
    let text = log.read();
    let report = Report::read(&text, &std::env::current_dir().unwrap_or_default());

    let shown = name.to_string_lossy();
    if !report.is_complete() {
        if !report.used_no_gpu {
            eprint!("\n{text}");
        }
        return Err(Failure::Failed(unreadable(&report, &shown, child::code(status))));
    }
    if args.json {
        let document = serde_json::json!({
            "schema": 1,
            "ok": report.findings.is_empty() && status.success(),
            "tool": args.tool.name(),
            "exit_code": child::code(status),
            "findings": report.findings,
            "more": report.more,
            "notes": report.notes,
        });
        print_json(&format!("{document:#}\n"))?;
    } else {
        eprint!("\n{}", report.text(args.tool.name()));
    }
    match (report.findings.is_empty(), status.success()) {
        (true, true) => Ok(()),
        (false, _) => Err(Failure::Shown),
        (true, false) => Err(Failure::Failed(format!("`{shown}` failed: {status}"))),
    }
}

/// Returns the message for a report that could not be parsed.
fn unreadable(report: &Report, program: &str, code: u8) -> String {
    if report.used_no_gpu {
        return format!(
            "compute-sanitizer checked nothing because `{program}` (exit code {code}) made no CUDA call: run it on a \
             machine with a GPU and a driver, on a device such as cuda:0; `warpsmith check` needs no GPU"
        );
    }
    format!(
        "the report of compute-sanitizer (exit code {code}) could not be parsed completely; it is shown above \
         unchanged"
    )
}

/// A compute-sanitizer tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Tool {
    /// Finds invalid accesses, failed CUDA calls and leaks.
    Memcheck,
    /// Finds data races in shared memory.
    Racecheck,
    /// Finds reads of uninitialized global memory.
    Initcheck,
    /// Finds invalid barriers and warp masks.
    Synccheck,
}

impl Tool {
    fn name(self) -> &'static str {
        match self {
            Tool::Memcheck => "memcheck",
            Tool::Racecheck => "racecheck",
            Tool::Initcheck => "initcheck",
            Tool::Synccheck => "synccheck",
        }
    }
}

/// The report file, in a separate folder that is removed when this value is dropped.
struct Log {
    folder: PathBuf,
}

impl Log {
    fn new() -> Result<Self, Failure> {
        let folder = std::env::temp_dir().join(format!("warpsmith-sanitize-{}", std::process::id()));
        fs::create_dir(&folder).map_err(|error| {
            Failure::Use(format!(
                "cannot create `{}`: {error}; remove it, or set TMPDIR to another folder",
                folder.display()
            ))
        })?;
        Ok(Self { folder })
    }

    /// Path of the file, in which compute-sanitizer replaces `%`.
    fn path(&self) -> PathBuf {
        PathBuf::from(self.file().to_string_lossy().replace('%', "%%"))
    }

    fn file(&self) -> PathBuf {
        Path::join(&self.folder, "report")
    }

    /// Content of the file, or an empty string if compute-sanitizer wrote no file.
    fn read(&self) -> String {
        fs::read(self.file())
            .map_or_else(|_| String::new(), |bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        // Leftovers in the temporary folder are harmless.
        let _ = fs::remove_dir_all(&self.folder);
    }
}
