//! [`Usage`]: the uses of a buffer, per stream, and the waits of later work for these uses.
//!
//! Two steps surround each piece of work on a range of the buffer. [`Usage::begin`] reports the uses for which the work
//! must wait, except those already known to precede it. The work's stream then waits for the reported uses ([`Waits`]).
//! [`Usage::end`] records the work *after* it was enqueued. Reads wait for the last write, and writes for every use.
//! The protocol is correct with several host threads for these reasons:
//!
//! - Two threads perform these steps for the same bytes concurrently only if both read the bytes, because the borrows
//!   of a launch or copy last until it has been enqueued and recorded.
//! - Uses removed from the record lie within the range of a write. No thread can add such uses concurrently, and the
//!   write waits for them.
//! - Freeing the buffer requires ownership, so every use has already been recorded.
//!
//! Initially, the home stream, on which the buffer was allocated, counts as having written the buffer: the memory may
//! have belonged to an earlier buffer that earlier work on that stream still uses.
//!
//! Uses of the entire buffer on its home stream are stored as two numbers, and all other uses in a list. A program with
//! one stream that uses entire buffers acquires no lock, creates no event and allocates no memory.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::device::observe::AwaitedBuffer;
use crate::error::Result;
use crate::stream::Stream;
use crate::stream::clock::Timeline;

/// Maximum number of uses in the list. In a longer list, uses with the same stream and access are merged into one that
/// covers them all.
const PRECISE: usize = 32;
/// Maximum number of waits among which redundant ones are removed. A wait for a stream is redundant if the wait for
/// another stream covers it.
const MINIMIZED: usize = 8;

/// Kind of access to a buffer range.
///
/// See the [example](crate::extension#example).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// The work reads the range.
    Read,
    /// The work writes the range, and may also read it.
    Write,
}

/// The uses of a buffer for which later work may have to wait.
#[derive(Debug)]
pub(crate) struct Usage {
    /// Epochs of the newest write and the newest read of the entire buffer on the home stream; 0 if later work need not
    /// wait for such a use.
    home_write: AtomicU64,
    home_read: AtomicU64,
    /// All other uses. Allocated on first use to keep buffers small.
    list: OnceLock<Box<List>>,
}

#[derive(Debug, Default)]
struct List {
    /// Length of the list, stored separately to avoid locking an empty list.
    len: AtomicUsize,
    uses: Mutex<Vec<Use>>,
}

#[derive(Debug, Clone)]
struct Use {
    range: Range<usize>,
    access: Access,
    stream: Stream,
    epoch: u64,
}

/// The waits that a piece of work requires: distinct streams, each with the epoch of its newest conflicting work.
#[derive(Debug)]
pub(crate) struct Waits {
    streams: Vec<(Stream, u64, Option<AwaitedBuffer>)>,
    /// The buffer whose uses are being added.
    pub buffer: Option<AwaitedBuffer>,
    /// Timeline of the epochs. Running and captured work have separate timelines.
    time: Timeline,
}

impl Waits {
    #[inline]
    pub fn new(time: Timeline) -> Self {
        Self { streams: Vec::new(), buffer: None, time }
    }

    fn add(&mut self, stream: &Stream, other: &Stream, epoch: u64) {
        if stream.comes_after(other, epoch, self.time) {
            return;
        }
        match self.streams.iter_mut().find(|(known, ..)| known == other) {
            Some((_, newest, _)) => *newest = epoch.max(*newest),
            None => self.streams.push((other.clone(), epoch, self.buffer)),
        }
    }

    /// Makes later work on `stream` wait for these streams, except for those that another wait covers.
    #[inline]
    pub fn enqueue(self, stream: &Stream) -> Result<()> {
        if self.streams.is_empty() { Ok(()) } else { self.enqueue_all(stream) }
    }

    #[cold]
    fn enqueue_all(self, stream: &Stream) -> Result<()> {
        let Self { streams, time, .. } = self;
        let all = 0..streams.len();
        // A wait for a stream covers all work for which that stream has waited. Coverage is not transitive, because a
        // stream may have waited for a second stream before the second waited for a third.
        let covers = |by: usize, index: usize| {
            let (other, epoch, _) = &streams[index];
            by == index || streams[by].0.comes_after(other, *epoch, time)
        };
        let mut waits = vec![true; all.len()];
        if all.len() <= MINIMIZED {
            for index in all.clone() {
                waits[index] = false;
                waits[index] = !all.clone().all(|other| all.clone().any(|by| waits[by] && covers(by, other)));
            }
        }
        let waited = streams.iter().zip(&waits).filter(|(_, waits)| **waits);
        waited.map(|(wait, _)| wait).try_for_each(|(other, epoch, buffer)| match time {
            Timeline::Running => stream.wait_for_running(other, Some(*epoch), *buffer),
            Timeline::Captured => stream.wait_for_captured(other, *buffer),
        })
    }
}

