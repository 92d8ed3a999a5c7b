//! `compare`: two documents, two configurations, or a configuration with itself.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use warpsmith_runtime::Stream;

use super::args::CompareArgs;
use super::columns::{Column, fit};
use super::failure::Failure;
use super::output::{bad, escape, good, note, plain, print_form, terminal_width};
use super::table::number;
use super::{Program, interrupt, opening};
use crate::case::Case;
use crate::compare::{self, Change, Comparison, EARLY, Options, Pairs, Row, SelfTest, Source, Turns};
use crate::document::{Condition, Document};
use crate::error::{Error, Result};
use crate::measure::{Effort, Mode, Stopwatch};
use crate::run::{Plan, PlannedCase, seed};
use crate::size::format_size;
use crate::stats::Ratio;
use crate::value::Configuration;

/// Lines of what is missing in the last line; the output has all of them.
const MISSING_SHOWN: usize = 3;

type Outcome<T> = std::result::Result<T, Failure>;

/// Compares and prints; a regression is a failure that the output shows.
///
/// # Errors
/// Wrong use, documents that cannot be compared, a device that fails, a wrong result, a regression, an interruption.
pub fn run(program: &Program<'_>, args: &CompareArgs) -> Outcome<()> {
    let given: Vec<Configuration> = args.configs.iter().map(|text| text.parse()).collect::<Result<_>>()?;
    match (&given[..], args.self_test) {
        ([] | [_], true) => Bench::new(program, args)?.self_test(args, given.first()),
        (_, true) => Err(Failure::Use("with --self-test, give --config once or not at all".to_owned())),
        ([], false) => documents(args),
        ([old, new], false) => Bench::new(program, args)?.configurations(args, [old, new]),
        _ => Err(Failure::Use("give --config twice: before and after".to_owned())),
    }
}

fn documents(args: &CompareArgs) -> Outcome<()> {
    let [old, new] = &args.names[..] else {
        return Err(Failure::Use(
            "compare two results files, or kernels with --config or --self-test".to_owned(),
        ));
    };
    let place = &args.place;
    let options = [
        (place.device.is_some(), "--device"),
        (!place.sizes.is_empty(), "--sizes"),
        (!place.dtypes.is_empty(), "--dtypes"),
        (place.mode != Mode::Cold, "--mode"),
        (place.budget.is_some(), "--budget"),
    ];
    if let Some((_, name)) = options.iter().find(|(is_given, _)| *is_given) {
        return Err(Failure::Use(format!(
            "{name} does not go with results files; give kernels with --config or --self-test"
        )));
    }
    let read = |name: &String| Document::read(Path::new(name));
    let options = Options { threshold: args.threshold, force: args.force, best: args.best };
    let found = compare::documents(&read(old)?, &read(new)?, &options)?;
    show(&found, args)?;
    if !found.missing.is_empty() && !args.allow_missing {
        let more = found.missing.len().saturating_sub(MISSING_SHOWN);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        return Err(Failure::Failed(format!(
            "results are missing: {}{more}; measure again, or let it pass with --allow-missing",
            found.missing[..found.missing.len().min(MISSING_SHOWN)].join("; ")
        )));
    }
    verdict(&found)
}

fn show(found: &Comparison, args: &CompareArgs) -> Outcome<()> {
    let text = if args.json { found.to_json() } else { text(found) };
    Ok(print_form(&text, args.json)?)
}

fn verdict(found: &Comparison) -> Outcome<()> {
    if found.has_regression() { Err(Failure::Shown) } else { Ok(()) }
}

/// The case that is sampled, and how.
struct Bench<'a> {
    plan: Plan<'a>,
    turns: compare::Plan,
    source: Source,
    begun: Instant,
    /// Ctrl-C sets it.
    stop: Arc<AtomicBool>,
    stream: Stream,
    stopwatch: Stopwatch,
}

