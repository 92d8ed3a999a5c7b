//! [`Spans`]: the operations of one thread, to be found by time.

use std::collections::VecDeque;

use super::Origin;

/// Operations around one, at most.
const DEEPEST: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Joined {
    start: u64,
    end: u64,
    origin: Origin,
    /// When it was added.
    round: u64,
}

/// See the [module's documentation](self). They are sorted by their beginning, those around others first.
#[derive(Debug, Default)]
pub(crate) struct Spans(VecDeque<Joined>);

impl Spans {
    /// Adds an operation; those that begin later come later.
    pub(crate) fn add(&mut self, start: u64, end: u64, origin: Origin, round: u64) {
        let joined = Joined { start, end, origin, round };
        // Mostly it is the last.
        let place = match self.0.back() {
            Some(last) if last.start > start => self.0.partition_point(|known| known.start <= start),
            _ => self.0.len(),
        };
        self.0.insert(place, joined);
    }

    /// The innermost operation around these times.
    pub(crate) fn around(&self, start: u64, end: u64) -> Option<Origin> {
        let after = self.0.partition_point(|known| known.start <= start);
        let before = self.0.range(..after).rev().take(DEEPEST);
        before.filter(|known| known.end >= end).map(|known| known.origin).next()
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Forgets those that were added before a round.
    pub(crate) fn forget(&mut self, round: u64) {
        while self.0.front().is_some_and(|first| first.round < round) {
            self.0.pop_front();
        }
    }
}
