//! Compares two documents to determine which kernels have become faster or slower.
//!
//! A kernel is reported as faster or slower only if the ratio of medians has a 95 % confidence interval that lies
//! entirely beyond the threshold. If there are too few samples, or a time comes from a throttled device, the verdict is
//! ambiguous. Records are compared only if they have the same kernel, type, size and mode. Unless the comparison is
//! forced, documents are compared only if they come from the same kind of device. A configuration that is no longer
//! correct is a regression. [`Comparison::missing`] lists the records that the newer document lacks.
//!
//! The two documents come from two processes that ran at different times. The clocks, the temperature and the placement
//! of memory differ between them, which no statistics of a single document can show. The effect of memory placement has
//! been measured ([`BETWEEN_PROCESSES_US`]) and is included in the interval.

use std::collections::{BTreeMap, HashMap};

use rayon::prelude::*;
use serde::Serialize;

use crate::document::{DeviceInfo, Document, Outcome, Record, RunInfo, SCHEMA};
use crate::error::{Error, Result};
use crate::measure::Mode;
use crate::size::format_size;
use crate::stats::{self, FEWEST, Interval, Ratio};
use crate::value::Configuration;

/// Default threshold, which is 1 %.
pub const THRESHOLD: f64 = 0.01;

/// 95th percentile, in microseconds, of the difference between the launch times of the same kernel in two processes on
/// a GPU. The difference is constant within a process, so no sample of the process reveals it. On an H200, the times of
/// kernels that run for 3 to 50 µs differed by 0 to 0.3 µs between five processes.
pub const BETWEEN_PROCESSES_US: f64 = 0.3;

/// Options of a comparison.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Options {
    /// Smallest relevant change; 0.01 means 1 %.
    pub threshold: f64,
    /// True if documents from different devices are also compared.
    pub force: bool,
    /// True if only the best configuration of each case is compared: the winner of a tuning run or, if no record is a
    /// winner, the fastest configuration. If false, every configuration is compared with the same configuration in the
    /// other document.
    pub best: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self { threshold: THRESHOLD, force: false, best: false }
    }
}

/// Change of a kernel from the old document to the new one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Change {
    /// The kernel is faster by more than the threshold.
    Faster,
    /// The kernel is slower by more than the threshold.
    Slower,
    /// The time differs by less than the threshold.
    Same,
    /// The confidence interval contains the threshold, or there is no interval.
    Ambiguous,
    /// The old result was correct; the new one is incorrect or missing.
    Broken,
    /// The new result is correct; the old one was incorrect or missing.
    Fixed,
}

impl Change {
    /// Returns the verdict for a ratio of times (new divided by old) from its confidence interval. `threshold` is the
    /// smallest relevant change (0.01 means 1 %). A verdict other than [`Change::Ambiguous`] holds for the whole
    /// interval. A kernel counts as faster below `1 / (1 + threshold)`, so that swapping new and old swaps the
    /// verdicts.
    ///
    /// ```
    /// use warpsmith_tuner::compare::Change;
    /// use warpsmith_tuner::stats::Interval;
    ///
    /// assert_eq!(Change::of(Interval { low: 1.012, high: 1.03 }, 0.01), Change::Slower);
    /// assert_eq!(Change::of(Interval { low: 1.0, high: 1.03 }, 0.01), Change::Ambiguous);
    /// ```
    pub fn of(ratio: Interval, threshold: f64) -> Self {
        let (slower, faster) = (1.0 + threshold, 1.0 / (1.0 + threshold));
        if ratio.low > slower {
            Self::Slower
        } else if ratio.high < faster {
            Self::Faster
        } else if ratio.low >= faster && ratio.high <= slower {
            Self::Same
        } else {
            Self::Ambiguous
        }
    }

    /// Returns true if the change is a regression: a slower or broken kernel.
    pub fn is_regression(self) -> bool {
        matches!(self, Self::Slower | Self::Broken)
    }

    /// Returns the name of the verdict in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Faster => "FASTER",
            Self::Slower => "SLOWER",
            Self::Same => "SAME",
            Self::Ambiguous => "AMBIGUOUS",
            Self::Broken => "BROKEN",
            Self::Fixed => "FIXED",
        }
    }
}

