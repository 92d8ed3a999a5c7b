//! Steps that precede the measurements in `bench` and `tune`: creating the plan, the results path and the document.
//!
//! Nothing is launched and no buffer is filled before three checks have passed. The request must be valid, the device
//! must have code and enough memory for it, and the results file must be writable.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use warpsmith_runtime::Device;

use super::args::{MeasureArgs, Output};
use super::failure::{Failure, unusable_device};
use super::output::{plain, print_form, table};
use super::{Program, interrupt, request};
use crate::document::{Condition, DeviceInfo, Document, RunInfo, SCHEMA};
use crate::file::{check_writable, default_path};
use crate::run::{Plan, PlannedCase};

/// State of a measuring command before the first measurement.
pub struct Opening {
    /// Flag that Ctrl-C sets.
    pub stop: Arc<AtomicBool>,
    /// Path of the results file; `None` if no file can be written.
    pub path: Option<PathBuf>,
    /// Document that contains no results yet.
    pub document: Document,
    /// Start time.
    pub begun: Instant,
}

impl Opening {
    /// Prepares `bench` or `tune`. For a dry run, prints the plan and returns `None`.
    ///
    /// # Errors
    /// Returns an error if there is no code for the device, or if the results cannot be written to the specified path.
    pub fn of(
        program: &Program<'_>,
        command: &str,
        plan: &Plan<'_>,
        output: &Output,
        dry_run: bool,
    ) -> Result<Option<Self>, Failure> {
        has_code(plan)?;
        if dry_run {
            print_form(&announce(plan, output.json), output.json)?;
            return Ok(None);
        }
        let stop = interrupt::flag()?;
        let path = results_path(program, output, command)?;
        let document = new_document(command, plan)?;
        Ok(Some(Self { stop, path, document, begun: Instant::now() }))
    }
}

/// Creates the plan for kernels on the specified device.
///
/// # Errors
/// Returns an error for values that cannot be parsed, do not exist, or do not fit in device memory.
pub fn plan<'a>(program: &Program<'a>, kernels: &[String], what: &MeasureArgs) -> Result<Plan<'a>, Failure> {
    let request = request::request(kernels, what)?;
    let device = request::device(what.device.as_deref())?;
    Ok(Plan::new(program.suite, &device, &request)?)
}

/// Checks, before the first buffer is filled, that there is code for the device.
fn has_code(plan: &Plan<'_>) -> Result<(), Failure> {
    let device = plan.device();
    let mut seen = BTreeSet::new();
    for case in &plan.cases {
        let image = case.benchmark.image();
        if seen.insert(image.name()) {
            device.load(image).map_err(unusable_device)?;
        }
    }
    Ok(())
}

fn new_document(command: &str, plan: &Plan<'_>) -> Result<Document, Failure> {
    let device: &Device = plan.device();
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

/// Returns the path of the results file. A path specified by the user must be writable. If the default path is not
/// writable, the run continues without a file.
fn results_path(program: &Program<'_>, output: &Output, command: &str) -> Result<Option<PathBuf>, Failure> {
    if let Some(path) = &output.out {
        check_writable(path)?;
        return Ok(Some(path.clone()));
    }
    let problem = match default_path(command) {
        Some(path) => match check_writable(&path) {
            Ok(()) => return Ok(Some(path)),
            Err(error) => error.to_string(),
        },
        None => "the user has no cache folder; give a file with --out".to_owned(),
    };
    program.complain(&format!("no results file: {problem}"));
    Ok(None)
}

/// Describes the cases of a plan.
fn announce(plan: &Plan<'_>, json: bool) -> String {
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

/// Formats a value as JSON text that ends with a line feed.
pub fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}