impl<'a> Bench<'a> {
    fn new(program: &Program<'a>, args: &CompareArgs) -> Outcome<Self> {
        let plan = opening::plan(program, &args.names, &args.place, &[], Effort::NORMAL)?;
        opening::has_code(&plan)?;
        // A time that does not fit is no limit.
        let budget = args.place.budget.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let turns = compare::Plan { threshold: args.threshold, budget, ..compare::Plan::default() };
        let source = Source::from(&opening::new_document("compare", &plan)?);
        let (begun, stop) = (Instant::now(), interrupt::flag()?);
        let stream = Stream::new(plan.device()).map_err(Error::from)?;
        let mut stopwatch = Stopwatch::new(&stream)?;
        stopwatch.set_stop(&stop);
        Ok(Self { plan, turns, source, begun, stop, stream, stopwatch })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Where the times are from, once they were taken.
    fn source(&self) -> Source {
        let mut source = self.source.clone();
        source.device.after = Condition::of(self.plan.device());
        source.run.seconds = self.begun.elapsed().as_secs_f64();
        source.run.interrupted = self.is_stopped();
        source
    }

    /// A case whose configurations give the right result.
    fn prepare(
        &self,
        planned: &PlannedCase<'_>,
        configurations: [&Configuration; 2],
    ) -> Outcome<Box<dyn Case>> {
        let mut case = planned.prepare(&self.stream, seed())?;
        for configuration in configurations {
            case.select(configuration)?;
            if let Some(problem) = case.check()?.problem() {
                let case = planned.describe();
                return Err(Failure::Failed(format!("wrong result: {case} {configuration}: {problem}")));
            }
        }
        Ok(case)
    }

    fn configurations(mut self, args: &CompareArgs, given: [&Configuration; 2]) -> Outcome<()> {
        let (mut rows, mut notes, mode): (Vec<Row>, _, _) = (Vec::new(), Vec::new(), self.plan.mode());
        let cases = self.plan.cases.clone();
        let sides = |planned| {
            Ok([over_default(&self.plan, planned, given[0])?, over_default(&self.plan, planned, given[1])?])
        };
        let sides: Vec<[Configuration; 2]> = cases.iter().map(sides).collect::<Result<_>>()?;
        for (planned, sides) in cases.iter().zip(&sides) {
            if self.is_stopped() {
                break;
            }
            let sides = sides.each_ref();
            let mut case = self.prepare(planned, sides)?;
            let mut take =
                |rounds| Ok(Pairs::from(self.stopwatch.interleave(&mut *case, sides, mode, rounds)?));
            let found: Turns = compare::in_turns(&self.turns, &self.stop, &mut take)?;
            if found.is_short && !self.is_stopped() {
                notes.push(format!(
                    "{}: ended before it was clear (a change by {EARLY} times the interval); give more time",
                    planned.describe()
                ));
            }
            rows.push(found.row(planned, mode, sides));
        }
        if self.is_stopped() {
            if rows.is_empty() {
                return Err(Failure::Interrupted);
            }
            notes.push("ended early: not everything was compared".to_owned());
        }
        let found = Comparison::new(args.threshold, [self.source(), self.source()], notes, rows);
        show(&found, args)?;
        if self.is_stopped() { Err(Failure::Interrupted) } else { verdict(&found) }
    }

    fn self_test(mut self, args: &CompareArgs, given: Option<&Configuration>) -> Outcome<()> {
        let (mut text, mut tests, mode) = (String::new(), Vec::new(), self.plan.mode());
        for planned in self.plan.cases.clone() {
            if self.is_stopped() {
                break;
            }
            let configuration =
                over_default(&self.plan, &planned, given.unwrap_or(&Configuration::default()))?;
            let sides = [&configuration; 2];
            let mut case = self.prepare(&planned, sides)?;
            let mut take =
                |rounds| Ok(Pairs::from(self.stopwatch.interleave(&mut *case, sides, mode, rounds)?));
            let found = compare::self_test(&self.turns, args.pairs as usize, &self.stop, &mut take)?;
            let SelfTest { pairs, false_alarms, ambiguous, rate } = found;
            text.push_str(&format!(
                "{} {configuration}: {false_alarms} of {pairs} comparisons with itself raised a false alarm ({:.1} %), \
                 {ambiguous} were ambiguous\n",
                planned.describe(),
                rate * 100.0
            ));
            let (kernel, dtype, n) = (planned.benchmark.name().to_owned(), planned.dtype, planned.n);
            tests.push(Tested { kernel, dtype, n, mode, configuration, found });
        }
        if args.json {
            let (threshold, interrupted, source) = (args.threshold, self.is_stopped(), self.source());
            let document = SelfTests { threshold, interrupted, source, tests: &tests };
            text = serde_json::to_string_pretty(&document).expect("plain data always becomes JSON") + "\n";
        }
        print_form(&text, args.json)?;
        if self.is_stopped() {
            return Err(Failure::Interrupted);
        }
        let sum = |of: fn(&SelfTest) -> usize| tests.iter().map(|test| of(&test.found)).sum();
        let reason =
            distrust(sum(|test| test.pairs), sum(|test| test.false_alarms), sum(|test| test.ambiguous));
        reason.map_or(Ok(()), |reason| Err(Failure::Failed(reason)))
    }
}

/// The default with the values of `given`: other axes are as by default.
fn over_default(plan: &Plan<'_>, planned: &PlannedCase<'_>, given: &Configuration) -> Result<Configuration> {
    let (device, name) = (plan.device(), planned.benchmark.name());
    let space =
        planned.benchmark.space(planned.dtype, device).max_block(device.properties().max_threads_per_block);
    let default = planned.default_configuration();
    let mut all = default.clone();
    for (axis, value) in given.iter() {
        space.clone().set(name, axis, std::slice::from_ref(value))?;
        all = all.with(axis, value.clone());
    }
    // A rule that refuses the default, too, narrows the space and says nothing of what can be launched.
    match space.refused_by(&all).filter(|rule| space.refused_by(default) != Some(rule)) {
        None => Ok(all),
        Some(rule) => Err(Error::Axis {
            axis: "--config".to_owned(),
            text: given.to_string(),
            reason: format!("{name} has no such configuration: \"{rule}\"; bench --list shows the axes"),
        }),
    }
}

/// How often a case was found to differ from itself.
#[derive(Serialize)]
struct Tested {
    kernel: String,
    dtype: &'static str,
    n: u64,
    mode: Mode,
    configuration: Configuration,
    #[serde(flatten)]
    found: SelfTest,
}

/// The document of `--self-test`.
#[derive(Serialize)]
struct SelfTests<'a> {
    threshold: f64,
    interrupted: bool,
    #[serde(flatten)]
    source: Source,
    tests: &'a [Tested],
}

