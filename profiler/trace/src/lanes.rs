//! Slices of one track, put on lanes on which they nest.
//!
//! Guarantees: on each lane any two slices either nest or do not overlap, in whichever order they come; on a flat
//! track they do not overlap.

/// The lanes of a track; slices come sorted by start, the longer first where starts are equal. Later batches may begin
/// earlier: their slices get new lanes where that is needed.
#[derive(Debug, Default)]
pub(crate) struct Lanes {
    lanes: Vec<Lane>,
}

#[derive(Debug, Default)]
struct Lane {
    /// The ends of the slices that are open at the last start, outermost first.
    open: Vec<u64>,
    last_start: u64,
}

/// More lanes than a reader can use: a slice that would need another is shown as a moment.
const MOST: usize = 64;

impl Lanes {
    /// The lane of a slice; `None` when all are taken.
    pub(crate) fn place(&mut self, start: u64, end: u64, is_flat: bool) -> Option<usize> {
        let fits = |lane: &mut Lane| {
            if start < lane.last_start {
                return false;
            }
            while lane.open.last().is_some_and(|open| *open <= start) {
                lane.open.pop();
            }
            lane.open.last().is_none_or(|open| !is_flat && *open >= end)
        };
        let found = self.lanes.iter_mut().position(fits);
        let index = match found {
            Some(index) => index,
            None if self.lanes.len() < MOST => {
                self.lanes.push(Lane::default());
                self.lanes.len() - 1
            }
            None => return None,
        };
        let lane = &mut self.lanes[index];
        lane.open.push(end);
        lane.last_start = start;
        Some(index)
    }
}