/// Measurement on one side of a row.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Measured {
    /// Launch configuration.
    pub configuration: Configuration,
    /// Median time in microseconds; `None` if there is no correct result.
    pub median_us: Option<f64>,
    /// Number of samples.
    pub samples: usize,
    /// True if the clock stayed low during the measurement.
    pub throttled: bool,
    /// Error message; empty if there was no error.
    pub problem: String,
}

/// Comparison of one configuration, or of the best configurations of one case.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Row {
    /// Name of the kernel.
    pub kernel: String,
    /// Element type.
    pub dtype: String,
    /// Number of elements.
    pub n: u64,
    /// Mode in which the times were measured.
    pub mode: Mode,
    /// Measurement in the old document.
    pub old: Measured,
    /// Measurement in the new document.
    pub new: Measured,
    /// Ratio of the new time to the old one; `None` if either side has no time or too few samples.
    pub ratio: Option<Ratio>,
    /// Verdict.
    pub change: Change,
}

/// Geometric mean of a kernel's ratios.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Mean {
    /// Name of the kernel.
    pub kernel: String,
    /// Geometric mean of the ratios (new time divided by old time) in the kernel's rows.
    pub ratio: f64,
    /// Number of rows.
    pub rows: usize,
}

/// Origin of the times on one side of the comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Source {
    /// Run that created the document.
    pub run: RunInfo,
    /// Device on which the times were measured.
    pub device: DeviceInfo,
}

impl From<&Document> for Source {
    fn from(document: &Document) -> Self {
        Self { run: document.run.clone(), device: document.device.clone() }
    }
}

/// Result of a comparison.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Comparison {
    /// Smallest relevant change.
    pub threshold: f64,
    /// Origin of the old times.
    pub old: Source,
    /// Origin of the new times.
    pub new: Source,
    /// Further notes, for example on different drivers, throttled devices, or records without a counterpart.
    pub notes: Vec<String>,
    /// Cases that the new document lacks, with one line per case.
    pub missing: Vec<String>,
    /// Rows in the order of the old document.
    pub rows: Vec<Row>,
    /// Means of all kernels that have ratios, sorted by kernel name.
    pub means: Vec<Mean>,
}

impl Comparison {
    /// Creates a comparison from rows. If a row contains a time from a throttled device, its verdict is removed.
    fn new(threshold: f64, [old, new]: [Source; 2], mut notes: Vec<String>, mut rows: Vec<Row>) -> Self {
        notes.extend(throttled(&mut rows));
        let mut logarithms: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
        for (row, ratio) in rows.iter().filter_map(|row| Some((row, row.ratio?))) {
            logarithms.entry(&row.kernel).or_default().push(ratio.value.ln());
        }
        let means = logarithms.into_iter().map(|(kernel, logarithms)| Mean {
            kernel: kernel.to_owned(),
            ratio: (logarithms.iter().sum::<f64>() / logarithms.len() as f64).exp(),
            rows: logarithms.len(),
        });
        Self { threshold, old, new, notes, missing: Vec::new(), means: means.collect(), rows }
    }

    /// Returns true if any kernel has become slower or incorrect.
    pub fn has_regression(&self) -> bool {
        self.rows.iter().any(|row| row.change.is_regression())
    }

    /// Returns a summary line with the number of rows per verdict.
    pub fn summary(&self) -> String {
        let all =
            [Change::Slower, Change::Broken, Change::Faster, Change::Same, Change::Ambiguous, Change::Fixed];
        let counts = all.map(|change| (change, self.rows.iter().filter(|row| row.change == change).count()));
        let counts = counts.iter().filter(|(change, count)| *count > 0 || *change == Change::Slower);
        let counts: Vec<String> =
            counts.map(|(change, count)| format!("{count} {}", change.name().to_lowercase())).collect();
        let (rows, percent) = (self.rows.len(), rounded(self.threshold * 100.0));
        format!("{rows} compared at a threshold of {percent} %: {}", counts.join(", "))
    }

