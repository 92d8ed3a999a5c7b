//! Whether a change made kernels faster or slower.
//!
//! Guarantees: a change is called faster or slower only when the whole 95 % confidence interval of the ratio of the medians is
//! beyond the threshold (more than that where samples are looked at again and again, [`EARLY`]); what the samples do not tell
//! is ambiguous, and so is what has too few of them, and what a slowed device took. Records are compared with records of the
//! same kernel, type, size and mode only, and documents of one kind of device only, unless that is forced. A configuration
//! that was right and is no longer counts as a regression. What the newer document should have and has not is told
//! ([`Comparison::missing`]).
//!
//! Two documents say how two processes did at two times: clocks and temperature differ between them, and where their
//! memory lies, which no statistics on either can see. The last was measured ([`BETWEEN_PROCESSES_US`]) and is in the
//! interval. Where the rest matters, [`interleaved()`] takes samples of both sides in turns.

mod forms;
mod interleaved;
mod replicated;

use std::collections::BTreeMap;

use rayon::prelude::*;
use serde::Serialize;

pub use self::forms::Table;
pub use self::interleaved::{
    Contender, EARLY, Pair, Plan, SelfTest, Side, interleaved, interleaved_until, self_test, self_test_until,
};
pub use self::replicated::{Sides, Subject, replicated};
use crate::document::{DeviceInfo, Document, Outcome, Record, RunInfo, SCHEMA, best};
use crate::error::{Error, Result};
use crate::measure::{Mode, Timing};
use crate::size::format_size;
use crate::stats::{self, FEWEST, Verdict};
use crate::value::Configuration;

/// The change from which on one counts when nobody says: 1 %.
pub const THRESHOLD: f64 = 0.01;

/// By how much the time of a launch differs between two processes on a GPU at most in 95 of 100 pairs, in microseconds,
/// whatever is launched: a constant of each process that none of its samples shows. Seen on an H200 with kernels of 3 to
/// 50 µs in five processes: 0 to 0.3 µs.
pub const BETWEEN_PROCESSES_US: f64 = 0.3;

/// Which records of a case are held against each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pairing {
    /// Every configuration against the same one.
    #[default]
    Configuration,
    /// The best of one document (what a tuning run chose, else the fastest) against the best of the other.
    Best,
    /// What is launched when nothing is known, likewise.
    Default,
}

/// How two documents are compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// The change from which on one counts; 0.01 is 1 %.
    pub threshold: f64,
    /// Whether documents of different devices are compared, too.
    pub force: bool,
    /// Which records are held against each other.
    pub pairing: Pairing,
}

impl Default for Options {
    fn default() -> Self {
        Self { threshold: THRESHOLD, force: false, pairing: Pairing::default() }
    }
}

/// What became of a kernel from the old document to the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// It is faster by more than the threshold.
    Faster,
    /// It is slower by more than the threshold.
    Slower,
    /// It differs by less than the threshold.
    Same,
    /// The samples do not tell.
    Ambiguous,
    /// Its result was right, and now it is wrong or there is none.
    Broken,
    /// It is the other way round.
    Mended,
}

impl Change {
    /// Whether it is for the worse.
    pub fn is_regression(self) -> bool {
        matches!(self, Self::Slower | Self::Broken)
    }

    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "FASTER",
            Self::Slower => "SLOWER",
            Self::Same => "SAME",
            Self::Ambiguous => "AMBIGUOUS",
            Self::Broken => "BROKEN",
            Self::Mended => "MENDED",
        }
    }
}

impl From<Verdict> for Change {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Faster => Self::Faster,
            Verdict::Slower => Self::Slower,
            Verdict::Same => Self::Same,
            Verdict::Ambiguous => Self::Ambiguous,
        }
    }
}

/// One side of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// How it was launched.
    pub configuration: Configuration,
    /// The median time in microseconds; absent where there is no right result.
    pub median_us: Option<f64>,
    /// How many samples that is of.
    pub samples: usize,
    /// Whether its clocks stayed low while it was measured.
    pub throttled: bool,
    /// What was wrong with it; empty when nothing was.
    pub problem: String,
}

