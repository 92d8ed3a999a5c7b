//! Samples of two sides in turns.
//!
//! Guarantees: in every round each side gives as many samples, in an order that is drawn anew, so that a drifting clock or
//! temperature meets both alike. Sampling of a pair ends when its verdict is clear, or with the rounds or the time. Looking
//! again and again raises no more false alarms: before the last round a change must be clear by more than the 95 %
//! interval ([`EARLY`]). The same seed and the same samples give the same comparison.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde::Serialize;

use super::{Change, Comparison, Measured, Row, check_threshold, slowed};
use crate::error::Result;
use crate::measure::Mode;
use crate::stats::{FEWEST, Interval, RESAMPLES, Ratio, Verdict, paired_ratio_of, summarise};
use crate::value::Configuration;

/// By how many times its 95 % interval a ratio must be beyond the threshold to be called a change before the last round,
/// which alone is judged by the interval itself (as in the group-sequential rule of Haybittle and Peto; about 3.3 standard
/// errors). Chosen by simulation of the default plan, whose verdicts come after 20, 25, 32 … 400 rounds: by the interval
/// itself they would raise 2 % of false alarms at 5 % of noise, 4.5 % at 8 % and 6.5 % at 12 %; so 0.3 %, 0.3 % and 0.4 %.
pub const EARLY: f64 = 1.6;

/// Something that gives samples: a configuration in this process, or one in another program.
///
/// Every `FnMut(usize) -> Result<Vec<f64>>` is one.
pub trait Side {
    /// Takes `samples` samples, in microseconds a launch.
    ///
    /// # Errors
    /// Whatever ended the sampling.
    fn take(&mut self, samples: usize) -> Result<Vec<f64>>;

    /// Whether the device's clock stayed low while any of the samples so far were taken. A closure tells nothing of it.
    fn is_throttled(&self) -> bool {
        false
    }
}

impl<F: FnMut(usize) -> Result<Vec<f64>>> Side for F {
    fn take(&mut self, samples: usize) -> Result<Vec<f64>> {
        self(samples)
    }
}

/// One side of a [`Pair`].
pub struct Contender<'a> {
    /// How it is launched.
    pub configuration: Configuration,
    /// What gives its samples.
    pub side: &'a mut dyn Side,
}

/// Two sides to compare.
pub struct Pair<'a> {
    /// The kernel.
    pub kernel: String,
    /// The element type.
    pub dtype: String,
    /// Elements.
    pub n: u64,
    /// What the times are of.
    pub mode: Mode,
    /// Before.
    pub old: Contender<'a>,
    /// After.
    pub new: Contender<'a>,
}

/// How long samples are taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// The change from which on one counts; 0.01 is 1 %.
    pub threshold: f64,
    /// Rounds before the first verdict.
    pub least: usize,
    /// Rounds at most.
    pub most: usize,
    /// Samples that a side takes in a round.
    pub batch: usize,
    /// The time for all pairs; none for as long as the rounds take.
    pub budget: Option<Duration>,
    /// What the order within rounds is drawn from.
    pub seed: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self { threshold: super::THRESHOLD, least: 20, most: 400, batch: 1, budget: None, seed: 1 }
    }
}

/// What became of a pair so far.
#[derive(Default)]
pub(super) struct Race {
    /// Samples of the old and the new side.
    pub(super) samples: [Vec<f64>; 2],
    pub(super) rounds: usize,
    /// The round of the next verdict.
    next: usize,
    ratio: Option<Ratio>,
    /// The verdict; `None` before the first.
    change: Option<Change>,
    done: bool,
}

