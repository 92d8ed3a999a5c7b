//! [`Clock`]: a vector clock over streams.

use super::history::Use;

/// Task counts, indexed by slot. A missing slot has a count of 0.
#[derive(Debug, Clone, Default)]
pub(super) struct Clock(Vec<u64>);

impl Clock {
    pub(super) fn get(&self, slot: usize) -> u64 {
        self.0.get(slot).copied().unwrap_or(0)
    }

    pub(super) fn set(&mut self, slot: usize, tick: u64) {
        if self.0.len() <= slot {
            self.0.resize(slot + 1, 0);
        }
        self.0[slot] = tick;
    }

    pub(super) fn join(&mut self, other: &Clock) {
        if self.0.len() < other.0.len() {
            self.0.resize(other.0.len(), 0);
        }
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own = (*own).max(*other));
    }

    pub(super) fn covers(&self, used: &Use) -> bool {
        self.get(used.slot) >= used.tick
    }
}
