//! [`Keys`]: the attention mask for rows of q. [`Rows`]: the online softmax over their scores.

use gpu_std::math::{Math, fast};
use gpu_std::prelude::*;

use crate::sequences::{Place, Sequences};

/// Range of the rows of k to which each row of q attends. The range starts at the first row of the sequence.
#[derive(Clone, Copy)]
pub(crate) struct Keys {
    count: u32,
    is_causal: bool,
    /// Number of rows of k minus number of rows of q.
    ahead: i32,
}

impl Keys {
    #[inline(always)]
    pub fn new(place: &Place, is_causal: bool) -> Self {
        Self { count: place.k.1, is_causal, ahead: place.k.1 as i32 - place.q.1 as i32 }
    }

    /// Returns the first row of k to which row `row` of q does not attend.
    #[inline(always)]
    pub fn before(self, row: u32) -> u32 {
        if !self.is_causal {
            return self.count;
        }
        let before = row as i32 + 1 + self.ahead;
        if before < 0 { 0 } else { self.count.min(before as u32) }
    }

    /// Returns the first row of q that attends to row `key` of k, which must exist.
    #[inline(always)]
    pub fn first_row(self, key: u32) -> u32 {
        let row = key as i32 - self.ahead;
        if self.is_causal && row > 0 { row as u32 } else { 0 }
    }
}

/// Online softmax state of two rows of scores; each thread holds a quarter of each row.
pub(crate) struct Rows {
    /// Running maximum of the scores; `-inf` before the first score.
    largest: [f32; 2],
    /// Running sums of this thread's `exp2` values, relative to the maximum.
    sums: [f32; 2],
}

impl Rows {
    /// Returns the identity: the state of empty rows.
    #[inline(always)]
    pub fn new() -> Self {
        Self { largest: [f32::NEG_INFINITY; 2], sums: [0.0; 2] }
    }

    /// Returns the base that is subtracted from the exponents of a row.
    #[inline(always)]
    pub fn base(&self, half: usize, scale: f32) -> f32 {
        if self.largest[half] == f32::NEG_INFINITY { 0.0 } else { self.largest[half] * scale }
    }

    /// Replaces each score by its `exp2` relative to the running maximum. Returns the factors by which earlier values
    /// must be multiplied.
    #[inline(always)]
    pub fn probabilities(&mut self, scores: &mut [f32], scale: f32) -> [f32; 2] {
        let mut factors = [0.0; 2];
        let mut half = 0;
        while half < 2 {
            let largest = self.maximum(half, scores);
            factors[half] = self.raise(half, largest, scale);
            self.exponentials(half, scores, scale);
            half += 1;
        }
        factors
    }

    /// Returns the maximum of a row's scores and its running maximum.
    #[inline(always)]
    pub fn maximum(&self, half: usize, scores: &[f32]) -> f32 {
        // Each row uses two dependency chains, because the latencies of a single chain would add up.
        let mut largest = [self.largest[half]; 2];
        let mut j = 2 * half;
        while j < scores.len() {
            largest = [largest[0].max(scores[j]), largest[1].max(scores[j + 1])];
            j += 4;
        }
        let largest = largest[0].max(largest[1]);
        let largest = largest.max(warp::shuffle_xor(!0, largest, 1));
        largest.max(warp::shuffle_xor(!0, largest, 2))
    }

    /// Returns the maximum of a row's scores and its running maximum if `exp2` values relative to the latter could exceed
    /// 256, and otherwise the running maximum.
    #[inline(always)]
    pub fn raised(&self, half: usize, scores: &[f32], scale: f32) -> f32 {
        let largest = self.maximum(half, scores);
        if (largest - self.largest[half]) * scale > 8.0 { largest } else { self.largest[half] }
    }

    /// Returns true if the running maximum of a row is below a number.
    #[inline(always)]
    pub fn is_below(&self, half: usize, largest: f32) -> bool {
        self.largest[half] < largest
    }

