//! [`Spans`]: operations of one thread, which can be searched by time.

use std::collections::VecDeque;

use super::Origin;

/// Maximum nesting depth of operations.
const DEEPEST: usize = 64;

#[derive(Debug, Clone, Copy)]
struct Joined {
    start: u64,
    end: u64,
    origin: Origin,
    /// Round in which the operation was added.
    round: u64,
}

/// Operations of one thread, sorted by start; an enclosing operation precedes the operations that it encloses. See the
/// [module documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Spans(VecDeque<Joined>);

impl Spans {
    /// Adds an operation at its position by start time.
    pub(crate) fn add(&mut self, start: u64, end: u64, origin: Origin, round: u64) {
        let joined = Joined { start, end, origin, round };
        // Usually, the new operation is the last one.
        let place = match self.0.back() {
            Some(last) if last.start > start => self.0.partition_point(|known| known.start <= start),
            _ => self.0.len(),
        };
        self.0.insert(place, joined);
    }

    /// Returns the origin of the innermost operation that encloses the given times.
    pub(crate) fn around(&self, start: u64, end: u64) -> Option<Origin> {
        let after = self.0.partition_point(|known| known.start <= start);
        let before = self.0.range(..after).rev().take(DEEPEST);
        before.filter(|known| known.end >= end).map(|known| known.origin).next()
    }

    /// Returns true if there are no operations.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Removes operations that were added before the given round.
    pub(crate) fn forget(&mut self, round: u64) {
        while self.0.front().is_some_and(|first| first.round < round) {
            self.0.pop_front();
        }
    }
}