/// Why verdicts cannot be trusted after a self-test, if that is so.
fn distrust(pairs: usize, false_alarms: usize, ambiguous: usize) -> Option<String> {
    if ambiguous == pairs {
        return Some(format!(
            "none of {pairs} comparisons with itself has a verdict: the budget is too short, times vary too much for this \
             threshold, or the device is slowed; give a longer --budget or a larger --threshold"
        ));
    }
    // One in a hundred may be.
    let allowed = pairs.div_ceil(100);
    (false_alarms > allowed).then(|| {
        format!(
            "{false_alarms} false alarms in {pairs} comparisons, more than {allowed}: do not trust verdicts on this \
             machine at this threshold"
        )
    })
}

/// The table with means, missing cases, notes and the summary.
fn text(found: &Comparison) -> String {
    let cells =
        |show: &dyn Fn(&Row) -> String| found.rows.iter().map(|row| plain(show(row))).collect::<Vec<_>>();
    let us = |median: Option<f64>| median.map_or_else(|| "-".to_owned(), number);
    let of_ratio = |show: &dyn Fn(Ratio) -> String| cells(&|row| row.ratio.map_or("-".to_owned(), show));
    let configurations = |row: &Row| match row.old.configuration == row.new.configuration {
        true => row.old.configuration.to_string(),
        false => format!("{} -> {}", row.old.configuration, row.new.configuration),
    };
    let verdicts = found.rows.iter().map(|row| match row.change {
        change if change.is_regression() => bad(change.name()),
        change @ (Change::Faster | Change::Fixed) => good(change.name()),
        change @ Change::Ambiguous => note(change.name()),
        change => plain(change.name()),
    });
    let interval = |Ratio { interval, .. }| format!("{} … {}", percent(interval.low), percent(interval.high));
    let columns = vec![
        Column::text("kernel", 100, cells(&|row| row.kernel.clone())),
        Column::text("type", 92, cells(&|row| row.dtype.clone())),
        Column::number("size", 96, cells(&|row| format_size(row.n))),
        Column::text("mode", 40, cells(&|row| row.mode.to_string())),
        Column::text("configuration", 60, cells(&configurations)),
        Column::number("old us", 70, cells(&|row| us(row.old.median_us))),
        Column::number("new us", 71, cells(&|row| us(row.new.median_us))),
        Column::number("change", 98, of_ratio(&|ratio| percent(ratio.value))),
        Column::number("95 % interval", 80, of_ratio(&interval)),
        Column::text("verdict", 99, verdicts),
    ];
    let mut text = fit(columns, terminal_width());
    for mean in &found.means {
        let (kernel, change) = (escape(&mean.kernel), percent(mean.ratio));
        text.push_str(&format!("{kernel}: {change} in time over {} rows\n", mean.rows));
    }
    for (what, lines) in [("missing", &found.missing), ("note", &found.notes)] {
        text.extend(lines.iter().map(|line| format!("{what}: {}\n", escape(line))));
    }
    text + &found.summary() + "\n"
}

/// A ratio as the change from 1: `+2.3 %`.
fn percent(ratio: f64) -> String {
    format!("{:+.2} %", (ratio - 1.0) * 100.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unclear_or_false_self_tests_are_not_trusted() {
        assert!(distrust(50, 0, 50).unwrap().contains("none of 50"));
        assert!(distrust(200, 3, 0).unwrap().contains("3 false alarms"));
        for (pairs, false_alarms, ambiguous) in [(50, 0, 49), (50, 1, 0), (200, 2, 100)] {
            assert_eq!(distrust(pairs, false_alarms, ambiguous), None);
        }
    }
}