/// The ratio of two medians, new by old, with its confidence interval of 95 %. Above 1 is slower.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// The ratio.
    pub value: f64,
    /// The interval's lower end.
    pub low: f64,
    /// Its upper end.
    pub high: f64,
}

impl From<stats::Ratio> for Ratio {
    fn from(ratio: stats::Ratio) -> Self {
        Self { value: ratio.value, low: ratio.interval.low, high: ratio.interval.high }
    }
}

/// One comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// The kernel.
    pub kernel: String,
    /// The element type.
    pub dtype: String,
    /// Elements.
    pub n: u64,
    /// What the times are of.
    pub mode: Mode,
    /// Before.
    pub old: Measured,
    /// After.
    pub new: Measured,
    /// The times after by those before; absent where a side has no time or too few samples.
    pub ratio: Option<Ratio>,
    /// What that means.
    pub change: Change,
}

/// The geometric mean of the ratios of a kernel.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mean {
    /// The kernel.
    pub kernel: String,
    /// The geometric mean of the ratios of its rows, new by old.
    pub ratio: f64,
    /// How many rows that is.
    pub rows: usize,
}

/// Where the times of a side are from.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Source {
    /// How they came about.
    pub run: RunInfo,
    /// What they were measured on.
    pub device: DeviceInfo,
}

impl From<&Document> for Source {
    fn from(document: &Document) -> Self {
        Self { run: document.run.clone(), device: document.device.clone() }
    }
}

/// What a comparison found.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// The change from which on one counts.
    pub threshold: f64,
    /// Where the times before are from, if that is known.
    pub old: Option<Source>,
    /// Where the times after are from.
    pub new: Option<Source>,
    /// What a reader has to know beside the rows: other drivers, slowed devices, records without a partner.
    pub notes: Vec<String>,
    /// What should have been compared and is not in the new document: one line each.
    pub missing: Vec<String>,
    /// In the order of the old document.
    pub rows: Vec<Row>,
    /// For each kernel of which there are ratios, by name.
    pub means: Vec<Mean>,
}

