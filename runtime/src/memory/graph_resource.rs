//! [`GraphResource`]: the buffer state shared with graphs: the buffer's liveness and its uses.
//!
//! A graph uses buffers without borrowing them, long after it was captured. The graph and each of its buffers therefore
//! share a separate [`GraphResource`]. Each launch of the graph reads from it whether the buffer was dropped and for
//! which work to wait, and is recorded in it as a use. Once a buffer has a `GraphResource`, every use of the buffer is
//! recorded in it. The resource's lock is held from reading earlier uses until the new use is recorded, because borrows
//! do not order graph launches with respect to other uses.
//!
//! The resource is created when work on the buffer is first captured, while that work borrows the buffer. If the borrow
//! is shared, another thread may concurrently enqueue a read and record it in the buffer itself. This is correct,
//! because the graph also only reads the buffer. A later write, captured or not, borrows the buffer exclusively and
//! moves the uses recorded in the buffer itself into the resource ([`Storage::track`](super::storage::Storage::track)).

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

/// The buffer state shared with graphs; see the [module's documentation](self).
#[derive(Debug)]
pub(crate) struct GraphResource {
    /// Locked from reading the uses until the new use is recorded.
    liveness: Mutex<Liveness>,
    home: Stream,
    bytes: usize,
    /// The buffer's private pool; `None` for the default pool.
    pool: Option<PoolId>,
    usage: Usage,
    /// Uses of the buffer in captures, which apply while the captures are active.
    captured: Mutex<Vec<Weak<CapturedRanges>>>,
}

/// Ranges of a buffer that work of an active capture uses.
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

    /// Removes and returns all uses.
    pub fn take(&self) -> Vec<(Range<usize>, Access)> {
        std::mem::take(&mut *self.lock())
    }

    /// Returns true if a call on this thread that accesses `range` conflicts with the captured uses, because the call
    /// cannot be ordered relative to captured work. Captures of other threads count only in the global mode.
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

    /// Creates the list of a capture's uses; `thread` is the thread that started the capture.
    pub fn begin_capture(&self, mode: CaptureMode, thread: ThreadId) -> Arc<CapturedRanges> {
        let new = Arc::new(CapturedRanges { mode, thread, ranges: Mutex::default() });
        let mut captured = self.captured();
        captured.retain(|known| known.strong_count() > 0);
        captured.push(Arc::downgrade(&new));
        new
    }

    /// Returns an error if an access to `range` outside of captures conflicts with work in an active capture.
    ///
    /// # Errors
    /// Returns [`GraphError::UsedInCapture`].
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

    /// Lends host memory to the program, so that new work cannot use it. Errors name `call`.
    ///
    /// # Errors
    /// Returns [`GraphError::HostBufferInUse`] or the same errors as [`Self::check_captures`].
    pub fn lend(&self, call: &'static str) -> Result<()> {
        self.check_captures(call, &(0..self.bytes), Access::Write)?;
        let mut liveness = self.lock();
        if *liveness == Liveness::Lent {
            return Err(GraphError::HostBufferInUse.into());
        }
        *liveness = Liveness::Lent;
        Ok(())
    }

    /// Takes back host memory that was [lent](Self::lend) to the program, so that new work can use it again.
    pub fn take_back(&self) {
        *self.lock() = Liveness::Live;
    }
}

/// The liveness of memory that a graph uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Liveness {
    Live,
    /// The program currently accesses the memory. Only host memory can be in this state.
    Lent,
    Dropped,
}

/// Buffers that a graph uses, with the range and the access of each use.
#[derive(Debug, Default, Clone)]
pub(crate) struct Resources(Vec<Resource>);

#[derive(Debug, Clone)]
struct Resource {
    tracked: Arc<GraphResource>,
    uses: Vec<(Range<usize>, Access)>,
}

impl Resource {
    /// Returns an error if the memory no longer exists. Memory of the graph's own `pools` outlives its buffers.
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

    /// Iterates over all uses.
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

    /// Adds all uses of another graph.
    pub fn add_all(&mut self, other: &Resources) {
        for Resource { tracked, uses } in &other.0 {
            uses.iter().for_each(|(range, access)| self.add(tracked, range.clone(), *access));
        }
    }

    /// Returns an error if a buffer was dropped or lent, in which case [`Self::enqueue`] would fail.
    ///
    /// # Errors
    /// Returns [`GraphError::BufferDropped`] or [`GraphError::HostBufferInUse`].
    pub fn check(&self, pools: &[PoolId]) -> Result<()> {
        self.0.iter().try_for_each(|resource| {
            let liveness = *resource.tracked.lock();
            resource.check(liveness, pools)
        })
    }

    /// Enqueues work with all these uses on `stream` and records the uses. `pools` lists the graph's private pools,
    /// whose memory stays allocated when its buffers are dropped.
    ///
    /// # Errors
    /// Returns [`GraphError::BufferDropped`], [`GraphError::HostBufferInUse`] or [`GraphError::UsedInCapture`] before
    /// any work is enqueued, or the error that `work` returns.
    pub fn enqueue(
        &self,
        stream: &Stream,
        pools: &[PoolId],
        work: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        // The resources are sorted by address, which is the global lock order.
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
        // Uses are also recorded after a failure, because part of the work may have been enqueued.
        for Resource { tracked, uses } in &self.0 {
            for (range, access) in uses {
                tracked.usage.end(&tracked.home, stream, range, tracked.bytes, *access, Timeline::Running);
            }
        }
        drop(guards);
        done
    }
}
