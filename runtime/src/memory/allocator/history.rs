//! [`History`]: the last events of an arena, with the source location of each.

use std::collections::VecDeque;
use std::panic::Location;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::snapshot::TraceAction;

/// Source location of a call.
pub(crate) type Site = &'static Location<'static>;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Entry {
    pub action: TraceAction,
    /// The block's address; for [`TraceAction::Oom`], the device's free bytes.
    pub address: u64,
    pub size: u64,
    pub stream: u64,
    pub time_us: i64,
    pub site: Site,
}

/// A ring buffer of the newest events.
#[derive(Debug)]
pub(crate) struct History {
    entries: VecDeque<Entry>,
    limit: usize,
    /// ID of the arena's stream.
    pub stream: u64,
}

impl History {
    pub fn new(limit: usize, stream: u64) -> Self {
        Self { entries: VecDeque::new(), limit, stream }
    }

    pub fn push(&mut self, action: TraceAction, address: u64, size: u64, site: Site) {
        if self.entries.len() >= self.limit {
            self.entries.pop_front();
        }
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let time_us = since.map_or(0, |since| since.as_micros() as i64);
        self.entries.push_back(Entry { action, address, size, stream: self.stream, time_us, site });
    }

    /// Iterates over the events, oldest first.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }
}