    /// Sets the running maximum of a row. Returns the factor by which earlier values must be multiplied.
    #[inline(always)]
    pub fn raise(&mut self, half: usize, largest: f32, scale: f32) -> f32 {
        let before = self.largest[half];
        self.largest[half] = largest;
        let factor = fast::exp2(before * scale - self.base(half, scale));
        self.sums[half] *= factor;
        factor
    }

    /// Replaces a row's scores by their `exp2` relative to the running maximum.
    #[inline(always)]
    pub fn exponentials(&mut self, half: usize, scores: &mut [f32], scale: f32) {
        let base = self.base(half, scale);
        let mut sums = [self.sums[half], 0.0];
        let mut j = 2 * half;
        while j < scores.len() {
            scores[j] = fast::exp2(Math::mul_add(scores[j], scale, -base));
            scores[j + 1] = fast::exp2(Math::mul_add(scores[j + 1], scale, -base));
            sums = [sums[0] + scores[j], sums[1] + scores[j + 1]];
            j += 4;
        }
        self.sums[half] = sums[0] + sums[1];
    }

    /// Returns the sums of whole rows.
    #[inline(always)]
    pub fn totals(&self) -> [f32; 2] {
        self.sums.map(|sum| {
            let sum = sum + warp::shuffle_xor(!0, sum, 1);
            sum + warp::shuffle_xor(!0, sum, 2)
        })
    }

    /// Stores the log-sum-exp of rows `row` and `row + 8` of a tile's sequence, which have the sums `totals`. One of
    /// the four threads that share the rows stores.
    ///
    /// # Safety
    /// `to` must have one element per row of each head of each plane, and nothing else may access the elements of these
    /// rows.
    #[inline(always)]
    pub unsafe fn store_lse(
        &self,
        to: &mut DisjointMut<f32>,
        place: &Place,
        sequences: &Sequences,
        row: u32,
        totals: [f32; 2],
        scale: f32,
    ) {
        if !warp::lane_id().is_multiple_of(4) {
            return;
        }
        let head = u64::from(place.plane) * u64::from(sequences.heads) + u64::from(place.head);
        let first = head * u64::from(sequences.q_rows) + u64::from(place.q.0);
        let mut half = 0;
        while half < 2 {
            let row = row + 8 * half as u32;
            if row < place.q.1 {
                let logarithm = (self.base(half, scale) + fast::log2(totals[half])) * core::f32::consts::LN_2;
                // SAFETY: guaranteed by the caller.
                unsafe { to.as_mut_ptr().add((first + u64::from(row)) as usize).write(logarithm) };
            }
            half += 1;
        }
    }
}

/// Returns the factors by which two rows are divided by their sums. The sum of a row that attends to no rows is 0; a
/// NaN sum stays NaN.
#[inline(always)]
pub(crate) fn reciprocals(totals: [f32; 2]) -> [f32; 2] {
    totals.map(|total| if total == 0.0 { 0.0 } else { fast::recip(total) })
}

/// Masks the scores of rows of k to which the thread's two rows of q do not attend, in a block that starts at row
/// `first` of k. `limits` are the ends of the attended ranges of both rows of q, minus the thread's first column.
#[inline(always)]
pub(crate) fn mask(scores: &mut [f32], limits: [i32; 2], first: u32) {
    let limits = limits.map(|limit| limit - first as i32);
    let mut i = 0;
    while i < scores.len() {
        if (i / 4 * 8 + i % 2) as i32 >= limits[i / 2 % 2] {
            scores[i] = f32::NEG_INFINITY;
        }
        i += 1;
    }
}

/// Multiplies each of the thread's two rows by its factor.
#[inline(always)]
pub(crate) fn scale(values: &mut [f32], factors: [f32; 2]) {
    let mut i = 0;
    while i < values.len() {
        values[i] *= factors[i / 2 % 2];
        i += 1;
    }
}
