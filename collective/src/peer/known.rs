//! [`Known`]: operations, identified by the hash that a failing kernel reports.
//!
//! An operation is stored from before the launch of its kernels until its end or, if it is part of a graph,
//! permanently. Operations that have ended use no memory.

use std::collections::HashMap;
use std::time::Duration;

use crate::fingerprint::Fingerprint;

/// Last operation with a given hash.
#[derive(Debug)]
struct Last {
    operation: Fingerprint,
    timeout: Duration,
    /// Number of operations that have not ended yet.
    outstanding: usize,
    is_in_graph: bool,
}

/// Operations by hash. See the [module documentation](self).
#[derive(Debug, Default)]
pub(super) struct Known(HashMap<u32, Last>);

impl Known {
    pub fn begin(&mut self, hash: u32, operation: &Fingerprint, timeout: Duration, is_captured: bool) {
        let operation = operation.clone();
        let before = self.0.remove(&hash);
        let (outstanding, is_in_graph) =
            before.map_or((0, false), |last| (last.outstanding, last.is_in_graph));
        let outstanding = outstanding + usize::from(!is_captured);
        let is_in_graph = is_in_graph || is_captured;
        self.0.insert(hash, Last { operation, timeout, outstanding, is_in_graph });
    }

    /// Records the end of an operation that has this hash and was not captured.
    pub fn end(&mut self, hash: u32) {
        let Some(last) = self.0.get_mut(&hash) else { return };
        last.outstanding = last.outstanding.saturating_sub(1);
        if last.outstanding == 0 && !last.is_in_graph {
            self.0.remove(&hash);
        }
    }

    /// Returns the last operation that has this hash, with its timeout.
    pub fn find(&self, hash: u32) -> Option<(&Fingerprint, Duration)> {
        self.0.get(&hash).map(|last| (&last.operation, last.timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_operations_are_forgotten() {
        let (mut known, operation) = (Known::default(), Fingerprint::init());
        for hash in 1..=1000 {
            known.begin(hash, &operation, Duration::ZERO, false);
            known.begin(hash, &operation, Duration::from_secs(1), false);
            known.end(hash);
            assert_eq!(known.find(hash), Some((&operation, Duration::from_secs(1))));
            known.end(hash);
            known.end(hash);
            assert_eq!(known.find(hash), None);
        }
        assert!(known.0.is_empty());
    }

    #[test]
    fn operations_of_graphs_are_kept() {
        let (mut known, operation) = (Known::default(), Fingerprint::init());
        known.begin(1, &operation, Duration::ZERO, true);
        known.begin(1, &operation, Duration::ZERO, false);
        known.end(1);
        assert!(known.find(1).is_some());
    }
}
