//! Replays searches on exhaustive measurements, without a device: `cargo run -p warpsmith-tuner --example replay --
//! RESULTS.json… [--timings N] [--seeds N]`.
//!
//! The files are documents of `warpsmith bench` or `warpsmith tune --strategy exhaustive`. For every case and strategy it
//! prints the timings, the loss against the best of all and the time against the default's; then, for each strategy, the
//! share of cases within 2 %.

use std::path::Path;
use std::process::ExitCode;

use warpsmith_tuner::document::Document;
use warpsmith_tuner::error::Error;
use warpsmith_tuner::search::replay::Replay;
use warpsmith_tuner::search::{Budget, Strategy, USUAL_TIMINGS, search};
use warpsmith_tuner::size::format_size;

/// The loss that counts as found.
const GOOD: f64 = 0.02;

fn main() -> ExitCode {
    let mut files = Vec::new();
    let (mut timings, mut seeds) = (USUAL_TIMINGS, 5);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let number = match argument.as_str() {
            "--timings" => &mut timings,
            "--seeds" => &mut seeds,
            _ => {
                files.push(argument);
                continue;
            }
        };
        match arguments.next().and_then(|text| text.parse().ok()).filter(|number| *number > 0) {
            Some(value) => *number = value,
            None => {
                eprintln!("error: {argument} needs a number above 0");
                return ExitCode::from(2);
            }
        }
    }
    if files.is_empty() {
        eprintln!("error: name the files of results");
        return ExitCode::from(2);
    }
    match replay(&files, timings, seeds) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// How a strategy did in one case, over all seeds.
struct Line {
    strategy: Strategy,
    timings: f64,
    losses: Vec<f64>,
    /// Times as fast as the default.
    gains: Vec<f64>,
}

fn replay(files: &[String], timings: usize, seeds: usize) -> Result<(), Error> {
    let mut lines: Vec<Line> = Vec::new();
    println!(
        "{:<28} {:<11} {:>7} {:>12} {:>12} {:>12}",
        "case", "strategy", "timings", "loss", "most", "of default"
    );
    for file in files {
        let document = Document::read(Path::new(file))?;
        for records in document.cases() {
            let first = records[0];
            let name = format!("{} {} {}", first.kernel, first.dtype, format_size(first.n));
            let Some(replay) = Replay::from_records(&records, 0) else {
                eprintln!("{name}: the default was not measured; left out");
                continue;
            };
            let (points, best, default) = (replay.points(), replay.best(), replay.truth(0));
            for strategy in Strategy::ALL {
                let mut line = Line { strategy, timings: 0.0, losses: Vec::new(), gains: Vec::new() };
                for seed in 0..seeds as u64 {
                    let Some(mut replay) = Replay::from_records(&records, seed) else { continue };
                    let budget = match strategy {
                        Strategy::Exhaustive => Budget::default(),
                        _ => Budget::timings(timings),
                    };
                    let found = search(&points, &[], strategy, budget, seed, &mut replay);
                    let Some(winner) = found.winner else { continue };
                    line.timings += found.timings as f64 / seeds as f64;
                    line.losses.push(replay.truth(winner) / best - 1.0);
                    line.gains.push(default / replay.truth(winner));
                }
                println!(
                    "{name:<28} {:<11} {:>7.1} {:>10.2} % {:>10.2} % {:>11.3}x",
                    strategy.name(),
                    line.timings,
                    100.0 * mean(&line.losses),
                    100.0 * line.losses.iter().copied().fold(0.0, f64::max),
                    mean(&line.gains),
                );
                lines.push(line);
            }
        }
    }
    println!();
    println!(
        "{:<11} {:>6} {:>12} {:>12} {:>14} {:>14}",
        "strategy", "cases", "within 2 %", "mean loss", "mean gain", "least gain"
    );
    for strategy in Strategy::ALL {
        let of: Vec<&Line> = lines.iter().filter(|line| line.strategy == strategy).collect();
        let losses: Vec<f64> = of.iter().flat_map(|line| line.losses.iter().copied()).collect();
        let gains: Vec<f64> = of.iter().flat_map(|line| line.gains.iter().copied()).collect();
        let good = losses.iter().filter(|loss| **loss <= GOOD).count() as f64 / losses.len().max(1) as f64;
        let logarithms: Vec<f64> = gains.iter().map(|gain| gain.ln()).collect();
        println!(
            "{:<11} {:>6} {:>10.1} % {:>10.2} % {:>13.3}x {:>13.3}x",
            strategy.name(),
            of.len(),
            100.0 * good,
            100.0 * mean(&losses),
            mean(&logarithms).exp(),
            gains.iter().copied().fold(f64::INFINITY, f64::min),
        );
    }
    Ok(())
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}
