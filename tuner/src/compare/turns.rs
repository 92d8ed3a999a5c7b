//! Comparing two sides by samples taken in turns.
//!
//! Guarantees: sampling ends when the verdict is clear, or with the rounds or the time. Repeated looks at the samples raise
//! no more false alarms: before the last round a change must be clear by more than the 95 % interval ([`EARLY`]). Times
//! of a slowed device give no verdict. The same samples give the same result.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use super::{Change, Measured, Row, THRESHOLD, check_threshold};
use crate::error::Result;
use crate::measure::{Mode, Timing};
use crate::run::PlannedCase;
use crate::stats::{Interval, RESAMPLES, Ratio, paired_ratio_of, summarise};
use crate::value::Configuration;

/// Before the last round, a ratio is a change only if it is beyond the threshold by this many times its 95 % interval: about
/// 3.3 standard errors, as in the group-sequential rule of Haybittle and Peto. The last round is judged by the interval
/// itself.
///
/// Chosen by simulation of the default plan, whose verdicts come after 20, 25, 32 … 400 rounds. With the interval itself,
/// 2 % of them would be false alarms at 5 % of noise, 4.5 % at 8 %, and 6.5 % at 12 %; with this rule 0.3, 0.3 and 0.4 %.
pub const EARLY: f64 = 1.6;

/// Rounds between two looks at the clock.
const CHUNK: usize = 20;

/// How long samples are taken.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Plan {
    /// The change from which on one counts; 0.01 is 1 %.
    pub threshold: f64,
    /// Rounds before the first verdict.
    pub least: usize,
    /// Rounds at most.
    pub most: usize,
    /// The time of a comparison; unlimited if absent.
    pub budget: Option<Duration>,
}

impl Default for Plan {
    /// 1 %, 20 to 400 rounds.
    fn default() -> Self {
        Self { threshold: THRESHOLD, least: 20, most: 400, budget: None }
    }
}

/// Samples of two sides in microseconds a launch: sample `i` of one was taken next to sample `i` of the other.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Pairs {
    /// Before.
    pub old_us: Vec<f64>,
    /// After.
    pub new_us: Vec<f64>,
    /// Whether a slowed device took some of them.
    pub is_throttled: bool,
}

impl From<[Timing; 2]> for Pairs {
    fn from([old, new]: [Timing; 2]) -> Self {
        let is_throttled = old.throttled || new.throttled;
        Self { old_us: old.samples_us, new_us: new.samples_us, is_throttled }
    }
}

/// The result of samples in turns.
#[derive(Debug, Clone, PartialEq)]
pub struct Turns {
    /// The samples.
    pub pairs: Pairs,
    /// The times after by those before; absent before the first verdict.
    pub ratio: Option<Ratio>,
    /// The verdict.
    pub change: Change,
    /// Whether sampling ended before the verdict was clear, and before the last round.
    pub is_short: bool,
}

impl Turns {
    fn judge(&mut self, threshold: f64, is_last: bool) {
        let Pairs { old_us, new_us, .. } = &self.pairs;
        let of = |resamples| {
            let ratio = paired_ratio_of(new_us, old_us, resamples);
            let change =
                ratio.map_or(Change::Ambiguous, |ratio| match Change::of(ratio.interval, threshold) {
                    Change::Faster | Change::Slower if !is_last => Change::of(early(&ratio), threshold),
                    change => change,
                });
            (ratio, change)
        };
        // A quick look suffices where it decides nothing.
        let mut found = of(if is_last { RESAMPLES } else { RESAMPLES / 4 });
        if !is_last && found.1 != Change::Ambiguous {
            found = of(RESAMPLES);
        }
        (self.ratio, self.change) = found;
    }

    /// The row of a case whose sides were launched so.
    pub fn row(&self, planned: &PlannedCase<'_>, mode: Mode, [old, new]: [&Configuration; 2]) -> Row {
        let measured = |configuration: &Configuration, samples_us: &[f64]| Measured {
            configuration: configuration.clone(),
            median_us: summarise(samples_us).map(|summary| summary.median),
            samples: samples_us.len(),
            throttled: self.pairs.is_throttled,
            problem: String::new(),
        };
        Row {
            kernel: planned.benchmark.name().to_owned(),
            dtype: planned.dtype.to_owned(),
            n: planned.n,
            mode,
            old: measured(old, &self.pairs.old_us),
            new: measured(new, &self.pairs.new_us),
            ratio: self.ratio,
            change: self.change,
        }
    }
}

