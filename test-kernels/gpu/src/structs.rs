//! Structs, enums and `bool` as parameters, elements and values that threads exchange; optional slices; math methods.

use gpu_std::prelude::*;
use gpu_std::{Checked, warp};

/// A score and its index.
#[derive(Debug, Clone, Copy, PartialEq, KernelType)]
#[repr(C)]
pub struct Candidate {
    /// Score to compare.
    pub score: f32,
    /// Index of the score.
    pub index: u32,
}

impl Candidate {
    /// Returns the candidate with the higher score; of equal scores, the one with the lower index.
    #[inline(always)]
    pub fn better(self, other: Self) -> Self {
        let is_better = other.score > self.score || other.score == self.score && other.index < self.index;
        if is_better { other } else { self }
    }
}

/// Best candidate of each block's scores; the launch has one thread per score.
#[kernel]
pub fn best_of_block(scores: &[f32], mut best: DisjointMut<Candidate, PerBlock>) {
    let index = thread::unique_index().get();
    let score = scores.get(index).copied().unwrap_or(f32::NEG_INFINITY);
    let winner = block::reduce(Candidate { score, index: index as u32 }, Candidate::better);
    if let Some(best) = best.get_mut(block::unique_index()) {
        *best = winner;
    }
}

/// A linear function modulo 2³², with 16-bit sums. Its composition is associative but not commutative. It has 20 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelType)]
#[repr(C)]
pub struct Linear {
    /// The factor.
    pub scale: u32,
    /// Offset that is added.
    pub offset: u32,
    /// Running sums.
    pub sums: [u16; 6],
}

impl Linear {
    /// The identity function.
    pub const IDENTITY: Self = Self { scale: 1, offset: 0, sums: [0; 6] };

    /// Composition: this function, followed by `next`.
    #[inline(always)]
    pub fn then(self, next: Self) -> Self {
        let mut sums = self.sums;
        for (sum, add) in sums.iter_mut().zip(&next.sums) {
            *sum = sum.wrapping_add(*add);
        }
        Self {
            scale: self.scale.wrapping_mul(next.scale),
            offset: self.offset.wrapping_mul(next.scale).wrapping_add(next.offset),
            sums,
        }
    }
}

/// Scans in warps (inclusive), in tiles of 8 (exclusive) and in blocks (exclusive), and the total of each block. The
/// launch has one thread per element, in whole warps.
#[kernel(launch_bounds(256))]
pub fn compose(
    input: &[Linear],
    mut scans: DisjointMut<[Linear; 3]>,
    mut totals: DisjointMut<Linear, PerBlock>,
) {
    let index = thread::unique_index();
    let value = input.get(index.get()).copied().unwrap_or(Linear::IDENTITY);
    let results = [
        warp::inclusive_scan(warp::FULL_MASK, value, Linear::then),
        Tile::<8>::current().exclusive_scan(value, Linear::IDENTITY, Linear::then),
        block::exclusive_scan(value, Linear::IDENTITY, Linear::then),
    ];
    let total = block::reduce(value, Linear::then);
    if let Some(scans) = scans.get_mut(index) {
        *scans = results;
    }
    if let Some(out) = totals.get_mut(block::unique_index()) {
        *out = total;
    }
}

/// An operation on an element.
#[derive(Debug, Clone, Copy, PartialEq, Eq, KernelValue)]
#[repr(i16)]
pub enum Mode {
    /// Adds the factor.
    Add = -5,
    /// Multiplies by the factor.
    Multiply,
    /// Leaves the value unchanged.
    Keep = 300,
}

/// A parameter with an enum, a `bool` and padding.
#[derive(Debug, Clone, Copy, KernelValue)]
#[repr(C)]
pub struct Settings {
    /// Negates the factor.
    pub is_negative: bool,
    /// The factor.
    pub factor: f64,
    /// Mode of elements without a mode of their own.
    pub mode: Mode,
}

/// Changes each element by its mode if `is_on`, and writes the mode that was used.
#[kernel]
pub fn by_mode(
    is_on: bool,
    settings: Settings,
    modes: &[Checked<Mode>],
    mut data: DisjointMut<f64>,
    mut used: DisjointMut<Checked<Mode>>,
) {
    let index = thread::unique_index();
    let (Some(x), Some(used), Some(mode)) =
        (data.get_mut(index), used.get_mut(index), modes.get(index.get()))
    else {
        return;
    };
    let mode = mode.get().unwrap_or(settings.mode);
    let factor = if settings.is_negative { -settings.factor } else { settings.factor };
    if is_on {
        *x = match mode {
            Mode::Add => *x + factor,
            Mode::Multiply => *x * factor,
            Mode::Keep => *x,
        };
    }
    *used = mode.into();
}

/// Computes `out = x + bias`, and copies `x` to `copy`. Optional slices that are not passed are left out.
#[kernel(no_panic)]
pub fn add_optional(
    x: &[f32],
    bias: Option<&[f32]>,
    mut out: DisjointMut<f32>,
    mut copy: Option<DisjointMut<f32>>,
) {
    let index = thread::unique_index();
    let Some(&x) = x.get(index.get()) else { return };
    if let Some(out) = out.get_mut(index) {
        *out = x + bias.and_then(|bias| bias.get(index.get())).copied().unwrap_or(0.0);
    }
    if let Some(copy) = copy.as_mut().and_then(|copy| copy.get_mut(index)) {
        *copy = x;
    }
}

/// Calls functions that `core` lacks as methods.
#[kernel(no_panic)]
pub fn methods(input: &[f32], mut out: DisjointMut<[f32; 10]>) {
    let index = thread::unique_index();
    if let (Some(&x), Some(out)) = (input.get(index.get()), out.get_mut(index)) {
        let (sin, cos) = x.sin_cos();
        *out = [
            x.sin() - sin,
            cos,
            x.powi(-3),
            x.powf(1.5),
            x.log(3.0),
            x.fract(),
            x.rem_euclid(0.7),
            x.div_euclid(0.7),
            x.sqrt().mul_add(x, x.exp_m1()),
            x.round_ties_even() + x.hypot(1.0).cbrt(),
        ];
    }
}

/// A type-specific operation.
pub trait Bend: KernelType {
    /// Applies the operation.
    fn bend(self) -> Self;
}

impl Bend for f32 {
    #[inline(always)]
    fn bend(self) -> f32 {
        self * 2.0
    }
}

impl Bend for i64 {
    #[inline(always)]
    fn bend(self) -> i64 {
        -self
    }
}

impl Bend for Candidate {
    #[inline(always)]
    fn bend(self) -> Self {
        Self { score: -self.score, ..self }
    }
}

/// Applies the operation to each element.
#[kernel(types(T = f32, i64, Candidate))]
pub fn bend<T: Bend>(x: &[T], mut out: DisjointMut<T>) {
    let index = thread::unique_index();
    if let (Some(x), Some(out)) = (x.get(index.get()), out.get_mut(index)) {
        *out = x.bend();
    }
}
