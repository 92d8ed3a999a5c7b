//! [`run`]: compares decoding, token by token, with one pass over the whole text.

use warpsmith::ops::Sampling;
use warpsmith::prelude::*;

use crate::bench::config;
use crate::engine::{Engine, Limits, Request};
use crate::error::{Error, Result};
use crate::linear::WeightFormat;
use crate::model::Model;

/// Largest difference between the logits of two kernels, relative to the largest logit.
const TOLERANCE: f32 = 0.05;

/// Continues a text with a small random model, and compares each token with the logits of a pass over all tokens.
pub fn run(stream: &Stream) -> Result<()> {
    let load = || Model::load(stream, config("tiny")?, 128, WeightFormat::Bf16, None, None);
    let mut engine = Engine::new(stream, load()?, Limits { sequences: 1, chunk: 16, pages: None })?;
    let mut tokens: Vec<u32> = (0..20).map(|i| i * 37 % 251).collect();
    let (prompt, start) = (tokens.clone(), tokens.len());
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    engine.submit(Request { prompt, max_tokens: 60, sampling, ignores_end: true })?;
    while !engine.is_empty() {
        tokens.extend(engine.step()?.iter().filter_map(|output| output.token));
    }

    let (mut model, len) = (load()?, tokens.len());
    let mut memory = model.memory(stream, len, len, Some(2))?;
    model.prefill(stream, (&tokens, len, &[0, 1]), len, &mut memory)?;
    let logits = memory.logits.buffer.to_host()?;
    for position in start..len {
        let row = &logits[(position - 1) * model.config.vocabulary..][..model.config.vocabulary];
        let largest = row.iter().fold(f32::NEG_INFINITY, |max, x| max.max(x.to_f32()));
        let chosen = row[tokens[position] as usize].to_f32();
        if chosen < largest - TOLERANCE * largest.abs() {
            return Err(Error::at("decoding")(format!(
                "token {position} has the logit {chosen} in a pass over the whole text, below the largest {largest}"
            )));
        }
    }
    println!("{} tokens match on {}", len - start, stream.device().name());
    Ok(())
}
