//! Samples of two programs in turns, in several fresh pairs of processes.
//!
//! Guarantees: what a process keeps for as long as it lives, above all where its memory lies, is drawn anew for every
//! pair, and the interval is over the pairs: it is never narrower than that of all samples taken together. A verdict
//! therefore is about the programs, and not about two processes of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;

use super::interleaved::Race;
use super::{Change, Comparison, Measured, Mode, Plan, Ratio, Row, Side, check_threshold, slowed};
use crate::error::Result;
use crate::stats::{FEWEST, Interval, Verdict, paired_ratio, summarise};
use crate::value::Configuration;

/// What is compared.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// The kernel.
    pub kernel: String,
    /// The element type.
    pub dtype: String,
    /// Elements.
    pub n: u64,
    /// What the times are of.
    pub mode: Mode,
    /// How both sides launch it.
    pub configuration: Configuration,
}

/// The old and the new side of one pair of processes.
pub type Sides = [Box<dyn Side>; 2];

/// Compares two programs by `processes` pairs of fresh processes, one pair after the other; `start` makes a pair ready.
/// The rounds and the time of the plan are those of all pairs together. Ends once `stop` is set, after the round in
/// progress; fewer than two pairs tell nothing.
///
/// ```
/// use std::sync::atomic::AtomicBool;
///
/// use warpsmith_tuner::compare::{Change, Plan, Side, Subject, replicated};
/// use warpsmith_tuner::error::Error;
///
/// // Each process is slower or faster than the others by up to 5 %, which says nothing about its program.
/// let luck = [1.05, 0.97, 1.02, 0.96, 1.01, 0.95, 1.04, 0.98];
/// let subject = Subject {
///     kernel: "axpy".into(),
///     dtype: "f32".into(),
///     n: 1 << 20,
///     mode: Default::default(),
///     configuration: "block=128".parse()?,
/// };
/// let mut start = |pair: usize| {
///     let side = |us: f64| Box::new(move |samples| Ok::<_, Error>(vec![us; samples])) as Box<dyn Side>;
///     Ok([side(100.0 * luck[pair]), side(100.0 * luck[7 - pair])])
/// };
/// let found = replicated(&subject, 8, &Plan::default(), &AtomicBool::new(false), &mut start)?;
/// assert_eq!(found.rows[0].change, Change::Ambiguous);
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// What `start` or a side reports; [`Error::Incomparable`](crate::error::Error::Incomparable) for a threshold that is none.
pub fn replicated(
    subject: &Subject,
    processes: usize,
    plan: &Plan,
    stop: &AtomicBool,
    start: &mut dyn FnMut(usize) -> Result<Sides>,
) -> Result<Comparison> {
    check_threshold(plan.threshold)?;
    let processes = processes.max(1);
    let rounds = plan.most.div_ceil(processes).max(FEWEST);
    let share = plan.budget.map(|budget| budget / u32::try_from(processes).unwrap_or(u32::MAX));
    let mut random = Rng::with_seed(plan.seed);
    let (mut samples, mut logarithms) = ([Vec::new(), Vec::new()], Vec::new());
    let mut throttled = [false; 2];
    for process in 0..processes {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let mut sides = start(process)?;
        let race = pair(&mut sides, rounds, share, plan, &mut random, stop)?;
        for (throttled, side) in throttled.iter_mut().zip(&sides) {
            *throttled |= side.is_throttled();
        }
        let medians = race.samples.each_ref().map(|samples| summarise(samples).map(|summary| summary.median));
        if let [Some(old), Some(new)] = medians
            && race.samples[0].len() >= FEWEST
        {
            logarithms.push((new / old).ln());
        }
        for (all, more) in samples.iter_mut().zip(race.samples) {
            all.extend(more);
        }
    }
    let mut notes = Vec::new();
    if logarithms.len() < 2 {
        notes.push(format!(
            "{} {}: fewer than two pairs of processes with {FEWEST} samples each: give more time",
            subject.kernel, subject.dtype
        ));
    }
    let ratio = ratio(&logarithms, &samples);
    let change = ratio.map_or(Change::Ambiguous, |Ratio { low, high, .. }| {
        Verdict::of(Interval { low, high }, plan.threshold).into()
    });
    let measured = |samples: &[f64], throttled: bool| Measured {
        configuration: subject.configuration.clone(),
        median_us: summarise(samples).map(|summary| summary.median),
        samples: samples.len(),
        throttled,
        problem: String::new(),
    };
    let row = Row {
        kernel: subject.kernel.clone(),
        dtype: subject.dtype.clone(),
        n: subject.n,
        mode: subject.mode,
        old: measured(&samples[0], throttled[0]),
        new: measured(&samples[1], throttled[1]),
        ratio,
        change,
    };
    let is_begun = !samples[0].is_empty();
    if !is_begun {
        notes.clear();
    }
    let mut rows: Vec<Row> = is_begun.then_some(row).into_iter().collect();
    notes.extend(slowed(&mut rows));
    Ok(Comparison::new(plan.threshold, notes, rows))
}

/// The samples of one pair of processes.
fn pair(
    sides: &mut Sides,
    rounds: usize,
    budget: Option<Duration>,
    plan: &Plan,
    random: &mut Rng,
    stop: &AtomicBool,
) -> Result<Race> {
    // The first launches of a process are those of no other.
    for side in sides.iter_mut() {
        side.take(1)?;
    }
    let (mut race, started) = (Race::default(), Instant::now());
    // Verdicts are for all pairs together.
    let plan = Plan { least: usize::MAX, most: usize::MAX, ..*plan };
    let spent = || budget.is_some_and(|budget| started.elapsed() >= budget);
    while race.rounds < rounds
        && !stop.load(Ordering::Relaxed)
        && (race.samples[0].len() < FEWEST || !spent())
    {
        race.step(&plan, random, &mut |side, samples| sides[side].take(samples))?;
    }
    Ok(race)
}

