//! Continuous batching: many sequences, cancellation, and a cache with too few pages.

use llm::config::{Config, DECODERS};
use llm::engine::{Engine, Finish, Limits};
use llm::error::{Error, Result};
use llm::linear::WeightFormat;
use llm::model::Model;
use llm::weights::Folder;

use crate::models::expected;
use crate::{collect, engine, finish, folder, greedy, stream};

/// Tokens of the text that the model has learned, so that all continuations are known.
fn lesson() -> (Vec<u32>, usize) {
    let expected = expected("llama");
    let start = expected.tokens.len();
    ([expected.tokens, expected.greedy].concat(), start)
}

#[test]
fn sequences_of_different_lengths_do_not_affect_each_other() -> Result<()> {
    let (lesson, start) = lesson();
    let stream = stream()?;
    let mut engine = engine(&stream, "llama", 256, Limits { sequences: 3, chunk: 32, pages: None })?;
    let all = engine.free_pages();
    // More requests than sequences, and different numbers of tokens.
    let requests: Vec<_> = (0..5).map(|i| (start + 9 * i, 3 + 7 * i)).collect();
    for (prompt, count) in &requests {
        engine.submit(greedy(&lesson[..*prompt], *count))?;
    }
    for ((tokens, end), (prompt, count)) in finish(&mut engine, requests.len())?.iter().zip(&requests) {
        assert_eq!(tokens, &lesson[*prompt..prompt + count]);
        assert!(matches!(end, Some(Finish::Length)), "{end:?}");
    }
    assert_eq!(engine.free_pages(), all);
    Ok(())
}

#[test]
fn evicted_sequences_continue_later() -> Result<()> {
    let (lesson, start) = lesson();
    let stream = stream()?;
    // Each sequence needs two pages in the end, but there are only three.
    let limits = Limits { sequences: 2, chunk: 64, pages: Some(3) };
    let mut engine = engine(&stream, "llama", 192, limits)?;
    let count = 70 - start;
    for _ in 0..2 {
        engine.submit(greedy(&lesson[..start], count))?;
    }
    let mut results = vec![(Vec::new(), None), (Vec::new(), None)];
    let mut most = 0;
    let mut is_evicted = false;
    while !engine.is_empty() {
        collect(engine.step()?, &mut results);
        most = most.max(engine.running());
        is_evicted |= most == 2 && engine.running() == 1 && engine.len() == 2;
    }
    assert!(is_evicted, "both sequences fit");
    for (tokens, end) in results {
        assert_eq!(tokens, lesson[start..start + count]);
        assert!(matches!(end, Some(Finish::Length)), "{end:?}");
    }
    assert_eq!(engine.free_pages(), 3);
    Ok(())
}

#[test]
fn cancelled_sequences_free_their_pages() -> Result<()> {
    let (lesson, start) = lesson();
    let stream = stream()?;
    let mut engine = engine(&stream, "llama", 256, Limits { sequences: 2, chunk: 64, pages: None })?;
    let all = engine.free_pages();
    let ids = [(); 3].map(|()| engine.submit(greedy(&lesson[..start], 20)));
    let [running, other, waiting] = ids;
    let (running, other, waiting) = (running?, other?, waiting?);
    let mut results: Vec<_> = (0..3).map(|_| (Vec::new(), None)).collect();
    for _ in 0..4 {
        collect(engine.step()?, &mut results);
    }
    for id in [running, waiting] {
        collect(engine.cancel(id)?, &mut results);
    }
    while !engine.is_empty() {
        let outputs = engine.step()?;
        assert!(outputs.iter().all(|output| output.id == other));
        collect(outputs, &mut results);
    }
    assert_eq!(results[other as usize].0, lesson[start..start + 20]);
    assert_eq!(engine.free_pages(), all);
    Ok(())
}

#[test]
fn end_tokens_end_a_sequence() -> Result<()> {
    let (lesson, start) = lesson();
    let stream = stream()?;
    let end = lesson[start + 5];
    let first = lesson[start..].iter().position(|token| *token == end).unwrap();
    let text = std::fs::read_to_string(folder("llama").join("config.json")).unwrap();
    let text = text.replace("\"eos_token_id\": null", &format!("\"eos_token_id\": [{end}]"));
    let (config, weights) =
        (Config::parse(text.as_bytes(), &DECODERS).unwrap(), Folder::open(&folder("llama"))?);
    let model = Model::load(&stream, config, 256, WeightFormat::Bf16, Some(&weights), None)?;
    let mut engine = Engine::new(&stream, model, Limits { sequences: 1, chunk: 64, pages: None })?;
    engine.submit(greedy(&lesson[..start], 30))?;
    let (tokens, finish) = finish(&mut engine, 1)?.remove(0);
    assert_eq!(tokens, lesson[start..=start + first]);
    assert!(matches!(finish, Some(Finish::End)), "{finish:?}");
    Ok(())
}

#[test]
fn prompts_that_can_never_fit_are_refused() -> Result<()> {
    let (lesson, start) = lesson();
    let stream = stream()?;
    let limits = Limits { sequences: 2, chunk: 64, pages: Some(1) };
    let mut engine = engine(&stream, "llama", 256, limits)?;
    let error = engine.submit(greedy(&lesson[..64], 1)).unwrap_err();
    assert!(matches!(error, Error::PromptTooLong { prompt: 64, capacity: 64 }), "{error}");
    let error = engine.submit(greedy(&[], 1)).unwrap_err();
    assert!(matches!(error, Error::EmptyPrompt), "{error}");
    let error = engine.submit(greedy(&[5, 288], 1)).unwrap_err();
    assert!(matches!(error, Error::UnknownToken { token: 288, vocabulary: 288 }), "{error}");
    // The refused requests do not affect others.
    engine.submit(greedy(&lesson[..start], 3))?;
    assert_eq!(finish(&mut engine, 1)?[0].0, lesson[start..start + 3]);
    Ok(())
}
