//! [`GraphResource`]: a buffer as graphs see it: whether it was dropped, and its uses.
//!
//! A graph uses buffers without borrowing them, long after it was captured. So each buffer that a graph uses has, beside
//! itself, a [`GraphResource`] that both hold: there a launch of the graph finds whether the buffer was dropped and what to
//! wait for, and notes itself as a use. Once it exists, every use of the buffer is noted there, with its lock held
//! from reading to noting, since borrows do not separate the graph's launches from other uses.
//!
//! It is made when work on the buffer is first captured, while the work has the buffer borrowed. If that borrow is shared,
//! another thread may be enqueueing work that reads the buffer, and note it in the buffer itself. That is right: the
//! graph only reads it as well, and a later writer (a launch, or the capture of one) has it borrowed
//! exclusively, and takes over what the buffer itself has noted ([`Storage::track`](super::storage::Storage::track)).

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::{self, ThreadId};

use super::capturing::CapturedUse;
use super::statistics::PoolId;
use super::usage::{Access, Usage, Waits, overlap};
use crate::driver::CaptureMode;
use crate::error::{Error, GraphError, Result};
use crate::stream::Stream;
use crate::stream::clock::Timeline;

/// See the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct GraphResource {
    /// Held locked from looking at uses to noting one.
    liveness: Mutex<Liveness>,
    home: Stream,
    bytes: usize,
    /// The private pool that its memory is of.
    pool: Option<PoolId>,
    usage: Usage,
    /// Its uses in captures, which count while they are active.
    captured: Mutex<Vec<Weak<CapturedRanges>>>,
}

/// The ranges of a buffer that work of an active capture uses.
#[derive(Debug)]
pub(crate) struct CapturedRanges {
    mode: CaptureMode,
    thread: ThreadId,
    ranges: Mutex<Vec<(Range<usize>, Access)>>,
}

impl CapturedRanges {
    fn lock(&self) -> MutexGuard<'_, Vec<(Range<usize>, Access)>> {
        self.ranges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a use.
    pub fn add(&self, range: Range<usize>, access: Access) {
        let mut ranges = self.lock();
        if !ranges.iter().any(|known| *known == (range.clone(), access)) {
            ranges.push((range, access));
        }
    }

    /// Takes all uses.
    pub fn take(&self) -> Vec<(Range<usize>, Access)> {
        std::mem::take(&mut *self.lock())
    }

    /// Whether a call of this thread with this access has no place in the capture's order. Other threads know of the capture
    /// only in the global mode.
    fn conflicts(&self, range: &Range<usize>, access: Access) -> bool {
        let is_writing = |other: Access| access == Access::Write || other == Access::Write;
        (self.mode == CaptureMode::Global || self.thread == thread::current().id())
            && self.lock().iter().any(|(other, kind)| is_writing(*kind) && overlap(other, range))
    }
}

impl GraphResource {
    pub fn new(home: &Stream, bytes: usize, pool: Option<PoolId>, usage: Usage) -> Arc<Self> {
        let (liveness, captured) = (Mutex::new(Liveness::Live), Mutex::default());
        Arc::new(Self { liveness, home: home.clone(), bytes, pool, usage, captured })
    }

    fn captured(&self) -> MutexGuard<'_, Vec<Weak<CapturedRanges>>> {
        self.captured.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A list for the uses of a capture that begins to use the buffer, on the thread that began it.
    pub fn begin_capture(&self, mode: CaptureMode, thread: ThreadId) -> Arc<CapturedRanges> {
        let new = Arc::new(CapturedRanges { mode, thread, ranges: Mutex::default() });
        let mut captured = self.captured();
        captured.retain(|known| known.strong_count() > 0);
        captured.push(Arc::downgrade(&new));
        new
    }

    /// Fails if work that runs, with this access to this range, would have to come after work of an active capture, or before
    /// it.
    ///
    /// # Errors
    /// [`GraphError::UsedInCapture`].
    pub fn check_captures(&self, call: &'static str, range: &Range<usize>, access: Access) -> Result<()> {
        let captured = self.captured();
        let mut active = captured.iter().filter_map(Weak::upgrade);
        if active.any(|ranges| ranges.conflicts(range, access)) {
            return Err(GraphError::UsedInCapture { call, bytes: self.bytes }.into());
        }
        Ok(())
    }

    pub fn home(&self) -> &Stream {
        &self.home
    }

    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn pool(&self) -> Option<PoolId> {
        self.pool
    }

    pub fn usage(&self) -> &Usage {
        &self.usage
    }

    pub fn lock(&self) -> MutexGuard<'_, Liveness> {
        self.liveness.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub fn is_dropped(&self) -> bool {
        *self.lock() == Liveness::Dropped
    }

    /// Marks the buffer as dropped. Returns the streams whose work may still use it.
    pub fn mark_dropped(&self) -> Vec<Stream> {
        *self.lock() = Liveness::Dropped;
        self.usage.users(&self.home, Timeline::Running)
    }

    /// Lends host memory to the program, by `call`, so that no new work uses it.
    ///
    /// # Errors
    /// [`GraphError::HostBufferInUse`]; as [`Self::check_captures`].
    pub fn lend(&self, call: &'static str) -> Result<()> {
        self.check_captures(call, &(0..self.bytes), Access::Write)?;
        let mut liveness = self.lock();
        if *liveness == Liveness::Lent {
            return Err(GraphError::HostBufferInUse.into());
        }
        *liveness = Liveness::Lent;
        Ok(())
    }

