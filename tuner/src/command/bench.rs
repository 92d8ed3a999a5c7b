//! `bench`: measures a plan and reports it as a table, a document and a file.

use std::path::PathBuf;

use super::args::{BenchArgs, Output};
use super::failure::Failure;
use super::opening::{self, Opening};
use super::output::{print, print_json, progress_bar, terminal_width};
use super::{Program, request, table as results};
use crate::document::{Condition, Document, Outcome, Record};

/// Maximum number of incorrect configurations that are described individually.
const INCORRECT_SHOWN: usize = 8;

/// Measures the kernels, prints the results, and writes the results file.
///
/// # Errors
/// Fails on a usage error, a device failure, an incorrect result, or an interruption.
pub fn run(program: &Program<'_>, args: &BenchArgs) -> Result<(), Failure> {
    if args.list {
        return list(program, args);
    }
    let BenchArgs { kernels, what, .. } = args;
    let plan = opening::plan(program, kernels, what)?;
    let Opening { stop, path, mut document, begun } = Opening::of(program, "bench", &plan, &args.output)?;
    let bar = progress_bar(plan.len() as u64);
    let outcome = plan.run(!args.what.no_probes, &stop, |case, record| {
        bar.set_message(case.describe());
        bar.inc(1);
        document.results.push(record);
    });
    bar.finish_and_clear();
    document.device.after = Condition::of(plan.device());
    document.run.seconds = begun.elapsed().as_secs_f64();
    let complete = match outcome {
        Ok(finished) => {
            document.run.interrupted = !finished.complete;
            document.probes = finished.probes;
            Ok(())
        }
        Err(error) => {
            document.run.interrupted = true;
            Err(error)
        }
    };

    show(program, &document, &args.output, path)?;
    complete?;
    verdict(program, &document)
}

/// Writes the results file and prints the table or the document.
pub(super) fn show(
    program: &Program<'_>,
    document: &Document,
    output: &Output,
    path: Option<PathBuf>,
) -> Result<(), Failure> {
    let written = path.filter(|path| match document.write(path) {
        Ok(()) => true,
        Err(error) => {
            program.complain(&error.to_string());
            false
        }
    });
    if output.json {
        return Ok(print_json(&document.to_json())?);
    }
    let mut text = results::text(document, output.all, terminal_width());
    if let Some(path) = written {
        text.push_str(&format!("\nresults: {}\n", path.display()));
    }
    Ok(print(&text)?)
}

/// Describes all failures and determines the exit code.
fn verdict(program: &Program<'_>, document: &Document) -> Result<(), Failure> {
    describe_bad(program, document);
    match (document.all_correct(), document.run.interrupted) {
        (_, true) => Err(Failure::Interrupted),
        (true, false) => Ok(()),
        (false, false) => Err(Failure::Shown),
    }
}

/// Lists the configurations that failed or produced incorrect results.
pub(super) fn describe_bad(program: &Program<'_>, document: &Document) {
    let bad = || document.results.iter().filter(|record| record.outcome != Outcome::Correct);
    for record in bad().take(INCORRECT_SHOWN) {
        let what = match record.outcome {
            Outcome::Failed => "failed",
            Outcome::Crashed => "crashed",
            _ => "incorrect result",
        };
        let size = crate::size::format_size(record.n);
        let Record { kernel, dtype, configuration, problem, .. } = record;
        program.complain(&format!("{what}: {kernel} {dtype} {size} {configuration}: {problem}"));
    }
    let more = bad().count().saturating_sub(INCORRECT_SHOWN);
    if more > 0 {
        program.complain(&format!("{more} more configurations: see \"outcome\" in the results file"));
    }
}

/// Lists the kernels with their types and axes on the device.
fn list(program: &Program<'_>, args: &BenchArgs) -> Result<(), Failure> {
    let device = request::device(args.what.device.as_deref())?;
    let mut text = String::new();
    let chosen = args.kernels.iter().map(|name| program.suite.find(name)).collect::<Result<Vec<_>, _>>()?;
    let every = program.suite.benchmarks.iter().map(|benchmark| &**benchmark);
    let all = if chosen.is_empty() { every.collect() } else { chosen };
    for benchmark in all {
        let dtypes = benchmark.dtypes();
        text.push_str(&format!("{}  {}\n", benchmark.name(), benchmark.summary()));
        text.push_str(&format!("    types {}\n", dtypes.join(", ")));
        let Some(dtype) = dtypes.first() else { continue };
        for axis in benchmark.space(dtype, &device).axes() {
            let values: Vec<String> = axis.values.iter().map(ToString::to_string).collect();
            text.push_str(&format!("    {} = {}\n", axis.name, values.join(", ")));
        }
    }
    Ok(print(&text)?)
}
