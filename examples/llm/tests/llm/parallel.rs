//! Tensor parallelism on emulated devices.

use std::thread;

use llm::config::{Config, DECODERS};
use llm::engine::{Engine, Finish, Limits};
use llm::error::Result;
use llm::linear::WeightFormat;
use llm::model::Model;
use llm::weights::Folder;
use warpsmith::collective::{BackendChoice, Communicator, CommunicatorOptions};
use warpsmith::emulated::EmulatedDriver;
use warpsmith::prelude::*;

use crate::models::{error, expected, logits_of};
use crate::{finish, folder, greedy};

/// Creates a stream on each of several emulated devices.
pub fn streams(devices: u32) -> Result<Vec<Stream>> {
    let driver = EmulatedDriver::builder().devices(devices).build();
    (0..devices).map(|i| Ok(Stream::new(&Device::with_driver(driver.clone(), i)?)?)).collect()
}

fn engine(name: &str, devices: u32, format: WeightFormat, limits: Limits) -> Result<Engine> {
    let (config, weights) = (Config::read(&folder(name), &DECODERS)?, Folder::open(&folder(name))?);
    Engine::load(&streams(devices)?, &config, 256, format, Some(&weights), limits)
}

fn logits_match(name: &str) -> Result<()> {
    let expected = expected(name);
    let (config, weights) = (&Config::read(&folder(name), &DECODERS)?, &Folder::open(&folder(name))?);
    let options = CommunicatorOptions::new().backend(BackendChoice::Peer);
    let ranks = Communicator::init_all(&streams(2)?, &options)?;
    let tokens = &expected.tokens;
    let of_rank = |ranks: Communicator| {
        let stream = ranks.stream().clone();
        let model = Model::load(&stream, config.clone(), 64, WeightFormat::Bf16, Some(weights), Some(ranks))?;
        logits_of(&stream, model, tokens)
    };
    let logits: Vec<_> = thread::scope(|scope| {
        let threads: Vec<_> = ranks.into_iter().map(|ranks| scope.spawn(move || of_rank(ranks))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect::<Result<_>>()
    })?;
    assert_eq!(logits[0], logits[1]);
    let (error, of_bf16) = (error(&expected, &logits[0]), expected.bf16_error);
    assert!(error < 1.5 * of_bf16, "the error is {error}; that of bf16 is {of_bf16}");
    Ok(())
}

#[test]
fn logits_of_llama_match() -> Result<()> {
    logits_match("llama")
}

#[test]
fn logits_of_qwen3_match() -> Result<()> {
    logits_match("qwen3")
}

#[test]
fn greedy_tokens_match() -> Result<()> {
    for name in ["llama", "qwen3"] {
        let expected = expected(name);
        let limits = Limits { sequences: 1, chunk: 16, pages: None };
        let mut engine = engine(name, 2, WeightFormat::Bf16, limits)?;
        engine.submit(greedy(&expected.tokens, 60))?;
        let (tokens, end) = finish(&mut engine, 1)?.remove(0);
        assert_eq!(tokens, expected.greedy[..60]);
        assert!(matches!(end, Some(Finish::Length)), "{end:?}");
    }
    Ok(())
}

/// Other sequences, a refused request and a cancelled one do not affect a sequence.
#[test]
fn ranks_make_the_same_calls() -> Result<()> {
    let expected = expected("llama");
    let mut engine =
        engine("llama", 2, WeightFormat::Bf16, Limits { sequences: 3, chunk: 16, pages: Some(4) })?;
    let mut results = vec![(Vec::new(), None), (Vec::new(), None), (Vec::new(), None)];
    engine.seed(5)?;
    let mut random = greedy(&expected.tokens, 90);
    random.sampling.temperature = 1.0;
    engine.submit(random)?;
    let cancelled = engine.submit(greedy(&expected.tokens, 90))?;
    engine.submit(greedy(&[], 1)).unwrap_err();
    engine.submit(greedy(&expected.tokens, 70))?;
    for _ in 0..4 {
        crate::collect(engine.step()?, &mut results);
    }
    crate::collect(engine.cancel(cancelled)?, &mut results);
    while !engine.is_empty() {
        crate::collect(engine.step()?, &mut results);
    }
    assert_eq!(results[2].0, expected.greedy[..70]);
    assert_eq!(results[0].0.len(), 90);
    Ok(())
}

#[test]
fn models_that_do_not_divide_are_refused() {
    let limits = Limits { sequences: 1, chunk: 16, pages: None };
    for (devices, format, expected) in [
        (
            3,
            WeightFormat::Bf16,
            "config.json: `num_attention_heads` is 4, but must be a multiple of 3 for 3 GPUs",
        ),
        (
            4,
            WeightFormat::Bf16,
            "config.json: `num_key_value_heads` is 2, but must be a multiple of 4 for 4 GPUs",
        ),
        (
            2,
            WeightFormat::Int8,
            "the matrix `model.layers.0.mlp.down_proj`: 2 GPU(s) cannot divide its 128 inputs into groups of 128",
        ),
    ] {
        let error = engine("llama", devices, format, limits).map(drop).unwrap_err();
        assert_eq!(error.to_string(), expected);
    }
}
