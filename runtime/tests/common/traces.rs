//! Traces of allocations: what a program asked for and gave back, in order.
//!
//! A trace is well formed: an id is live from its `Alloc` to its `Free`, is never live twice at once, and is used
//! again after its `Free` (the lowest free id first), so that ids stay small. The same seed gives the same trace
//! on every machine.

#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

/// One step of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request of `bytes` on `stream`; `id` names the block until it is freed.
    Alloc { id: u32, bytes: u64, stream: u64 },
    /// The block `id` is given back.
    Free { id: u32 },
}

/// A sequence of requests and frees.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Trace {
    pub events: Vec<Event>,
}

/// How the sizes of random requests are spread between one byte and the largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sizes {
    /// Every size is equally likely, as in RMM's benchmark.
    Uniform,
    /// Every power of two is equally likely.
    LogUniform,
}

impl Trace {
    /// The largest sum of requested bytes that is live at one time.
    pub fn peak_live(&self) -> u64 {
        let (mut live, mut sum, mut peak) = (BTreeMap::new(), 0, 0);
        for event in &self.events {
            match *event {
                Event::Alloc { id, bytes, .. } => {
                    live.insert(id, bytes);
                    sum += bytes;
                    peak = peak.max(sum);
                }
                Event::Free { id } => sum -= live.remove(&id).unwrap_or(0),
            }
        }
        peak
    }

    /// The trace as text, one line an event: `a id bytes` (and the stream, when it is not 0) or `f id`.
    pub fn write(&self) -> String {
        let mut text = String::new();
        for event in &self.events {
            let done = match *event {
                Event::Alloc { id, bytes, stream: 0 } => writeln!(text, "a {id} {bytes}"),
                Event::Alloc { id, bytes, stream } => writeln!(text, "a {id} {bytes} {stream}"),
                Event::Free { id } => writeln!(text, "f {id}"),
            };
            done.expect("a String takes every write");
        }
        text
    }

    /// Reads what [`write`](Self::write) wrote. Empty lines and lines that start with `#` mean nothing.
    ///
    /// Errors with the number of the first line that is not an event, or that breaks the rule of ids.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut trace = Self::default();
        let mut live = BTreeSet::new();
        for (number, line) in (1..).zip(text.lines()) {
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let event = parse(line)
                .ok_or_else(|| format!("line {number}: `{line}` is not `a id bytes` or `f id`"))?;
            let fits = match event {
                Event::Alloc { id, .. } => live.insert(id),
                Event::Free { id } => live.remove(&id),
            };
            if !fits {
                return Err(format!("line {number}: `{line}` allocates a live id or frees a dead one"));
            }
            trace.events.push(event);
        }
        Ok(trace)
    }
}

/// Reads a recorded trace: a line `+bytes` is a request, numbered from 0, and `-n` the free of number `n`. Ids are
/// the numbers.
pub fn recorded(text: &str) -> Option<Trace> {
    let mut events = Vec::new();
    let mut number = 0;
    for line in text.lines() {
        events.push(match line.split_at_checked(1)? {
            ("+", bytes) => {
                number += 1;
                Event::Alloc { id: number - 1, bytes: bytes.parse().ok()?, stream: 0 }
            }
            ("-", id) => Event::Free { id: id.parse().ok()? },
            _ => return None,
        });
    }
    Some(Trace { events })
}

fn parse(line: &str) -> Option<Event> {
    let words: Vec<&str> = line.split(' ').collect();
    match words[..] {
        ["a", id, bytes] => {
            Some(Event::Alloc { id: id.parse().ok()?, bytes: bytes.parse().ok()?, stream: 0 })
        }
        ["a", id, bytes, stream] => Some(Event::Alloc {
            id: id.parse().ok()?,
            bytes: bytes.parse().ok()?,
            stream: stream.parse().ok()?,
        }),
        ["f", id] => Some(Event::Free { id: id.parse().ok()? }),
        _ => None,
    }
}

/// Collects events and hands out the lowest free id.
#[derive(Default)]
struct Builder {
    events: Vec<Event>,
    spare: BTreeSet<u32>,
    ids: u32,
}

impl Builder {
    fn alloc(&mut self, bytes: u64) -> u32 {
        let id = self.spare.pop_first().unwrap_or(self.ids);
        self.ids = self.ids.max(id + 1);
        self.events.push(Event::Alloc { id, bytes, stream: 0 });
        id
    }

