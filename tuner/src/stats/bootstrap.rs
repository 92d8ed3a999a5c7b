//! Bootstrap confidence intervals for medians and for ratios of medians.
//!
//! All intervals are 95 % confidence intervals. They are deterministic and make no assumptions about the distribution
//! of the samples. Their ends are percentiles of [`RESAMPLES`] resamples. If consecutive samples tend to lie on the
//! same side of the median, for example because the clock drifts, whole blocks of neighbors are drawn (block
//! bootstrap). No interval covers changes that are slower than the sampling. To cover such changes, interleave the
//! samples of both sides and compare them in pairs.

use fastrand::Rng;
use serde::Serialize;

use super::{percentile, sorted};

/// Number of resamples from which an interval is computed.
pub const RESAMPLES: usize = 2000;
/// Minimum number of samples from which an interval is computed.
pub const FEWEST: usize = 6;
/// Seed for every interval, so that the same samples always result in the same interval.
const SEED: u64 = 0x5EED_0F5A_3D1E;

/// 95 % confidence interval.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Interval {
    /// Lower end of the interval.
    pub low: f64,
    /// Upper end of the interval.
    pub high: f64,
}

impl Interval {
    /// Returns true if a value lies in the interval, including its ends.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Returns half the width of the interval.
    pub fn half_width(&self) -> f64 {
        (self.high - self.low) / 2.0
    }
}

/// Ratio of two medians. For times, a ratio above 1 means slower.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Ratio {
    /// Median of the first samples divided by the median of the second samples.
    pub value: f64,
    /// Confidence interval of the ratio.
    #[serde(flatten)]
    pub interval: Interval,
}

/// Returns the confidence interval for the median of the samples. The samples must be in the order in which they were
/// taken. Returns `None` if there are fewer than [`FEWEST`] samples.
///
/// ```
/// use warpsmith_tuner::stats::median_interval;
///
/// let samples: Vec<f64> = (0..100).map(|i| 100.0 + f64::from(i * 37 % 100) / 100.0).collect();
/// let interval = median_interval(&samples).unwrap();
/// assert!(interval.contains(100.5) && interval.half_width() < 0.15);
/// ```
pub fn median_interval(samples: &[f64]) -> Option<Interval> {
    resampled(samples, RESAMPLES)
}

fn resampled(samples: &[f64], resamples: usize) -> Option<Interval> {
    let mut one = Resampler::new(samples)?;
    let mut random = Rng::with_seed(SEED);
    let block = one.block;
    Some(interval((0..resamples).map(|_| {
        one.draw(&mut random, block);
        one.median()
    })))
}

/// Returns the ratio of the two medians, `first` divided by `second`, for two sets of samples that were taken one after
/// the other. The two sets are resampled independently. Returns `None` if either set has fewer than [`FEWEST`] samples.
pub fn ratio(first: &[f64], second: &[f64]) -> Option<Ratio> {
    let (mut first, mut second) = (Resampler::new(first)?, Resampler::new(second)?);
    let value = first.whole() / second.whole();
    let mut random = Rng::with_seed(SEED);
    let (blocks, draws) = ([first.block, second.block], 0..RESAMPLES);
    let ratios = draws.map(|_| {
        first.draw(&mut random, blocks[0]);
        second.draw(&mut random, blocks[1]);
        first.median() / second.median()
    });
    Some(Ratio { value, interval: interval(ratios) })
}

/// Returns the ratio of the two medians, `first` divided by `second`, for interleaved samples. Samples are drawn in
/// pairs, so that a change that affects both samples of a pair does not widen the interval. Unpaired samples at the end
/// are ignored. Returns `None` if there are fewer than [`FEWEST`] pairs.
pub fn paired_ratio(first: &[f64], second: &[f64]) -> Option<Ratio> {
    let pairs = first.len().min(second.len());
    let (first, second) = (&first[..pairs], &second[..pairs]);
    // In these ratios, changes over time that affect both samples of a pair cancel out.
    let left: Vec<f64> = first.iter().zip(second).map(|(first, second)| first / second).collect();
    let block = Resampler::new(&left)?.block;
    let (mut first, mut second) = (Resampler::new(first)?, Resampler::new(second)?);
    let value = first.whole() / second.whole();
    let mut random = Rng::with_seed(SEED);
    let ratios = (0..RESAMPLES).map(|_| {
        first.counts.fill(0);
        second.counts.fill(0);
        draw(&mut random, pairs, block, |place| {
            first.add(place);
            second.add(place);
        });
        first.median() / second.median()
    });
    Some(Ratio { value, interval: interval(ratios) })
}

