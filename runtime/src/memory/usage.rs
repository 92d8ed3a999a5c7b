//! [`Usage`]: which streams may still use a buffer, and how work on another stream is ordered after them.
//!
//! The protocol has two steps around each piece of work: [`Usage::begin`] makes the work's stream wait for every
//! other stream that used the buffer, [`Usage::end`] notes the work's stream *after* the work was enqueued. It
//! is right with several host threads because:
//!
//! - Two threads are in these steps for the same bytes at once only if both read: the borrows that a launch or
//!   copy holds last until it has been enqueued and noted. Reads need no order among themselves, and neither do
//!   the disjoint parts of a split buffer.
//! - `end` forgets only what `begin` saw and waited for, by number. A use that another thread notes in between
//!   has a higher number and stays.
//! - Freeing needs the buffer by value, so every use has been noted before; it waits for all of them.
//!
//! With one stream nothing waits and no event is made.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::stream::Stream;

/// The streams that may still use a buffer.
#[derive(Debug, Default)]
pub(crate) struct Usage {
    uses: Mutex<Uses>,
}

#[derive(Debug, Default)]
struct Uses {
    /// The number of the newest use.
    newest: u64,
    /// For each stream its newest use.
    streams: Vec<(Stream, u64)>,
}

/// What [`Usage::begin`] waited for: uses up to this number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun(u64);

impl Usage {
    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes later work on `stream` wait for every use on another stream.
    pub(crate) fn begin(&self, stream: &Stream) -> Result<Begun> {
        let uses = self.uses();
        for (user, _) in &uses.streams {
            if user != stream {
                stream.wait_for(user)?;
            }
        }
        Ok(Begun(uses.newest))
    }

    /// Notes that work which uses the buffer was enqueued on `stream`.
    pub(crate) fn end(&self, stream: &Stream, begun: Begun) {
        let mut uses = self.uses();
        uses.newest += 1;
        let newest = uses.newest;
        uses.streams.retain(|(user, number)| user == stream || *number > begun.0);
        match uses.streams.iter_mut().find(|(user, _)| user == stream) {
            Some((_, number)) => *number = newest,
            None => uses.streams.push((stream.clone(), newest)),
        }
    }

    /// Notes that `stream`, which had waited for everything [`Usage::begin`] saw, was waited for by the host.
    pub(crate) fn finished(&self, begun: Begun) {
        self.uses().streams.retain(|(_, number)| *number > begun.0);
    }

    /// Waits on the host for every use. All are waited for; the first error is reported.
    pub(crate) fn wait(&mut self) -> Result<()> {
        let uses = std::mem::take(self.uses.get_mut().unwrap_or_else(PoisonError::into_inner));
        uses.streams.iter().map(|(stream, _)| stream.synchronize()).fold(Ok(()), Result::and)
    }
}