    /// Takes host memory back from the program.
    pub fn take_back(&self) {
        *self.lock() = Liveness::Live;
    }

    /// Waits for all work that uses it.
    pub fn synchronize(&self) -> Result<()> {
        self.usage.unfinished(&self.home).iter().try_for_each(Stream::synchronize)
    }
}

/// Whether a graph's memory exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    Live,
    /// The program reads and writes it: only memory of the host.
    Lent,
    /// It was dropped.
    Dropped,
}

/// The uses of a graph: for each buffer its ranges and accesses.
#[derive(Debug, Default, Clone)]
pub(crate) struct Resources(Vec<Resource>);

#[derive(Debug, Clone)]
struct Resource {
    tracked: Arc<GraphResource>,
    uses: Vec<(Range<usize>, Access)>,
}

impl Resource {
    /// Fails unless its memory exists. That of the graph's own `pools` stays when its buffer is dropped.
    fn check(&self, liveness: Liveness, pools: &[PoolId]) -> Result<()> {
        let GraphResource { home, bytes, pool, .. } = &*self.tracked;
        match liveness {
            Liveness::Live => Ok(()),
            Liveness::Lent => Err(Error::Graph(GraphError::HostBufferInUse)),
            Liveness::Dropped if pool.is_some_and(|pool| pools.contains(&pool)) => Ok(()),
            Liveness::Dropped => {
                Err(Error::Graph(GraphError::BufferDropped { device: home.device().id(), bytes: *bytes }))
            }
        }
    }
}

impl Resources {
    /// Adds a use.
    pub fn add(&mut self, tracked: &Arc<GraphResource>, range: Range<usize>, access: Access) {
        let key = Arc::as_ptr(tracked);
        let at = self.0.binary_search_by_key(&key, |resource| Arc::as_ptr(&resource.tracked));
        let uses = match at {
            Ok(index) => &mut self.0[index].uses,
            Err(index) => {
                let new = Resource { tracked: Arc::clone(tracked), uses: Vec::new() };
                self.0.insert(index, new);
                &mut self.0[index].uses
            }
        };
        let within =
            |outer: &Range<usize>, inner: &Range<usize>| outer.start <= inner.start && inner.end <= outer.end;
        let covers = |known: &(Range<usize>, Access)| {
            within(&known.0, &range) && (known.1 == Access::Write || access == Access::Read)
        };
        if uses.iter().any(covers) {
            return;
        }
        uses.retain(|known| {
            !(within(&range, &known.0) && (access == Access::Write || known.1 == Access::Read))
        });
        uses.push((range, access));
    }

    /// Every use.
    pub fn iter(&self) -> impl Iterator<Item = CapturedUse> {
        self.0.iter().flat_map(|Resource { tracked, uses }| {
            uses.iter().map(|(range, access)| CapturedUse {
                tracked: Arc::clone(tracked),
                range: range.clone(),
                access: *access,
                ordered: true,
            })
        })
    }

    /// Adds all uses of another.
    pub fn add_all(&mut self, other: &Resources) {
        for Resource { tracked, uses } in &other.0 {
            uses.iter().for_each(|(range, access)| self.add(tracked, range.clone(), *access));
        }
    }

    /// Fails if work that does all of this would be refused now; see [`Self::enqueue`].
    ///
    /// # Errors
    /// [`GraphError::BufferDropped`], [`GraphError::HostBufferInUse`].
    pub fn check(&self, pools: &[PoolId]) -> Result<()> {
        self.0.iter().try_for_each(|resource| {
            let liveness = *resource.tracked.lock();
            resource.check(liveness, pools)
        })
    }

    /// Enqueues on `stream` work that does all of this, and notes it. `pools` are the private pools of the graph, whose
    /// memory stays when its buffers go.
    ///
    /// # Errors
    /// [`GraphError::BufferDropped`], [`GraphError::HostBufferInUse`] and [`GraphError::UsedInCapture`], and nothing is
    /// enqueued; what `work` returns.
    pub fn enqueue(
        &self,
        stream: &Stream,
        pools: &[PoolId],
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // In the order of their addresses, the order of all such locks.
        let guards: Vec<MutexGuard<'_, Liveness>> =
            self.0.iter().map(|resource| resource.tracked.lock()).collect();
        guards.iter().zip(&self.0).try_for_each(|(liveness, resource)| resource.check(**liveness, pools))?;
        let mut waits = Waits::new(Timeline::Running);
        for Resource { tracked, uses } in &self.0 {
            for (range, access) in uses {
                tracked.check_captures("GraphExec::launch", range, *access)?;
                tracked.usage.begin(&tracked.home, stream, range, *access, &mut waits);
            }
        }
        waits.enqueue(stream)?;
        let done = work();
        // Also when it failed: it may have enqueued something before it did.
        for Resource { tracked, uses } in &self.0 {
            for (range, access) in uses {
                tracked.usage.end(&tracked.home, stream, range, tracked.bytes, *access, Timeline::Running);
            }
        }
        drop(guards);
        done
    }
}
