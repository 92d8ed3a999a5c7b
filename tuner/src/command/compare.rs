//! `compare`: two documents, two configurations, two programs, or something with itself.

use std::cell::{Cell, RefCell};
use std::path::Path;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use warpsmith_runtime::Stream;

use super::args::{CompareArgs, ModeArg};
use super::columns::{Column, fit};
use super::failure::Failure;
use super::output::{bad, escape, good, note, plain, print_form, terminal_width};
use super::sides::{Duel, DuelSide, RemoteSide};
use super::{Program, interrupt, opening, request};
use crate::compare::{
    self, Change, Comparison, Contender, Options, Pair, Pairing, Plan as Rounds, SelfTest, Side, Sides,
    Source, Subject,
};
use crate::document::{Condition, Document, RunInfo};
use crate::error::{Error, Result};
use crate::measure::{Mode, Stopwatch};
use crate::run::{Plan, PlannedCase, seed};
use crate::value::Configuration;
use crate::verify::Check;
use crate::worker::{CaseRequest, Remote};

/// So much of what is missing is told in the last line; the output has all of it.
const MISSING_SHOWN: usize = 3;

type Outcome<T> = std::result::Result<T, Failure>;

/// Compares and prints; a regression is a failure that the output shows.
///
/// # Errors
/// Wrong use, documents that cannot be compared, a device or a program that fails, a wrong result, a regression, an
/// interruption.
pub fn run(program: &Program<'_>, args: &CompareArgs) -> Outcome<()> {
    let threshold = request::share(&args.threshold).ok_or_else(|| {
        Failure::Use(format!("--threshold {:?}: write a percentage, for example 1%", args.threshold))
    })?;
    let given: Vec<Configuration> = args.configs.iter().map(|text| text.parse()).collect::<Result<_>>()?;
    applies(args)?;
    let comparison = match (&given[..], &args.binaries[..]) {
        ([] | [_], [] | [_]) if args.self_test => return self_test(program, args, threshold, given.first()),
        _ if args.self_test => {
            return Err(Failure::Use(
                "with --self-test, give --config and --binary once or not at all".to_owned(),
            ));
        }
        ([], []) => documents(args, threshold)?,
        ([old, new], []) => Bench::new(program, args, threshold)?.configurations([old, new])?,
        ([] | [_], [old, new]) => {
            Bench::new(program, args, threshold)?.binaries([old, new], given.first())?
        }
        (_, []) => return Err(Failure::Use("give --config twice: before and after".to_owned())),
        (_, [_]) => return Err(Failure::Use("give --binary twice: before and after".to_owned())),
        _ => return Err(Failure::Use("with --binary, give --config once or not at all".to_owned())),
    };
    let text = if args.json { comparison.found.to_json() } else { text(&comparison.found) };
    print_form(&text, args.json)?;
    if comparison.is_interrupted {
        return Err(Failure::Interrupted);
    }
    let missing = &comparison.found.missing;
    if !missing.is_empty() && !args.allow_missing {
        let more = missing.len().saturating_sub(MISSING_SHOWN);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        return Err(Failure::Failed(format!(
            "results are missing: {}{more}; measure again, or let it pass with --allow-missing",
            missing[..missing.len().min(MISSING_SHOWN)].join("; ")
        )));
    }
    if comparison.found.has_regression() { Err(Failure::Shown) } else { Ok(()) }
}

/// What was found, and whether there was to be more.
struct Found {
    found: Comparison,
    is_interrupted: bool,
}

