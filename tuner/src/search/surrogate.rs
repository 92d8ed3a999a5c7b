//! Surrogate model of the candidates' times: a Gaussian process over the logarithm of the time.
//!
//! Candidates that differ on few axes, and only slightly on these, are expected to have similar times. The correlation
//! length of each axis is chosen by the likelihood of the times.

use super::points::Points;

/// Correlation lengths for ordered axes, in doublings.
const REACHES: [f64; 4] = [0.7, 1.5, 3.0, 8.0];
/// Correlations between values without an order.
const UNORDERED: [f64; 4] = [0.2, 0.5, 0.8, 0.97];
/// Variance of a measured time's logarithm, for a noise of 0.5 %.
const NOISE: f64 = 0.005 * 0.005;
/// Fraction of the variance that comes from a sum of independent terms, one per axis.
const SUM: f64 = 0.5;

/// Model that has been fitted to times.
pub struct Surrogate<'a> {
    points: &'a Points,
    known: Vec<usize>,
    reach: Vec<usize>,
    mean: f64,
    variance: f64,
    /// Cholesky factor of the timed candidates' covariance, in row-major order.
    factor: Vec<Vec<f64>>,
    /// Inverse of the covariance, multiplied by the values.
    weights: Vec<f64>,
}

impl<'a> Surrogate<'a> {
    /// Fits the model to candidates and their times. The fit starts from the correlation lengths in `reach`, if an
    /// earlier fit has stored any. Returns `None` if there are fewer than two candidates.
    pub fn fit(points: &'a Points, timed: &[(usize, f64)], reach: &mut Vec<usize>) -> Option<Self> {
        if timed.len() < 2 {
            return None;
        }
        let known: Vec<usize> = timed.iter().map(|&(candidate, _)| candidate).collect();
        let values: Vec<f64> = timed.iter().map(|&(_, us)| us.max(1e-9).ln()).collect();
        reach.resize(points.axes(), 1);
        let mut best = Fit::of(points, &known, &values, reach)?;
        for axis in 0..points.axes() {
            for choice in 0..REACHES.len() {
                let old = std::mem::replace(&mut reach[axis], choice);
                let fit = if choice == old { None } else { Fit::of(points, &known, &values, reach) };
                match fit {
                    Some(fit) if fit.likelihood > best.likelihood + 1e-9 => best = fit,
                    _ => reach[axis] = old,
                }
            }
        }
        let Fit { mean, variance, factor, weights, .. } = best;
        Some(Self { points, known, reach: reach.clone(), mean, variance, factor, weights })
    }

    /// Returns the expected logarithm of a candidate's time, and its standard deviation.
    pub fn expect(&self, candidate: usize) -> (f64, f64) {
        let likeness: Vec<f64> =
            self.known.iter().map(|&k| likeness(self.points, &self.reach, candidate, k)).collect();
        let mean = self.mean + dot(&likeness, &self.weights);
        let solved = forward(&self.factor, &likeness);
        let left = (1.0 - dot(&solved, &solved)).max(1e-9);
        (mean, (self.variance * left).sqrt())
    }

    /// Returns the expected improvement of a candidate over `best`.
    pub fn improvement(&self, candidate: usize, best: f64) -> f64 {
        let (mean, deviation) = self.expect(candidate);
        let z = (best - mean) / deviation;
        let density = (-0.5 * z * z).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let below = 0.5 * libm::erfc(-z / std::f64::consts::SQRT_2);
        deviation * (z * below + density)
    }
}

struct Fit {
    likelihood: f64,
    mean: f64,
    variance: f64,
    factor: Vec<Vec<f64>>,
    weights: Vec<f64>,
}

