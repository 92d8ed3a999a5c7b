//! `compare`: two documents, two configurations, two programs, or something with itself.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::path::Path;
use std::time::Duration;

use warpsmith_runtime::Stream;

use super::Program;
use super::args::CompareArgs;
use super::columns::{Column, fit};
use super::failure::Failure;
use super::output::{bad, good, note, plain, print, terminal_width};
use super::request;
use crate::case::Case;
use crate::compare::{self, Change, Comparison, Contender, Options, Pair, Pairing, Plan as Rounds};
use crate::document::Document;
use crate::error::{Error, Result};
use crate::measure::{Entrant, Mode, Stopwatch};
use crate::run::{Plan, PlannedCase, seed};
use crate::value::Configuration;
use crate::verify::Check;
use crate::worker::{CaseRequest, Remote};

/// Samples that are taken of both sides before one of them is asked for.
const CHUNK: usize = 20;

/// Compares and prints; a regression is a failure that the output shows.
///
/// # Errors
/// Wrong use, documents that cannot be compared, a device or a program that fails, a wrong result, a regression.
pub fn run(program: &Program<'_>, args: &CompareArgs) -> std::result::Result<(), Failure> {
    let threshold = request::share(&args.threshold).ok_or_else(|| {
        Failure::Use(format!("--threshold {:?}: write a percentage, for example 1%", args.threshold))
    })?;
    let comparison = match (&args.configs[..], &args.binaries[..]) {
        (_, []) if args.self_test => return self_test(program, args, threshold),
        ([], []) => documents(args, threshold)?,
        ([old, new], []) => configurations(program, args, threshold, [old.parse()?, new.parse()?])?,
        ([] | [_], [old, new]) => binaries(program, args, threshold, [old, new])?,
        (_, []) => return Err(Failure::Use("give --config twice: before and after".to_owned())),
        (_, [_]) => return Err(Failure::Use("give --binary twice: before and after".to_owned())),
        _ => return Err(Failure::Use("with --binary, give --config once or not at all".to_owned())),
    };
    print(&form(args, &comparison))?;
    if comparison.has_regression() { Err(Failure::Shown) } else { Ok(()) }
}

fn documents(args: &CompareArgs, threshold: f64) -> std::result::Result<Comparison, Failure> {
    let [old, new] = &args.names[..] else {
        return Err(Failure::Use(
            "compare two results files, or kernels with --config, --binary or --self-test".to_owned(),
        ));
    };
    let read = |name: &String| Document::read(Path::new(name));
    let pairing = if args.best { Pairing::Best } else { Pairing::Configuration };
    let options = Options { threshold, force: args.force, pairing };
    Ok(compare::documents(&read(old)?, &read(new)?, &options)?)
}

/// How the samples are taken.
fn rounds(args: &CompareArgs, threshold: f64) -> Rounds {
    let budget = args.what.budget.filter(|seconds| *seconds > 0.0 && seconds.is_finite());
    Rounds { threshold, budget: budget.map(Duration::from_secs_f64), ..Rounds::default() }
}

/// Checks that something is right before it is compared.
fn right(what: &str, planned: &PlannedCase<'_>, check: &Check) -> std::result::Result<(), Failure> {
    match check.problem() {
        None => Ok(()),
        Some(problem) => {
            Err(Failure::Failed(format!("wrong result: {} {what}: {problem}", planned.describe())))
        }
    }
}

/// A case whose two sides are sampled in turns in this process.
struct Duel<'a> {
    stopwatch: &'a mut Stopwatch,
    case: &'a mut dyn Case,
    sides: [&'a Configuration; 2],
    mode: Mode,
    taken: [VecDeque<f64>; 2],
}

impl Duel<'_> {
    /// The next samples of a side: those of the other that were taken next to them are kept for it.
    fn take(&mut self, side: usize, samples: usize) -> Result<Vec<f64>> {
        while self.taken[side].len() < samples {
            let entrants =
                self.sides.map(|configuration| Entrant { case: 0, configuration, mode: self.mode });
            let timings = self.stopwatch.interleave(&mut [&mut *self.case], &entrants, CHUNK)?;
            for (taken, timing) in self.taken.iter_mut().zip(timings) {
                taken.extend(timing.samples_us);
            }
        }
        Ok(self.taken[side].drain(..samples).collect())
    }
}

