//! Times of synthetic kernels over the space of this project's operations. The times are shaped like those of a large
//! GPU, with a plateau at memory bandwidth, tail effects of waves, launch latency at small sizes, and costs of blocks
//! and registers.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use fastrand::Rng;
use warpsmith_tuner::search::{CandidateResult, Objective, Points};
use warpsmith_tuner::space::{Grid, Space};
use warpsmith_tuner::value::Configuration;

use super::fakes::normal;

const MULTIPROCESSORS: f64 = 132.0;
/// Bandwidth in bytes per microsecond.
const BANDWIDTH: f64 = 4.3e6;
/// Bytes in flight per SM that are enough for half of the bandwidth.
const HALF: f64 = 12e3;

/// Kernel, type and size.
#[derive(Debug, Clone, Copy)]
pub struct Problem {
    pub kernel: &'static str,
    pub element: f64,
    pub n: f64,
    /// Seed of the roughness, which differs between problems.
    pub seed: u64,
}

/// Returns the problems: copy, axpy, sum and argmax, in f32 and bf16, from 2^16 to 2^28.
pub fn problems(seed: u64) -> Vec<Problem> {
    let mut all = Vec::new();
    for kernel in ["copy", "axpy", "sum", "argmax"] {
        for element in [4.0, 2.0] {
            for power in 16..=28 {
                let seed = Rng::with_seed(1000 * seed + all.len() as u64).u64(..);
                all.push(Problem { kernel, element, n: 2f64.powi(power), seed });
            }
        }
    }
    all
}

impl Problem {
    /// Returns the configurations, with the heuristic default first.
    pub fn configurations(&self) -> Vec<Configuration> {
        let element = self.element as u32;
        let space = Space::new()
            .axis("block", [64, 128, 256, 512])
            .axis("grid", ["auto", "waves:1", "waves:2", "waves:4", "waves:8"])
            .axis("items", [1, 2, 4, 8])
            .axis("vector", [4, 16])
            .restrict("what exists", move |c| {
                c.number("vector").is_ok_and(|vector| vector >= element && (vector == 16 || element == 4))
            });
        let mut all = space.configurations(self.kernel).unwrap();
        let reduces = self.reduces();
        let (block, grid, items) = match (reduces, self.n < 2e6) {
            (true, _) => (256, "waves:2", 4),
            (false, true) => (128, "auto", 1),
            (false, false) => (256, "auto", 2),
        };
        let is_default =
            |c: &Configuration| c.to_string() == format!("block={block} grid={grid} items={items} vector=16");
        let default = all.iter().position(is_default).unwrap();
        let default = all.remove(default);
        all.insert(0, default);
        all
    }

    fn reduces(&self) -> bool {
        matches!(self.kernel, "sum" | "argmax")
    }

    /// Returns the time of a configuration in microseconds, without noise.
    pub fn time(&self, c: &Configuration) -> f64 {
        let number = |axis: &str| f64::from(c.number(axis).unwrap());
        let (block, items, vector) = (number("block"), number("items"), number("vector"));
        let (arrays, registers) = match self.kernel {
            "copy" => (2.0, 16.0 + items * vector / 4.0),
            "axpy" => (3.0, 18.0 + 2.0 * items * vector / 4.0),
            "sum" => (1.0, 24.0 + items * vector / 4.0),
            _ => (1.0, 32.0 + 2.0 * items * vector / 4.0),
        };
        let resident = (65536.0 / (registers * block)).min(2048.0 / block).min(32.0).floor().max(1.0);
        let tile = block * items * vector / self.element;
        let tiles = (self.n / tile).ceil();
        let capacity = resident * MULTIPROCESSORS;
        let blocks = match c.get("grid").unwrap().to_string().parse::<Grid>().unwrap() {
            Grid::Auto if self.reduces() => tiles.min(capacity * 8.0),
            Grid::Auto => tiles,
            Grid::Waves(waves) => tiles.min(capacity * f64::from(waves)),
            Grid::Blocks(blocks) => f64::from(blocks),
        };
        // These are the bytes in flight, and the bandwidth that they reach.
        let at_once = blocks.min(capacity) / MULTIPROCESSORS;
        let loads = if arrays > 2.0 { 2.0 } else { 1.0 };
        let flight = at_once * block * items * vector * loads;
        let narrow = if vector < 16.0 { 0.93 } else { 1.0 };
        let reached = flight.powf(1.4) / (flight.powf(1.4) + HALF.powf(1.4)) * narrow;
        let bytes = self.n * self.element * arrays;
        let moving = bytes / (BANDWIDTH * reached);
        // The last wave leaves part of the device idle, and larger blocks increase this part.
        let waves = (blocks / capacity).max(1e-9);
        let passes = (tiles / blocks).max(1.0);
        let tail = if waves > 1.0 {
            (waves.ceil() / waves - 1.0) * 0.35
        } else {
            (passes.ceil() / passes - 1.0) * 0.25 + (1.0 - (blocks / MULTIPROCESSORS).min(1.0)) * 0.2
        };
        let starting = blocks / MULTIPROCESSORS * (0.004 + 0.00004 * block);
        let chain = 0.55 + 0.09 * items + passes.min(8.0) * 0.11 + block * 0.0006;
        let finishing = match (self.reduces(), self.kernel) {
            (false, _) => 0.0,
            (true, "sum") => 0.7 + blocks * 0.0011,
            _ => 1.1 + blocks * 0.0016,
        };
        let instructions = match self.kernel {
            "argmax" => self.n / (1.9e6 * (1.0 - 0.35 / items)) * (4.0 / vector).sqrt(),
            _ => 0.0,
        };
        let rough = 1.0 + 0.012 * (Rng::with_seed(self.seed ^ hash(&c.to_string())).f64() - 0.5);
        (1.9 + chain + finishing + starting + (moving * (1.0 + tail)).max(instructions)) * rough
    }
}

/// Times of a problem with noise.
pub struct Noisy {
    pub truth: Vec<f64>,
    pub points: Points,
    random: Rng,
    /// Number of trials that were requested.
    pub trials: usize,
}

impl Noisy {
    pub fn of(problem: &Problem, seed: u64) -> Self {
        let configurations = problem.configurations();
        let truth = configurations.iter().map(|c| problem.time(c)).collect();
        Self { truth, points: Points::of(&configurations), random: Rng::with_seed(seed), trials: 0 }
    }

    pub fn best(&self) -> f64 {
        self.truth.iter().copied().fold(f64::INFINITY, f64::min)
    }
}

impl Objective for Noisy {
    fn measure(&mut self, candidates: &[usize], rounds: usize) -> Vec<CandidateResult> {
        self.trials += candidates.len() * rounds;
        let mut time = |candidate: usize| self.truth[candidate] * (1.0 + 0.005 * normal(&mut self.random));
        candidates.iter().map(|&c| CandidateResult::Times((0..rounds).map(|_| time(c)).collect())).collect()
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}
