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
use super::{Program, interrupt, request};
use crate::document::{Condition, DeviceInfo, Document, RunInfo, SCHEMA};
use crate::file::{check_writable, default_path};
use crate::run::Plan;

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
    /// Prepares `bench` or `tune`.
    ///
    /// # Errors
    /// Returns an error if there is no code for the device, or if the results cannot be written to the specified path.
    pub fn of(
        program: &Program<'_>,
        command: &str,
        plan: &Plan<'_>,
        output: &Output,
    ) -> Result<Self, Failure> {
        has_code(plan)?;
        let stop = interrupt::flag()?;
        let path = results_path(program, output, command)?;
        let document = new_document(command, plan)?;
        Ok(Self { stop, path, document, begun: Instant::now() })
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
