//! Quality of tuning. For each kernel, type and size, this benchmark compares four configurations: the one that
//! `warpsmith tune` selects with 32 trials, the best one of an exhaustive search, the default, and an occupancy-based
//! one. The last has the block size with maximum occupancy and one access per thread. All four are then timed again
//! with interleaved samples. `docs/benchmarks/tuner.md` contains a summary of the table.
//!
//! Run it with `WARPSMITH_BENCH_DEVICE=cuda:0 cargo bench --features bench --bench tuning`. On the emulated device, it
//! only checks that it runs.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use warpsmith::bench::case::Case;
use warpsmith::bench::measure::{Effort, Mode, Stopwatch};
use warpsmith::bench::run::{Plan, PlannedCase, Request};
use warpsmith::bench::stats::paired_ratio;
use warpsmith::bench::tune::{Event, Tuned, Tuning, tune};
use warpsmith::bench::value::{Configuration, Value};
use warpsmith::prelude::*;

/// Maximum number of trials in a search.
const TRIALS: usize = 32;
/// Maximum duration of the last comparison of a case in microseconds, and the minimum and maximum number of samples per
/// configuration.
const COMPARED_US: f64 = 150_000.0;
const ROUNDS: std::ops::RangeInclusive<f64> = 25.0..=300.0;
/// Sampling effort per configuration in the exhaustive search.
const EXHAUSTIVE: Effort =
    Effort { minimum: 7, most: 25, budget_us: 5000.0, precision: 0.002, ..Effort::NORMAL };

/// Results of the last comparison of a case, as ratios of times.
struct Row {
    name: String,
    size: usize,
    tuned: Configuration,
    best: Configuration,
    /// Tuned time, divided by the best time of the exhaustive search.
    loss: f64,
    /// Default time, divided by the tuned time.
    over_default: f64,
    /// Time of the block size with maximum occupancy, divided by the tuned time.
    over_occupancy: f64,
    trials: usize,
}

impl Row {
    fn print(&self) {
        let Self { name, size, tuned, best, loss, over_default, over_occupancy, trials } = self;
        let values = |configuration: &Configuration| {
            configuration.iter().map(|(_, value)| value.to_string()).collect::<Vec<_>>().join(" ")
        };
        let (tuned, best) = (values(tuned), values(best));
        println!(
            "| {name} | {size} | {tuned} | {best} | {loss:.3} | {over_default:.3} | {over_occupancy:.3} | {trials} |"
        );
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let device = match std::env::var("WARPSMITH_BENCH_DEVICE") {
        Ok(name) => Device::open(&name)?,
        Err(_) => Device::emulated(0)?,
    };
    let (sizes, dtypes): (&[u32], &[&str]) = if device.is_emulated() {
        (&[10], &["f32"])
    } else {
        (&[16, 18, 20, 22, 24, 26, 28], &["f32", "bf16"])
    };
    let request = Request {
        kernels: ["copy", "axpy", "reduce_sum", "reduce_argmax"].map(str::to_owned).to_vec(),
        dtypes: dtypes.iter().map(|&dtype| dtype.to_owned()).collect(),
        sizes: sizes.iter().map(|&log| 1 << log).collect(),
        axes: Vec::new(),
        mode: Mode::Cold,
        effort: Effort::NORMAL,
        seed: None,
    };
    let suite = warpsmith::bench::suite(Vec::new());
    let plan = Plan::new(&suite, &device, &request)?;
    // The store is in memory, so that results of earlier runs are ignored and none are left behind.
    warpsmith::store::LaunchStore::in_memory().install(&device);
    let started = Instant::now();
    let tuned = tune_all(&plan)?;
    let tuning_seconds = started.elapsed().as_secs_f64();
    let stream = Stream::new(&device)?;
    let mut watch = Stopwatch::new(&stream)?;
    let mut rows = Vec::new();
    println!(
        "| kernel | 2^n | tuned | best of all | tuned / best | default / tuned | occupancy / tuned | trials |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- | --- |");
    for (planned, tuned) in plan.cases.iter().zip(&tuned) {
        let row = row(&stream, &mut watch, planned, tuned)?;
        row.print();
        rows.push(row);
    }
    print_summary(&rows, tuning_seconds, started.elapsed().as_secs_f64());
    Ok(())
}

fn tune_all(plan: &Plan<'_>) -> Result<Vec<Tuned>, Box<dyn Error>> {
    let tuning = Tuning { trials: Some(TRIALS), ..Tuning::default() };
    let mut all = Vec::new();
    let mut each = |event: Event<'_>| {
        if let Event::Done { tuned, .. } = event {
            all.push(tuned.clone());
        }
    };
    tune(plan, &tuning, &Arc::default(), &mut each)?;
    Ok(all)
}

