//! Compares small Llama and Qwen3 models with `transformers`: logits and greedy tokens. `models.py` makes the models and
//! the expected values.

use half::bf16;
use llm::engine::{Finish, Limits};
use llm::error::Result;
use llm::linear::WeightFormat;
use llm::model::Model;
use llm::text::{Decoding, Text};
use warpsmith::prelude::*;

use crate::{engine, finish, folder, greedy, load, stream};

#[derive(serde::Deserialize)]
pub struct Expected {
    pub prompt: String,
    pub tokens: Vec<u32>,
    logits: Vec<Vec<f32>>,
    /// Largest difference between logits that `transformers` computes in `bf16` and in `f32`.
    pub bf16_error: f32,
    pub greedy: Vec<u32>,
}

pub fn expected(name: &str) -> Expected {
    let text = std::fs::read(folder(name).join("expected.json")).unwrap();
    serde_json::from_slice(&text).unwrap()
}

/// Logits of all tokens of the prompt.
fn logits(name: &str, format: WeightFormat) -> Result<(Expected, Vec<Vec<f32>>)> {
    let (stream, expected) = (stream()?, expected(name));
    let logits = logits_of(&stream, load(&stream, name, 64, format)?, &expected.tokens)?;
    Ok((expected, logits))
}

/// Logits of all tokens.
pub fn logits_of(stream: &Stream, mut model: Model, tokens: &[u32]) -> Result<Vec<Vec<f32>>> {
    let len = tokens.len();
    let mut memory = model.memory(stream, len, len, Some(1))?;
    model.prefill(stream, (tokens, len, &[0]), len, &mut memory)?;
    let logits = memory.logits.buffer.to_host()?;
    let rows = logits.chunks(model.config.vocabulary);
    Ok(rows.map(|row: &[bf16]| row.iter().map(|x| x.to_f32()).collect()).collect())
}

/// Largest difference between the expected and the computed logits.
pub fn error(expected: &Expected, logits: &[Vec<f32>]) -> f32 {
    assert_eq!(expected.logits.len(), logits.len());
    let pairs = expected.logits.iter().zip(logits).flat_map(|(a, b)| a.iter().zip(b));
    pairs
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |max, error| if error > max || error.is_nan() { error } else { max })
}

fn logits_match(name: &str) -> Result<()> {
    let (expected, logits) = logits(name, WeightFormat::Bf16)?;
    let error = error(&expected, &logits);
    assert!(
        error < 1.5 * expected.bf16_error,
        "the error is {error}; that of bf16 is {}",
        expected.bf16_error
    );
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

fn greedy_tokens_match(name: &str) -> Result<()> {
    let (stream, expected) = (stream()?, expected(name));
    // The prompt is processed in several chunks, and the sequence fills several pages.
    let mut engine = engine(&stream, name, 512, Limits { sequences: 1, chunk: 16, pages: None })?;
    engine.submit(greedy(&expected.tokens, expected.greedy.len()))?;
    let (tokens, end) = finish(&mut engine, 1)?.remove(0);
    assert_eq!(tokens, expected.greedy);
    assert!(matches!(end, Some(Finish::Length)), "{end:?}");
    Ok(())
}

#[test]
fn greedy_tokens_of_llama_match() -> Result<()> {
    greedy_tokens_match("llama")
}

#[test]
fn greedy_tokens_of_qwen3_match() -> Result<()> {
    greedy_tokens_match("qwen3")
}

/// Only the rows of `down_proj` and `o_proj` of the small models can be divided into groups.
#[test]
fn int8_weights_change_logits_less() -> Result<()> {
    let (expected, logits) = logits("llama", WeightFormat::Int8)?;
    let error = error(&expected, &logits);
    assert!(error < 3.0 * expected.bf16_error, "the error is {error}");
    Ok(())
}

#[test]
fn int4_weights_change_logits_a_little() -> Result<()> {
    let (expected, logits) = logits("llama", WeightFormat::Int4)?;
    let error = error(&expected, &logits);
    let largest = expected.logits.iter().flatten().fold(0f32, |max, x| max.max(x.abs()));
    assert!(error > 1.5 * expected.bf16_error && error < 0.5 * largest, "the error is {error}");
    Ok(())
}

#[test]
fn tokenizer_matches_and_streams_text() -> Result<()> {
    let (text, expected) = (Text::read(&folder("llama"))?, expected("llama"));
    assert_eq!(text.encode(&expected.prompt)?, expected.tokens);
    // The bytes of a character arrive one by one.
    let tokens = text.encode("Zürich, 東京")?;
    let mut decoding = Decoding::default();
    let mut parts = String::new();
    for token in tokens {
        parts.extend(text.decode(&mut decoding, token)?);
    }
    assert_eq!(parts, "Zürich, 東京");
    Ok(())
}