impl Comparison {
    fn new(threshold: f64, notes: Vec<String>, rows: Vec<Row>) -> Self {
        let mut logarithms: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (row, ratio) in rows.iter().filter_map(|row| Some((row, row.ratio?))) {
            logarithms.entry(&row.kernel).or_default().push(ratio.value.ln());
        }
        let means = logarithms.into_iter().map(|(kernel, logarithms)| Mean {
            kernel: kernel.to_owned(),
            ratio: (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp(),
            rows: logarithms.len(),
        });
        let (old, new, missing) = (None, None, Vec::new());
        Self { threshold, old, new, notes, missing, means: means.collect(), rows }
    }

    /// Takes the rows and notes of another comparison in, at the same threshold and from the same sources.
    pub fn join(&mut self, other: Self) {
        let (mut notes, mut rows) = (std::mem::take(&mut self.notes), std::mem::take(&mut self.rows));
        let mut missing = std::mem::take(&mut self.missing);
        let (old, new) = (self.old.take(), self.new.take());
        notes.extend(other.notes);
        rows.extend(other.rows);
        missing.extend(other.missing);
        *self = Self { old, new, missing, ..Self::new(self.threshold, notes, rows) };
    }

    /// Whether anything became slower or broke.
    pub fn has_regression(&self) -> bool {
        self.rows.iter().any(|row| row.change.is_regression())
    }

    /// How many rows found a change.
    pub fn count(&self, change: Change) -> usize {
        self.rows.iter().filter(|row| row.change == change).count()
    }
}

/// Compares two documents, the second being the newer.
///
/// ```
/// use warpsmith_tuner::compare::{self, Options};
/// # use warpsmith_tuner::document::Document;
/// # fn documents() -> Result<bool, warpsmith_tuner::error::Error> {
/// let (before, after) = (Document::read("before.json".as_ref())?, Document::read("after.json".as_ref())?);
/// let comparison = compare::documents(&before, &after, &Options::default())?;
/// println!("{}", comparison.summary());
/// # Ok(comparison.has_regression())
/// # }
/// ```
///
/// # Errors
/// [`Error::Incomparable`] for documents of another schema or of different devices, a threshold that is none, and
/// where no record of one has a partner in the other.
pub fn documents(old: &Document, new: &Document, options: &Options) -> Result<Comparison> {
    check_threshold(options.threshold)?;
    let mut notes = check_documents(old, new, options.force)?;
    let pairs = match options.pairing {
        Pairing::Configuration => same_configurations(old, new),
        Pairing::Best => chosen(old, new, |case| best(case)),
        Pairing::Default => chosen(old, new, |case| case.iter().copied().rfind(|record| record.is_default)),
    };
    if pairs.is_empty() {
        let reason = "no record of one has the kernel, type, size, mode and configuration of one of the other; \
                      measure the same, or compare the best of each with --best";
        return Err(Error::Incomparable { reason: reason.to_owned() });
    }
    let partnerless = |total: usize| total.saturating_sub(pairs.len());
    if options.pairing == Pairing::Configuration {
        for (name, document) in [("first", old), ("second", new)] {
            let alone = partnerless(document.results.len());
            if alone > 0 {
                notes.push(format!("{alone} records of the {name} document have no partner in the other"));
            }
        }
    }
    let on_gpu = !old.device.emulated && !new.device.emulated;
    let between_us = if on_gpu { BETWEEN_PROCESSES_US } else { 0.0 };
    let rows = pairs.par_iter().filter_map(|(old, new)| row(old, new, options.threshold, between_us));
    let mut rows: Vec<Row> = rows.collect();
    let never_right = pairs.len() - rows.len();
    if never_right > 0 {
        notes.push(format!("{never_right} configurations had no right result in either document"));
    }
    notes.extend(slowed(&mut rows));
    let few = rows.iter().filter(|row| row.ratio.is_none() && row.change == Change::Ambiguous).count();
    if few > 0 {
        notes.push(format!("{few} rows have fewer than {FEWEST} samples on a side: too few to tell"));
    }
    if rows.iter().any(|row| row.ratio.is_some() && is_of_single_launches(row.mode)) && on_gpu {
        notes.push(format!(
            "intervals include the {between_us} µs a launch by which processes differ; \
             --config and --binary take samples in turns, which tells smaller changes"
        ));
    }
    let missing = missing(old, new, &pairs);
    let (old, new) = (Some(Source::from(old)), Some(Source::from(new)));
    Ok(Comparison { old, new, missing, ..Comparison::new(options.threshold, notes, rows) })
}

/// What the new document lacks: the rest of its run, and cases of which the old one has a right result.
fn missing(old: &Document, new: &Document, pairs: &[(&Record, &Record)]) -> Vec<String> {
    let mut missing = Vec::new();
    if new.run.interrupted {
        missing.push("the run of the second document was ended before it was complete".to_owned());
    }
    let is_compared = |case: &[&Record]| pairs.iter().any(|(old, _)| old.same_case(case[0]));
    let cases = old.cases();
    let alone =
        cases.iter().filter(|case| case.iter().any(|record| record.is_usable()) && !is_compared(case));
    missing.extend(alone.map(|case| {
        let Record { kernel, dtype, n, .. } = case[0];
        let mode = format!("{:?}", case[0].mode()).to_lowercase();
        format!(
            "nothing in the second document is to be compared with {kernel} {dtype} {} {mode}",
            format_size(*n)
        )
    }));
    missing
}

/// Takes their verdict from rows with times of a slowed device; what is to be said of them, if there are any.
fn slowed(rows: &mut [Row]) -> Option<String> {
    let mut count = 0;
    for row in rows.iter_mut().filter(|row| row.old.throttled || row.new.throttled) {
        count += 1;
        if matches!(row.change, Change::Faster | Change::Slower | Change::Same) {
            row.change = Change::Ambiguous;
        }
    }
    (count > 0).then(|| {
        format!(
            "{count} rows were measured while the device's clocks were low: their times tell nothing, measure again"
        )
    })
}

fn check_threshold(threshold: f64) -> Result<()> {
    if threshold.is_finite() && (0.0..1.0).contains(&threshold) {
        return Ok(());
    }
    let percent = forms::rounded(threshold * 100.0);
    let reason = format!("a threshold of {percent} % is none; use 0 % to 99 %, for example 1 %");
    Err(Error::Incomparable { reason })
}

/// Whether two documents may be compared, and what is to be said of them.
fn check_documents(old: &Document, new: &Document, force: bool) -> Result<Vec<String>> {
    let fail = |reason| Err(Error::Incomparable { reason });
    for document in [old, new] {
        if document.schema != SCHEMA {
            return fail(format!(
                "a document has schema {}, this version reads {SCHEMA}; measure again",
                document.schema
            ));
        }
    }
    let kind = |device: &DeviceInfo| {
        let what = if device.emulated { "emulated, " } else { "" };
        let DeviceInfo { name, capability, multiprocessors, .. } = device;
        format!("{name} ({what}capability {capability}, {multiprocessors} multiprocessors)")
    };
    let mut notes = Vec::new();
    let kinds = [kind(&old.device), kind(&new.device)];
    if kinds[0] != kinds[1] {
        let both = format!("{} and {} are different devices", kinds[0], kinds[1]);
        if !force {
            return fail(format!("{both}; measure on one, or compare anyway with --force"));
        }
        notes.push(both);
    }
    let mut differ = |what: &str, old: &str, new: &str| {
        if old != new {
            notes.push(format!("{what} differs: {old} and {new}"));
        }
    };
    differ("the driver", &old.device.driver, &new.device.driver);
    differ("the toolchain", &old.run.toolchain, &new.run.toolchain);
    differ("the version of Warpsmith", &old.run.version, &new.run.version);
    for (name, document) in [("first", old), ("second", new)] {
        if let Some((usual, highest)) = document.low_clock() {
            notes.push(format!(
                "the clock of the {name} document was {usual} MHz, below 95 % of the device's highest ({highest} MHz)"
            ));
        }
    }
    if old.run.interrupted {
        notes.push("the run of the first document was ended before it was complete".to_owned());
    }
    Ok(notes)
}

/// The mode of a record whose times are known.
fn known_mode(record: &Record) -> Option<Mode> {
    record.timing.as_ref().map(|timing| timing.mode)
}

/// Whether two records may be of one mode: a record without times may be of any.
fn modes_agree(old: &Record, new: &Record) -> bool {
    match (known_mode(old), known_mode(new)) {
        (Some(old), Some(new)) => old == new,
        _ => true,
    }
}

/// Every record with the last one of the other document that was launched alike.
fn same_configurations<'a>(old: &'a Document, new: &'a Document) -> Vec<(&'a Record, &'a Record)> {
    type Key<'a> = (&'a str, &'a str, u64, &'a Configuration);
    fn key(record: &Record) -> Key<'_> {
        (&record.kernel, &record.dtype, record.n, &record.configuration)
    }
    let mut partners: BTreeMap<Key<'_>, Vec<&Record>> = BTreeMap::new();
    for record in &new.results {
        partners.entry(key(record)).or_default().push(record);
    }
    // Of what one document measured several times, the last counts.
    let mut last: BTreeMap<(Key<'_>, Option<u8>), usize> = BTreeMap::new();
    for (index, record) in old.results.iter().enumerate() {
        last.insert((key(record), known_mode(record).map(|mode| mode as u8)), index);
    }
    let pairs = old.results.iter().enumerate().filter_map(|(index, old)| {
        if last.get(&(key(old), known_mode(old).map(|mode| mode as u8))) != Some(&index) {
            return None;
        }
        let new = partners.get(&key(old))?.iter().rev().find(|new| modes_agree(old, new))?;
        Some((old, *new))
    });
    pairs.collect()
}

