//! [`run`]: measures the decoding of random tokens with random weights.

use std::time::Instant;

use serde_json::{Value, json};
use warpsmith::ops::{self, Sampling};
use warpsmith::prelude::*;

use crate::config::{Config, DECODERS};
use crate::engine::{Engine, Limits, Request};
use crate::error::{Error, Result};
use crate::linear::WeightFormat;
use crate::model::PAGE;

/// Steps before a measurement.
const WARM_UP: usize = 5;
/// Measurements, of which the fastest counts.
const REPEATS: usize = 5;

/// Returns the configuration of a shape (`llama-3-8b`, `qwen3-0.6b`, `tiny`) or of a folder.
pub fn config(shape_or_folder: &str) -> Result<Config> {
    let text = match shape_or_folder {
        "llama-3-8b" => include_str!("shapes/llama-3-8b.json"),
        "qwen3-0.6b" => include_str!("shapes/qwen3-0.6b.json"),
        "tiny" => include_str!("shapes/tiny.json"),
        folder => return Config::read(folder.as_ref(), &DECODERS),
    };
    Config::parse(text.as_bytes(), &DECODERS).map_err(Error::at(shape_or_folder))
}

/// Measures `steps` decoding steps of `batch` sequences with `context` tokens each, and returns the result as JSON.
///
/// `prefill_ms` is the time for a prompt of `context` tokens, until the first token. `bytes_per_step` counts the
/// weights, keys and values that a GPU must read per step. `ratio_to_read_probe` compares the resulting bandwidth with
/// the bandwidth of a sum over an array, in the same run.
pub fn run(
    streams: &[Stream],
    (name, config): (&str, Config),
    format: WeightFormat,
    (batch, context, steps): (usize, usize, usize),
) -> Result<Value> {
    // A sequence starts per step, while the others are decoded.
    let total = context + batch + (REPEATS + 1) * steps + WARM_UP;
    let limits = Limits { sequences: batch, chunk: 2048.min(total), pages: None };
    let mut engine = Engine::load(streams, &config, total, format, None, limits)?;
    let stream = &engine.stream.clone();
    let request = |max_tokens| {
        let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
        Request { prompt: vec![1; context], max_tokens, sampling, ignores_end: true }
    };
    let mut prefill = f64::INFINITY;
    // The first pass loads the kernels.
    for _ in 0..2 {
        stream.synchronize()?;
        let start = Instant::now();
        engine.submit(request(1))?;
        while !engine.is_empty() {
            engine.step()?;
        }
        prefill = prefill.min(start.elapsed().as_secs_f64());
    }
    for _ in 0..batch {
        engine.submit(request(total))?;
    }
    while engine.running() < batch {
        if let Some(output) = engine.step()?.into_iter().find(|output| output.finish.is_some()) {
            return Err(Error::at("a sequence ended")(format!("{:?}", output.finish)));
        }
    }
    for _ in 0..WARM_UP {
        engine.step()?;
    }
    let of_token = engine.model.page_bytes() / PAGE as u64;
    let bytes = engine.model.bytes_per_step + of_token * engine.cached_tokens() as u64;
    let mut fastest = f64::INFINITY;
    for _ in 0..REPEATS {
        stream.synchronize()?;
        let start = Instant::now();
        for _ in 0..steps {
            engine.step()?;
        }
        stream.synchronize()?;
        fastest = fastest.min(start.elapsed().as_secs_f64() / steps as f64);
    }
    let (bandwidth, probe) = (bytes as f64 / fastest / 1e9, read_probe(stream)?);
    Ok(json!({
        "device": stream.device().name(),
        "shape": name,
        "gpus": streams.len(),
        "layers": config.layers,
        "weights": format!("{format:?}").to_lowercase(),
        "batch": batch,
        "context": context,
        "prefill_ms": prefill * 1e3,
        "ms_per_step": fastest * 1e3,
        "tokens_per_second": batch as f64 / fastest,
        "bytes_per_step": bytes,
        "bandwidth_gb_s": bandwidth,
        "read_probe_gb_s": probe,
        "ratio_to_read_probe": bandwidth / probe,
    }))
}

/// Returns the bandwidth of a sum over an array that is larger than the caches, in GB/s.
fn read_probe(stream: &Stream) -> Result<f64> {
    let len = if stream.device().is_emulated() { 1 << 16 } else { 1 << 30 };
    let x = DeviceBuffer::<f32>::zeros(stream, len)?;
    let mut sum = DeviceBuffer::<f32>::uninit(stream, 1)?;
    let mut fastest = f64::INFINITY;
    for _ in 0..10 {
        let before = stream.record_timed_event()?;
        ops::sum_into(stream, &x, &mut sum)?;
        let after = stream.record_timed_event()?;
        after.synchronize()?;
        fastest = fastest.min(after.elapsed_us(&before)? / 1e6);
    }
    Ok((len * size_of::<f32>()) as f64 / fastest / 1e9)
}
