//! `warpsmith check`: runs a cargo command with instrumented kernels, and lists the emulated device's findings.

use std::io::Write;
use std::path::Path;

use warpsmith::bench::command::failure::Failure;
use warpsmith_check::{Finding, Options, Outcome, sarif};

use crate::args::CheckArgs;

/// Runs cargo, and prints the findings to standard error, or as JSON to standard output.
pub fn run(args: &CheckArgs) -> Result<(), Failure> {
    let test = || vec!["test".to_owned()];
    let options = Options {
        cargo: if args.cargo.is_empty() { test() } else { args.cargo.clone() },
        first: args.first,
        limit: args.limit,
        seeds: args.seeds,
        output_to_stderr: args.json,
        ..Options::default()
    };
    let outcome = warpsmith_check::run(&options).map_err(|error| Failure::Use(error.to_string()))?;
    if let Some(path) = &args.sarif {
        write_sarif(path, &outcome.findings)?;
    }
    if args.json {
        let ok = outcome.findings.is_empty() && outcome.failure.is_none();
        let document =
            serde_json::json!({"schema": 1, "ok": ok, "runs": outcome.runs, "findings": outcome.findings});
        writeln!(std::io::stdout(), "{document:#}")?;
    } else {
        eprint!("{}", text(&outcome));
    }
    match (outcome.findings.is_empty(), outcome.failure) {
        (true, None) => Ok(()),
        (false, _) => Err(Failure::Shown),
        (true, Some(status)) => Err(Failure::Failed(format!("cargo {}: {status}", options.cargo.join(" ")))),
    }
}

fn write_sarif(path: &Path, findings: &[Finding]) -> Result<(), Failure> {
    let document = format!("{:#}\n", sarif(findings));
    std::fs::write(path, document)
        .map_err(|error| Failure::Use(format!("cannot write `{}`: {error}", path.display())))
}

fn text(outcome: &Outcome) -> String {
    let mut text = String::from("\n");
    for Finding { kernel, text: finding, .. } in &outcome.findings {
        text += &format!("kernel `{kernel}`: {finding}\n\n");
    }
    let runs = match outcome.runs {
        1 => "1 run".to_owned(),
        runs => format!("{runs} runs"),
    };
    text += &match outcome.findings.len() {
        0 => format!("warpsmith check: nothing found in {runs}\n"),
        1 => format!("warpsmith check: 1 finding in {runs}\n"),
        count => format!("warpsmith check: {count} findings in {runs}\n"),
    };
    text
}
