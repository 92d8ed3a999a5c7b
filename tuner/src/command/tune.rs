//! `tune`: searches for the fastest configurations, and keeps them where launches find them.

use std::path::Path;
use std::time::{Duration, Instant};

use warpsmith_runtime::launch::LaunchStore;
use warpsmith_runtime::{Device, Stream};

use super::args::{TuneArgs, What};
use super::bench::{announce, has_code, new_document, results_path, show};
use super::failure::Failure;
use super::output::{print, progress_bar};
use super::{Program, interrupt, request};
use crate::benchmark::{Suite, Work};
use crate::document::{Condition, Outcome, Record};
use crate::error::{Error, Result};
use crate::log::Log;
use crate::measure::{Effort, Stopwatch};
use crate::probe::{EVERY, Probes};
use crate::run::Plan;
use crate::search::Budget;
use crate::size::format_size;
use crate::tune::{Event, Tuning, tune};
use crate::worker;

/// So many unusable configurations are described one by one.
const BAD_SHOWN: usize = 8;

/// Tunes, prints, and writes the results file.
///
/// # Errors
/// Wrong use, a device that fails, a kernel without any right configuration, an interruption.
pub fn run(program: &Program<'_>, args: &TuneArgs) -> std::result::Result<(), Failure> {
    let request = request::request(&args.kernels, &args.what)?;
    let tuning = tuning(args)?;
    let device = request::device(args.what.device.as_deref())?;
    let plan = Plan::new(program.suite, &device, &request)?;
    has_code(&plan, &device)?;
    if args.dry_run {
        return Ok(print(&announce(&plan, args.output.json))?);
    }
    let stop = interrupt::flag()?;
    let path = results_path(program, &args.output, "tune")?;
    let mut log = log(program, args, &device);

    let mut document = new_document("tune", &device, &plan)?;
    let mut probing = Probing::new(program.suite, &device, &args.what);
    let bar = progress_bar(plan.cases.len() as u64);
    let begun = Instant::now();
    let outcome = tune(&plan, &tuning, &mut log, &stop, &mut |event| match event {
        Event::Measured { case, record, timings, is_known } => {
            bar.set_message(format!("{} timing {timings}: {}", case.describe(), record.configuration));
            if !is_known {
                probing.measured(&case.work);
            }
        }
        Event::Done { case, tuned } => {
            let limit = probing.done(&case.work);
            let with_limit = |record: &Record| Record { probe_us: limit, ..record.clone() };
            document.results.extend(tuned.records.iter().map(with_limit));
            bar.inc(1);
        }
        Event::Note(note) => bar.suspend(|| program.complain(note)),
    });
    bar.finish_and_clear();
    if let Some(problem) = probing.problem.take() {
        program.complain(&format!("probes could not be measured: {problem}"));
    }
    document.device.after = Condition::of(&device);
    document.run.seconds = begun.elapsed().as_secs_f64();
    document.probes = probing.results();
    document.run.interrupted = outcome.as_ref().map_or(true, |totals| totals.interrupted);

    show(program, &document, &args.output, path)?;
    let totals = outcome?;
    if args.output.is_text() {
        print(&summary(&device, totals.made, totals.known, begun.elapsed()))?;
    }
    verdict(program, &document.results, totals.interrupted)
}

fn tuning(args: &TuneArgs) -> Result<Tuning> {
    if let Some(seconds) = args.seconds.filter(|seconds| !(*seconds > 0.0 && seconds.is_finite())) {
        return Err(Error::Axis {
            axis: "--seconds".to_owned(),
            text: seconds.to_string(),
            reason: "give a number of seconds above 0".to_owned(),
        });
    }
    if args.timings == Some(0) {
        return Err(Error::Axis {
            axis: "--timings".to_owned(),
            text: "0".to_owned(),
            reason: "give at least 1: the default configuration is always timed".to_owned(),
        });
    }
    Ok(Tuning {
        strategy: args.strategy.parse()?,
        budget: Budget { timings: args.timings, seconds: args.seconds },
        isolation: args.isolate.then(worker::Program::current).transpose()?,
        ..Tuning::default()
    })
}