/// Returns the 2nd and the 98th percentile. With a few dozen samples, the medians of resamples are slightly closer
/// together than the medians of new samples would be.
fn interval(values: impl Iterator<Item = f64>) -> Interval {
    let mut values: Vec<f64> = values.collect();
    values.sort_unstable_by(f64::total_cmp);
    let end = |p| percentile(&values, p).unwrap_or(f64::NAN);
    Interval { low: end(0.02), high: end(0.98) }
}

/// Draws samples with replacement and finds the median of the drawn samples in linear time, storing only how often each
/// sample was drawn.
#[derive(Debug)]
struct Resampler {
    sorted: Vec<f64>,
    /// Index of each sample in `sorted`, in the order in which the samples were taken.
    ranks: Vec<u32>,
    /// Number of times that each element of `sorted` was drawn.
    counts: Vec<u32>,
    /// Number of neighbors that are drawn together.
    block: usize,
}

impl Resampler {
    fn new(samples: &[f64]) -> Option<Self> {
        let n = samples.len();
        if n < FEWEST {
            return None;
        }
        let mut order: Vec<u32> = (0..n as u32).collect();
        order.sort_unstable_by(|a, b| samples[*a as usize].total_cmp(&samples[*b as usize]).then(a.cmp(b)));
        let mut ranks = vec![0; n];
        for (rank, index) in order.iter().enumerate() {
            ranks[*index as usize] = rank as u32;
        }
        let block = block_length(&ranks);
        Some(Self { sorted: sorted(samples), ranks, counts: vec![0; n], block })
    }

    /// Returns the median of the original samples.
    fn whole(&self) -> f64 {
        percentile(&self.sorted, 0.5).unwrap_or(f64::NAN)
    }

    /// Draws a resample of the same size.
    fn draw(&mut self, random: &mut Rng, block: usize) {
        self.counts.fill(0);
        draw(random, self.ranks.len(), block, |place| self.add(place));
    }

    /// Draws the sample with the given index, in the order in which the samples were taken.
    #[inline]
    fn add(&mut self, place: usize) {
        self.counts[self.ranks[place] as usize] += 1;
    }

    /// Returns the median of the samples that were drawn.
    fn median(&self) -> f64 {
        let n = self.counts.len();
        let (low, high) = ((n - 1) / 2, n / 2);
        let mut seen = 0;
        let mut lower = None;
        for (count, value) in self.counts.iter().zip(&self.sorted) {
            seen += *count as usize;
            if lower.is_none() && seen > low {
                lower = Some(*value);
            }
            if seen > high {
                return lower.map_or(*value, |lower| f64::midpoint(lower, *value));
            }
        }
        f64::NAN
    }
}

/// Draws a resample of indices, of the same size, in blocks of neighbors. The last index and the first are treated as
/// neighbors.
#[inline]
fn draw(random: &mut Rng, n: usize, block: usize, mut each: impl FnMut(usize)) {
    if block == 1 {
        (0..n).for_each(|_| each(random.usize(..n)));
        return;
    }
    let mut missing = n;
    while missing > 0 {
        let start = random.usize(..n);
        (0..block.min(missing)).for_each(|step| each((start + step) % n));
        missing = missing.saturating_sub(block);
    }
}

/// Returns the number of neighbors that are drawn together. This is twice the lag beyond which the samples' positions
/// above or below the median are no more correlated than noise. Returns 1 if there is no correlation.
fn block_length(ranks: &[u32]) -> usize {
    let n = ranks.len();
    let side = |index: usize| if (ranks[index] as usize) < n / 2 { -1.0 } else { 1.0 };
    // Twice the standard error of the correlation between independent samples.
    let noise = 2.0 / (n as f64).sqrt();
    let correlation = |lag: usize| {
        let products = (0..n - lag).map(|index| side(index) * side(index + lag));
        products.sum::<f64>() / n as f64
    };
    let most = n / 4;
    let gone = (1..=most).find(|lag| correlation(*lag) < noise).unwrap_or(most.max(1));
    if gone == 1 { 1 } else { (2 * gone).min(most.max(1)) }
}

#[cfg(test)]
mod tests {
    use super::super::normal;
    use super::*;

    /// Returns, for 2000 sets of samples, the percentage whose interval contains the true value. With fewer resamples
    /// than usual, the intervals are slightly less exact, but the test is faster.
    fn coverage(n: usize, truth: f64, mut draw: impl FnMut(&mut Rng) -> f64) -> f64 {
        let mut random = Rng::with_seed(42);
        let mut samples = || (0..n).map(|_| draw(&mut random)).collect::<Vec<f64>>();
        let covered = (0..2000).filter(|_| resampled(&samples(), 400).unwrap().contains(truth));
        covered.count() as f64 / 20.0
    }

