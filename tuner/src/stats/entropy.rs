//! The entropy criterion: samples are enough when more of them tell nothing new about their distribution.
//!
//! The entropy of the distribution seen so far, in bits, rises with the samples and levels off. A line is fitted to its
//! course over the latest [`WINDOW`] samples; when it fits and is nearly level, there are enough. Equal samples count
//! as one value, so they are compared at the resolution of the clock that took them, [`RESOLUTION_US`].

use std::collections::{HashMap, VecDeque};

/// Samples over whose entropies the line is fitted.
pub const WINDOW: usize = 299;
/// The angle of the line in degrees, an entropy of one bit being as long as one sample, up to which it is level.
pub const ANGLE: f64 = 0.048;
/// The least share of the variance of the entropies that the line explains.
pub const R2: f64 = 0.36;
/// Times in microseconds that differ by less count as one: what events resolve.
pub const RESOLUTION_US: f64 = 0.5;

/// Watches samples as they come. A sample costs a time that does not depend on how many there were.
///
/// ```
/// use warpsmith_tuner::stats::entropy::{Entropy, WINDOW};
///
/// let mut entropy = Entropy::default();
/// (0..WINDOW).for_each(|_| entropy.add(100.0));
/// assert!(entropy.is_level(), "the same time again and again tells nothing new");
/// ```
#[derive(Debug, Clone, Default)]
pub struct Entropy {
    counts: HashMap<i64, u32>,
    total: u32,
    /// The sum of `count * log2(count)` over all values.
    weighted: f64,
    /// The entropies after each of the latest samples.
    course: VecDeque<f64>,
}

impl Entropy {
    /// Takes the next sample, in microseconds.
    pub fn add(&mut self, us: f64) {
        let weight = |count: u32| f64::from(count) * f64::from(count.max(1)).log2();
        let count = self.counts.entry((us / RESOLUTION_US).round() as i64).or_default();
        self.weighted += weight(*count + 1) - weight(*count);
        *count += 1;
        self.total += 1;
        if self.course.len() == WINDOW {
            self.course.pop_front();
        }
        self.course.push_back(self.bits());
    }

    /// The entropy of the samples so far, in bits.
    pub fn bits(&self) -> f64 {
        match self.total {
            0 => 0.0,
            total => (f64::from(total).log2() - self.weighted / f64::from(total)).max(0.0),
        }
    }

    /// Whether a line fits the entropies after the latest samples, and is level. Never before [`WINDOW`] samples.
    pub fn is_level(&self) -> bool {
        if self.course.len() < WINDOW {
            return false;
        }
        let (slope, r2) = line(&self.course);
        slope.abs().atan().to_degrees() <= ANGLE && r2 >= R2
    }
}

/// The slope of the line of least squares through values at 0, 1, 2, …, and the share of their variance that it
/// explains, which is 1 when they do not vary.
fn line(values: &VecDeque<f64>) -> (f64, f64) {
    let n = values.len() as f64;
    let (middle, mean) = ((n - 1.0) / 2.0, values.iter().sum::<f64>() / n);
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for (index, value) in values.iter().enumerate() {
        let (x, y) = (index as f64 - middle, value - mean);
        (xx, xy, yy) = (xx + x * x, xy + x * y, yy + y * y);
    }
    // What rounding leaves of values that are all the same is no variance.
    if yy <= 1e-24 * n { (0.0, 1.0) } else { (xy / xx, xy * xy / (xx * yy)) }
}

#[cfg(test)]
mod tests {
    use fastrand::Rng;

    use super::super::normal;
    use super::*;

    #[test]
    fn the_entropy_is_that_of_the_distribution() {
        let mut entropy = Entropy::default();
        assert_eq!(entropy.bits(), 0.0);
        for round in 0..4 {
            (0..8).for_each(|value| entropy.add(100.0 + f64::from(value)));
            assert!((entropy.bits() - 3.0).abs() < 1e-9, "round {round}: {}", entropy.bits());
        }
        entropy.add(100.1);
        assert!(entropy.bits() < 3.0, "0.1 us are below what a clock resolves");
    }

    #[test]
    fn a_line_is_fitted_by_least_squares() {
        // numpy: polyfit([0, 1, 2, 3], [1, 3, 2, 5], 1)[0] = 1.1, corrcoef² = 0.6914285714
        let (slope, r2) = line(&[1.0, 3.0, 2.0, 5.0].into());
        assert!((slope - 1.1).abs() < 1e-12 && (r2 - 0.691_428_571_4).abs() < 1e-9, "{slope} {r2}");
        assert_eq!(line(&[0.1; 10].into()), (0.0, 1.0));
    }

    /// After how many samples, of those drawn so, there are enough.
    fn enough_after(mut draw: impl FnMut(usize) -> f64) -> usize {
        let mut entropy = Entropy::default();
        let mut enough = |index| {
            entropy.add(draw(index));
            entropy.is_level()
        };
        (0..20_000).position(&mut enough).map_or(usize::MAX, |last| last + 1)
    }

    #[test]
    fn the_more_there_is_to_see_the_more_samples_it_takes() {
        let mut random = Rng::with_seed(1);
        assert_eq!(enough_after(|_| 100.0), WINDOW);
        let narrow = enough_after(|_| 100.0 + normal(&mut random));
        let wide = enough_after(|_| 1000.0 + 30.0 * normal(&mut random));
        assert!(WINDOW < narrow && narrow < wide && wide < usize::MAX, "{narrow} {wide}");
        let rising = enough_after(|index| index as f64);
        assert!(rising > wide, "every sample is new: {rising}");
    }
}