pub(super) fn overlap(left: &Range<usize>, right: &Range<usize>) -> bool {
    left.start < right.end && right.start < left.end
}

fn covers(outer: &Range<usize>, inner: &Range<usize>) -> bool {
    outer.start <= inner.start && inner.end <= outer.end
}

/// Raises a number to at least `to`. Loads first, because the number is usually large enough.
#[inline]
fn raise(number: &AtomicU64, to: u64) {
    if number.load(Ordering::Relaxed) < to {
        number.fetch_max(to, Ordering::Release);
    }
}

impl List {
    fn lock(&self) -> MutexGuard<'_, Vec<Use>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds to `waits` the uses for which work on `stream` with this access to this range must wait.
    #[cold]
    fn conflicts(&self, stream: &Stream, range: &Range<usize>, access: Access, waits: &mut Waits) {
        let conflicts = |other: &&Use| {
            (access == Access::Write || other.access == Access::Write) && overlap(&other.range, range)
        };
        for other in self.lock().iter().filter(conflicts) {
            waits.add(stream, &other.stream, other.epoch);
        }
    }

    #[cold]
    fn clear(&self) {
        let forgotten = {
            let mut uses = self.lock();
            self.len.store(0, Ordering::Release);
            std::mem::take(&mut *uses)
        };
        // The lock is released first, because the list may contain the last handle to a stream.
        drop(forgotten);
    }

    /// Returns the distinct streams whose work may still use the buffer and is not known to precede later work of
    /// `home`.
    #[cold]
    fn users(&self, home: &Stream, time: Timeline) -> Vec<Stream> {
        let mut users = Vec::new();
        for Use { stream, epoch, .. } in self.lock().iter() {
            if !home.comes_after(stream, *epoch, time) && !users.contains(stream) {
                users.push(stream.clone());
            }
        }
        users
    }
}

impl Usage {
    /// Creates the usage of a buffer that was just allocated on `home`.
    #[inline]
    pub fn new(home: &Stream) -> Self {
        Self::written(home.epoch(Timeline::Running))
    }

    /// Creates the usage of a buffer that has not been used.
    pub fn unused() -> Self {
        Self::written(0)
    }

    #[inline]
    fn written(epoch: u64) -> Self {
        Self { home_write: AtomicU64::new(epoch), home_read: AtomicU64::new(0), list: OnceLock::new() }
    }

    /// Adds the uses that `other` has recorded for the same buffer.
    pub fn absorb(&self, other: &Usage) {
        raise(&self.home_write, other.home_write.load(Ordering::Acquire));
        raise(&self.home_read, other.home_read.load(Ordering::Acquire));
        let Some(other) = other.listed() else { return };
        let uses: Vec<Use> = other.lock().clone();
        let listed = self.list();
        let mut list = listed.lock();
        list.extend(uses);
        let mut forgotten = Vec::new();
        if list.len() > PRECISE {
            merge(&mut list, &mut forgotten);
        }
        listed.len.store(list.len(), Ordering::Release);
        drop(list);
        drop(forgotten);
    }

    /// Returns the list, creating it if necessary.
    fn list(&self) -> &List {
        self.list.get_or_init(Box::default)
    }

    /// Returns the list, unless it is empty.
    #[inline]
    fn listed(&self) -> Option<&List> {
        self.list.get().map(|list| &**list).filter(|list| list.len.load(Ordering::Acquire) > 0)
    }

    /// Returns true if all recorded uses are of the entire buffer on its home stream, so that later work on that stream
    /// needs no wait.
    #[inline]
    pub fn is_at_home(&self) -> bool {
        self.listed().is_none()
    }

    /// Adds to `waits` the uses for which work on `stream` with this access to this range must wait.
    pub fn begin(
        &self,
        home: &Stream,
        stream: &Stream,
        range: &Range<usize>,
        access: Access,
        waits: &mut Waits,
    ) {
        if stream != home {
            self.after_home(home, stream, access, waits);
        }
        if let Some(listed) = self.listed() {
            listed.conflicts(stream, range, access, waits);
        }
    }

    #[cold]
    fn after_home(&self, home: &Stream, stream: &Stream, access: Access, waits: &mut Waits) {
        let write = self.home_write.load(Ordering::Acquire);
        let epoch = match access {
            Access::Read => write,
            Access::Write => write.max(self.home_read.load(Ordering::Acquire)),
        };
        waits.add(stream, home, epoch);
    }

