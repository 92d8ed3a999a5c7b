//! Memory uses with which later work can still conflict.
//!
//! A use is removed when a later use can replace it, which is the case if work that is ordered after the later use is
//! also ordered after the earlier one. Each byte therefore has only a few uses per stream, regardless of how long the
//! program runs. Uses that the host has observed to be complete cannot conflict with later work and are removed when
//! the history has many pieces.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// Use of a memory range by a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Use {
    /// Slot of the task's stream in the vector clock. The next field is the value of this slot at the use.
    pub(super) slot: usize,
    pub(super) tick: u64,
    pub(super) write: bool,
    /// True if all accesses are atomic.
    pub(super) atomic: bool,
    /// Name of the driver call or the kernel.
    pub(super) task: &'static str,
    pub(super) stream: u64,
    /// Start of the entire range that was used. A piece may cover only a part of this range.
    pub(super) start: u64,
    pub(super) end: u64,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { task, stream, start, end, .. } = self;
        let kind = if self.write { "writes" } else { "reads" };
        write!(f, "{task} on stream {stream} ({kind} {start:#x}..{end:#x})")
    }
}

/// Contiguous bytes with identical uses.
#[derive(Debug)]
struct Piece {
    end: u64,
    uses: Vec<Use>,
}

/// Uses of all memory.
#[derive(Debug, Default)]
pub(super) struct History {
    /// Disjoint pieces, keyed by start address.
    pieces: BTreeMap<u64, Piece>,
    /// Number of pieces after the last [`Self::prune`].
    pruned: usize,
}

impl History {
    /// Removes uses for which `done` returns true, if there are enough pieces to make this worthwhile.
    pub(super) fn prune(&mut self, done: impl Fn(&Use) -> bool) {
        if self.pieces.len() < 1024.max(2 * self.pruned) {
            return;
        }
        self.pieces.retain(|_, piece| {
            piece.uses.retain(|used| !done(used));
            !piece.uses.is_empty()
        });
        self.pruned = self.pieces.len();
    }

    /// Adds a use. `ordered` returns true if an earlier use is ordered before the new use. If an earlier use is not
    /// ordered and at least one of the two uses is a write, `conflict` is called with the earlier use and the first
    /// common address.
    pub(super) fn add(
        &mut self,
        new: Use,
        ordered: impl Fn(&Use) -> bool,
        mut conflict: impl FnMut(&Use, u64),
    ) {
        let mut at = new.start;
        for (start, Piece { end, uses }) in self.take(new.start..new.end) {
            self.put(at, start, vec![new]);
            let mut kept = Vec::with_capacity(uses.len() + 1);
            for old in uses {
                let before = ordered(&old);
                if !before && (old.write || new.write) && !(old.atomic && new.atomic) {
                    conflict(&old, start);
                }
                if !before || old.write && !new.write || new.atomic && !old.atomic {
                    kept.push(old);
                }
            }
            kept.push(new);
            self.put(start, end, kept);
            at = end;
        }
        self.put(at, new.end, vec![new]);
    }

    /// Removes and returns the uses of a range. A use occurs once for each piece that it covers.
    pub(super) fn forget(&mut self, range: Range<u64>) -> Vec<Use> {
        self.take(range).into_iter().flat_map(|(_, piece)| piece.uses).collect()
    }

    /// Returns the uses of a range. A use occurs once for each piece that it covers.
    pub(super) fn uses(&self, range: Range<u64>) -> Vec<Use> {
        let before = self.pieces.range(..range.start).next_back();
        let within = self.pieces.range(range.start..range.end.max(range.start));
        let pieces = before.into_iter().chain(within);
        pieces
            .filter(|(_, piece)| piece.end > range.start)
            .flat_map(|(_, piece)| piece.uses.clone())
            .collect()
    }

    /// Removes and returns the pieces of a range. Pieces that extend past the ends of the range are split.
    fn take(&mut self, range: Range<u64>) -> Vec<(u64, Piece)> {
        if range.is_empty() {
            return Vec::new();
        }
        self.cut(range.start);
        self.cut(range.end);
        let starts: Vec<u64> = self.pieces.range(range).map(|(start, _)| *start).collect();
        starts.into_iter().filter_map(|start| self.pieces.remove_entry(&start)).collect()
    }

