//! Tests of the whole program, on the device that `WARPSMITH_TEST_DEVICE` names (by default an emulated device per
//! test).

mod bad_input;
mod batching;
mod command;
mod encoder;
mod fuzzed;
mod models;
mod packed;
mod parallel;
#[path = "../../../../fuzz/replay.rs"]
mod replay;
mod server;

use std::path::PathBuf;

use llm::config::{Config, DECODERS};
use llm::engine::{Engine, Finish, Limits, Output, Request};
use llm::error::Result;
use llm::linear::WeightFormat;
use llm::model::Model;
use llm::weights::Folder;
use warpsmith::emulated::EmulatedDriver;
use warpsmith::ops::Sampling;
use warpsmith::prelude::*;

fn stream() -> Result<Stream> {
    let device = match std::env::var("WARPSMITH_TEST_DEVICE") {
        Ok(name) => Device::open(&name)?,
        // With its own driver, a test does not fail because of a fault in another test.
        Err(_) => Device::with_driver(EmulatedDriver::from_environment(), 0)?,
    };
    Ok(Stream::new(&device)?)
}

/// Folder of a model that models.py has made, or an absolute path.
fn folder(name: &str) -> PathBuf {
    [env!("CARGO_MANIFEST_DIR"), "tests/llm/models", name].iter().collect()
}

fn load(stream: &Stream, name: &str, context: usize, format: WeightFormat) -> Result<Model> {
    let (config, folder) = (Config::read(&folder(name), &DECODERS)?, Folder::open(&folder(name))?);
    Model::load(stream, config, context, format, Some(&folder), None)
}

fn engine(stream: &Stream, name: &str, context: usize, limits: Limits) -> Result<Engine> {
    Engine::new(stream, load(stream, name, context, WeightFormat::Bf16)?, limits)
}

/// A request for the most probable tokens.
fn greedy(prompt: &[u32], max_tokens: usize) -> Request {
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    Request { prompt: prompt.to_vec(), max_tokens, sampling, ignores_end: false }
}

/// Runs an engine until all sequences have ended, and returns the new tokens and the end of each sequence.
fn finish(engine: &mut Engine, sequences: usize) -> Result<Vec<(Vec<u32>, Option<Finish>)>> {
    let mut results: Vec<_> = (0..sequences).map(|_| (Vec::new(), None)).collect();
    while !engine.is_empty() {
        collect(engine.step()?, &mut results);
    }
    Ok(results)
}

fn collect(outputs: Vec<Output>, results: &mut [(Vec<u32>, Option<Finish>)]) {
    for output in outputs {
        let (tokens, finish) = &mut results[output.id as usize];
        assert!(finish.is_none(), "sequence {} continues after its end", output.id);
        tokens.extend(output.token);
        *finish = output.finish;
    }
}
