//! Profiles the training of `mlp`, step by step and as a graph, and reports whether a step is launch-bound.
//!
//! `cargo run --release --example profile -- [DEVICE [FOLDER]]`, where DEVICE is `cpu`, `cuda:0`, …; the default is the
//! best available device. If a folder is passed, both traces are written to it, for ui.perfetto.dev and as HTML pages.

#[allow(dead_code, reason = "`mlp` uses the rest")]
mod training;

use std::path::{Path, PathBuf};

use warpsmith::graph::Graph;
use warpsmith::prelude::*;
use warpsmith::profiler::trace::{Summary, Trace};
use warpsmith::profiler::{Profiler, ProfilerOptions};

use crate::training::{Result, Training};

/// Number of steps that are recorded.
const STEPS: u64 = 20;
/// Minimum number of kernels per step. This is the count on the emulated device, where GEMMs run on the host; a GPU
/// runs more kernels.
const MIN: u64 = 5;
/// A step is launch-bound if the device waits for the host for more than this fraction of the time.
const BOUND: f64 = 0.1;

fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let folder = std::env::args().nth(2).map(PathBuf::from);
    let stream = Stream::new(&device)?;
    let mut training = Training::new(&stream)?;

    // The first step also loads kernels and libraries, so it is not recorded.
    training.step(&stream)?;
    stream.synchronize()?;
    let eager = recorded(&device, || training.step(&stream))?;
    let step = Graph::capture(&stream, || training.step(&stream))?.instantiate()?;
    step.launch(&stream)?;
    stream.synchronize()?;
    let captured = recorded(&device, || step.launch(&stream))?;

    let summary = eager.summary();
    println!("{}", summary.text(8));
    for (name, trace) in [("eager", &eager), ("graph", &captured)] {
        println!("{name}: {}", verdict(&trace.summary())?);
        if let Some(folder) = &folder {
            write(trace, folder, name)?;
        }
    }
    match summary.launch_bound.first() {
        Some(late) => {
            println!("The device waited longest for {}: {:.1} us.", late.name, late.total as f64 / 1e3)
        }
        None => println!("The device never waited for the host."),
    }
    Ok(())
}

/// Returns the trace of several steps.
fn recorded(device: &Device, mut step: impl FnMut() -> warpsmith::Result<()>) -> Result<Trace> {
    let profiler = Profiler::start(ProfilerOptions::default().device(device))?;
    for _ in 0..STEPS {
        step()?;
    }
    Ok(profiler.stop()?)
}

/// Reports whether the steps are launch-bound or GPU-bound.
fn verdict(summary: &Summary) -> Result<String> {
    let device = summary.devices.first().ok_or("the trace has no kernel")?;
    let ran: u64 = summary.kernels.iter().chain(&summary.transfers).map(|row| row.count).sum();
    if ran < STEPS * MIN || summary.loss.lost() > 0 {
        return Err(format!(
            "{ran} kernels and copies of {STEPS} steps are in the trace, {:?}",
            summary.loss
        )
        .into());
    }
    let share = |part: u64| part as f64 / device.span as f64;
    let bound = match (share(device.launch_bound), share(device.busy)) {
        (late, _) if late > BOUND => "launch-bound",
        (_, busy) if busy > 1.0 - BOUND => "bound by the device",
        _ => "bound by neither",
    };
    Ok(format!(
        "{bound}: a step takes {:.1} us, the device is busy in {:.1} % of it and waits for the host in {:.1} %",
        device.span as f64 / 1e3 / STEPS as f64,
        share(device.busy) * 100.0,
        share(device.launch_bound) * 100.0
    ))
}

fn write(trace: &Trace, folder: &Path, name: &str) -> Result<()> {
    trace.write_chrome(folder.join(format!("{name}.json.gz")))?;
    trace.write_html(folder.join(format!("{name}.html")), &format!("Training, {name}"))?;
    Ok(())
}
