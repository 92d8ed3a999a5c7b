//! Correctness checks, which compare results with host computations in f64, in windows and rows of long arrays.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::cases::Case;
use crate::data::{Data, PERIOD, Value};

type Failure = Box<dyn std::error::Error>;

/// Epsilon of f32, which is also the accumulation type for sums of bf16.
const SINGLE: f64 = f32::EPSILON as f64;
/// Elements per window.
const WINDOW: usize = 1024;
/// Number of rows and columns that are checked.
const LINES: usize = 6;

/// Fails unless the results of the first set are correct. They are in the layout of our kernels or of CUB's functions.
pub fn check<T: Value>(case: &Case, data: &Data<T>, by_cub: bool) -> Result<(), Failure> {
    let n = data.n;
    let of_x = |of: fn(f64) -> f64| move |i: usize| of(data.x(i));
    // This is the tolerance for results that are rounded to the type once, from a function with a few roundings in f32.
    let near = |expected: f64| 4.0 * SINGLE * (expected.abs() + 0.25) + T::EPSILON * expected.abs();
    match case.operation {
        "copy" | "copy_unaligned" | "fill" | "transpose" | "relu" => {
            let expected = |i: usize| match case.operation {
                "copy_unaligned" => data.x(i + 1),
                "fill" => T::FILL.to_f64(),
                "transpose" => data.x(i % case.rows * case.columns + i / case.rows),
                "relu" => data.x(i).max(0.0),
                _ => data.x(i),
            };
            let len = n - usize::from(case.operation == "copy_unaligned");
            windows(data, 0..len, expected, |_, _| 0.0)
        }
        "exp" => windows(data, 0..n, of_x(f64::exp), |_, expected| near(expected)),
        "gelu" => {
            let gelu = |x: f64| 0.5 * x * libm::erfc(-x * std::f64::consts::FRAC_1_SQRT_2);
            windows(data, 0..n, of_x(gelu), |_, expected| near(expected))
        }
        "add" => windows(data, 0..n, |i| data.x(i) + data.y(i), |_, expected| near(expected)),
        "axpy" => windows(data, 0..n, |i| 1.5 * data.x(i) + data.y(i), |_, expected| near(expected)),
        "sum" => {
            let sums = Prefix::new(data);
            let found = data.sums.to_host()?[0];
            one("the sum", found.into(), sums.sum(n), sums.tolerance(n))
        }
        "max" => {
            let found = if by_cub {
                let bytes = data.words.to_host()?[0].to_ne_bytes();
                bytemuck::pod_read_unaligned::<T>(&bytes[..size_of::<T>()]).to_f64()
            } else {
                data.extreme.to_host()?[0].into()
            };
            let largest = (0..n.min(PERIOD)).map(|i| data.x(i)).fold(f64::MIN, f64::max);
            one("the maximum", found, largest, 0.0)
        }
        "argmax" => {
            let first = (0..n.min(PERIOD)).rev().max_by(|a, b| data.x(*a).total_cmp(&data.x(*b)));
            one("the index", data.words.to_host()?[0] as f64, first.unwrap_or(0) as f64, 0.0)
        }
        "row_sum" => {
            let (sums, found) = (Prefix::new(data), data.sums.to_host()?);
            lines(case.rows).try_for_each(|row| {
                let (start, end) = (row * case.columns, (row + 1) * case.columns);
                let expected = sums.sum(end) - sums.sum(start);
                one(&format!("row {row}"), found[row].into(), expected, sums.tolerance(case.columns))
            })
        }
        "column_sum" => {
            let found = data.sums.to_host()?;
            lines(case.columns).try_for_each(|column| {
                let elements = || (0..case.rows).map(|row| data.x(row * case.columns + column));
                let (sum, of_magnitudes) = (elements().sum(), elements().map(f64::abs).sum());
                let tolerance = pairwise(case.rows, of_magnitudes);
                one(&format!("column {column}"), found[column].into(), sum, tolerance)
            })
        }
        "softmax" | "layer_norm" | "rms_norm" => {
            lines(case.rows).try_for_each(|row| check_row(case, data, row))
        }
        "scan" => {
            let sums = Prefix::new(data);
            windows(
                data,
                0..n,
                |i| sums.sum(i + 1),
                |i, expected| sums.tolerance(i + 1) + T::EPSILON * expected.abs(),
            )
        }
        "sort" => {
            // These are the counts of each value in a period, and the number of elements that are not larger.
            let mut counts = BTreeMap::<u64, usize>::new();
            for i in 0..n.min(PERIOD) {
                *counts.entry(data.x(i) as u64).or_default() +=
                    n.div_ceil(PERIOD) - usize::from(i >= n % PERIOD && n > PERIOD);
            }
            let mut ends = Vec::new();
            let mut end = 0;
            for (value, count) in counts {
                end += count;
                ends.push((end, value));
            }
            windows(data, 0..n, |i| ends[ends.partition_point(|(end, _)| *end <= i)].1 as f64, |_, _| 0.0)
        }
        "select_if" => {
            let kept: Vec<usize> = (0..n.min(PERIOD)).filter(|i| data.x(*i) > 0.0).collect();
            let of_rest = kept.partition_point(|i| *i < n % PERIOD);
            let count = n / PERIOD * kept.len() + if n < PERIOD { kept.len() } else { of_rest };
            one("the count", data.words.to_host()?[0] as f64, count as f64, 0.0)?;
            windows(data, 0..count, |i| data.x(kept[i % kept.len()]), |_, _| 0.0)
        }
        "histogram" => {
            let bin = |i: usize| ((data.x(i) + 1.0) * 128.0) as usize;
            let mut expected = [0u64; 256];
            (0..n.min(PERIOD)).for_each(|i| expected[bin(i)] += (n / PERIOD).max(1) as u64);
            (0..if n < PERIOD { 0 } else { n % PERIOD }).for_each(|i| expected[bin(i)] += 1);
            let words = data.words.to_host()?;
            let halves: &[u32] = bytemuck::cast_slice(&words);
            (0..256).try_for_each(|i| {
                let found = if by_cub { halves[i].into() } else { words[i] };
                one(&format!("bin {i}"), found as f64, expected[i] as f64, 0.0)
            })
        }
        other => Err(format!("there is no reference for {other}").into()),
    }
}