    /// Formats the comparison as JSON text that ends with a line feed.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data always becomes JSON") + "\n"
    }
}

/// Compares two documents, the second of which is the newer one.
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
/// Returns [`Error::Incomparable`] for documents with different schemas or from different devices, for an invalid
/// threshold, and if no record of either document has a counterpart in the other.
pub fn documents(old: &Document, new: &Document, options: &Options) -> Result<Comparison> {
    check_threshold(options.threshold)?;
    let mut notes = check_documents(old, new, options.force)?;
    let pairs = pairs(old, new, options.best);
    if pairs.is_empty() {
        let reason = "the documents have no record with the same kernel, type, size, mode and configuration; measure \
                      the same configurations, or compare the best ones with --best";
        return Err(Error::Incomparable { reason: reason.to_owned() });
    }
    if !options.best {
        for (name, document) in [("first", old), ("second", new)] {
            let alone = document.results.len().saturating_sub(pairs.len());
            if alone > 0 {
                notes.push(format!(
                    "{alone} records of the {name} document have no counterpart in the other document"
                ));
            }
        }
    }
    let on_gpu = !old.device.emulated && !new.device.emulated;
    let between_us = if on_gpu { BETWEEN_PROCESSES_US } else { 0.0 };
    let rows = pairs.par_iter().filter_map(|(old, new)| row(old, new, options.threshold, between_us));
    let rows: Vec<Row> = rows.collect();
    let never_correct = pairs.len() - rows.len();
    if never_correct > 0 {
        notes.push(format!("{never_correct} configurations had no correct result in either document"));
    }
    let few = rows.iter().filter(|row| row.ratio.is_none() && row.change == Change::Ambiguous).count();
    if few > 0 {
        notes.push(format!(
            "{few} rows have fewer than {FEWEST} samples in a document, which are too few for a \
                            verdict"
        ));
    }
    if rows.iter().any(|row| row.ratio.is_some() && is_of_single_launches(row.mode)) && on_gpu {
        notes.push(format!(
            "intervals include {between_us} µs per launch for the difference between processes"
        ));
    }
    let missing = missing(old, new, &pairs);
    let sources = [Source::from(old), Source::from(new)];
    Ok(Comparison { missing, ..Comparison::new(options.threshold, sources, notes, rows) })
}

/// Pairs each record, or the best record of each case, with its counterpart in the other document. If a document
/// contains several measurements of the same case, the last one counts.
fn pairs<'a>(old: &'a Document, new: &'a Document, best: bool) -> Vec<(&'a Record, &'a Record)> {
    let records = |document: &'a Document| match best {
        true => document.best(),
        false => document.results.iter().collect(),
    };
    let key = |record: &&'a Record| (record.case(), (!best).then_some(&record.configuration));
    let last = |records: &[&'a Record]| -> HashMap<_, _> {
        records.iter().map(|record| (key(record), *record)).collect()
    };
    let (old, partners) = (records(old), last(&records(new)));
    let latest = last(&old);
    let counts = old.iter().filter(|record| std::ptr::eq(latest[&key(record)], **record));
    counts.filter_map(|old| Some((*old, *partners.get(&key(old))?))).collect()
}

/// Lists the results that the new document lacks: the rest of an interrupted run, and cases that have a correct result
/// only in the old document.
fn missing(old: &Document, new: &Document, pairs: &[(&Record, &Record)]) -> Vec<String> {
    let mut missing = Vec::new();
    if new.run.interrupted {
        missing.push("the run of the second document ended early".to_owned());
    }
    let is_compared = |case: &[&Record]| pairs.iter().any(|(old, _)| old.case() == case[0].case());
    let cases = old.cases();
    let alone =
        cases.iter().filter(|case| case.iter().any(|record| record.is_usable()) && !is_compared(case));
    missing.extend(alone.map(|case| {
        let (kernel, dtype, n, mode) = case[0].case();
        let size = format_size(n);
        format!("the second document has no result for {kernel} {dtype} {size} {mode}")
    }));
    missing
}