/// Runs the exhaustive search, and then times all compared configurations with interleaved samples.
fn row(
    stream: &Stream,
    watch: &mut Stopwatch,
    planned: &PlannedCase<'_>,
    tuned: &Tuned,
) -> Result<Row, Box<dyn Error>> {
    let mut case = planned.prepare(stream, 1)?;
    let best = exhaustive(watch, planned, &mut *case)?;
    let winner = tuned.winner().ok_or("no configuration is correct")?.configuration.clone();
    let occupancy = max_occupancy(stream, planned)?;
    let compared = [&winner, &best, planned.default_configuration(), &occupancy];
    let sample_us = tuned.winner().and_then(|winner| winner.median_us()).unwrap_or(COMPARED_US).max(100.0);
    let rounds = (COMPARED_US / sample_us).clamp(*ROUNDS.start(), *ROUNDS.end()) as usize;
    let timings = watch.interleave(&mut *case, compared, Mode::Cold, rounds)?;
    let ratio = |a: usize, b: usize| {
        // Equal configurations have equal times, so a difference between their medians would be random.
        if compared[a] == compared[b] {
            return Ok(1.0);
        }
        let ratio = paired_ratio(&timings[a].samples_us, &timings[b].samples_us);
        ratio.map(|ratio| ratio.value).ok_or("too few samples")
    };
    Ok(Row {
        name: format!("{} {}", planned.benchmark.name(), planned.dtype),
        size: planned.n.ilog2() as usize,
        loss: ratio(0, 1)?,
        over_default: ratio(2, 0)?,
        over_occupancy: ratio(3, 0)?,
        trials: tuned.made,
        tuned: winner,
        best,
    })
}

fn exhaustive(
    watch: &mut Stopwatch,
    planned: &PlannedCase<'_>,
    case: &mut dyn Case,
) -> Result<Configuration, Box<dyn Error>> {
    let mut best: Option<(f64, &Configuration)> = None;
    for configuration in &planned.configurations {
        let timing = watch.time(case, configuration, Mode::Cold, EXHAUSTIVE)?;
        let median = timing.summary().map_or(f64::INFINITY, |summary| summary.median);
        if best.is_none_or(|(minimum, _)| median < minimum) {
            best = Some((median, configuration));
        }
    }
    Ok(best.ok_or("the space is empty")?.1.clone())
}

/// Returns the block size with maximum occupancy according to the driver, with one access of the smallest kind per
/// thread.
fn max_occupancy(stream: &Stream, planned: &PlannedCase<'_>) -> Result<Configuration, Box<dyn Error>> {
    let number = |configuration: &Configuration, axis| configuration.number(axis).unwrap_or(0);
    let minimum = planned.configurations.iter().min_by_key(|c| (number(c, "items"), number(c, "vector")));
    let minimum = minimum.ok_or("the space is empty")?.clone().with("grid", Value::from("auto"));
    let spec = planned.benchmark.instance(planned.dtype, &minimum).ok_or("no instance")?;
    let function = stream.device().load(planned.benchmark.image())?.function(spec)?;
    Ok(minimum.with("block", function.potential_block(|_| 0)?.block))
}

fn print_summary(rows: &[Row], tuning_seconds: f64, seconds: f64) {
    let share = |count: usize| 100.0 * count as f64 / rows.len() as f64;
    let mean = |of: fn(&Row) -> f64| {
        (rows.iter().map(|row| of(row).ln()).sum::<f64>() / rows.len().max(1) as f64).exp()
    };
    println!();
    println!(
        "within 2 % of the best: {:.1} % of {}",
        share(rows.iter().filter(|r| r.loss <= 1.02).count()),
        rows.len()
    );
    println!("slower than 1 % below the default: {}", rows.iter().filter(|r| r.over_default < 0.99).count());
    println!("most trials: {}", rows.iter().map(|r| r.trials).max().unwrap_or(0));
    println!("geometric mean over the default: {:.3}", mean(|row| row.over_default));
    println!("geometric mean over the most occupancy: {:.3}", mean(|row| row.over_occupancy));
    println!("tuning took {tuning_seconds:.1} s, all {seconds:.1} s");
}