    fn free(&mut self, id: u32) {
        self.spare.insert(id);
        self.events.push(Event::Free { id });
    }

    fn free_all(&mut self, ids: impl IntoIterator<Item = u32>) {
        ids.into_iter().for_each(|id| self.free(id));
    }
}

/// The rule of RMM's benchmark of random allocations: `n` requests in `2 n` steps.
///
/// A step allocates with a probability of 73 %, when fewer than `n` requests were made and the live bytes stay
/// below `limit`; else it frees a live block at random. What is live after the last step stays live.
pub fn rmm_random(seed: u64, n: usize, max_bytes: u64, limit: u64, sizes: Sizes) -> Trace {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut builder = Builder::default();
    let mut live: Vec<(u32, u64)> = Vec::new();
    let (mut made, mut sum) = (0, 0);
    for _ in 0..2 * n {
        let bytes = match sizes {
            Sizes::Uniform => 1 + random.u64(..max_bytes),
            Sizes::LogUniform => ((max_bytes as f64).powf(random.f64()) as u64).clamp(1, max_bytes),
        };
        let wanted = live.is_empty() || random.u64(..100) < 73;
        if wanted && made < n && sum + bytes < limit {
            live.push((builder.alloc(bytes), bytes));
            made += 1;
            sum += bytes;
        } else if !live.is_empty() {
            let (id, bytes) = live.swap_remove(random.usize(..live.len()));
            builder.free(id);
            sum -= bytes;
        }
    }
    Trace { events: builder.events }
}

/// The shape of a transformer that [`training`] trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// Layers, one after the other.
    pub layers: usize,
    /// Width of the residual stream.
    pub hidden: u64,
    /// Words that the model knows.
    pub vocabulary: u64,
    /// Sequences in a batch.
    pub batch: u64,
    /// The longest sequence; each step has its own length, a multiple of 8 from an eighth of this on.
    pub longest: u64,
    /// Steps of training.
    pub steps: usize,
}

impl Default for Model {
    /// About 20 000 events and 10 GB.
    fn default() -> Self {
        Self { layers: 12, hidden: 1024, vocabulary: 32_000, batch: 8, longest: 2048, steps: 16 }
    }
}

/// A training loop in mixed precision: half-precision weights, activations and gradients, and an optimizer in
/// single precision whose state comes to life in the first step.
///
/// Every step has a sequence length of its own. Activations are allocated forward and freed backward, layer by
/// layer, with temporaries between; gradients live from the backward pass to the end of the step. Every fourth
/// step evaluates without gradients, and some steps keep a loss or a metric alive for later.
pub fn training(seed: u64, model: Model) -> Trace {
    let Model { layers, hidden, vocabulary, batch, longest, steps } = model;
    let mut random = fastrand::Rng::with_seed(seed);
    let mut builder = Builder::default();
    let mut layer_weights =
        vec![3 * hidden * hidden, hidden * hidden, 4 * hidden * hidden, 4 * hidden * hidden];
    layer_weights.extend([hidden, hidden, 3 * hidden, 4 * hidden]);
    let mut weights = vec![vocabulary * hidden, longest * hidden];
    (0..layers).for_each(|_| weights.extend(&layer_weights));
    weights.iter().for_each(|count| _ = builder.alloc(2 * count));

    let mut kept: Vec<u32> = Vec::new();
    for step in 0..steps {
        let length = 8 * (longest / 64 + random.u64(..longest * 7 / 64 + 1));
        let tokens = batch * length;
        let inputs = [builder.alloc(8 * tokens), builder.alloc(8 * tokens), builder.alloc(tokens)];
        let trains = step % 4 != 3;
        let saved = forward(&mut builder, &mut random, model, tokens, trains);
        let logits = builder.alloc(2 * tokens * vocabulary);
        if trains {
            let wide = builder.alloc(4 * tokens * vocabulary);
            let loss = builder.alloc(4);
            builder.free(logits);
            let d_logits = builder.alloc(2 * tokens * vocabulary);
            builder.free(wide);
            let grads = backward(
                &mut builder,
                &mut random,
                saved,
                (d_logits, tokens),
                &weights,
                &layer_weights,
                hidden,
            );
            optimizer(&mut builder, step == 0, &weights);
            builder.free_all(grads);
            if random.u64(..3) == 0 {
                kept.push(loss);
            } else {
                builder.free(loss);
            }
        } else {
            let best = builder.alloc(8 * tokens);
            builder.free(logits);
            kept.push(builder.alloc(4 * length));
            builder.free(best);
        }
        builder.free_all(inputs);
        if kept.len() > 6 {
            builder.free_all(kept.drain(..3));
        }
    }
    Trace { events: builder.events }
}

