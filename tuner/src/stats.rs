//! Statistics for samples: percentiles, confidence intervals for medians, and ratios of medians.
//!
//! All functions are deterministic. Percentiles interpolate linearly between order statistics, as numpy does by
//! default. No sample is discarded.

mod bootstrap;

pub use self::bootstrap::{FEWEST, Interval, RESAMPLES, Ratio, median_interval, paired_ratio, ratio};

/// Draws from the standard normal distribution (Box-Muller transform).
#[cfg(test)]
pub(crate) fn normal(random: &mut fastrand::Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

/// Percentiles of samples.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// Number of samples.
    pub count: usize,
    /// 10th percentile.
    pub p10: f64,
    /// 50th percentile.
    pub median: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 99th percentile.
    pub p99: f64,
}

/// Summarizes samples. Returns `None` if there are no samples.
pub fn summarize(samples: &[f64]) -> Option<Summary> {
    let sorted = sorted(samples);
    Some(Summary {
        count: sorted.len(),
        p10: percentile(&sorted, 0.1)?,
        median: percentile(&sorted, 0.5)?,
        p90: percentile(&sorted, 0.9)?,
        p99: percentile(&sorted, 0.99)?,
    })
}

/// Returns the `p` quantile, with `p` from 0 to 1, of `sorted`, which must be in ascending order.
fn percentile(sorted: &[f64], p: f64) -> Option<f64> {
    let last = sorted.len().checked_sub(1)?;
    let position = p * last as f64;
    let low = position.floor() as usize;
    let high = (low + 1).min(last);
    Some(sorted[low] + (sorted[high] - sorted[low]) * (position - low as f64))
}

/// Returns half the width of the median's 95 % confidence interval, relative to the median. The interval is derived
/// from order statistics, so it makes no assumption about the distribution. It is cheap enough to be computed after
/// every sample, but it assumes that the samples are independent. For fewer than [`FEWEST`] samples, no interval
/// exists, and the result is infinite.
pub fn relative_uncertainty(samples: &[f64]) -> f64 {
    let n = samples.len();
    if n < FEWEST {
        return f64::INFINITY;
    }
    let sorted = sorted(samples);
    let reach = 0.98 * (n as f64).sqrt();
    let low = (n as f64 / 2.0 - reach).floor().max(0.0) as usize;
    let high = ((n as f64 / 2.0 + reach).ceil() as usize).min(n - 1);
    let median = sorted[n / 2];
    if median > 0.0 { (sorted[high] - sorted[low]) / (2.0 * median) } else { f64::INFINITY }
}

fn sorted(samples: &[f64]) -> Vec<f64> {
    let mut sorted = samples.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    sorted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_numpy() {
        assert_eq!(summarize(&[]), None);
        let one = summarize(&[3.0]).unwrap();
        assert_eq!((one.p10, one.median, one.p90), (3.0, 3.0, 3.0));
        // numpy.percentile([7, 1, 3, 10], [10, 50, 90]) = [1.6, 5.0, 9.1]
        let four = summarize(&[7.0, 1.0, 3.0, 10.0]).unwrap();
        assert!((four.p10 - 1.6).abs() < 1e-12 && (four.p90 - 9.1).abs() < 1e-12);
        assert_eq!((four.count, four.median), (4, 5.0));
        assert!((four.p99 - 9.91).abs() < 1e-12);
        let mut outlier = vec![100.0; 99];
        outlier.push(1e9);
        assert_eq!(summarize(&outlier).unwrap().median, 100.0);
    }

    #[test]
    fn uncertainty_falls_with_samples_and_grows_with_spread() {
        // The samples cycle through a fixed range of values: 1.00, 1.01, … 1.09.
        let ramp = |n: usize| (0..n).map(|i| 1.0 + (i % 10) as f64 / 100.0).collect::<Vec<_>>();
        assert!(relative_uncertainty(&ramp(5)).is_infinite());
        let (few, many) = (relative_uncertainty(&ramp(20)), relative_uncertainty(&ramp(2000)));
        assert!(many < few && many < 0.01, "{few} {many}");
        let wide: Vec<f64> = ramp(20).iter().map(|v| 1.0 + (v - 1.0) * 5.0).collect();
        assert!(relative_uncertainty(&wide) > few);
        assert_eq!(relative_uncertainty(&[5.0; 10]), 0.0);
    }
}
