//! [`Pending`]: blocks that were freed while work on other streams may still use them.
//!
//! Each block waits for one event per stream, recorded when the block was freed. Events of one stream complete in
//! order, so only the oldest event of each stream is queried. A slow stream does not delay blocks that wait only for
//! other streams.

use std::collections::{HashMap, VecDeque};

use super::block::BlockId;
use crate::driver::EventHandle;
use crate::error::Result;
use crate::stream::Stream;

/// Blocks that wait for events; see the [module's documentation](self).
#[derive(Debug, Default)]
pub(crate) struct Pending {
    /// Queues by stream ID, oldest entry first. Empty queues are removed.
    queues: Vec<(u64, VecDeque<(EventHandle, BlockId)>)>,
    /// Number of events for which each block still waits.
    events_of: HashMap<BlockId, usize>,
    /// Blocks freed during a capture, when events must not be recorded, with the streams that may still use them.
    deferred: Vec<(BlockId, Vec<Stream>)>,
    /// Unused events, kept for reuse.
    spare: Vec<EventHandle>,
}

impl Pending {
    /// Returns true if no block waits for an event.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    /// Records that a block waits for an event on a stream.
    pub fn push(&mut self, stream: u64, event: EventHandle, block: BlockId) {
        *self.events_of.entry(block).or_default() += 1;
        match self.queues.iter_mut().find(|(of, _)| *of == stream) {
            Some((_, queue)) => queue.push_back((event, block)),
            None => self.queues.push((stream, VecDeque::from([(event, block)]))),
        }
    }

    /// Marks a block as waiting forever.
    pub fn keep_for_good(&mut self, block: BlockId) {
        *self.events_of.entry(block).or_default() += 1;
    }

    /// Returns a block that has finished waiting. `reached` queries whether an event has completed.
    pub fn next_done(
        &mut self,
        mut reached: impl FnMut(EventHandle) -> Result<bool>,
    ) -> Result<Option<BlockId>> {
        let mut index = 0;
        while let Some((_, queue)) = self.queues.get_mut(index) {
            let Some(&(event, block)) = queue.front() else {
                self.queues.swap_remove(index);
                continue;
            };
            if !reached(event)? {
                index += 1;
                continue;
            }
            queue.pop_front();
            if queue.is_empty() {
                self.queues.swap_remove(index);
            }
            self.spare.push(event);
            if self.event_reached(block) {
                return Ok(Some(block));
            }
        }
        Ok(None)
    }

    /// Removes a completed event of a block. Returns true if it was the last one.
    fn event_reached(&mut self, block: BlockId) -> bool {
        match self.events_of.get_mut(&block) {
            Some(left) if *left > 1 => {
                *left -= 1;
                false
            }
            _ => {
                self.events_of.remove(&block);
                true
            }
        }
    }

    /// Keeps a block until the capture has ended.
    pub fn defer(&mut self, block: BlockId, users: Vec<Stream>) {
        self.deferred.push((block, users));
    }

    pub fn take_deferred(&mut self) -> Vec<(BlockId, Vec<Stream>)> {
        std::mem::take(&mut self.deferred)
    }

    /// Returns an unused event, if any.
    pub fn spare_event(&mut self) -> Option<EventHandle> {
        self.spare.pop()
    }

    /// Keeps an event for reuse. Nothing may wait for it.
    pub fn keep_event(&mut self, event: EventHandle) {
        self.spare.push(event);
    }

    /// Removes all events, and the blocks that wait for them.
    pub fn take_events(&mut self) -> Vec<EventHandle> {
        self.events_of.clear();
        self.deferred.clear();
        let waiting = std::mem::take(&mut self.queues).into_iter().flat_map(|(_, queue)| queue);
        waiting.map(|(event, _)| event).chain(std::mem::take(&mut self.spare)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_stream_delays_its_own_blocks_only() {
        let mut pending = Pending::default();
        assert!(pending.is_empty());
        for (stream, event, block) in [(1, 10, 0), (2, 20, 0), (1, 11, 1), (2, 21, 2), (3, 30, 3)] {
            pending.push(stream, EventHandle(event), block);
        }
        let mut done = |reached: &[u64]| {
            let mut blocks = Vec::new();
            while let Some(block) = pending.next_done(|event| Ok(reached.contains(&event.0))).unwrap() {
                blocks.push(block);
            }
            blocks.sort_unstable();
            blocks
        };
        assert!(done(&[]).is_empty());
        assert_eq!(done(&[10, 11, 21]), [1], "stream 2 has not come to event 20, so not to 21 either");
        assert_eq!(done(&[30]), [3]);
        assert_eq!(done(&[20]), [0]);
        assert_eq!(done(&[21]), [2]);
        assert!(pending.is_empty());
        assert_eq!(pending.take_events().len(), 5);
    }

    #[test]
    fn an_error_of_a_query_loses_nothing() {
        let mut pending = Pending::default();
        pending.push(1, EventHandle(1), 7);
        pending.next_done(|_| Err(crate::Error::NoElapsedTime("any error"))).unwrap_err();
        assert_eq!(pending.next_done(|_| Ok(true)).unwrap(), Some(7));
    }
}