/// Refuses what would change nothing.
fn applies(args: &CompareArgs) -> Outcome<()> {
    let what = &args.what;
    let is_measured = args.self_test || !(args.configs.is_empty() && args.binaries.is_empty());
    let effort = [
        (what.quick, "--quick"),
        (what.precision.is_some(), "--precision"),
        (what.stop.is_some(), "--stop"),
        (what.no_probes, "--no-probes"),
        (!what.axes.is_empty(), "--axis"),
    ];
    let place = [
        (what.device.is_some(), "--device"),
        (!what.sizes.is_empty(), "--sizes"),
        (!what.dtypes.is_empty(), "--dtypes"),
        (what.mode != ModeArg::Cold, "--mode"),
        (what.budget.is_some(), "--budget"),
    ];
    let first =
        |options: &[(bool, &'static str)]| options.iter().find(|(given, _)| *given).map(|(_, name)| *name);
    let refuse = |name: &str, why: &str| Err(Failure::Use(format!("{name} does not go with this: {why}")));
    match (is_measured, first(&effort), first(&place)) {
        (true, Some("--axis"), _) => refuse("--axis", "say which configurations with --config"),
        (true, Some(name), _) => {
            refuse(name, "samples are taken until the verdict is clear, or for --budget seconds")
        }
        (false, Some(name), _) | (false, None, Some(name)) => refuse(
            name,
            "results files are compared as they are; give kernels with --config, --binary or --self-test",
        ),
        _ => Ok(()),
    }
}

fn documents(args: &CompareArgs, threshold: f64) -> Outcome<Found> {
    let [old, new] = &args.names[..] else {
        return Err(Failure::Use(
            "compare two results files, or kernels with --config, --binary or --self-test".to_owned(),
        ));
    };
    let read = |name: &String| Document::read(Path::new(name));
    let pairing = if args.best { Pairing::Best } else { Pairing::Configuration };
    let options = Options { threshold, force: args.force, pairing };
    let found = compare::documents(&read(old)?, &read(new)?, &options)?;
    Ok(Found { found, is_interrupted: false })
}

/// Checks that something is right before it is compared.
fn right(what: &str, planned: &PlannedCase<'_>, check: &Check) -> Outcome<()> {
    match check.problem() {
        None => Ok(()),
        Some(problem) => {
            Err(Failure::Failed(format!("wrong result: {} {what}: {problem}", planned.describe())))
        }
    }
}

/// What samples are taken of, and how.
struct Bench<'a> {
    plan: Plan<'a>,
    rounds: Rounds,
    /// Where the times of this program are from.
    source: Source,
    begun: Instant,
    processes: usize,
    /// Ctrl-C sets it.
    stop: std::sync::Arc<AtomicBool>,
}

impl<'a> Bench<'a> {
    fn new(program: &Program<'a>, args: &CompareArgs, threshold: f64) -> Outcome<Self> {
        let plan = opening::plan(program, &args.names, &args.what)?;
        opening::has_code(&plan)?;
        // A time that does not fit is longer than anyone waits.
        let budget = args.what.budget.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let rounds = Rounds { threshold, budget, ..Rounds::default() };
        let source = Source::from(&opening::new_document("compare", &plan)?);
        let (begun, processes, stop) = (Instant::now(), args.processes as usize, interrupt::flag()?);
        Ok(Self { plan, rounds, source, begun, processes, stop })
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// The default with the values of `given`, if such a configuration can be of every case.
    fn over_defaults(&self, given: &Configuration) -> Result<Vec<Configuration>> {
        self.plan.cases.iter().map(|planned| over_default(&self.plan, planned, given)).collect()
    }

    /// Compares all cases, one after the other.
    fn all(&self, mut each: impl FnMut(usize, &PlannedCase<'a>) -> Outcome<Comparison>) -> Outcome<Found> {
        let mut all: Option<Comparison> = None;
        for (index, planned) in self.plan.cases.iter().enumerate() {
            if self.is_stopped() {
                break;
            }
            let more = each(index, planned)?;
            match &mut all {
                None => all = Some(more),
                Some(all) => all.join(more),
            }
        }
        match all {
            Some(mut found) => {
                let is_interrupted = self.is_stopped();
                for side in [&mut found.old, &mut found.new] {
                    let side = side.get_or_insert_with(|| self.source.clone());
                    side.device.after = Condition::of(self.plan.device());
                    side.run.seconds = self.begun.elapsed().as_secs_f64();
                    side.run.interrupted = is_interrupted;
                }
                if is_interrupted {
                    found.notes.push("ended early: not everything was compared".to_owned());
                }
                Ok(Found { found, is_interrupted })
            }
            None if self.is_stopped() => Err(Failure::Interrupted),
            None => Err(Failure::Use("name the kernels to compare".to_owned())),
        }
    }

    fn configurations(&self, sides: [&Configuration; 2]) -> Outcome<Found> {
        let sides = [self.over_defaults(sides[0])?, self.over_defaults(sides[1])?];
        let stream = Stream::new(self.plan.device()).map_err(Error::from)?;
        let mut stopwatch = Stopwatch::new(&stream)?;
        self.all(|index, planned| {
            let mut case = planned.prepare(&stream, seed())?;
            stopwatch.begin_case();
            let sides = [&sides[0][index], &sides[1][index]];
            for side in sides {
                case.select(side)?;
                right(&side.to_string(), planned, &case.check()?)?;
            }
            let mode = self.plan.mode();
            let duel = RefCell::new(Duel {
                stopwatch: &mut stopwatch,
                case: &mut *case,
                sides,
                mode,
                taken: Default::default(),
                is_throttled: false,
            });
            let (mut old, mut new) = (DuelSide(&duel, 0), DuelSide(&duel, 1));
            let pair = Pair {
                kernel: planned.benchmark.name().to_owned(),
                dtype: planned.dtype.to_owned(),
                n: planned.n,
                mode,
                old: Contender { configuration: sides[0].clone(), side: &mut old },
                new: Contender { configuration: sides[1].clone(), side: &mut new },
            };
            Ok(compare::interleaved_until(&mut [pair], &self.rounds, &self.stop)?)
        })
    }

    fn binaries(&self, paths: [&Path; 2], given: Option<&Configuration>) -> Outcome<Found> {
        let configurations = self.over_defaults(given.unwrap_or(&Configuration::default()))?;
        self.all(|index, planned| self.programs(paths, planned, &configurations[index]))
    }

    /// Compares two programs by several pairs of fresh processes.
    fn programs(
        &self,
        paths: [&Path; 2],
        planned: &PlannedCase<'_>,
        configuration: &Configuration,
    ) -> Outcome<Comparison> {
        let request = CaseRequest {
            device: self.plan.device().id().to_string(),
            kernel: planned.benchmark.name().to_owned(),
            dtype: planned.dtype.to_owned(),
            n: planned.n,
            copies: planned.copies,
            seed: seed(),
            mode: self.plan.mode(),
            effort: self.plan.effort(),
        };
        let subject = Subject {
            kernel: request.kernel.clone(),
            dtype: request.dtype.clone(),
            n: planned.n,
            mode: self.plan.mode(),
            configuration: configuration.clone(),
        };
        let mut is_unusable = false;
        let mut versions = [String::new(), String::new()];
        // Of both programs in every process: fixed costs are divided by as many.
        let launches = Rc::new(Cell::new(None));
        let mut start = |pair: usize| -> Result<Sides> {
            let mut side = |of: usize| -> Result<Box<dyn Side>> {
                let path = paths[of];
                let opened = Remote::spawn(path).and_then(|mut remote| {
                    remote.open(&request)?;
                    Ok(remote)
                });
                is_unusable = opened.is_err();
                let remote = opened?;
                versions[of] = remote.version().to_owned();
                Ok(Box::new(RemoteSide {
                    remote,
                    case: planned.describe(),
                    configuration: configuration.clone(),
                    launches: Rc::clone(&launches),
                    is_throttled: false,
                }))
            };
            // Neither is always the first to find its place.
            if pair.is_multiple_of(2) {
                let old = side(0)?;
                Ok([old, side(1)?])
            } else {
                let new = side(1)?;
                Ok([side(0)?, new])
            }
        };
        let found = compare::replicated(&subject, self.processes, &self.rounds, &self.stop, &mut start);
        let mut found = found.map_err(|error| match error {
            // No program, none that measures, or none that has the kernel: not what was asked for.
            Error::Worker { .. } if is_unusable => Failure::Use(error.to_string()),
            error => error.into(),
        })?;
        // A worker tells its version, and not what compiled its kernels.
        let [old, new] = versions.map(|version| {
            let run = RunInfo { version, toolchain: String::new(), ..self.source.run.clone() };
            Some(Source { run, device: self.source.device.clone() })
        });
        (found.old, found.new) = (old, new);
        Ok(found)
    }
}

/// The default with the values of `given`: what is not said of a configuration is as by default.
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
    // What refuses the default, too, narrows the space and says nothing of what can be launched.
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
    dtype: String,
    n: u64,
    mode: Mode,
    configuration: Configuration,
    #[serde(flatten)]
    found: SelfTest,
}

/// The document of `--self-test`.
#[derive(Serialize)]
struct SelfTests {
    threshold: f64,
    interrupted: bool,
    #[serde(flatten)]
    source: Source,
    tests: Vec<Tested>,
}

fn self_test(
    program: &Program<'_>,
    args: &CompareArgs,
    threshold: f64,
    given: Option<&Configuration>,
) -> Outcome<()> {
    let bench = Bench::new(program, args, threshold)?;
    let configurations = bench.over_defaults(given.unwrap_or(&Configuration::default()))?;
    let stream = Stream::new(bench.plan.device()).map_err(Error::from)?;
    let mut stopwatch = Stopwatch::new(&stream)?;
    let (mut text, mut tests) = (String::new(), Vec::new());
    for (planned, configuration) in bench.plan.cases.iter().zip(configurations) {
        if bench.is_stopped() {
            break;
        }
        let pairs = args.pairs as usize;
        let found = match args.binaries.first() {
            Some(path) => bench.program_with_itself(path, planned, &configuration, pairs)?,
            None => bench.case_with_itself(&stream, &mut stopwatch, planned, &configuration, pairs)?,
        };
        text.push_str(&format!(
            "{} {configuration}: {} of {} comparisons with itself raised a false alarm ({:.1} %), {} did not tell\n",
            planned.describe(),
            found.false_alarms,
            found.pairs,
            found.rate * 100.0,
            found.ambiguous
        ));
        tests.push(Tested {
            kernel: planned.benchmark.name().to_owned(),
            dtype: planned.dtype.to_owned(),
            n: planned.n,
            mode: bench.plan.mode(),
            configuration,
            found,
        });
    }
    let mut all = SelfTest::default();
    for Tested { found, .. } in &tests {
        all.pairs += found.pairs;
        all.false_alarms += found.false_alarms;
        all.ambiguous += found.ambiguous;
    }
    let interrupted = bench.is_stopped();
    if args.json {
        let mut source = bench.source.clone();
        source.device.after = Condition::of(bench.plan.device());
        source.run.seconds = bench.begun.elapsed().as_secs_f64();
        let document = SelfTests { threshold, interrupted, source, tests };
        text = serde_json::to_string_pretty(&document).expect("plain data always becomes JSON") + "\n";
    }
    print_form(&text, args.json)?;
    if interrupted {
        return Err(Failure::Interrupted);
    }
    let reason = distrust(&all, args.what.budget);
    reason.map_or(Ok(()), |reason| Err(Failure::Failed(reason)))
}

/// Why verdicts cannot be trusted after a self-test with a budget of so many seconds, if that is so.
fn distrust(test: &SelfTest, budget: Option<f64>) -> Option<String> {
    let SelfTest { pairs, false_alarms, ambiguous, .. } = *test;
    if ambiguous == pairs {
        let why = match budget {
            Some(seconds) => format!("the budget of {seconds} s was too short; give a longer --budget"),
            None => {
                "times vary too much for this threshold, or the device is slowed; give a larger --threshold"
                    .to_owned()
            }
        };
        return Some(format!("not one of {pairs} comparisons with itself told anything: {why}"));
    }
    // One in a hundred is what may be.
    let allowed = pairs.div_ceil(100);
    (false_alarms > allowed).then(|| {
        format!(
            "{false_alarms} false alarms in {pairs} comparisons, more than {allowed}: verdicts on this machine are not \
             to be trusted at this threshold"
        )
    })
}

impl Bench<'_> {
    /// Compares a configuration with itself, in this process.
    fn case_with_itself(
        &self,
        stream: &Stream,
        stopwatch: &mut Stopwatch,
        planned: &PlannedCase<'_>,
        configuration: &Configuration,
        pairs: usize,
    ) -> Outcome<SelfTest> {
        let mut case = planned.prepare(stream, seed())?;
        stopwatch.begin_case();
        case.select(configuration)?;
        right(&configuration.to_string(), planned, &case.check()?)?;
        let sides = [configuration, configuration];
        let mut duel = Duel {
            stopwatch,
            case: &mut *case,
            sides,
            mode: self.plan.mode(),
            taken: Default::default(),
            is_throttled: false,
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
        Ok(compare::self_test_until(&mut side, pairs, &self.rounds, &self.stop)?)
    }

    /// Compares a program with itself, in pairs of processes.
    fn program_with_itself(
        &self,
        path: &Path,
        planned: &PlannedCase<'_>,
        configuration: &Configuration,
        pairs: usize,
    ) -> Outcome<SelfTest> {
        let mut test = SelfTest::default();
        for _ in 0..pairs {
            let found = self.programs([path, path], planned, configuration)?;
            if self.is_stopped() {
                break;
            }
            found.rows.iter().for_each(|row| test.count(row.change));
        }
        Ok(test)
    }
}

/// The table, and what is to be said beside it.
fn text(comparison: &Comparison) -> String {
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
        let (kernel, percent) = (escape(&mean.kernel), (mean.ratio - 1.0) * 100.0);
        text.push_str(&format!("{kernel}: {percent:+.2} % in time over {} rows\n", mean.rows));
    }
    for line in &comparison.missing {
        text.push_str(&format!("missing: {}\n", escape(line)));
    }
    for line in &comparison.notes {
        text.push_str(&format!("note: {}\n", escape(line)));
    }
    text.push_str(&format!("{}\n", comparison.summary()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_self_test_that_told_nothing_or_raised_alarms_is_not_to_be_trusted() {
        let test = |pairs, false_alarms, ambiguous| SelfTest { pairs, false_alarms, ambiguous, rate: 0.0 };
        let short = distrust(&test(50, 0, 50), Some(0.001)).unwrap();
        assert!(short.contains("not one of 50") && short.contains("0.001 s was too short"), "{short}");
        assert!(distrust(&test(1, 0, 1), None).unwrap().contains("--threshold"));
        assert!(distrust(&test(200, 3, 0), None).unwrap().contains("3 false alarms"));
        for fine in [test(50, 0, 49), test(50, 1, 0), test(200, 2, 100)] {
            assert_eq!(distrust(&fine, None), None);
        }
    }
}
