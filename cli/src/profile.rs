//! `warpsmith profile`: runs a program with its profiler on, and shows the recording.
//!
//! The program, and every program that it starts, inherits `WARPSMITH_PROFILE` in its environment.

use std::ffi::{OsStr, OsString};
use std::io;
use std::path::Path;
use std::process::Command;

use serde::Serialize;
use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::{complain, print, print_json};
use warpsmith_trace::check_name;
use warpsmith_trace::summary::{Digest, Summary};

use crate::args::ProfileArgs;
use crate::child;
use crate::outputs::{Outputs, Written};
use crate::trace::judge;

/// The JSON output document.
#[derive(Serialize)]
struct Document {
    schema: u32,
    exit_code: u8,
    traces: Vec<Table>,
}

#[derive(Serialize)]
struct Table {
    trace: String,
    /// Location of the damage in the file, if any.
    damage: Option<String>,
    #[serde(flatten)]
    summary: Summary,
}

/// Runs the program, and prints the tables of its recording.
pub fn run(args: &ProfileArgs) -> Result<(), Failure> {
    let out = args.out.as_deref().unwrap_or(Path::new("profile.json.gz"));
    check_name(out)
        .map_err(|why| Failure::Use(format!("cannot write the trace {}: {why}", out.display())))?;
    let outputs = Outputs::new(out)?;
    let code = run_program(args, &outputs.pattern())?;
    let traces = outputs.collect()?;
    if traces.is_empty() {
        return Err(wrote_nothing(args, code));
    }
    let is_damaged = show(args, &traces, code)?;
    match code {
        0 if is_damaged => Err(Failure::Shown),
        0 => Ok(()),
        code => Err(Failure::Program(code)),
    }
}

/// Runs the program, whose processes write to `pattern`, and returns its exit code.
fn run_program(args: &ProfileArgs, pattern: &Path) -> Result<u8, Failure> {
    let [program, arguments @ ..] = &args.program[..] else {
        return Err(Failure::Use("no program is given".to_owned()));
    };
    let mut command = Command::new(program);
    command.args(arguments).env("WARPSMITH_PROFILE", pattern);
    if args.json {
        // Standard output is reserved for the JSON document.
        command.stdout(io::stderr());
    }
    // Without this command, nothing would show the recording.
    child::end_with_this_process(&mut command);
    let status = child::run(&mut command).map_err(|error| {
        let name = program.to_string_lossy();
        Failure::Use(format!("cannot run `{name}`: {error}; give the path or the name of a program"))
    })?;
    Ok(child::code(status))
}

/// Returns the error for a program that wrote no trace.
fn wrote_nothing(args: &ProfileArgs, code: u8) -> Failure {
    let name = args.program.first().map_or(OsStr::new(""), OsString::as_os_str).to_string_lossy();
    complain(&format!(
        "warpsmith: `{name}` (exit code {code}) wrote no trace: build the program with warpsmith's feature `profiler`; \
         it must open a device, and must return from `main` or call `exit`"
    ));
    if code == 0 { Failure::Shown } else { Failure::Program(code) }
}

/// Prints and writes the content of traces. Returns true if any trace is damaged.
fn show(args: &ProfileArgs, traces: &[Written], code: u8) -> Result<bool, Failure> {
    let mut tables = Vec::new();
    let mut is_damaged = false;
    for written in traces {
        let path = &written.path;
        let digest = Digest::read(path).map_err(|error| Failure::Failed(error.to_string()))?;
        let (summary, trace) = (digest.summary(), path.display().to_string());
        if !args.json {
            let head = if tables.is_empty() { "" } else { "\n" };
            print(&format!("{head}{}\nThe trace is in {trace}\n", summary.text(args.top)))?;
        }
        if let Some(page) = &args.html {
            let page = written.beside(page, traces.len() == 1);
            let title = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy();
            digest.write_html(&page, &title).map_err(|error| Failure::Use(error.to_string()))?;
        }
        is_damaged |= judge(path, digest.damage(), &digest.trace().definitions.left_out(), "shown").is_err();
        tables.push(Table { trace, damage: digest.damage().map(|damage| damage.to_string()), summary });
    }
    if args.json {
        let document = Document { schema: 1, exit_code: code, traces: tables };
        print_json(
            &(serde_json::to_string_pretty(&document).expect("plain data always becomes JSON") + "\n"),
        )?;
    }
    Ok(is_damaged)
}