    /// Records that work with this access to this range was enqueued on `stream`; `bytes` is the size of the buffer.
    #[inline]
    pub fn end(
        &self,
        home: &Stream,
        stream: &Stream,
        range: &Range<usize>,
        bytes: usize,
        access: Access,
        time: Timeline,
    ) {
        let epoch = stream.epoch(time);
        let whole = range.len() == bytes;
        if stream != home || !whole {
            return self.note(home, stream, range, whole, access, epoch);
        }
        match access {
            Access::Read => raise(&self.home_read, epoch),
            Access::Write => {
                raise(&self.home_write, epoch);
                if let Some(listed) = self.listed() {
                    listed.clear();
                }
            }
        }
    }

    #[cold]
    fn note(
        &self,
        home: &Stream,
        stream: &Stream,
        range: &Range<usize>,
        whole: bool,
        access: Access,
        epoch: u64,
    ) {
        let mut forgotten = Vec::new();
        let listed = self.list();
        let mut list = listed.lock();
        let same = |other: &Use| other.stream == *stream && other.access == access;
        if access == Access::Write {
            let older =
                |other: &mut Use| covers(range, &other.range) && !(same(other) && other.range == *range);
            forgotten.extend(list.extract_if(.., older));
            if whole && stream != home {
                self.home_write.store(0, Ordering::Release);
                self.home_read.store(0, Ordering::Release);
            }
        }
        match list.iter_mut().find(|other| same(other) && other.range == *range) {
            Some(other) => other.epoch = other.epoch.max(epoch),
            None => list.push(Use { range: range.clone(), access, stream: stream.clone(), epoch }),
        }
        if list.len() > PRECISE {
            merge(&mut list, &mut forgotten);
        }
        listed.len.store(list.len(), Ordering::Release);
        drop(list);
        drop(forgotten);
    }

    /// Records that work was enqueued on `stream`. The caller must synchronize this work by other means.
    pub fn add(&self, home: &Stream, stream: &Stream, bytes: usize) {
        let epoch = stream.epoch(Timeline::Running);
        if stream == home {
            return raise(&self.home_write, epoch);
        }
        let listed = self.list();
        let mut list = listed.lock();
        list.push(Use { range: 0..bytes, access: Access::Write, stream: stream.clone(), epoch });
        let mut forgotten = Vec::new();
        if list.len() > PRECISE {
            merge(&mut list, &mut forgotten);
        }
        listed.len.store(list.len(), Ordering::Release);
        drop(list);
        drop(forgotten);
    }

    /// Returns true if a use of the entire buffer on the home stream may not have finished.
    fn is_used_at_home(&self, home: &Stream) -> bool {
        let epoch = self.home_write.load(Ordering::Acquire).max(self.home_read.load(Ordering::Acquire));
        !home.running_clock().is_done(epoch)
    }

    /// Returns true if work that may not have run writes the range. Captured work has not run.
    pub fn is_written(&self, home: &Stream, range: &Range<usize>, time: Timeline) -> bool {
        let is_pending = |stream: &Stream, epoch: u64| match time {
            Timeline::Running => !stream.running_clock().is_done(epoch),
            Timeline::Captured => epoch > 0,
        };
        let is_listed = |other: &Use| {
            other.access == Access::Write
                && overlap(&other.range, range)
                && is_pending(&other.stream, other.epoch)
        };
        is_pending(home, self.home_write.load(Ordering::Acquire))
            || self.listed().is_some_and(|listed| listed.lock().iter().any(is_listed))
    }

    /// Returns the distinct streams whose work may still use the buffer and is not known to precede later work of
    /// `home`.
    #[inline]
    pub fn users(&self, home: &Stream, time: Timeline) -> Vec<Stream> {
        self.listed().map_or_else(Vec::new, |listed| listed.users(home, time))
    }

    /// Returns the distinct streams, including `home`, whose work on the buffer is not known to have finished. Unlike
    /// [`Self::users`], ignores the waits of `home`, because the host has not waited.
    pub fn unfinished(&self, home: &Stream) -> Vec<Stream> {
        let mut streams = if self.is_used_at_home(home) { vec![home.clone()] } else { Vec::new() };
        let listed = self.listed().map(List::lock);
        for Use { stream, epoch, .. } in listed.iter().flat_map(|list| list.iter()) {
            if !stream.running_clock().is_done(*epoch) && !streams.contains(stream) {
                streams.push(stream.clone());
            }
        }
        streams
    }
}

/// Merges all uses with the same stream and access into one, which may cover additional bytes and so cause additional
/// waits.
fn merge(list: &mut Vec<Use>, forgotten: &mut Vec<Use>) {
    let mut merged = Vec::<Use>::new();
    for other in list.drain(..) {
        let same = |kept: &&mut Use| kept.stream == other.stream && kept.access == other.access;
        match merged.iter_mut().find(same) {
            Some(kept) => {
                kept.range = kept.range.start.min(other.range.start)..kept.range.end.max(other.range.end);
                kept.epoch = kept.epoch.max(other.epoch);
                forgotten.push(other);
            }
            None => merged.push(other),
        }
    }
    *list = merged;
}