impl Fit {
    fn of(points: &Points, known: &[usize], values: &[f64], reach: &[usize]) -> Option<Self> {
        let n = values.len() as f64;
        let spread = {
            let mean = values.iter().sum::<f64>() / n;
            (values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n).max(1e-6)
        };
        let mut factor = Vec::with_capacity(known.len());
        for (row, &a) in known.iter().enumerate() {
            let mut line: Vec<f64> = known[..=row].iter().map(|&b| likeness(points, reach, a, b)).collect();
            line[row] += (NOISE / spread).max(1e-6);
            factor.push(line);
        }
        cholesky(&mut factor)?;
        // Best-fitting mean, and the variance that results from it.
        let ones = forward(&factor, &vec![1.0; known.len()]);
        let solved = forward(&factor, values);
        let mean = dot(&ones, &solved) / dot(&ones, &ones);
        let rest: Vec<f64> = solved.iter().zip(&ones).map(|(v, one)| v - mean * one).collect();
        let variance = (dot(&rest, &rest) / n).max(1e-8);
        let half_determinant: f64 = factor.iter().enumerate().map(|(row, line)| line[row].ln()).sum();
        let likelihood = -0.5 * n * variance.ln() - half_determinant;
        let weights = backward(&factor, &rest);
        Some(Self { likelihood, mean, variance, factor, weights })
    }
}

/// Returns the correlation between two candidates, which is at most 1.
fn likeness(points: &Points, reach: &[usize], a: usize, b: usize) -> f64 {
    let (mut sum, mut product) = (0.0, 1.0);
    for (axis, &choice) in reach.iter().enumerate() {
        let along = match points.distance(a, b, axis) {
            Some(distance) => {
                // This is the Matérn kernel with ν = 5/2. It is smooth, but not so smooth that a single discontinuity
                // affects all predictions.
                let r = 5.0f64.sqrt() * distance / REACHES[choice];
                (1.0 + r + r * r / 3.0) * (-r).exp()
            }
            None => UNORDERED[choice],
        };
        sum += along;
        product *= along;
    }
    match reach.len() {
        0 => 1.0,
        axes => SUM * sum / axes as f64 + (1.0 - SUM) * product,
    }
}

/// Replaces a symmetric matrix, given by its lower triangle, with its lower Cholesky factor. Returns `None` if the
/// matrix has no such factor.
fn cholesky(rows: &mut [Vec<f64>]) -> Option<()> {
    for i in 0..rows.len() {
        for j in 0..=i {
            let sum = rows[i][j] - dot(&rows[i][..j], &rows[j][..j]);
            rows[i][j] = if i == j {
                if sum <= 0.0 {
                    return None;
                }
                sum.sqrt()
            } else {
                sum / rows[j][j]
            };
        }
    }
    Some(())
}

/// Solves `factor x = b`.
fn forward(factor: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x: Vec<f64> = Vec::with_capacity(b.len());
    for (row, value) in factor.iter().zip(b) {
        let known = x.len();
        x.push((value - dot(&row[..known], &x)) / row[known]);
    }
    x
}

/// Solves `factorᵀ x = b`.
fn backward(factor: &[Vec<f64>], b: &[f64]) -> Vec<f64> {
    let mut x = b.to_vec();
    for i in (0..b.len()).rev() {
        for j in i + 1..b.len() {
            x[i] -= factor[j][i] * x[j];
        }
        x[i] /= factor[i][i];
    }
    x
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Space;

    #[test]
    fn the_model_interpolates_between_known_times() {
        let all = Space::new()
            .axis("block", [32, 64, 128, 256, 512, 1024])
            .axis("items", [1, 2, 4, 8])
            .configurations("mine")
            .unwrap();
        let time = |index: usize| {
            let (block, items) = ((index / 4) as f64, (index % 4) as f64);
            (0.05 * (block - 3.0).powi(2) + 0.1 * items).exp()
        };
        let points = Points::of(&all);
        let timed: Vec<(usize, f64)> = (0..24).filter(|i| i % 3 != 1).map(|i| (i, time(i))).collect();
        let mut reach = Vec::new();
        Surrogate::fit(&points, &timed, &mut reach).unwrap();
        let model = Surrogate::fit(&points, &timed, &mut reach).unwrap();
        for index in 0..24 {
            let (mean, deviation) = model.expect(index);
            assert!((mean - time(index).ln()).abs() < 0.05, "{index}: {mean} {}", time(index).ln());
            assert!(deviation < 0.2);
        }
        assert!(model.expect(1).1 > model.expect(0).1, "what was not timed is less certain");
        assert!(model.improvement(13, 0.0) > model.improvement(23, 0.0));
        assert!(Surrogate::fit(&points, &timed[..1], &mut reach).is_none());
    }
}