/// Checks a row of softmax or of a norm.
fn check_row<T: Value>(case: &Case, data: &Data<T>, row: usize) -> Result<(), Failure> {
    let (start, columns) = (row * case.columns, case.columns);
    let x: Vec<f64> = (0..columns).map(|i| data.x(start + i)).collect();
    let mean = |of: &dyn Fn(f64) -> f64| x.iter().map(|x| of(*x)).sum::<f64>() / columns as f64;
    let expected: Vec<f64> = match case.operation {
        "softmax" => {
            let sum = mean(&f64::exp) * columns as f64;
            x.iter().map(|x| x.exp() / sum).collect()
        }
        "layer_norm" => {
            let center = mean(&|x| x);
            let scale = 1.0 / (mean(&|x| (x - center).powi(2)) + 1e-5).sqrt();
            (0..columns).map(|i| (x[i] - center) * scale * data.y(i) + data.x(i)).collect()
        }
        _ => {
            let scale = 1.0 / (mean(&|x| x * x) + 1e-5).sqrt();
            (0..columns).map(|i| x[i] * scale * data.y(i)).collect()
        }
    };
    let found = data.out.slice(start..start + columns).to_host()?;
    for (i, (found, expected)) in found.iter().zip(expected).enumerate() {
        let absolute = if case.operation == "softmax" { 0.0 } else { 64.0 * SINGLE };
        let tolerance = (64.0 * SINGLE + T::EPSILON) * expected.abs() + absolute;
        one(&format!("row {row}, column {i}"), found.to_f64(), expected, tolerance)?;
    }
    Ok(())
}

/// Prefix sums of `x`.
struct Prefix {
    sums: Vec<f64>,
    of_magnitudes: f64,
}

impl Prefix {
    fn new<T: Value>(data: &Data<T>) -> Self {
        let mut sum = 0.0;
        let sums = (0..PERIOD).map(|i| {
            sum += data.x(i);
            sum
        });
        let sums = std::iter::once(0.0).chain(sums.collect::<Vec<_>>()).collect();
        Self { sums, of_magnitudes: (0..PERIOD).map(|i| data.x(i).abs()).sum() }
    }

    fn sum(&self, n: usize) -> f64 {
        (n / PERIOD) as f64 * self.sums[PERIOD] + self.sums[n % PERIOD]
    }

    /// Tolerance for a sum of `n` elements.
    fn tolerance(&self, n: usize) -> f64 {
        pairwise(n, self.of_magnitudes / PERIOD as f64 * n as f64)
    }
}

/// Returns the error bound of pairwise summation in f32, plus eight roundings, for `n` elements whose magnitudes add up
/// to `of_magnitudes`.
fn pairwise(n: usize, of_magnitudes: f64) -> f64 {
    SINGLE * ((n.max(2) as f64).log2() + 8.0) * of_magnitudes
}

fn one(what: &str, found: f64, expected: f64, tolerance: f64) -> Result<(), Failure> {
    // NaN must fail this comparison.
    if (found - expected).abs() <= tolerance {
        return Ok(());
    }
    Err(format!("{what} is {found:e}, not {expected:e} ± {tolerance:.1e}").into())
}

/// Compares windows of the first set of `out`, including the first and the last window.
fn windows<T: Value>(
    data: &Data<T>,
    range: Range<usize>,
    expected: impl Fn(usize) -> f64,
    tolerance: impl Fn(usize, f64) -> f64,
) -> Result<(), Failure> {
    let len = range.len().min(WINDOW);
    for part in 0..=16 {
        let start = (range.len() - len) / 16 * part;
        let start = if part == 16 { range.len() - len } else { start };
        let found = data.out.slice(start..start + len).to_host()?;
        for (i, found) in (start..).zip(found) {
            let expected = expected(i);
            one(&format!("element {i}"), found.to_f64(), expected, tolerance(i, expected))?;
        }
    }
    Ok(())
}

/// Returns some of `count` rows or columns, including the first and the last.
fn lines(count: usize) -> impl Iterator<Item = usize> {
    (0..=LINES).map(move |part| (count - 1) * part / LINES)
}