    #[test]
    fn intervals_hold_the_median_at_their_stated_rate() {
        for n in [20, 50] {
            let gaussian = coverage(n, 100.0, |random| 100.0 + normal(random));
            let lognormal = coverage(n, 1.0, |random| (0.5 * normal(random)).exp());
            // Seven of ten values are around 100, and the rest are around 110. The median is therefore the 5/7 quantile
            // of the lower values.
            let bimodal = coverage(n, 100.565_949, |random| {
                let mode = if random.f64() < 0.7 { 100.0 } else { 110.0 };
                mode + normal(random)
            });
            for found in [gaussian, lognormal, bimodal] {
                assert!((92.0..98.0).contains(&found), "{n} samples: {gaussian} {lognormal} {bimodal} %");
            }
        }
    }

    /// Returns samples with 1 % of noise and a wave with a peak-to-peak amplitude of 1 %.
    fn drifting(random: &mut Rng, n: usize, period: f64) -> Vec<f64> {
        let phase = random.f64();
        let wave = |index: usize| (std::f64::consts::TAU * (phase + index as f64 / period)).sin();
        (0..n).map(|index| 100.0 * (1.0 + 0.005 * wave(index) + 0.01 * normal(random))).collect()
    }

    #[test]
    fn shared_drift_does_not_widen_paired_intervals() {
        let mut random = Rng::with_seed(3);
        // The clock falls by a fifth in the middle, so on each side, half of the samples have a different time.
        let fall = |index: usize| if index < 40 { 1.0 } else { 1.25 };
        let mut taken = |times: f64| {
            let noise = 0.002 * normal(&mut random);
            (0..80).map(|index| times * fall(index) * (1.0 + noise)).collect::<Vec<f64>>()
        };
        let (new, old) = (taken(1.02), taken(1.0));
        let paired = paired_ratio(&new, &old).unwrap();
        assert!(paired.interval.contains(1.02) || (paired.value - 1.02).abs() < 0.01, "{paired:?}");
        assert!(paired.interval.half_width() < 0.01, "{paired:?}");
        let unpaired = ratio(&new, &old).unwrap();
        assert!(unpaired.interval.half_width() > 0.05, "{unpaired:?}");
    }

    #[test]
    fn correlated_neighbors_are_drawn_in_blocks() {
        let mut random = Rng::with_seed(5);
        let independent = drifting(&mut random, 400, f64::INFINITY);
        assert!(Resampler::new(&independent).unwrap().block <= 2);
        let mut walk = 100.0;
        let alike: Vec<f64> = (0..400)
            .map(|_| {
                walk = 100.0 + 0.9 * (walk - 100.0) + normal(&mut random);
                walk
            })
            .collect();
        assert!(Resampler::new(&alike).unwrap().block > 10);
    }

    #[test]
    fn correlated_samples_widen_the_interval() {
        let mut random = Rng::with_seed(6);
        let covered = (0..200).filter(|_| {
            let mut walk = normal(&mut random) / 0.6;
            let samples: Vec<f64> = (0..400)
                .map(|_| {
                    walk = 0.8 * walk + normal(&mut random);
                    100.0 + walk
                })
                .collect();
            resampled(&samples, 200).unwrap().contains(100.0)
        });
        let covered = covered.count();
        assert!(covered >= 170, "{covered} of 200; single draws have it in about half");
    }

    #[test]
    fn equal_samples_have_ratio_one_few_have_none() {
        let samples: Vec<f64> = (0..50).map(|index| 100.0 + f64::from(index % 7)).collect();
        let same = paired_ratio(&samples, &samples).unwrap();
        assert_eq!((same.value, same.interval), (1.0, Interval { low: 1.0, high: 1.0 }));
        let apart = ratio(&samples, &samples).unwrap();
        assert!(apart.value == 1.0 && apart.interval.contains(1.0) && apart.interval.half_width() > 0.0);
        assert_eq!(ratio(&samples, &samples), Some(apart), "the same again");
        for few in [median_interval(&samples[..5]).is_some(), ratio(&samples, &samples[..5]).is_some()] {
            assert!(!few);
        }
        assert_eq!(paired_ratio(&samples[..5], &samples), None);
        assert!(median_interval(&samples[..6]).is_some());
    }

    #[test]
    fn resampled_medians_are_those_of_the_draw() {
        for n in [6, 7, 40, 41] {
            let samples: Vec<f64> = (0..n).map(|index| f64::from(index * 7 % n)).collect();
            for block in [1, 3] {
                let mut resampler = Resampler::new(&samples).unwrap();
                let mut random = Rng::with_seed(9);
                resampler.draw(&mut random, block);
                let drawn: Vec<f64> = (resampler.counts.iter().zip(&resampler.sorted))
                    .flat_map(|(count, value)| std::iter::repeat_n(*value, *count as usize))
                    .collect();
                assert_eq!(drawn.len(), n as usize);
                assert_eq!(percentile(&drawn, 0.5), Some(resampler.median()), "{n} {block}");
            }
        }
    }
}
