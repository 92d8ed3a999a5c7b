//! [`run`]: compares decoding, token by token, with one pass over the whole text.

use half::bf16;
use warpsmith::ops::{Indices, Sampling};
use warpsmith::prelude::*;

use crate::bench::config;
use crate::engine::{Engine, Limits, Request};
use crate::error::{Error, Result};
use crate::linear::WeightFormat;
use crate::model::{Cache, Model, PAGE, Pass, Source};

/// Largest difference between the logits of two kernels, relative to the largest logit.
const TOLERANCE: f32 = 0.05;

/// Continues a text with a small random model, and compares each token with the logits of a pass over all tokens.
pub fn run(stream: &Stream) -> Result<()> {
    let config = config("tiny")?;
    let load = || Model::load(stream, config.clone(), 128, WeightFormat::Bf16, Source::Random { seed: 7 });
    let limits = Limits { sequences: 1, chunk: 16, pages: None };
    let mut engine = Engine::new(stream, load()?, limits)?;
    let mut tokens: Vec<u32> = (0..20).map(|i| i * 37 % 251).collect();
    let prompt = tokens.clone();
    let start = prompt.len();
    let sampling = Sampling { temperature: 0.0, ..Sampling::default() };
    engine.submit(Request { prompt, max_tokens: 60, sampling, ignores_end: true })?;
    while !engine.is_empty() {
        tokens.extend(engine.step()?.iter().filter_map(|output| output.token));
    }

    let (model, len) = (load()?, tokens.len());
    let mut cache = Cache::new(stream, &config, len.div_ceil(PAGE))?;
    let mut activations = model.activations(stream, len, len)?;
    let upload = |numbers: &[u32]| DeviceBuffer::from_host(stream, numbers);
    let pages: Vec<u32> = (0..len.div_ceil(PAGE) as u32).collect();
    let (input, lengths, pages) = (upload(&tokens)?, upload(&[len as u32])?, upload(&pages)?);
    let pass = Pass {
        tokens: input.as_slice(),
        lengths: lengths.as_slice(),
        table: pages.as_2d(1, pages.len())?,
        prompt: Some((Indices::unchecked(&pages, cache.pages), len)),
    };
    model.forward(stream, &pass, len, &mut cache, &mut activations)?;
    let logits = activations.logits.to_host()?;
    let rows: Vec<&[bf16]> = logits.chunks(config.vocabulary).collect();
    for (position, token) in tokens.iter().enumerate().skip(start) {
        let row = rows[position - 1];
        let largest = row.iter().fold(f32::NEG_INFINITY, |max, x| max.max(x.to_f32()));
        let chosen = row[*token as usize].to_f32();
        if chosen < largest - TOLERANCE * largest.abs() {
            let problem = format!(
                "token {position} has the logit {chosen} in a pass over the whole text, below the largest {largest}"
            );
            return Err(Error::Text { text: "decoding", problem });
        }
    }
    println!("{} tokens match on {}", len - start, stream.device().name());
    Ok(())
}
