//! Buffer uses by captured work, and waits between a capture's streams.

use std::any::Any;
use std::collections::hash_map::Entry;
use std::ops::Range;
use std::sync::Arc;

use super::{Capturing, State};
use crate::driver::{Context, Driver};
use crate::error::{Error, GraphError, PoolId, Result};
use crate::memory::graph_resource::{CapturedRanges, GraphResource};
use crate::memory::storage::{BufferUse, Kind};
use crate::memory::usage::{Access, Usage, Waits};
use crate::stream::Stream;
use crate::stream::clock::Timeline;

/// A use of a buffer by captured work.
#[derive(Debug, Clone)]
pub(crate) struct CapturedUse {
    pub tracked: Arc<GraphResource>,
    /// The range of the buffer, in bytes.
    pub range: Range<usize>,
    pub access: Access,
    /// True if the use must wait for earlier captured uses.
    pub ordered: bool,
}

impl CapturedUse {
    /// Creates a captured use from a use of a buffer range.
    pub fn of(part: &BufferUse<'_>) -> Self {
        let BufferUse { storage, range, access, ordered } = part;
        Self {
            tracked: Arc::clone(storage.track(*access)),
            range: range.clone(),
            access: *access,
            ordered: *ordered,
        }
    }
}

/// The capture's record of a buffer.
#[derive(Debug)]
pub(super) struct Resource {
    pub(super) tracked: Arc<GraphResource>,
    /// Uses of the buffer by captured work.
    usage: Usage,
    pub(super) touched: Arc<CapturedRanges>,
}

impl Capturing {
    /// Enqueues work on a stream of the capture.
    pub fn enqueue<E: Into<Error>>(
        &self,
        stream: &Stream,
        uses: Vec<CapturedUse>,
        work: impl FnOnce(&dyn Driver, Context) -> Result<(), E>,
    ) -> Result<()> {
        let mut state = self.lock();
        if state.ended {
            return Err(GraphError::CaptureEnded.into());
        }
        let mut waits = Waits::new(Timeline::Captured);
        for CapturedUse { tracked, range, access, ordered } in &uses {
            let resource = self.resource(&mut state, tracked);
            if *ordered {
                resource.usage.begin(tracked.home(), stream, range, *access, &mut waits);
            }
        }
        let called = waits.enqueue(stream).and_then(|()| stream.call(work));
        for CapturedUse { tracked, range, access, .. } in uses {
            let resource = self.resource(&mut state, &tracked);
            resource.usage.end(tracked.home(), stream, &range, tracked.bytes(), access, Timeline::Captured);
            resource.touched.add(range, access);
        }
        called
    }

    /// Returns the capture's record of a buffer, creating it if necessary.
    fn resource<'s>(&self, state: &'s mut State, tracked: &Arc<GraphResource>) -> &'s mut Resource {
        match state.resources.entry(Arc::as_ptr(tracked)) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Resource {
                tracked: Arc::clone(tracked),
                usage: Usage::unused(),
                touched: tracked.begin_capture(self.mode, self.thread),
            }),
        }
    }

    /// Returns true if work of the capture writes this range of a buffer.
    pub fn writes(&self, tracked: &Arc<GraphResource>, range: &Range<usize>) -> bool {
        let state = self.lock();
        let resource = state.resources.get(&Arc::as_ptr(tracked));
        resource.is_some_and(|resource| resource.usage.is_written(tracked.home(), range, Timeline::Captured))
    }

    /// Returns the distinct streams of the capture whose work uses a buffer, except those whose work is known to
    /// precede later work on the buffer's home stream.
    pub fn users(&self, tracked: &Arc<GraphResource>) -> Vec<Stream> {
        let state = self.lock();
        let resource = state.resources.get(&Arc::as_ptr(tracked));
        resource.map_or_else(Vec::new, |resource| resource.usage.users(tracked.home(), Timeline::Captured))
    }
}

/// Records that a buffer was allocated on a stream in a private pool. If the pool belongs to a capture, earlier work of
/// that capture may use the same memory, and must precede all uses of the buffer in every launch of the graph.
#[cold]
pub(crate) fn note_allocated<'a>(
    stream: &Stream,
    pool: PoolId,
    track: impl FnOnce() -> &'a Arc<GraphResource>,
) -> Result<()> {
    let capturing = {
        let slot = stream.captures().slot();
        if slot.pool != Some(pool) {
            return Ok(());
        }
        slot.current.clone()
    };
    let capturing =
        capturing.and_then(|capture| (capture as Arc<dyn Any + Send + Sync>).downcast::<Capturing>().ok());
    let Some(capturing) = capturing else { return Err(GraphError::CaptureEnded.into()) };
    let mut state = capturing.lock();
    if state.ended {
        return Err(GraphError::CaptureEnded.into());
    }
    let tracked = track();
    let range = 0..tracked.bytes();
    let resource = capturing.resource(&mut state, tracked);
    resource.usage.end(tracked.home(), stream, &range, tracked.bytes(), Access::Write, Timeline::Captured);
    resource.touched.add(range, Access::Write);
    Ok(())
}

/// Enqueues work that uses ranges of buffers on a capturing stream.
#[cold]
#[inline(never)]
pub(crate) fn enqueue<'p, 'a: 'p, E: Into<Error>>(
    stream: &Stream,
    parts: impl Iterator<Item = &'p BufferUse<'a>>,
    kind: Kind,
    work: impl FnOnce(&dyn Driver, Context) -> Result<(), E>,
) -> Result<()> {
    stream.device().check_process()?;
    if let Kind::HostCopy(call) = kind {
        return Err(GraphError::NotCapturable {
            call,
            instead: "copy before the capture begins or after it ends",
        }
        .into());
    }
    let Some(capturing) = stream.capturing() else {
        // Another thread has just ended the capture or is about to begin it.
        return Err(GraphError::CaptureUnderway.into());
    };
    let uses = parts.filter(|part| !part.range.is_empty()).map(CapturedUse::of).collect();
    capturing.enqueue(stream, uses, work)
}
