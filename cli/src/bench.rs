//! `warpsmith bench`: from the command line to a plan, from the plan to a table, a document and a file.

use std::path::PathBuf;

use indicatif::{ProgressBar, ProgressStyle};
use warpsmith::Device;
use warpsmith::ops::GridRule;
use warpsmith_tuner::config::Space;
use warpsmith_tuner::error::Error;
use warpsmith_tuner::measure::Effort;
use warpsmith_tuner::report::{Document, SCHEMA, check_writable, default_path};
use warpsmith_tuner::run::{Plan, Request, device_info};
use warpsmith_tuner::size::parse_size;

use crate::args::BenchArgs;
use crate::bench_table;
use crate::failure::{Failure, unusable_device};
use crate::output::{complain, print};

/// So many wrong configurations are described one by one.
const WRONG_SHOWN: usize = 8;

/// Measures, prints, and writes the results file.
pub fn run(args: &BenchArgs) -> Result<(), Failure> {
    let device = match &args.device {
        Some(text) => Device::open(text),
        None => Device::best(),
    }
    .map_err(unusable_device)?;
    let request = request(args, &device)?;
    let plan = Plan::new(&device, &request)?;
    // Whether there is code for the device is known before the first buffer is filled.
    device.load(&warpsmith::IMAGE).map_err(unusable_device)?;
    let path = results_path(args)?;

    let bar = progress_bar(plan.len() as u64);
    let mut document = Document { schema: SCHEMA, device: device_info(&device), results: Vec::new() };
    let mut wrong = Vec::new();
    let outcome = plan.run(|case, measured| {
        let case = Plan::describe(case);
        if let Some((index, found, expected)) = measured.check.first {
            wrong.push(format!(
                "{case} {}: {} wrong, first element {index}: {found} instead of {expected}",
                measured.record.config, measured.check.wrong
            ));
        }
        document.results.push(measured.record);
        bar.set_message(case);
        bar.inc(1);
    });
    bar.finish_and_clear();

    let written = path.and_then(|path| match document.write(&path) {
        Ok(()) => Some(path),
        Err(error) => {
            complain(&format!("warpsmith: {error}"));
            None
        }
    });
    if args.json {
        print(&document.to_json())?;
    } else {
        print(&bench_table::text(&document, &plan.cases, args.all, written.as_deref()))?;
    }
    for line in wrong.iter().take(WRONG_SHOWN) {
        complain(&format!("warpsmith: wrong result: {line}"));
    }
    if let Some(more) = wrong.len().checked_sub(WRONG_SHOWN).filter(|&more| more > 0) {
        complain(&format!("warpsmith: {more} more wrong results: see \"correct\" in the results file"));
    }
    outcome?;
    if wrong.is_empty() { Ok(()) } else { Err(Failure::Shown) }
}

fn request(args: &BenchArgs, device: &Device) -> Result<Request, Error> {
    let emulated = device.is_emulated();
    let default_sizes: &[u64] =
        if emulated { &[1 << 12, 1 << 16, 1 << 20] } else { &[1 << 16, 1 << 20, 1 << 24, 1 << 28] };
    let mut sizes: Vec<u64> = args.sizes.iter().map(|text| parse_size(text)).collect::<Result<_, _>>()?;
    if sizes.is_empty() {
        sizes = default_sizes.to_vec();
    }
    let mut space = if emulated { Space::emulated() } else { Space::gpu() };
    if !args.blocks.is_empty() {
        space.blocks = numbers("block", &args.blocks)?;
    }
    if !args.grids.is_empty() {
        space.grids = args.grids.iter().map(|text| grid(text)).collect::<Result<_, _>>()?;
    }
    if !args.items.is_empty() {
        space.items = Some(numbers("items", &args.items)?);
    }
    if !args.vectors.is_empty() {
        space.vectors = Some(numbers("vector", &args.vectors)?);
    }
    Ok(Request {
        kernels: args.kernels.clone(),
        dtypes: args.dtypes.clone(),
        sizes,
        space,
        effort: if args.quick { Effort::QUICK } else { Effort::NORMAL },
    })
}

fn grid(text: &str) -> Result<GridRule, Error> {
    text.parse().map_err(|_| Error::Axis {
        axis: "grid",
        text: text.to_string(),
        reason: "use auto, waves:N or blocks:N with N from 1, for example waves:4".to_string(),
    })
}

fn numbers(axis: &'static str, texts: &[String]) -> Result<Vec<u32>, Error> {
    let parse = |text: &String| {
        text.trim().parse().map_err(|_| Error::Axis {
            axis,
            text: text.clone(),
            reason: "it is not a whole number; write numbers with commas between, for example 128,256"
                .to_string(),
        })
    };
    texts.iter().map(parse).collect()
}

/// Where the results go. A place that was asked for must do; without the default place the run goes on.
fn results_path(args: &BenchArgs) -> Result<Option<PathBuf>, Failure> {
    match &args.out {
        Some(path) => {
            check_writable(path)?;
            Ok(Some(path.clone()))
        }
        None => {
            let path = default_path("bench");
            match check_writable(&path) {
                Ok(()) => Ok(Some(path)),
                Err(error) => {
                    complain(&format!("warpsmith: no results file: {error}"));
                    Ok(None)
                }
            }
        }
    }
}

/// A bar on standard error; indicatif hides it where that is no terminal.
fn progress_bar(total: u64) -> ProgressBar {
    let bar = ProgressBar::new(total);
    if let Ok(style) = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}") {
        bar.set_style(style);
    }
    bar.tick();
    bar
}
