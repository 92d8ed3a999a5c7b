//! `bench`: from the command line to a plan, from the plan to a table, a document and a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use warpsmith_runtime::Device;

use super::args::{BenchArgs, Output};
use super::failure::{Failure, unusable_device};
use super::output::{plain, print, progress_bar, table, terminal_width};
use super::{Program, interrupt, request, table as results};
use crate::document::{
    Condition, DeviceInfo, Document, Outcome, Record, RunInfo, SCHEMA, check_writable, default_path,
};
use crate::export;
use crate::run::{Plan, PlannedCase};

/// So many wrong configurations are described one by one.
const WRONG_SHOWN: usize = 8;

/// Measures, prints, and writes the results file.
///
/// # Errors
/// Wrong use, a device that fails, a wrong result, an interruption.
pub fn run(program: &Program<'_>, args: &BenchArgs) -> Result<(), Failure> {
    if args.list {
        return list(program, args);
    }
    let request = request::request(&args.kernels, &args.what)?;
    let device = request::device(args.what.device.as_deref())?;
    let plan = Plan::new(program.suite, &device, &request)?;
    has_code(&plan, &device)?;
    if args.dry_run {
        return Ok(print(&announce(&plan, args.output.json))?);
    }
    let stop = interrupt::flag()?;
    let path = results_path(program, &args.output, "bench")?;

    let bar = progress_bar(plan.len() as u64);
    let mut document = new_document("bench", &device, &plan)?;
    let begun = Instant::now();
    let outcome = plan.run(!args.what.no_probes, &stop, |case, record| {
        bar.set_message(case.describe());
        bar.inc(1);
        document.results.push(record);
    });
    bar.finish_and_clear();
    document.device.after = Condition::of(&device);
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

/// Whether there is code for the device is known before the first buffer is filled.
pub(super) fn has_code(plan: &Plan<'_>, device: &Device) -> Result<(), Failure> {
    let mut seen = BTreeSet::new();
    for case in &plan.cases {
        let image = case.benchmark.image();
        if seen.insert(image.name()) {
            device.load(image).map_err(unusable_device)?;
        }
    }
    Ok(())
}

/// A document without results yet.
pub(super) fn new_document(command: &str, device: &Device, plan: &Plan<'_>) -> Result<Document, Failure> {
    let images = plan.cases.iter().map(|case| case.benchmark.image());
    let toolchains = images.map(|image| Ok(device.load(image)?.toolchain()));
    let toolchains: BTreeSet<String> = toolchains.collect::<Result<_, crate::error::Error>>()?;
    let run = RunInfo {
        command: command.to_owned(),
        started: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        toolchain: toolchains.into_iter().collect::<Vec<_>>().join("; "),
        ..RunInfo::default()
    };
    let mut info = DeviceInfo::of(device);
    info.before = Condition::of(device);
    Ok(Document { schema: SCHEMA, run, device: info, probes: Vec::new(), results: Vec::new() })
}

/// Writes the file and prints table or document.
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
        return Ok(print(&document.to_json())?);
    }
    if output.csv {
        return Ok(print(&export::csv(document))?);
    }
    if output.t4 {
        return Ok(print(&export::t4(document))?);
    }
    let mut text = results::text(document, output.all, terminal_width());
    if let Some(path) = written {
        text.push_str(&format!("\nresults: {}\n", path.display()));
    }
    Ok(print(&text)?)
}

/// Describes what was wrong; the exit code follows from it.
pub(super) fn verdict(program: &Program<'_>, document: &Document) -> Result<(), Failure> {
    let bad: Vec<&Record> = document.results.iter().filter(|r| r.outcome != Outcome::Correct).collect();
    for record in bad.iter().take(WRONG_SHOWN) {
        program.complain(&describe(record));
    }
    if bad.len() > WRONG_SHOWN {
        let more = bad.len() - WRONG_SHOWN;
        program.complain(&format!("{more} more configurations: see \"outcome\" in the results file"));
    }
    match (bad.is_empty(), document.run.interrupted) {
        (_, true) => Err(Failure::Interrupted),
        (true, false) => Ok(()),
        (false, false) => Err(Failure::Shown),
    }
}