/// The activations that each layer keeps for the backward pass, none when nothing is trained.
fn forward(
    builder: &mut Builder,
    random: &mut fastrand::Rng,
    model: Model,
    tokens: u64,
    trains: bool,
) -> Vec<Vec<u32>> {
    let row = 2 * tokens * model.hidden;
    let heads = (model.hidden / 64).max(1);
    let mut saved = Vec::new();
    let mut residual = builder.alloc(row);
    for _ in 0..model.layers {
        let statistics = [builder.alloc(4 * tokens), builder.alloc(4 * tokens)];
        let normed = builder.alloc(row);
        let qkv = builder.alloc(3 * row);
        let copies = [builder.alloc(row), builder.alloc(row), builder.alloc(row)];
        let workspace = builder.alloc(1 << (16 + random.u64(..8)));
        let softmax = builder.alloc(4 * tokens * heads);
        let attended = builder.alloc(row);
        builder.free(workspace);
        builder.free(qkv);
        let projected = builder.alloc(row);
        let mask = builder.alloc(row / 2);
        let middle = builder.alloc(row);
        builder.free(projected);
        let normed_again = builder.alloc(row);
        let wide = builder.alloc(4 * row);
        let activated = builder.alloc(4 * row);
        let narrow = builder.alloc(row);
        let next = builder.alloc(row);
        builder.free(narrow);
        let mut layer =
            vec![residual, normed, softmax, attended, mask, middle, normed_again, wide, activated];
        layer.extend(statistics.into_iter().chain(copies));
        if trains {
            saved.push(layer);
        } else {
            builder.free_all(layer);
        }
        residual = next;
    }
    match saved.last_mut() {
        Some(last) => last.push(residual),
        None => builder.free(residual),
    }
    saved
}

/// Frees the activations, last layer first, and gives the gradients of all weights.
fn backward(
    builder: &mut Builder,
    random: &mut fastrand::Rng,
    saved: Vec<Vec<u32>>,
    (d_logits, tokens): (u32, u64),
    weights: &[u64],
    layer_weights: &[u64],
    hidden: u64,
) -> Vec<u32> {
    let row = 2 * tokens * hidden;
    let mut grads = vec![builder.alloc(2 * weights[0])];
    let mut flowing = builder.alloc(row);
    builder.free(d_logits);
    for mut layer in saved.into_iter().rev() {
        let d_wide = builder.alloc(4 * row);
        grads.push(builder.alloc(2 * layer_weights[3]));
        let d_before = builder.alloc(4 * row);
        builder.free(d_wide);
        // Autograd drops what an operation saved as soon as its gradient is known, the newest first.
        builder.free_all(layer.drain(layer.len() - 3..));
        grads.push(builder.alloc(2 * layer_weights[2]));
        let d_middle = builder.alloc(row);
        builder.free(d_before);
        builder.free(flowing);
        let workspace = builder.alloc(1 << (18 + random.u64(..7)));
        let d_qkv = builder.alloc(3 * row);
        let d_parts = [builder.alloc(row), builder.alloc(row), builder.alloc(row)];
        builder.free(workspace);
        grads.push(builder.alloc(2 * layer_weights[1]));
        builder.free_all(d_parts);
        grads.push(builder.alloc(2 * layer_weights[0]));
        grads.extend(layer_weights[4..].iter().map(|count| builder.alloc(2 * count)));
        flowing = builder.alloc(row);
        builder.free(d_qkv);
        builder.free(d_middle);
        builder.free_all(layer.into_iter().rev());
    }
    grads.push(builder.alloc(2 * weights[1]));
    builder.free(flowing);
    grads
}

/// One step of the optimizer: three states of four bytes a weight at first, and a temporary for each weight.
fn optimizer(builder: &mut Builder, first: bool, weights: &[u64]) {
    for count in weights {
        let wide = builder.alloc(4 * count);
        if first {
            (0..3).for_each(|_| _ = builder.alloc(4 * count));
        }
        let root = builder.alloc(4 * count);
        builder.free(wide);
        builder.free(root);
    }
}