impl Race {
    /// One round, and the verdict if it is time for one.
    pub(super) fn step(
        &mut self,
        plan: &Plan,
        random: &mut Rng,
        take: &mut dyn FnMut(usize, usize) -> Result<Vec<f64>>,
    ) -> Result<()> {
        let batch = plan.batch.max(1);
        let mut order = [0, 1];
        random.shuffle(&mut order);
        let mut taken = [Vec::new(), Vec::new()];
        for side in order {
            taken[side] = take(side, batch)?;
        }
        // A side that gives fewer samples than asked for must not shift the pairs of later rounds.
        let pairs = taken[0].len().min(taken[1].len());
        for (samples, taken) in self.samples.iter_mut().zip(taken) {
            samples.extend_from_slice(&taken[..pairs]);
        }
        self.rounds += 1;
        let is_last = self.rounds >= plan.most;
        if is_last || self.rounds >= self.next.max(plan.least) {
            self.judge(plan.threshold, is_last);
            // Each verdict costs time: the next comes after a quarter more rounds.
            self.next = self.rounds + self.rounds.div_ceil(4);
            self.done |= is_last;
        }
        Ok(())
    }

    fn judge(&mut self, threshold: f64, is_last: bool) {
        let of = |resamples| {
            let ratio = paired_ratio_of(&self.samples[1], &self.samples[0], resamples);
            let verdict =
                ratio.map_or(Verdict::Ambiguous, |ratio| match Verdict::of(ratio.interval, threshold) {
                    Verdict::Faster | Verdict::Slower if !is_last => Verdict::of(early(&ratio), threshold),
                    verdict => verdict,
                });
            (ratio, verdict)
        };
        // A quick look suffices where it tells nothing.
        let mut found = of(if is_last { RESAMPLES } else { RESAMPLES / 4 });
        if !is_last && found.1 != Verdict::Ambiguous {
            found = of(RESAMPLES);
        }
        self.ratio = found.0;
        self.change = Some(found.1.into());
        self.done |= found.1 != Verdict::Ambiguous;
    }

    fn change(&self) -> Change {
        self.change.unwrap_or(Change::Ambiguous)
    }
}

/// The interval of a ratio, [`EARLY`] times as wide.
fn early(ratio: &Ratio) -> Interval {
    let end = |end: f64| ratio.value * (end / ratio.value).powf(EARLY);
    Interval { low: end(ratio.interval.low), high: end(ratio.interval.high) }
}