pub(super) fn describe(record: &Record) -> String {
    let what = match record.outcome {
        Outcome::Failed => "failed",
        Outcome::Crashed => "crashed",
        _ => "wrong result",
    };
    let size = crate::size::format_size(record.n);
    let Record { kernel, dtype, configuration, problem, .. } = record;
    format!("{what}: {kernel} {dtype} {size} {configuration}: {problem}")
}

/// Where the results go. A place that was asked for must do; without the default place the run goes on.
pub(super) fn results_path(
    program: &Program<'_>,
    output: &Output,
    command: &str,
) -> Result<Option<PathBuf>, Failure> {
    let writable = |path: &Path| check_writable(path);
    if let Some(path) = &output.out {
        writable(path)?;
        return Ok(Some(path.clone()));
    }
    let path = default_path(command);
    match writable(&path) {
        Ok(()) => Ok(Some(path)),
        Err(error) => {
            program.complain(&format!("no results file: {error}"));
            Ok(None)
        }
    }
}

/// What a plan would measure.
pub(super) fn announce(plan: &Plan<'_>, json: bool) -> String {
    let memory = |case: &PlannedCase<'_>| case.work.footprint.saturating_mul(case.copies as u64);
    if json {
        let cases = plan.cases.iter().map(|case| {
            serde_json::json!({
                "kernel": case.benchmark.name(),
                "dtype": case.dtype,
                "n": case.n,
                "configurations": case.configurations.len(),
                "memory_bytes": memory(case),
                "default": case.default_configuration(),
            })
        });
        let cases: Vec<_> = cases.collect();
        return pretty(&serde_json::json!({ "cases": cases, "configurations": plan.len() }));
    }
    let rows = plan.cases.iter().map(|case| {
        let cells = [
            case.benchmark.name().to_owned(),
            case.dtype.to_owned(),
            crate::size::format_size(case.n),
            case.configurations.len().to_string(),
            crate::size::format_bytes(memory(case)),
            case.default_configuration().to_string(),
        ];
        cells.into_iter().map(plain).collect()
    });
    let header = ["kernel", "type", "size", "configurations", "memory", "default"];
    let text = table(&header, &[2, 3, 4], rows.collect());
    format!("{text}\n{} configurations in all\n", plan.len())
}

/// As JSON text, ending in a line feed.
fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

/// The kernels, their types and axes on the device.
fn list(program: &Program<'_>, args: &BenchArgs) -> Result<(), Failure> {
    let device = request::device(args.what.device.as_deref())?;
    let mut text = String::new();
    let chosen = args.kernels.iter().map(|name| program.suite.find(name)).collect::<Result<Vec<_>, _>>()?;
    let every = program.suite.benchmarks.iter().map(|benchmark| &**benchmark);
    let all = if chosen.is_empty() { every.collect() } else { chosen };
    if args.output.json {
        let kernels = all.into_iter().map(|benchmark| {
            let dtypes = benchmark.dtypes();
            let space = dtypes.first().map(|dtype| benchmark.space(dtype, &device)).unwrap_or_default();
            let axes = space.axes().iter().map(|axis| {
                let values: Vec<String> = axis.values.iter().map(ToString::to_string).collect();
                serde_json::json!({ "name": &*axis.name, "values": values })
            });
            let axes: Vec<_> = axes.collect();
            let (name, summary) = (benchmark.name(), benchmark.summary());
            serde_json::json!({ "name": name, "summary": summary, "dtypes": dtypes, "axes": axes })
        });
        let kernels: Vec<_> = kernels.collect();
        return Ok(print(&pretty(&serde_json::json!({ "kernels": kernels })))?);
    }
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
