//! Records of ranges.

use warpsmith_trace::{self as trace, Record, ThreadId};

use super::Joiner;
use crate::raw::Push;
use crate::recording::Recording;

impl Joiner {
    pub(super) fn end_range(&mut self, recording: &Recording, number: u64, id: u64, at: u64) {
        let Some(thread) = self.threads.get_mut(&number) else { return self.ended.push((id, at)) };
        let Some(place) = thread.ranges.iter().rposition(|range| range.id == id) else {
            return self.ended.push((id, at));
        };
        let range = thread.ranges.remove(place);
        let parent = place.checked_sub(1).map_or(0, |parent| thread.ranges[parent].id);
        let thread = thread.id;
        self.range(recording, thread, range, parent, at);
    }

    /// Creates the records of those ranges that any thread can end and that have ended.
    pub(super) fn end_started(&mut self, recording: &Recording) {
        let mut ended = std::mem::take(&mut self.ended);
        ended.sort_unstable();
        for (id, at) in ended {
            let Some((number, range)) = self.started.remove(&id) else { continue };
            let thread = self.thread(number, "", recording.is_simulated()).id;
            self.range(recording, thread, range, 0, at);
        }
    }

    pub(super) fn range(
        &mut self,
        recording: &Recording,
        thread: ThreadId,
        range: Push,
        parent: u64,
        at: u64,
    ) {
        let (name, category) = (self.name(recording, range.name), self.name(recording, range.category));
        let line = self.name(recording, range.line);
        let Push { at: start, id, color, payload, .. } = range;
        let end = at.max(start);
        self.emit(Record::Range(trace::Range {
            start,
            end,
            name,
            category,
            thread,
            id,
            parent,
            color,
            payload,
            line,
        }));
    }

    /// Ends the ranges that are still open.
    pub(super) fn end_ranges(&mut self, recording: &Recording) {
        let now = recording.now();
        let mut open: Vec<(u64, u64)> = Vec::new();
        for (number, thread) in &self.threads {
            open.extend(thread.ranges.iter().rev().map(|range| (*number, range.id)));
        }
        open.sort_by_key(|(number, id)| (*number, std::cmp::Reverse(*id)));
        for (number, id) in open {
            self.end_range(recording, number, id, now);
        }
        self.ended = self.started.keys().map(|id| (*id, now)).collect();
        self.end_started(recording);
    }
}
