//! [`Open`]: slices with separate begin and end events.

use std::collections::HashMap;

use super::event::{Event, Loose};
use crate::record::Record;

/// Maximum number of open slices, which only a damaged file can exceed.
const MAX: usize = 1 << 16;

/// Key that is common to a begin event and its end event: the process and thread, or the category and ID of an
/// asynchronous slice.
type Track = (String, String);

/// Open slices by track, and the number of events without a counterpart.
#[derive(Debug, Default)]
pub(super) struct Open {
    tracks: HashMap<Track, Vec<Begun>>,
    open: usize,
    begins: u64,
    ends: u64,
}

#[derive(Debug)]
struct Begun {
    name: String,
    /// Record of the slice, or `None` if events of this kind are not read or the event has no time.
    record: Option<Record>,
}

impl Open {
    /// Adds a begin event, with the record of its slice.
    pub(super) fn begin(&mut self, event: &Event, record: Option<Record>) {
        if self.open == MAX {
            self.begins += u64::from(record.is_some());
            return;
        }
        self.open += 1;
        let begun = Begun { name: short(event.name.text()), record };
        self.tracks.entry(track(event)).or_default().push(begun);
    }

    /// Processes an end event at the given time. Returns the record of the slice that ends, if any.
    pub(super) fn end(&mut self, event: &Event, at: Option<u64>) -> Option<Record> {
        let track = track(event);
        let name = short(event.name.text());
        let open = self.tracks.get_mut(&track);
        // An end event may omit the name. If its name differs from the innermost slice's name, it ends the slice with
        // the given name, and the slices inside that one never end.
        let found = open.as_ref().and_then(|open| match name.as_str() {
            "" => open.len().checked_sub(1),
            name => open.iter().rposition(|begun| begun.name == name),
        });
        let (Some(open), Some(found)) = (open, found) else {
            self.ends += 1;
            return None;
        };
        let inside = open.drain(found + 1..).filter(|begun| begun.record.is_some()).count();
        let is_last = found == 0;
        let begun = open.pop();
        self.open -= 1 + inside;
        self.begins += inside as u64;
        if is_last {
            self.tracks.remove(&track);
        }
        let mut record = begun?.record?;
        match at {
            Some(at) => record.end_at(at),
            None => {
                self.begins += 1;
                return None;
            }
        }
        Some(record)
    }

    /// Returns the number of begin events without an end event, and the number of end events without a begin event.
    pub(super) fn unmatched(&self) -> (u64, u64) {
        let open = self.tracks.values().flatten().filter(|begun| begun.record.is_some()).count();
        (self.begins + open as u64, self.ends)
    }
}

fn track(event: &Event) -> Track {
    let text = |value: &Loose| match value.int() {
        Some(number) => number.to_string(),
        None => short(value.text()),
    };
    match event.phase.text() {
        "b" | "e" => (format!("{}:{}", short(event.category.text()), text(&event.process)), text(&event.id)),
        _ => (text(&event.process), text(&event.thread)),
    }
}

/// Returns the start of a string, long enough to distinguish it from other strings.
fn short(text: &str) -> String {
    text.chars().take(200).collect()
}