/// The interval of a ratio, [`EARLY`] times as wide.
fn early(ratio: &Ratio) -> Interval {
    let end = |end: f64| ratio.value * (end / ratio.value).powf(EARLY);
    Interval { low: end(ratio.interval.low), high: end(ratio.interval.high) }
}

/// Compares two sides, of which `take` samples the given number of rounds in turns, until the verdict is clear, rounds or
/// time are spent, or `stop` is set.
///
/// ```
/// use warpsmith_tuner::compare::{Change, Pairs, Plan, in_turns};
///
/// // What would launch kernels: here each launch of the new one takes 2 % longer.
/// let mut take = |rounds| {
///     Ok(Pairs { old_us: vec![100.0; rounds], new_us: vec![102.0; rounds], is_throttled: false })
/// };
/// let found = in_turns(&Plan::default(), &Default::default(), &mut take)?;
/// assert_eq!((found.change, found.pairs.old_us.len()), (Change::Slower, 20));
/// # Ok::<(), warpsmith_tuner::error::Error>(())
/// ```
///
/// # Errors
/// Errors of `take`; [`Error::Incomparable`](crate::error::Error::Incomparable) for a threshold that is none.
pub fn in_turns(
    plan: &Plan,
    stop: &AtomicBool,
    take: &mut dyn FnMut(usize) -> Result<Pairs>,
) -> Result<Turns> {
    check_threshold(plan.threshold)?;
    let started = Instant::now();
    let mut found =
        Turns { pairs: Pairs::default(), ratio: None, change: Change::Ambiguous, is_short: false };
    let (mut rounds, mut next) = (0, plan.least.clamp(1, plan.most.max(1)));
    loop {
        let more = take((next - rounds).min(CHUNK))?;
        let is_empty = more.old_us.is_empty();
        found.pairs.old_us.extend(more.old_us);
        found.pairs.new_us.extend(more.new_us);
        found.pairs.is_throttled |= more.is_throttled;
        rounds = found.pairs.old_us.len();
        let is_last = rounds >= plan.most;
        let is_spent = is_empty
            || stop.load(Ordering::Relaxed)
            || plan.budget.is_some_and(|budget| started.elapsed() >= budget);
        if rounds >= next || (is_spent && rounds >= plan.least) {
            found.judge(plan.threshold, is_last);
            // Each verdict costs time: the next comes after a quarter more rounds.
            next = (rounds + rounds.div_ceil(4)).min(plan.most);
        }
        let is_clear = found.change != Change::Ambiguous;
        if is_clear || is_last || is_spent {
            found.is_short = !is_clear && !is_last;
            if found.pairs.is_throttled {
                found.change = Change::Ambiguous;
            }
            return Ok(found);
        }
    }
}

/// How often a side was found to differ from itself.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct SelfTest {
    /// Comparisons that were made.
    pub pairs: usize,
    /// Those that found a change.
    pub false_alarms: usize,
    /// Those without a clear verdict.
    pub ambiguous: usize,
    /// The share of false alarms; 0 for no comparison.
    pub rate: f64,
}