fn configurations(
    program: &Program<'_>,
    args: &CompareArgs,
    threshold: f64,
    sides: [Configuration; 2],
) -> std::result::Result<Comparison, Failure> {
    let device = request::device(args.what.device.as_deref())?;
    let plan = Plan::new(program.suite, &device, &request::request(&args.names, &args.what)?)?;
    let (stream, mut all) = (Stream::new(&device).map_err(Error::from)?, None);
    let mut stopwatch = Stopwatch::new(&stream)?;
    for planned in &plan.cases {
        let mut case = planned.prepare(&stream, seed())?;
        // What is not said of a configuration is as by default.
        let sides = sides.clone().map(|side| over_default(planned, &side));
        for side in &sides {
            case.select(side)?;
            right(&side.to_string(), planned, &case.check()?)?;
        }
        let duel = RefCell::new(Duel {
            stopwatch: &mut stopwatch,
            case: &mut *case,
            sides: [&sides[0], &sides[1]],
            mode: args.what.mode.into(),
            taken: Default::default(),
        });
        let mut old = |samples| duel.borrow_mut().take(0, samples);
        let mut new = |samples| duel.borrow_mut().take(1, samples);
        let [first, second] = sides.clone();
        let pair = Pair {
            kernel: planned.benchmark.name().to_owned(),
            dtype: planned.dtype.to_owned(),
            n: planned.n,
            mode: args.what.mode.into(),
            old: Contender { configuration: first, side: &mut old },
            new: Contender { configuration: second, side: &mut new },
        };
        add(&mut all, compare::interleaved(&mut [pair], &rounds(args, threshold))?);
    }
    all.ok_or_else(|| Failure::Use("name the kernels to compare".to_owned()))
}

/// The default with the values of `given`.
fn over_default(planned: &PlannedCase<'_>, given: &Configuration) -> Configuration {
    given
        .iter()
        .fold(planned.default_configuration().clone(), |all, (axis, value)| all.with(axis, value.clone()))
}

fn binaries(
    program: &Program<'_>,
    args: &CompareArgs,
    threshold: f64,
    paths: [&Path; 2],
) -> std::result::Result<Comparison, Failure> {
    let device = request::device(args.what.device.as_deref())?;
    let plan = Plan::new(program.suite, &device, &request::request(&args.names, &args.what)?)?;
    let given: Configuration =
        args.configs.first().map_or(Ok(Configuration::default()), |text| text.parse())?;
    let [mut before, mut after] = [Remote::spawn(paths[0])?, Remote::spawn(paths[1])?];
    let mut all = None;
    for planned in &plan.cases {
        let configuration = over_default(planned, &given);
        let request = CaseRequest {
            device: device.id().to_string(),
            kernel: planned.benchmark.name().to_owned(),
            dtype: planned.dtype.to_owned(),
            n: planned.n,
            copies: planned.copies,
            seed: seed(),
            mode: plan.mode(),
            effort: plan.effort(),
        };
        before.open(&request)?;
        after.open(&request)?;
        let mut old = |samples| of_remote(&mut before, planned, &configuration, samples);
        let mut new = |samples| of_remote(&mut after, planned, &configuration, samples);
        let pair = Pair {
            kernel: request.kernel.clone(),
            dtype: request.dtype.clone(),
            n: planned.n,
            mode: plan.mode(),
            old: Contender { configuration: configuration.clone(), side: &mut old },
            new: Contender { configuration: configuration.clone(), side: &mut new },
        };
        add(&mut all, compare::interleaved(&mut [pair], &rounds(args, threshold))?);
    }
    all.ok_or_else(|| Failure::Use("name the kernels to compare".to_owned()))
}

fn of_remote(
    remote: &mut Remote,
    planned: &PlannedCase<'_>,
    configuration: &Configuration,
    samples: usize,
) -> Result<Vec<f64>> {
    let measured = remote.measure(configuration, Some(samples))?;
    if measured.samples_us().is_empty() {
        return Err(Error::Worker {
            program: remote.program().path.clone(),
            reason: format!(
                "measured nothing of {} {configuration}: {}",
                planned.describe(),
                measured.problem
            ),
        });
    }
    Ok(measured.samples_us().to_vec())
}

