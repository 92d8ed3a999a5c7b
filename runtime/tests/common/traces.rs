//! Allocation traces: a program's allocations and frees, in order.
//!
//! An ID is live from its `Alloc` to its `Free`, and must not be allocated again while it is live. The same seed
//! produces the same trace on every machine.

use std::collections::{BTreeMap, BTreeSet};

/// One step of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Event {
    /// A request of `bytes`; `id` names the block until it is freed.
    Alloc { id: u32, bytes: u64 },
    /// A free of block `id`.
    Free { id: u32 },
}

/// A sequence of requests and frees.
#[derive(Debug)]
pub struct Trace {
    pub events: Vec<Event>,
}

impl Trace {
    /// Returns the peak of the live requested bytes.
    pub fn peak_live(&self) -> u64 {
        let (mut live, mut sum, mut peak) = (BTreeMap::new(), 0, 0);
        for event in &self.events {
            match *event {
                Event::Alloc { id, bytes } => {
                    live.insert(id, bytes);
                    sum += bytes;
                    peak = peak.max(sum);
                }
                Event::Free { id } => sum -= live.remove(&id).unwrap_or(0),
            }
        }
        peak
    }
}

/// Reads a recorded trace. A line `+bytes` is a request, which is numbered from 0, and a line `-n` frees request `n`.
/// The request numbers are the IDs.
pub fn recorded(text: &str) -> Option<Trace> {
    let mut events = Vec::new();
    let mut number = 0;
    for line in text.lines() {
        events.push(match line.split_at_checked(1)? {
            ("+", bytes) => {
                number += 1;
                Event::Alloc { id: number - 1, bytes: bytes.parse().ok()? }
            }
            ("-", id) => Event::Free { id: id.parse().ok()? },
            _ => return None,
        });
    }
    Some(Trace { events })
}

/// Generates a trace as in RMM's random allocation benchmark: `n` requests in `2 n` steps, with every power of two up
/// to `max_bytes` equally likely.
///
/// A step allocates with a probability of 73% if fewer than `n` requests were made and the live bytes stay below
/// `limit`. Otherwise it frees a random live block. Blocks that are live after the last step are not freed.
pub fn rmm_random(seed: u64, n: usize, max_bytes: u64, limit: u64) -> Trace {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut events, mut spare, mut ids) = (Vec::new(), BTreeSet::new(), 0..);
    let mut live: Vec<(u32, u64)> = Vec::new();
    let (mut made, mut sum) = (0, 0);
    for _ in 0..2 * n {
        let bytes = ((max_bytes as f64).powf(random.f64()) as u64).clamp(1, max_bytes);
        let wanted = live.is_empty() || random.u64(..100) < 73;
        if wanted && made < n && sum + bytes < limit {
            let id = spare.pop_first().or_else(|| ids.next()).expect("a free id");
            events.push(Event::Alloc { id, bytes });
            live.push((id, bytes));
            made += 1;
            sum += bytes;
        } else if !live.is_empty() {
            let (id, bytes) = live.swap_remove(random.usize(..live.len()));
            events.push(Event::Free { id });
            spare.insert(id);
            sum -= bytes;
        }
    }
    Trace { events }
}
