//! `warpsmith profile --counters`: runs a program, records hardware counters for its kernels, and shows the counters.
//!
//! The program, and every program that it starts, inherits `WARPSMITH_COUNTERS` in its environment.

use std::path::Path;

use serde::Serialize;
use warpsmith::bench::command::failure::Failure;
use warpsmith::bench::command::output::{complain, print, print_json};
use warpsmith_trace::counters::CounterReport;

use crate::args::ProfileArgs;
use crate::outputs::{Outputs, Written};
use crate::profile::{ended, run_program, wrote_nothing};

/// The JSON output document.
#[derive(Serialize)]
struct Document {
    schema: u32,
    exit_code: u8,
    counters: Vec<Report>,
}

#[derive(Serialize)]
struct Report {
    file: String,
    report: CounterReport,
}

const NO_COUNTERS: &str = "wrote no counters: build the program with warpsmith's feature `profiler`; it must open a \
                           device, and must return from `main` or call `exit`";

/// Runs the program, and prints its counters.
pub fn run(args: &ProfileArgs) -> Result<(), Failure> {
    let outputs = Outputs::new("report", args.out.as_deref().unwrap_or(Path::new("counters.json")))?;
    let variables = [
        ("WARPSMITH_COUNTERS", Some(outputs.pattern().into())),
        ("WARPSMITH_COUNTERS_LAUNCHES", args.launches.as_ref().map(Into::into)),
        ("WARPSMITH_COUNTERS_KERNELS", (!args.kernels.is_empty()).then(|| args.kernels.join(";").into())),
        ("WARPSMITH_PROFILE", None),
    ];
    let code = run_program(args, &variables)?;
    let files = outputs.collect()?;
    if files.is_empty() {
        return Err(wrote_nothing(args, code, NO_COUNTERS));
    }
    let counts_nothing = show(args, &files, code)?;
    ended(code, counts_nothing)
}

/// Prints the reports. Returns true if any report contains no counters.
fn show(args: &ProfileArgs, files: &[Written], code: u8) -> Result<bool, Failure> {
    let mut reports = Vec::new();
    let mut counts_nothing = false;
    for Written { path, .. } in files {
        let report = CounterReport::read(path).map_err(|error| Failure::Failed(error.to_string()))?;
        let file = path.display().to_string();
        if !args.json {
            let head = if reports.is_empty() { "" } else { "\n" };
            print(&format!("{head}{}\nThe report is in {file}\n", report.text(args.top)))?;
        }
        if report.counted == 0 {
            counts_nothing = true;
            let reasons: Vec<&str> = report.not_counted.keys().map(String::as_str).collect();
            let why = if reasons.is_empty() {
                "the program launched no kernel".to_owned()
            } else {
                reasons.join("; ")
            };
            complain(&format!("warpsmith: no kernel was counted: {why}"));
        }
        reports.push(Report { file, report });
    }
    if args.json {
        let document = Document { schema: 1, exit_code: code, counters: reports };
        print_json(
            &(serde_json::to_string_pretty(&document).expect("plain data always becomes JSON") + "\n"),
        )?;
    }
    Ok(counts_nothing)
}
