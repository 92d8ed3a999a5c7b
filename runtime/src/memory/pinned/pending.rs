//! Dropped blocks that wait for their streams, in one queue per stream.
//!
//! Each queue is scanned from the front, up to the first entry that its stream has not reached. A slow stream does not
//! delay blocks used only on other streams. A block used on several streams is in several queues and is freed when its
//! last entry is removed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::cache::Block;
use super::events::{EventPool, Ticket};
use crate::error::Result;

#[derive(Debug)]
struct Entry {
    number: u64,
    ticket: Arc<Ticket>,
    block: Arc<Block>,
}

#[derive(Debug, Default)]
struct Queues {
    next: u64,
    /// Queues, keyed by stream ID.
    streams: BTreeMap<u64, VecDeque<Entry>>,
}

/// Blocks of one device that wait for their streams.
#[derive(Debug, Default)]
pub(super) struct Pending {
    queues: Mutex<Queues>,
}

impl Pending {
    fn queues(&self) -> MutexGuard<'_, Queues> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps the block until its stream has reached the ticket.
    pub(super) fn push(&self, stream: u64, ticket: Ticket, block: Arc<Block>) {
        let mut queues = self.queues();
        let number = queues.next;
        queues.next += 1;
        let entry = Entry { number, ticket: Arc::new(ticket), block };
        queues.streams.entry(stream).or_default().push_back(entry);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues().streams.is_empty()
    }

    /// Returns the next entry's number.
    pub(super) fn next(&self) -> u64 {
        self.queues().next
    }

    /// Returns the ticket of an entry that is first in its queue and whose number is less than `end`.
    pub(super) fn first_before(&self, end: u64) -> Option<Arc<Ticket>> {
        let queues = self.queues();
        let mut fronts = queues.streams.values().filter_map(VecDeque::front);
        fronts.find(|entry| entry.number < end).map(|entry| Arc::clone(&entry.ticket))
    }

    /// Removes and returns the blocks for which all streams have reached their tickets; `own` is this device's event
    /// pool.
    ///
    /// If a query fails, its queue stays unchanged; the other queues are still scanned.
    pub(super) fn take_done(&self, own: &Arc<EventPool>) -> (Vec<Block>, Result<()>) {
        let mut done = Vec::new();
        let mut result = Ok(());
        self.queues().streams.retain(|_, queue| {
            while let Some(entry) = queue.front() {
                match entry.ticket.is_done(!entry.ticket.is_of(own)) {
                    Ok(true) => {}
                    Ok(false) => break,
                    Err(error) => {
                        let first = std::mem::replace(&mut result, Ok(()));
                        result = first.and(Err(error));
                        break;
                    }
                }
                done.extend(queue.pop_front().and_then(|entry| Arc::into_inner(entry.block)));
            }
            !queue.is_empty()
        });
        (done, result)
    }

    /// Removes and returns all blocks, after waiting for the streams of other devices. The caller must already have
    /// waited for this device's streams.
    pub(super) fn take_all(&self, own: &Arc<EventPool>) -> Vec<Block> {
        let queues = std::mem::take(&mut *self.queues());
        let mut blocks = Vec::new();
        for entry in queues.streams.into_values().flatten() {
            if !entry.ticket.is_of(own) {
                // A lost device's work has stopped too; its own calls report the fault.
                let _ = entry.ticket.wait();
            }
            blocks.extend(Arc::into_inner(entry.block));
        }
        blocks
    }
}