    /// Splits the piece that contains an address.
    fn cut(&mut self, at: u64) {
        if let Some((_, piece)) = self.pieces.range_mut(..at).next_back()
            && piece.end > at
        {
            let upper = Piece { end: piece.end, uses: piece.uses.clone() };
            piece.end = at;
            self.pieces.insert(at, upper);
        }
    }

    /// Inserts a piece into a gap and merges it with a preceding piece that has the same uses.
    fn put(&mut self, start: u64, end: u64, uses: Vec<Use>) {
        if start >= end {
            return;
        }
        match self.pieces.range_mut(..start).next_back() {
            Some((_, before)) if before.end == start && before.uses == uses => before.end = end,
            _ => _ = self.pieces.insert(start, Piece { end, uses }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(tick: u64, write: bool, range: Range<u64>) -> Use {
        let (start, end) = (range.start, range.end);
        Use { slot: 0, tick, write, atomic: false, task: "task", stream: 1, start, end }
    }

    fn add(history: &mut History, new: Use, ordered: bool) -> Vec<(u64, u64)> {
        let mut conflicts = Vec::new();
        history.add(new, |_| ordered, |old, at| conflicts.push((old.tick, at)));
        conflicts
    }

    #[test]
    fn ordered_writes_replace_what_they_cover() {
        let mut history = History::default();
        for tick in 0..10 {
            assert!(add(&mut history, used(tick, tick % 2 == 0, tick * 10..tick * 10 + 10), true).is_empty());
        }
        assert!(add(&mut history, used(10, true, 15..85), true).is_empty());
        let ticks: Vec<(u64, u64, u64)> =
            history.pieces.iter().map(|(start, piece)| (*start, piece.end, piece.uses[0].tick)).collect();
        assert_eq!(ticks, [(0, 10, 0), (10, 15, 1), (15, 85, 10), (85, 90, 8), (90, 100, 9)]);
        assert!(history.pieces.values().all(|piece| piece.uses.len() == 1));
    }

    #[test]
    fn only_common_bytes_conflict_and_only_with_a_write() {
        let mut history = History::default();
        assert!(add(&mut history, used(1, false, 0..10), false).is_empty());
        assert!(add(&mut history, used(2, false, 5..15), false).is_empty());
        assert!(add(&mut history, used(3, true, 15..20), false).is_empty());
        assert_eq!(add(&mut history, used(4, true, 8..16), false), [(1, 8), (2, 8), (2, 10), (3, 15)]);
        assert_eq!(add(&mut history, used(5, false, 7..9), false), [(4, 8)]);
    }

    #[test]
    fn atomics_conflict_with_others_alone() {
        let mut history = History::default();
        let atomic = |tick| Use { atomic: true, ..used(tick, true, 0..8) };
        assert!(add(&mut history, used(1, true, 0..8), true).is_empty());
        assert!(add(&mut history, atomic(2), true).is_empty());
        assert_eq!(add(&mut history, atomic(3), false), [(1, 0)], "the write that no atomic replaces");
        assert_eq!(add(&mut history, used(4, false, 0..4), false), [(1, 0), (2, 0), (3, 0)]);
    }

    #[test]
    fn a_read_keeps_the_write_before_it() {
        let mut history = History::default();
        add(&mut history, used(1, true, 0..10), true);
        add(&mut history, used(2, false, 0..10), true);
        add(&mut history, used(3, false, 0..10), true);
        let ticks: Vec<u64> = history.uses(4..5).iter().map(|used| used.tick).collect();
        assert_eq!(ticks, [1, 3]);
        assert_eq!(history.forget(0..5).len(), 2);
        assert!(history.uses(0..5).is_empty());
        assert_eq!(history.uses(0..6).len(), 2);
    }

    #[test]
    fn many_pieces_are_pruned_of_what_is_done() {
        let mut history = History::default();
        for tick in 0..10_000 {
            add(&mut history, used(tick, true, tick * 16..tick * 16 + 8), true);
            history.prune(|used| used.tick + 10 < tick);
            assert!(history.pieces.len() <= 1024, "{tick}");
        }
        let recent: Vec<u64> = history.uses(9990 * 16..u64::MAX).iter().map(|used| used.tick).collect();
        assert!(recent.into_iter().eq(9990..10_000));
    }
}