/// Removes the verdicts of rows that contain a time from a throttled device. Returns a note about these rows, if there
/// are any.
fn throttled(rows: &mut [Row]) -> Option<String> {
    let mut count = 0;
    for row in rows.iter_mut().filter(|row| row.old.throttled || row.new.throttled) {
        count += 1;
        if matches!(row.change, Change::Faster | Change::Slower | Change::Same) {
            row.change = Change::Ambiguous;
        }
    }
    (count > 0).then(|| {
        format!(
            "{count} rows were measured while the device's clocks were low and have no verdict: measure again"
        )
    })
}

fn check_threshold(threshold: f64) -> Result<()> {
    if threshold.is_finite() && (0.0..1.0).contains(&threshold) {
        return Ok(());
    }
    let percent = rounded(threshold * 100.0);
    let reason = format!("a threshold of {percent} % is invalid; use 0 % to 99 %, for example 1 %");
    Err(Error::Incomparable { reason })
}

/// Rounds to six significant digits, without the rounding error of a multiplication.
fn rounded(number: f64) -> f64 {
    format!("{number:.5e}").parse().unwrap_or(number)
}

/// Checks that two documents can be compared, and returns notes on the differences between them.
fn check_documents(old: &Document, new: &Document, force: bool) -> Result<Vec<String>> {
    let fail = |reason| Err(Error::Incomparable { reason });
    for document in [old, new] {
        if document.schema != SCHEMA {
            return fail(format!(
                "a document has schema {}, but this version reads {SCHEMA}; measure again",
                document.schema
            ));
        }
    }
    let kind = |device: &DeviceInfo| {
        let what = if device.emulated { "emulated, " } else { "" };
        let DeviceInfo { name, capability, multiprocessors, .. } = device;
        format!("{name} ({what}capability {capability}, {multiprocessors} SMs)")
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
                "the clock of the {name} document was {usual} MHz, below 95 % of the device's maximum ({highest} MHz)"
            ));
        }
    }
    if old.run.interrupted {
        notes.push("the run of the first document ended early".to_owned());
    }
    Ok(notes)
}

/// Returns true if the time of each launch includes the launch overhead of the device.
fn is_of_single_launches(mode: Mode) -> bool {
    matches!(mode, Mode::Cold | Mode::Hot)
}

/// Widens the confidence interval of a ratio of medians from two processes, because the launch times of two processes
/// can differ by `between_us` for reasons outside the kernels.
fn between_processes(Ratio { value, interval }: Ratio, old_us: f64, between_us: f64) -> Ratio {
    let between = between_us / old_us;
    let low = (value - (value - interval.low).hypot(between)).max(0.0);
    Ratio { value, interval: Interval { low, high: value + (interval.high - value).hypot(between) } }
}

/// Compares two records. Returns `None` if neither record has a correct result.
fn row(old: &Record, new: &Record, threshold: f64, between_us: f64) -> Option<Row> {
    let mode = old.mode();
    let between_us = if is_of_single_launches(mode) { between_us } else { 0.0 };
    let ratio = || stats::ratio(&new.timing.as_ref()?.samples_us, &old.timing.as_ref()?.samples_us);
    let (ratio, change) = match (old.is_usable(), new.is_usable()) {
        (false, false) => return None,
        (true, false) => (None, Change::Broken),
        (false, true) => (None, Change::Fixed),
        (true, true) => match (ratio(), old.median_us()) {
            (Some(ratio), Some(old_us)) => {
                let ratio = between_processes(ratio, old_us, between_us);
                (Some(ratio), Change::of(ratio.interval, threshold))
            }
            _ => (None, Change::Ambiguous),
        },
    };
    let measured = |record: &Record| {
        let usable = record.is_usable();
        Measured {
            configuration: record.configuration.clone(),
            median_us: record.median_us().filter(|_| usable),
            samples: record.timing.as_ref().map_or(0, |timing| timing.samples_us.len()),
            throttled: record.timing.as_ref().is_some_and(|timing| timing.throttled),
            problem: match (&record.problem[..], record.outcome) {
                ("", Outcome::Incorrect) => "its result was incorrect".to_owned(),
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