/// One record of each case with that of the same case in the other document.
fn chosen<'a>(
    old: &'a Document,
    new: &'a Document,
    choose: impl Fn(&[&'a Record]) -> Option<&'a Record>,
) -> Vec<(&'a Record, &'a Record)> {
    let new: Vec<&Record> = new.cases().iter().filter_map(|case| choose(case)).collect();
    let old = old.cases();
    let old = old.iter().filter_map(|case| choose(case));
    old.filter_map(|old| {
        let partner = |new: &&Record| {
            (&new.kernel, &new.dtype, new.n) == (&old.kernel, &old.dtype, old.n) && modes_agree(old, new)
        };
        Some((old, *new.iter().find(|new| partner(new))?))
    })
    .collect()
}

/// Whether each launch of a sample costs what a launch costs the device.
fn is_of_single_launches(mode: Mode) -> bool {
    matches!(mode, Mode::Cold | Mode::Hot)
}

/// The ratio of the medians of two timings; `None` for too few samples. The samples of an earlier run are not there: of
/// such a timing the log's interval is taken, and the half-widths of both intervals are combined in logarithms by the root
/// of the sum of their squares.
fn ratio(old: &Timing, new: &Timing) -> Option<Ratio> {
    if old.logged.is_none() && new.logged.is_none() {
        return stats::ratio(&new.samples_us, &old.samples_us).map(Ratio::from);
    }
    let logarithms = |timing: &Timing| {
        let (median, interval) = (timing.summary()?.median, timing.interval()?);
        Some((median, (median / interval.low).ln(), (interval.high / median).ln()))
    };
    let ((old_us, old_below, old_above), (new_us, new_below, new_above)) =
        (logarithms(old)?, logarithms(new)?);
    let value = new_us / old_us;
    Some(Ratio {
        value,
        low: value * (-new_below.hypot(old_above)).exp(),
        high: value * new_above.hypot(old_below).exp(),
    })
}

/// A ratio of medians of two processes whose launches may differ by `between_us` for no reason of theirs.
fn between_processes(ratio: Ratio, old_us: f64, between_us: f64) -> Ratio {
    let Ratio { value, low, high } = ratio;
    let between = between_us / old_us;
    Ratio {
        value,
        low: (value - (value - low).hypot(between)).max(0.0),
        high: value + (high - value).hypot(between),
    }
}

/// The row of two records; `None` when neither has a right result.
fn row(old: &Record, new: &Record, threshold: f64, between_us: f64) -> Option<Row> {
    let mode = known_mode(old).or(known_mode(new)).unwrap_or_default();
    let between_us = if is_of_single_launches(mode) { between_us } else { 0.0 };
    let ratio = || ratio(old.timing.as_ref()?, new.timing.as_ref()?);
    let (ratio, change) = match (old.is_usable(), new.is_usable()) {
        (false, false) => return None,
        (true, false) => (None, Change::Broken),
        (false, true) => (None, Change::Mended),
        (true, true) => match (ratio(), old.median_us()) {
            (Some(ratio), Some(old_us)) => {
                let ratio = between_processes(ratio, old_us, between_us);
                let interval = stats::Interval { low: ratio.low, high: ratio.high };
                (Some(ratio), Verdict::of(interval, threshold).into())
            }
            _ => (None, Change::Ambiguous),
        },
    };
    let measured = |record: &Record| {
        let usable = record.is_usable();
        Measured {
            configuration: record.configuration.clone(),
            median_us: record.median_us().filter(|_| usable),
            samples: record.timing.as_ref().map_or(0, Timing::count),
            throttled: record.timing.as_ref().is_some_and(|timing| timing.throttled),
            problem: match (&record.problem[..], record.outcome) {
                ("", Outcome::Wrong) => "its result was wrong".to_owned(),
                ("", Outcome::Failed) => "its launch failed".to_owned(),
                ("", Outcome::Crashed) => "it crashed".to_owned(),
                (problem, _) => problem.to_owned(),
            },
        }
    };
    Some(Row {
        kernel: old.kernel.clone(),
        dtype: old.dtype.clone(),
        n: old.n,
        mode,
        old: measured(old),
        new: measured(new),
        ratio,
        change,
    })
}

#[cfg(test)]
mod tests;
