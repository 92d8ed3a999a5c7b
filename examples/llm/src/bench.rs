//! [`run`]: measures the decoding of random tokens with random weights.

use std::time::Instant;

use serde::Serialize;
use warpsmith::ops::{self, Sampling};
use warpsmith::prelude::*;

use crate::config::Config;
use crate::engine::{Engine, Limits, Request};
use crate::error::{Error, Result};
use crate::linear::WeightFormat;
use crate::model::{Cache, Model, PAGE, Source};

/// Steps before a measurement.
const WARM_UP: usize = 5;
/// Measurements, of which the fastest counts.
const REPEATS: usize = 5;

/// Result of a benchmark, for JSON.
#[derive(Debug, Serialize)]
pub struct Report {
    pub device: String,
    pub shape: String,
    pub layers: usize,
    pub weights: String,
    pub batch: usize,
    pub context: usize,
    /// Time for a prompt of `context` tokens, until the first token.
    pub prefill_ms: f64,
    pub ms_per_step: f64,
    pub tokens_per_second: f64,
    /// Bytes of weights, keys and values that a step must read.
    pub bytes_per_step: u64,
    pub bandwidth_gb_s: f64,
    /// Bandwidth of a sum over an array, in the same run.
    pub read_probe_gb_s: f64,
    /// `bandwidth_gb_s / read_probe_gb_s`.
    pub ratio_to_read_probe: f64,
}

/// Returns the `config.json` of a model by name.
fn shape(name: &str) -> Option<&'static str> {
    match name {
        "llama-3-8b" => Some(
            r#"{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
                "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "rms_norm_eps": 1e-5,
                "max_position_embeddings": 131072, "rope_theta": 500000.0}"#,
        ),
        "qwen3-0.6b" => Some(
            r#"{"model_type": "qwen3", "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
                "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "vocab_size": 151936,
                "rms_norm_eps": 1e-6, "max_position_embeddings": 40960, "rope_theta": 1e6,
                "tie_word_embeddings": true}"#,
        ),
        "tiny" => Some(
            r#"{"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64, "vocab_size": 256,
                "rms_norm_eps": 1e-6, "max_position_embeddings": 512}"#,
        ),
        _ => None,
    }
}

/// Returns the configuration of a shape (`llama-3-8b`, `qwen3-0.6b`, `tiny`) or of a folder.
pub fn config(shape_or_folder: &str) -> Result<Config> {
    match shape(shape_or_folder) {
        Some(text) => Config::parse(text.as_bytes())
            .map_err(|problem| Error::Config { path: shape_or_folder.into(), problem }),
        None => Config::read(shape_or_folder.as_ref()),
    }
}

/// Measures `steps` decoding steps of `batch` sequences with `context` tokens each.
pub fn run(
    stream: &Stream,
    (name, config): (&str, Config),
    format: WeightFormat,
    (batch, context, steps): (usize, usize, usize),
) -> Result<Report> {
    // A sequence starts per step, while the others are decoded.
    let (total, layers) = (context + batch + (REPEATS + 1) * steps + WARM_UP, config.layers);
    let model = Model::load(stream, config, total, format, Source::Random { seed: 1 })?;
    let (weights, of_token) = (model.bytes_per_step(), Cache::page_bytes(&model.config) / PAGE as u64);
    let limits = Limits { sequences: batch, chunk: 2048.min(total), pages: None };
    let mut engine = Engine::new(stream, model, limits)?;
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
            return Err(Error::Usage(format!("a sequence ended: {:?}", output.finish)));
        }
    }
    for _ in 0..WARM_UP {
        engine.step()?;
    }
    let bytes = weights + of_token * engine.cached_tokens() as u64;
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
    let probe = read_probe(stream)?;
    let bandwidth = bytes as f64 / fastest / 1e9;
    Ok(Report {
        device: stream.device().name().to_owned(),
        shape: name.to_owned(),
        layers,
        weights: format!("{format:?}").to_lowercase(),
        batch,
        context,
        prefill_ms: prefill * 1e3,
        ms_per_step: fastest * 1e3,
        tokens_per_second: batch as f64 / fastest,
        bytes_per_step: bytes,
        bandwidth_gb_s: bandwidth,
        read_probe_gb_s: probe,
        ratio_to_read_probe: bandwidth / probe,
    })
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