/// The geometric mean of the pairs' ratios, of which there are the logarithms, with an interval that holds both that of
/// Student's t over the pairs and that of the samples of all pairs.
fn ratio(logarithms: &[f64], samples: &[Vec<f64>; 2]) -> Option<Ratio> {
    let count = logarithms.len();
    let quantile = student(count.checked_sub(1)?)?;
    let mean = logarithms.iter().sum::<f64>() / count as f64;
    let variance = logarithms.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
    let half = quantile * (variance / count as f64).sqrt();
    let pooled = paired_ratio(&samples[1], &samples[0])?.interval;
    Some(Ratio {
        value: mean.exp(),
        low: (mean - half).exp().min(pooled.low),
        high: (mean + half).exp().max(pooled.high),
    })
}

/// The quantile of Student's t for an interval of 99 %: of few pairs one of 95 % would raise false alarms too often.
/// `None` without a degree of freedom.
fn student(freedom: usize) -> Option<f64> {
    const QUANTILES: [f64; 20] = [
        63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012, 2.977,
        2.947, 2.921, 2.898, 2.878, 2.861, 2.845,
    ];
    let last = QUANTILES.len();
    QUANTILES.get(freedom.min(last).checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::stats::normal;

    fn subject() -> Subject {
        let configuration = "block=128".parse().unwrap();
        Subject { kernel: "axpy".into(), dtype: "f32".into(), n: 1 << 10, mode: Mode::Cold, configuration }
    }

    /// A process whose memory makes it slower or faster than others by some per cent for as long as it lives.
    fn process(us: f64, random: &mut Rng) -> Box<dyn Side> {
        let us = us * (0.02 * normal(random)).exp();
        let mut own = Rng::with_seed(random.u64(..));
        Box::new(move |samples| {
            Ok::<_, Error>((0..samples).map(|_| us * (0.002 * normal(&mut own)).exp()).collect())
        })
    }

    fn compare(new_us: f64, processes: usize, random: &mut Rng) -> Row {
        let mut start = |_| Ok([process(100.0, random), process(new_us, random)]);
        let stop = AtomicBool::new(false);
        replicated(&subject(), processes, &Plan::default(), &stop, &mut start).unwrap().rows.remove(0)
    }

    #[test]
    fn where_the_memory_of_processes_lies_is_no_change() {
        let mut random = Rng::with_seed(7);
        let alarms = (0..100)
            .filter(|_| matches!(compare(100.0, 8, &mut random).change, Change::Faster | Change::Slower));
        assert!(alarms.count() <= 1);
    }

    #[test]
    fn a_change_of_the_program_is_found_all_the_same() {
        let mut random = Rng::with_seed(8);
        for (us, change) in [(115.0, Change::Slower), (85.0, Change::Faster)] {
            let row = compare(us, 8, &mut random);
            assert_eq!(row.change, change, "{:?}", row.ratio);
            assert_eq!((row.old.samples, row.new.samples), (400, 400));
        }
    }

    #[test]
    fn the_interval_is_no_narrower_than_that_of_all_samples() {
        let mut side = Rng::with_seed(9);
        let samples = [0, 1].map(|_| (0..60).map(|_| 100.0 + normal(&mut side)).collect::<Vec<f64>>());
        let pooled = paired_ratio(&samples[1], &samples[0]).unwrap().interval;
        let same = ratio(&[0.0; 5], &samples).unwrap();
        assert_eq!((same.low, same.high), (pooled.low.min(1.0), pooled.high.max(1.0)));
        assert_eq!(ratio(&[0.0], &samples), None);
        assert_eq!(ratio(&[], &samples), None);
    }

    #[test]
    fn what_ends_it_early_leaves_what_there_is_and_one_pair_tells_nothing() {
        let mut random = Rng::with_seed(10);
        let row = compare(150.0, 1, &mut random);
        assert_eq!((row.change, row.ratio), (Change::Ambiguous, None));
        let stop = AtomicBool::new(true);
        let mut start = |_| -> Result<Sides> { unreachable!("nothing is started") };
        let none = replicated(&subject(), 8, &Plan::default(), &stop, &mut start).unwrap();
        assert!(none.rows.is_empty() && none.notes.is_empty());
        let plan = Plan { budget: Some(Duration::ZERO), ..Plan::default() };
        let mut start = |_| Ok([process(100.0, &mut random), process(150.0, &mut random)]);
        let short = replicated(&subject(), 5, &plan, &AtomicBool::new(false), &mut start).unwrap();
        assert_eq!(short.rows[0].old.samples, 5 * FEWEST, "as few as have an interval");
    }

    /// A side whose device is slowed in the process of the given place.
    struct Slowed(bool);

    impl Side for Slowed {
        fn take(&mut self, samples: usize) -> Result<Vec<f64>> {
            Ok(vec![100.0; samples])
        }
        fn is_throttled(&self) -> bool {
            self.0
        }
    }

    #[test]
    fn one_slowed_process_is_told_of_its_side() {
        let mut start = |pair| {
            Ok([Box::new(Slowed(false)) as Box<dyn Side>, Box::new(Slowed(pair == 2)) as Box<dyn Side>])
        };
        let found = replicated(&subject(), 5, &Plan::default(), &AtomicBool::new(false), &mut start).unwrap();
        assert_eq!((found.rows[0].old.throttled, found.rows[0].new.throttled), (false, true));
        assert_eq!(found.rows[0].change, Change::Ambiguous, "its times are the same, and tell nothing");
        assert!(found.notes.iter().any(|note| note.contains("clocks were low")), "{:?}", found.notes);
    }
}