/// Compares pairs with samples in turns, until every verdict is clear or rounds or time are spent.
///
/// ```
/// use warpsmith_tuner::compare::{Change, Contender, Pair, Plan, interleaved};
/// use warpsmith_tuner::error::Error;
///
/// // What would launch kernels: here each launch of the new one takes 2 % longer.
/// let mut old = |samples| Ok::<_, Error>(vec![100.0; samples]);
/// let mut new = |samples| Ok::<_, Error>(vec![102.0; samples]);
/// let pair = Pair {
///     kernel: "axpy".into(),
///     dtype: "f32".into(),
///     n: 1 << 20,
///     mode: Default::default(),
///     old: Contender { configuration: "block=128".parse()?, side: &mut old },
///     new: Contender { configuration: "block=256".parse()?, side: &mut new },
/// };
/// let comparison = interleaved(&mut [pair], &Plan::default())?;
/// assert_eq!(comparison.rows[0].change, Change::Slower);
/// assert!(comparison.has_regression());
/// # Ok::<(), Error>(())
/// ```
///
/// # Errors
/// What a side reports; [`Error::Incomparable`](crate::error::Error::Incomparable) for a threshold that is none.
pub fn interleaved(pairs: &mut [Pair<'_>], plan: &Plan) -> Result<Comparison> {
    interleaved_until(pairs, plan, &AtomicBool::new(false))
}

/// As [`interleaved()`], until `stop` is set: then the round in progress is the last, and a pair that had none has no row.
///
/// # Errors
/// As [`interleaved()`].
pub fn interleaved_until(pairs: &mut [Pair<'_>], plan: &Plan, stop: &AtomicBool) -> Result<Comparison> {
    check_threshold(plan.threshold)?;
    let (mut random, started) = (Rng::with_seed(plan.seed), Instant::now());
    let mut races: Vec<Race> = pairs.iter().map(|_| Race::default()).collect();
    let spent = || plan.budget.is_some_and(|budget| started.elapsed() >= budget);
    loop {
        let mut open: Vec<usize> = (0..races.len()).filter(|&index| !races[index].done).collect();
        if open.is_empty()
            || stop.load(Ordering::Relaxed)
            || (spent() && races.iter().all(|race| race.rounds > 0))
        {
            break;
        }
        random.shuffle(&mut open);
        for index in open {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            let Pair { old, new, .. } = &mut pairs[index];
            let take = &mut |side: usize, samples| [&mut *old.side, &mut *new.side][side].take(samples);
            races[index].step(plan, &mut random, take)?;
        }
    }
    let mut notes = Vec::new();
    let few = races.iter().filter(|race| race.rounds > 0 && race.samples[0].len() < FEWEST).count();
    if few > 0 {
        notes.push(format!("{few} pairs have fewer than {FEWEST} samples: give more time"));
    }
    let mut unclear = 0;
    let begun = pairs.iter().zip(&mut races).filter(|(_, race)| race.rounds > 0);
    let rows = begun.map(|(pair, race)| {
        if !race.done {
            race.judge(plan.threshold, false);
            unclear += usize::from(race.ratio.is_some() && !race.done);
        }
        let measured = |contender: &Contender<'_>, samples: &[f64]| Measured {
            throttled: contender.side.is_throttled(),
            configuration: contender.configuration.clone(),
            median_us: summarise(samples).map(|summary| summary.median),
            samples: samples.len(),
            problem: String::new(),
        };
        Row {
            kernel: pair.kernel.clone(),
            dtype: pair.dtype.clone(),
            n: pair.n,
            mode: pair.mode,
            old: measured(&pair.old, &race.samples[0]),
            new: measured(&pair.new, &race.samples[1]),
            ratio: race.ratio.map(Into::into),
            change: race.change(),
        }
    });
    let mut rows: Vec<Row> = rows.collect();
    if unclear > 0 {
        notes.push(format!(
            "{unclear} pairs were ended before they were clear (a change by {EARLY} times the interval): give more time"
        ));
    }
    notes.extend(slowed(&mut rows));
    Ok(Comparison::new(plan.threshold, notes, rows))
}

/// How often a side was found to differ from itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SelfTest {
    /// Comparisons that were made.
    pub pairs: usize,
    /// Those that found a change.
    pub false_alarms: usize,
    /// Those that did not tell.
    pub ambiguous: usize,
    /// The share of false alarms; 0 for no comparison.
    pub rate: f64,
}

impl SelfTest {
    /// Counts the verdict of one more comparison of something with itself.
    pub fn count(&mut self, change: Change) {
        self.pairs += 1;
        match change {
            Change::Faster | Change::Slower => self.false_alarms += 1,
            Change::Ambiguous => self.ambiguous += 1,
            _ => {}
        }
        self.rate = self.false_alarms as f64 / self.pairs as f64;
    }
}

/// Compares a side with itself `pairs` times as [`interleaved()`] does, each time with new samples. The budget is that of
/// each comparison.
///
/// # Errors
/// As [`interleaved()`].
pub fn self_test(side: &mut dyn Side, pairs: usize, plan: &Plan) -> Result<SelfTest> {
    self_test_until(side, pairs, plan, &AtomicBool::new(false))
}