/// Puts the comparison of one more case to those before.
fn add(all: &mut Option<Comparison>, more: Comparison) {
    match all {
        None => *all = Some(more),
        Some(all) => all.join(more),
    }
}

fn self_test(program: &Program<'_>, args: &CompareArgs, threshold: f64) -> std::result::Result<(), Failure> {
    let device = request::device(args.what.device.as_deref())?;
    let plan = Plan::new(program.suite, &device, &request::request(&args.names, &args.what)?)?;
    let given: Configuration =
        args.configs.first().map_or(Ok(Configuration::default()), |text| text.parse())?;
    let stream = Stream::new(&device).map_err(Error::from)?;
    let mut stopwatch = Stopwatch::new(&stream)?;
    let (mut text, mut alarms, mut pairs) = (String::new(), 0, 0);
    for planned in &plan.cases {
        let mut case = planned.prepare(&stream, seed())?;
        let configuration = over_default(planned, &given);
        case.select(&configuration)?;
        right(&configuration.to_string(), planned, &case.check()?)?;
        let mut duel = Duel {
            stopwatch: &mut stopwatch,
            case: &mut *case,
            sides: [&configuration, &configuration],
            mode: args.what.mode.into(),
            taken: Default::default(),
        };
        // Samples of both sides, one after the other: whichever side asks gets the next.
        let mut turn = 0;
        let mut side = |samples: usize| {
            let mut all = Vec::with_capacity(samples);
            for _ in 0..samples {
                all.extend(duel.take(turn % 2, 1)?);
                turn += 1;
            }
            Ok(all)
        };
        let found = compare::self_test(&mut side, args.pairs, &rounds(args, threshold))?;
        text.push_str(&format!(
            "{} {configuration}: {} of {} comparisons with itself raised a false alarm ({:.1} %), {} did not tell\n",
            planned.describe(),
            found.false_alarms,
            found.pairs,
            found.rate * 100.0,
            found.ambiguous
        ));
        alarms += found.false_alarms;
        pairs += found.pairs;
    }
    print(&text)?;
    // One in a hundred is what may be.
    let allowed = pairs.div_ceil(100);
    if alarms > allowed {
        return Err(Failure::Failed(format!(
            "{alarms} false alarms in {pairs} comparisons, more than {allowed}: verdicts on this machine are not to be \
             trusted at this threshold"
        )));
    }
    Ok(())
}

fn form(args: &CompareArgs, comparison: &Comparison) -> String {
    if args.json {
        return comparison.to_json();
    }
    if args.markdown {
        return comparison.to_markdown();
    }
    if args.junit {
        return comparison.to_junit();
    }
    let table = comparison.table();
    let verdict = |row: usize| match comparison.rows[row].change {
        change if change.is_regression() => bad(change.name()),
        change @ (Change::Faster | Change::Mended) => good(change.name()),
        change @ Change::Ambiguous => note(change.name()),
        change => plain(change.name()),
    };
    let columns = table.header.iter().enumerate().map(|(index, title)| {
        let text = |row: usize| plain(table.rows[row].get(index).map_or("", String::as_str));
        let rows = 0..table.rows.len();
        let (importance, right) = match *title {
            "kernel" => (100, false),
            "type" => (92, false),
            "size" => (96, true),
            "verdict" => return Column::text(title, 99, rows.map(verdict)),
            "change" => (98, true),
            "95 % interval" => (80, true),
            "old us" => (70, true),
            "new us" => (71, true),
            "configuration" => (60, false),
            _ => (40, false),
        };
        Column { right, ..Column::text(title, importance, rows.map(text)) }
    });
    let mut text = fit(columns.collect(), terminal_width());
    for mean in &comparison.means {
        let (kernel, percent) = (&mean.kernel, (mean.ratio - 1.0) * 100.0);
        text.push_str(&format!("{kernel}: {percent:+.2} % in time over {} rows\n", mean.rows));
    }
    for line in &comparison.notes {
        text.push_str(&format!("note: {line}\n"));
    }
    text.push_str(&format!("{}\n", comparison.summary()));
    text
}
