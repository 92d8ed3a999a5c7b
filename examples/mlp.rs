//! A small network learns to which of three spirals a point belongs. cuBLAS runs the GEMMs, Rust kernels run the rest,
//! and a training step is one graph.
//!
//! `cargo run --release --example mlp -- [DEVICE]`, where DEVICE is `cpu`, `cuda:0`, …; the default is the best
//! available device. The kernels are in `test_kernels::train`, and the training is in `training/mod.rs`.

mod training;

use std::time::Instant;

use warpsmith::graph::Graph;
use warpsmith::ops;
use warpsmith::prelude::*;

use crate::training::{POINTS, Result, Training, spirals};

/// Number of training steps. The emulated device is slow, so it runs only as many as it needs.
const STEPS: usize = 600;
const STEPS_EMULATED: usize = 100;

fn main() -> Result<()> {
    let device = match std::env::args().nth(1) {
        Some(name) => Device::open(&name)?,
        None => Device::best()?,
    };
    let stream = Stream::new(&device)?;
    let mut training = Training::new(&stream)?;
    training.check_gradient(&stream)?;

    // The first step also loads kernels and libraries. Afterwards, a step is captured and launched repeatedly.
    training.step(&stream)?;
    let eager = Instant::now();
    for _ in 0..20 {
        training.step(&stream)?;
    }
    stream.synchronize()?;
    let eager = eager.elapsed().as_secs_f64() / 20.0;
    let graph = Graph::capture(&stream, || training.step(&stream))?;
    let step = graph.instantiate()?;
    let start = Instant::now();
    let steps = if device.is_emulated() { STEPS_EMULATED } else { STEPS };
    for done in 1..=steps {
        step.launch(&stream)?;
        if done % (steps / 5) == 0 {
            println!("step {done:3}: loss {:.4}", ops::mean(&stream, &training.batch.losses)?);
        }
    }
    stream.synchronize()?;
    let captured = start.elapsed().as_secs_f64() / steps as f64;

    let (points, labels) = spirals(1);
    let accuracy = training.network.accuracy(&stream, &points, &labels)?;
    println!(
        "{}: {:.1} % of {POINTS} new points are correct; a step takes {:.1} us, {:.1} us as a graph",
        device.name(),
        accuracy * 100.0,
        eager * 1e6,
        captured * 1e6
    );
    if accuracy < 0.95 { Err(format!("only {:.1} % are correct", accuracy * 100.0).into()) } else { Ok(()) }
}