/// As [`self_test()`], until `stop` is set: a comparison that is not complete then does not count.
///
/// # Errors
/// As [`self_test()`].
pub fn self_test_until(
    side: &mut dyn Side,
    pairs: usize,
    plan: &Plan,
    stop: &AtomicBool,
) -> Result<SelfTest> {
    check_threshold(plan.threshold)?;
    let mut random = Rng::with_seed(plan.seed);
    let mut test = SelfTest::default();
    for _ in 0..pairs {
        let (mut race, started) = (Race::default(), Instant::now());
        let spent = || plan.budget.is_some_and(|budget| started.elapsed() >= budget);
        while !race.done && (race.rounds == 0 || !spent()) {
            if stop.load(Ordering::Relaxed) {
                return Ok(test);
            }
            race.step(plan, &mut random, &mut |_, samples| side.take(samples))?;
        }
        if !race.done {
            race.judge(plan.threshold, false);
        }
        test.count(race.change());
    }
    Ok(test)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use crate::stats::normal;
    use std::cell::RefCell;

    /// Times of `us` with noise of 1 %, one in fifty a third slower, and a clock that both sides share and that moves by 1 %.
    fn noisy<'a>(us: f64, seed: u64, clock: &'a RefCell<f64>) -> impl FnMut(usize) -> Result<Vec<f64>> + 'a {
        let mut random = Rng::with_seed(seed);
        move |samples| {
            let sample = |random: &mut Rng| {
                let now = {
                    *clock.borrow_mut() += 0.001;
                    *clock.borrow()
                };
                let slow = if random.usize(..50) == 0 { 1.3 } else { 1.0 };
                us * slow * (0.01 * normal(random)).exp() * (1.0 + 0.01 * now.sin())
            };
            Ok((0..samples).map(|_| sample(&mut random)).collect())
        }
    }

    fn pair<'a>(old: &'a mut dyn Side, new: &'a mut dyn Side) -> Pair<'a> {
        let contender = |text: &str, side| Contender { configuration: text.parse().unwrap(), side };
        Pair {
            kernel: "axpy".into(),
            dtype: "f32".into(),
            n: 1 << 20,
            mode: Mode::Cold,
            old: contender("block=128", old),
            new: contender("block=256", new),
        }
    }

    #[test]
    fn two_per_cent_are_found_and_their_direction() {
        for (new_us, change) in [(102.5, Change::Slower), (97.5, Change::Faster), (100.0, Change::Same)] {
            let clock = RefCell::new(0.0);
            let (mut old, mut new) = (noisy(100.0, 1, &clock), noisy(new_us, 2, &clock));
            let found = interleaved(&mut [pair(&mut old, &mut new)], &Plan::default()).unwrap();
            assert_eq!(found.rows[0].change, change, "{new_us}: {:?}", found.rows[0].ratio);
            assert_eq!(found.has_regression(), change == Change::Slower);
            let row = &found.rows[0];
            assert!(row.old.samples >= 20 && row.old.samples == row.new.samples);
        }
    }

    #[test]
    fn a_side_compared_with_itself_raises_few_alarms() {
        let clock = RefCell::new(0.0);
        let plan = Plan { most: 60, ..Plan::default() };
        let test = self_test(&mut noisy(50.0, 3, &clock), 100, &plan).unwrap();
        assert_eq!(test.pairs, 100);
        assert!(test.false_alarms <= 1 && test.ambiguous < 50, "{test:?}");
        assert_eq!(test.rate, test.false_alarms as f64 / 100.0);
        // The test itself must be able to fail: a side of which every other sample takes longer differs from itself.
        let mut flip = 0;
        let mut other = |samples: usize| {
            flip += 1;
            Ok::<_, Error>(vec![if flip % 2 == 0 { 100.0 } else { 130.0 }; samples])
        };
        let bad = self_test(&mut other, 20, &Plan { batch: 20, least: 1, most: 1, ..plan }).unwrap();
        assert_eq!((bad.false_alarms, bad.rate), (20, 1.0));
    }

    #[test]
    fn both_sides_go_first_and_sampling_ends_when_it_is_clear() {
        let order = RefCell::new(Vec::new());
        let side = |name, us| {
            let order = &order;
            move |samples| {
                order.borrow_mut().push(name);
                Ok::<_, Error>(vec![us; samples])
            }
        };
        let (mut old, mut new) = (side('a', 10.0), side('b', 11.0));
        let found = interleaved(&mut [pair(&mut old, &mut new)], &Plan::default()).unwrap();
        assert_eq!(found.rows[0].old.samples, 20, "clear at the first verdict");
        let order = order.borrow();
        let rounds: Vec<&[char]> = order.chunks(2).collect();
        assert!(rounds.contains(&&['a', 'b'][..]) && rounds.contains(&&['b', 'a'][..]), "{rounds:?}");
        assert!(rounds.iter().all(|round| round[0] != round[1]));
    }

    #[test]
    fn what_stays_unclear_ends_with_the_rounds_and_other_pairs_do_not_wait() {
        let clock = RefCell::new(0.0);
        let (mut old, mut new) = (noisy(100.0, 5, &clock), noisy(101.0, 6, &clock));
        let (mut fast, mut slow) = (|n| Ok::<_, Error>(vec![1.0; n]), |n| Ok::<_, Error>(vec![2.0; n]));
        let plan = Plan { most: 50, ..Plan::default() };
        let mut pairs = [pair(&mut old, &mut new), pair(&mut fast, &mut slow)];
        let found = interleaved(&mut pairs, &plan).unwrap();
        assert_eq!((found.rows[0].change, found.rows[0].old.samples), (Change::Ambiguous, 50));
        assert_eq!((found.rows[1].change, found.rows[1].old.samples), (Change::Slower, 20));
    }

    #[test]
    fn no_time_is_one_round_and_says_so() {
        let (mut old, mut new) = (|n| Ok::<_, Error>(vec![1.0; n]), |n| Ok::<_, Error>(vec![2.0; n]));
        let plan = Plan { budget: Some(Duration::ZERO), ..Plan::default() };
        let found = interleaved(&mut [pair(&mut old, &mut new)], &plan).unwrap();
        assert_eq!((found.rows[0].old.samples, found.rows[0].change), (1, Change::Ambiguous));
        assert!(found.notes[0].contains("fewer than 6"), "{:?}", found.notes);
    }

    #[test]
    fn a_flag_ends_it_with_what_there_is() {
        let stop = AtomicBool::new(false);
        let mut rounds = 0;
        let mut old = |n| {
            rounds += 1;
            stop.store(rounds == 7, Ordering::Relaxed);
            Ok::<_, Error>(vec![1.0; n])
        };
        let (mut new, mut other) = (|n| Ok::<_, Error>(vec![2.0; n]), |n| Ok::<_, Error>(vec![2.0; n]));
        let found = interleaved_until(&mut [pair(&mut old, &mut new)], &Plan::default(), &stop).unwrap();
        assert_eq!((found.rows.len(), found.rows[0].old.samples), (1, 7));
        let none = interleaved_until(&mut [pair(&mut other, &mut new)], &Plan::default(), &stop).unwrap();
        assert!(none.rows.is_empty() && none.notes.is_empty(), "nothing was begun");
        let mut calls = 0;
        let mut side = |n| {
            calls += 1;
            stop.store(calls > 100, Ordering::Relaxed);
            Ok::<_, Error>(vec![1.0; n])
        };
        stop.store(false, Ordering::Relaxed);
        let test = self_test_until(&mut side, 50, &Plan::default(), &stop).unwrap();
        assert_eq!(
            (test.pairs, test.rate),
            (2, 0.0),
            "40 samples a comparison, and the third is not complete"
        );
    }

    #[test]
    fn what_a_side_reports_ends_the_comparison() {
        let mut old = |_| Err(Error::NothingSelected);
        let mut new = |n| Ok::<_, Error>(vec![2.0; n]);
        assert!(interleaved(&mut [pair(&mut old, &mut new)], &Plan::default()).is_err());
        let plan = Plan { threshold: -0.5, ..Plan::default() };
        assert!(self_test(&mut new, 1, &plan).unwrap_err().to_string().contains("threshold"));
    }
}