/// Compares as [`in_turns`] does `pairs` times, each time with new samples, and counts the verdicts. Ends once `stop` is set:
/// a comparison that is not complete then does not count.
///
/// # Errors
/// As [`in_turns`].
pub fn self_test(
    plan: &Plan,
    pairs: usize,
    stop: &AtomicBool,
    take: &mut dyn FnMut(usize) -> Result<Pairs>,
) -> Result<SelfTest> {
    let mut test = SelfTest::default();
    for _ in 0..pairs {
        let found = in_turns(plan, stop, take)?;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        test.pairs += 1;
        test.false_alarms += usize::from(matches!(found.change, Change::Faster | Change::Slower));
        test.ambiguous += usize::from(found.change == Change::Ambiguous);
        test.rate = test.false_alarms as f64 / test.pairs as f64;
    }
    Ok(test)
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::*;
    use crate::error::Error;
    use crate::stats::normal;

    /// Samples with noise of 1 %, one in fifty a third slower, and a clock that both sides share and that moves by 1 %.
    fn noisy(new_us: f64, seed: u64) -> impl FnMut(usize) -> Result<Pairs> {
        let (mut random, mut clock) = (Rng::with_seed(seed), 0.0f64);
        let mut sample = move |us: f64| {
            clock += 0.001;
            let slow = if random.usize(..50) == 0 { 1.3 } else { 1.0 };
            us * slow * (0.01 * normal(&mut random)).exp() * (1.0 + 0.01 * clock.sin())
        };
        move |rounds| {
            let (old_us, new_us) = (0..rounds).map(|_| (sample(100.0), sample(new_us))).unzip();
            Ok(Pairs { old_us, new_us, is_throttled: false })
        }
    }

    fn compare(plan: &Plan, take: &mut dyn FnMut(usize) -> Result<Pairs>) -> Turns {
        in_turns(plan, &AtomicBool::new(false), take).unwrap()
    }

    /// Both sides take exactly so long.
    fn exact(old: f64, new: f64) -> impl FnMut(usize) -> Result<Pairs> {
        move |n| Ok(Pairs { old_us: vec![old; n], new_us: vec![new; n], is_throttled: false })
    }

    #[test]
    fn two_percent_are_found_with_their_direction() {
        for (new_us, change) in [(102.5, Change::Slower), (97.5, Change::Faster), (100.0, Change::Same)] {
            let found = compare(&Plan::default(), &mut noisy(new_us, 1));
            assert_eq!(found.change, change, "{new_us}: {:?}", found.ratio);
            assert!(found.pairs.old_us.len() >= 20 && !found.is_short);
        }
    }

    #[test]
    fn self_tests_count_false_alarms() {
        let (plan, stop) = (Plan { most: 60, ..Plan::default() }, AtomicBool::new(false));
        let test = self_test(&plan, 100, &stop, &mut noisy(100.0, 3)).unwrap();
        assert!(test.pairs == 100 && test.false_alarms <= 1 && test.ambiguous < 50, "{test:?}");
        let bad = self_test(&plan, 20, &stop, &mut exact(100.0, 130.0)).unwrap();
        assert_eq!((bad.false_alarms, bad.rate), (20, 1.0));
        let mut calls = 0;
        let test = self_test(&plan, 50, &stop, &mut |rounds| {
            calls += 1;
            stop.store(calls == 3, Ordering::Relaxed);
            exact(1.0, 1.0)(rounds)
        });
        assert_eq!(test.unwrap().pairs, 2, "the third is not complete");
    }

    #[test]
    fn sampling_ends_when_clear_or_spent() {
        let stopped = AtomicBool::new(true);
        let [plan, none] = [Plan::default(), Plan { budget: Some(Duration::ZERO), ..Plan::default() }];
        let clear = compare(&plan, &mut exact(10.0, 11.0));
        assert_eq!((clear.change, clear.pairs.new_us.len(), clear.is_short), (Change::Slower, 20, false));
        let unclear = compare(&Plan { most: 50, ..plan }, &mut noisy(101.0, 5));
        assert_eq!(
            (unclear.change, unclear.pairs.new_us.len(), unclear.is_short),
            (Change::Ambiguous, 50, false)
        );
        for short in
            [compare(&none, &mut noisy(101.0, 5)), in_turns(&plan, &stopped, &mut noisy(101.0, 5)).unwrap()]
        {
            assert_eq!(
                (short.change, short.pairs.new_us.len(), short.is_short),
                (Change::Ambiguous, 20, true)
            );
        }
        assert!(compare(&plan, &mut |_| Ok(Pairs::default())).is_short);
    }

    #[test]
    fn slowed_devices_give_no_verdict() {
        let found = compare(&Plan::default(), &mut |rounds| {
            Ok(Pairs { is_throttled: true, ..exact(10.0, 20.0)(rounds)? })
        });
        assert_eq!(found.change, Change::Ambiguous);
    }

    #[test]
    fn errors_of_samples_end_the_comparison() {
        let stop = AtomicBool::new(false);
        assert!(in_turns(&Plan::default(), &stop, &mut |_| Err(Error::NothingSelected)).is_err());
        let plan = Plan { threshold: -0.5, ..Plan::default() };
        let message = self_test(&plan, 1, &stop, &mut exact(1.0, 1.0)).unwrap_err().to_string();
        assert!(message.contains("threshold"), "{message}");
    }
}
