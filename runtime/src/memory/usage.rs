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
//! - Freeing needs the buffer by value, so every use has been noted before.
//!
//! The buffer's home stream, the one it was allocated on, counts as a user from the beginning: work of that
//! stream from before the allocation may still use the memory, for a buffer that was there earlier.
//!
//! With one stream nothing waits, no event is made and nothing is allocated.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::error::Result;
use crate::stream::Stream;

/// The streams that may still use a buffer.
#[derive(Debug)]
pub(crate) struct Usage {
    uses: Mutex<Uses>,
}

#[derive(Debug)]
struct Uses {
    /// The number of the newest use.
    newest: u64,
    /// The newest use on the home stream, 0 for none that matters.
    home: u64,
    /// For each other stream its newest use.
    others: Vec<(Stream, u64)>,
}

/// What [`Usage::begin`] waited for: uses up to this number.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun(u64);

impl Default for Usage {
    fn default() -> Self {
        Self { uses: Mutex::new(Uses { newest: 1, home: 1, others: Vec::new() }) }
    }
}

impl Usage {
    fn uses(&self) -> MutexGuard<'_, Uses> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes later work on `stream` wait for every use on another stream.
    pub(crate) fn begin(&self, home: &Stream, stream: &Stream) -> Result<Begun> {
        let uses = self.uses();
        if uses.home > 0 && stream != home {
            stream.wait_for(home)?;
        }
        for (user, _) in &uses.others {
            if user != stream {
                stream.wait_for(user)?;
            }
        }
        Ok(Begun(uses.newest))
    }

    /// Notes that work which uses the buffer was enqueued on `stream`.
    pub(crate) fn end(&self, home: &Stream, stream: &Stream, begun: Begun) {
        let mut uses = self.uses();
        uses.newest += 1;
        let newest = uses.newest;
        uses.others.retain(|(user, number)| user == stream || *number > begun.0);
        if stream == home {
            uses.home = newest;
            return;
        }
        if uses.home <= begun.0 {
            uses.home = 0;
        }
        match uses.others.iter_mut().find(|(user, _)| user == stream) {
            Some((_, number)) => *number = newest,
            None => uses.others.push((stream.clone(), newest)),
        }
    }

    /// Notes that work which is not ordered by this value was enqueued on `stream`.
    pub(crate) fn add(&self, home: &Stream, stream: &Stream) {
        self.end(home, stream, Begun(0));
    }

    /// Notes that `stream`, which had waited for everything [`Usage::begin`] saw, was waited for by the host.
    pub(crate) fn finished(&self, begun: Begun) {
        let mut uses = self.uses();
        if uses.home <= begun.0 {
            uses.home = 0;
        }
        uses.others.retain(|(_, number)| *number > begun.0);
    }

    /// The streams other than home that may still use the buffer.
    pub(crate) fn others(&mut self) -> Vec<Stream> {
        let uses = self.uses.get_mut().unwrap_or_else(PoisonError::into_inner);
        if uses.others.is_empty() {
            return Vec::new();
        }
        std::mem::take(&mut uses.others).into_iter().map(|(stream, _)| stream).collect()
    }
}