/// The measurements of earlier runs, beside the launch store's file.
fn log(program: &Program<'_>, args: &TuneArgs, device: &Device) -> Log {
    if args.no_store {
        device.set_launch_store(LaunchStore::in_memory());
        return Log::in_memory();
    }
    // An emulated device has a store in memory unless it is told otherwise.
    let store = LaunchStore::shared();
    device.set_launch_store(store.clone());
    let log = match store.path().and_then(Path::parent) {
        None => Log::in_memory(),
        Some(directory) if args.fresh => Log::fresh(directory),
        Some(directory) => Log::open(directory),
    };
    if let (Some(first), Some(path)) = (log.damaged_lines().first(), log.path()) {
        damaged(program, path, log.damaged(), &format!("line {}: {}", first.number, first.reason));
    }
    let lines = store.damaged_lines();
    if let (Some(first), Some(path)) = (lines.first.first(), store.path()) {
        damaged(program, path, lines.number, &first.to_string());
    }
    log
}

/// Says that lines of a file were skipped.
fn damaged(program: &Program<'_>, path: &Path, count: usize, first: &str) {
    let what =
        if count == 1 { "a damaged line was".to_owned() } else { format!("{count} damaged lines were") };
    program.complain(&format!("{}: {what} skipped, {first}", path.display()));
}

/// Probes beside the cases of a run that measures elsewhere. What goes wrong with them is no failure of the run: there are no
/// more probes then, and what it was is told at the end.
struct Probing {
    parts: Option<(Probes, Stopwatch)>,
    effort: Effort,
    /// Configurations of the case that were measured.
    count: usize,
    problem: Option<Error>,
}

impl Probing {
    fn new(suite: &Suite, device: &Device, what: &What) -> Self {
        let make = || -> Result<_> {
            let stream = Stream::new(device)?;
            Ok((Probes::new(suite, &stream)?, Stopwatch::new(&stream)?))
        };
        let (parts, problem) = match (!what.no_probes).then(make).transpose() {
            Ok(parts) => (parts, None),
            Err(error) => (None, Some(error)),
        };
        Self { parts, effort: Effort::QUICK, count: 0, problem }
    }

    /// Times the probes of `work` after the first of a case's configurations and every [`EVERY`] of them.
    fn measured(&mut self, work: &Work) {
        if self.count.is_multiple_of(EVERY) {
            self.time(work);
        }
        self.count += 1;
    }

    /// Times them at the end of a case; what they need for `work`.
    fn done(&mut self, work: &Work) -> Option<f64> {
        self.count = 0;
        self.time(work);
        self.parts.as_ref()?.0.limit_us(work)
    }

    fn time(&mut self, work: &Work) {
        let Some((probes, stopwatch)) = &mut self.parts else { return };
        if let Err(error) = probes.time(work, stopwatch, self.effort) {
            self.problem = Some(error);
            self.parts = None;
        }
    }

    fn results(&self) -> Vec<crate::document::ProbeResult> {
        self.parts.as_ref().map_or_else(Vec::new, |(probes, _)| probes.results())
    }
}

fn summary(device: &Device, made: usize, known: usize, took: Duration) -> String {
    let mut text = format!("{made} timings in {:.1} s", took.as_secs_f64());
    if known > 0 {
        text.push_str(&format!(", {known} known from earlier runs"));
    }
    let store = device.launch_store();
    match store.path().filter(|_| store.problem().is_none()) {
        Some(path) => text.push_str(&format!("; winners are kept in {}\n", path.display())),
        None => text.push_str("; nothing is kept\n"),
    }
    text
}

/// Says what could not be used. That is no failure while something else of the case could.
fn verdict(program: &Program<'_>, records: &[Record], interrupted: bool) -> std::result::Result<(), Failure> {
    let bad: Vec<&Record> = records.iter().filter(|record| record.outcome != Outcome::Correct).collect();
    for record in bad.iter().take(BAD_SHOWN) {
        program.complain(&super::bench::describe(record));
    }
    if bad.len() > BAD_SHOWN {
        program.complain(&format!("{} more: see \"outcome\" in the results file", bad.len() - BAD_SHOWN));
    }
    if interrupted {
        return Err(Failure::Interrupted);
    }
    let none = records.iter().find(|record| {
        !records.iter().any(|other| {
            (&other.kernel, &other.dtype, other.n) == (&record.kernel, &record.dtype, record.n)
                && other.is_usable()
        })
    });
    match none {
        Some(Record { kernel, dtype, n, .. }) => {
            Err(Failure::Failed(format!("no configuration of {kernel} {dtype} {} is right", format_size(*n))))
        }
        None => Ok(()),
    }
}
