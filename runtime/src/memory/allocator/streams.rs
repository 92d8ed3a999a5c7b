//! The arena of each stream, and its reuse after the stream is destroyed.
//!
//! A stream's arena is created when the stream first allocates. Allocations keep their stream alive, so none is left
//! when the last handle to the stream is dropped. At that time, an event is recorded after the stream's work. The next
//! stream that needs an arena inherits this one, including its cache, and first waits for that event. A program that
//! creates and drops streams therefore keeps its cache, and no block is reused on another stream without
//! synchronization.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use super::arena::ArenaState;
use super::history::History;
use super::lock::{Guard, Lock};
use super::policy::Policy;
use super::{Allocation, CachingAllocator, Registry};
use crate::device::Device;
use crate::driver::{CaptureStatus, Context, Driver, EventHandle, StreamHandle};
use crate::error::Result;
use crate::memory::statistics::PoolId;
use crate::stream::Stream;

/// The blocks of one stream in one pool.
///
/// The type is aligned so that arenas of different streams do not share a cache line.
#[derive(Debug)]
#[repr(align(128))]
pub(crate) struct Arena {
    pub pool: PoolId,
    /// True if the arena's pool was released, in which case all of its cached memory may be released.
    pub freeable: AtomicBool,
    inner: Lock<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    state: ArenaState,
    home: Home,
}

/// Allocator state of a stream that has allocated memory.
pub(crate) struct StreamMemory {
    /// The arena of the stream in the default pool.
    pub arena: Arc<Arena>,
    /// The stream's scratch memory, keyed by purpose ([`Stream::with_scratch`]).
    pub scratch: Mutex<Vec<Scratch>>,
}

/// Scratch memory that a stream keeps for one purpose.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub purpose: &'static str,
    pub bytes: usize,
    pub memory: Allocation,
}

/// The stream on which an arena's free blocks can be reused without waiting.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Home {
    /// ID of the stream, which may be destroyed if no other stream has inherited the arena yet.
    pub id: u64,
    pub order: Order,
}

/// The way to wait for work that may still use an arena's free blocks.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Order {
    /// Wait for the stream.
    Stream(StreamHandle),
    /// The stream is destroyed; wait for the event that was recorded when it was destroyed.
    Event(EventHandle),
    /// The stream is destroyed, and the host has already waited for its work.
    Done,
}

/// Guard of an arena's lock.
pub(crate) struct ArenaGuard<'a>(Guard<'a, Inner>);

impl std::ops::Deref for ArenaGuard<'_> {
    type Target = ArenaState;

    #[inline]
    fn deref(&self) -> &ArenaState {
        &self.0.state
    }
}

impl std::ops::DerefMut for ArenaGuard<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut ArenaState {
        &mut self.0.state
    }
}

impl ArenaGuard<'_> {
    pub fn home(&self) -> Home {
        self.0.home
    }

    /// Destroys the events of an arena that is being removed.
    pub fn destroy_events(&mut self, driver: &dyn Driver, context: Context) {
        let last = match std::mem::replace(&mut self.0.home.order, Order::Done) {
            Order::Event(event) => Some(event),
            Order::Stream(_) | Order::Done => None,
        };
        for event in self.pending.take_events().into_iter().chain(last) {
            // SAFETY: nothing waits for the event, and its handle is not used again.
            unsafe { driver.event_destroy(context, event) };
        }
    }

    /// Returns true if the runtime or other code is capturing the arena's stream. Waiting for the stream or querying it
    /// would invalidate the capture.
    pub fn is_captured(&self, device: &Device) -> Result<bool> {
        let Order::Stream(stream) = self.0.home.order else { return Ok(false) };
        let status = device.call(|driver, context| driver.capture_status(context, stream))?;
        Ok(status != CaptureStatus::None)
    }

    /// Waits for all work that may still use the free blocks.
    pub fn wait_until_idle(&self, device: &Device) -> Result<()> {
        device.call_lost(|driver, context| match self.0.home.order {
            Order::Stream(stream) => driver.stream_synchronize(context, stream),
            Order::Event(event) => driver.event_synchronize(context, event),
            Order::Done => Ok(()),
        })
    }
}

impl ArenaState {
    /// Records an event on a stream.
    pub fn record_event(&mut self, device: &Device, stream: StreamHandle) -> Result<EventHandle> {
        let event = match self.pending.spare_event() {
            Some(event) => event,
            None => device.call_lost(|driver, context| driver.event_create(context, false))?,
        };
        let recorded = device.call_lost(|driver, context| driver.event_record(context, event, stream));
        if recorded.is_err() {
            self.pending.keep_event(event);
        }
        recorded.map(|()| event)
    }
}

impl Arena {
    #[inline]
    pub fn lock(&self) -> ArenaGuard<'_> {
        let mut guard = self.lock_unsettled();
        guard.settle();
        guard
    }

    /// Locks the arena without performing deferred frees. Allocation and free use this method, because they can be
    /// deferred themselves. If they are not, they must call [`ArenaState::settle`] first.
    #[inline]
    pub fn lock_unsettled(&self) -> ArenaGuard<'_> {
        ArenaGuard(self.inner.lock())
    }

    pub fn is_freeable(&self) -> bool {
        self.freeable.load(Ordering::Acquire)
    }
}

/// Returns the arena of a stream in the default pool.
#[inline]
pub(super) fn arena_of(stream: &Stream) -> Result<&Arc<Arena>> {
    memory_of(stream).map(|memory| &memory.arena)
}

/// Returns the allocator state of a stream, creating it on first use.
#[inline]
pub(crate) fn memory_of(stream: &Stream) -> Result<&StreamMemory> {
    match stream.core().memory() {
        Some(memory) => Ok(memory),
        None => attach_default(stream),
    }
}

#[cold]
fn attach_default(stream: &Stream) -> Result<&StreamMemory> {
    let memory = stream.device().part::<CachingAllocator>();
    let mut registry = memory.registry.lock();
    if stream.core().memory::<StreamMemory>().is_none() {
        let policy = Policy::new(&registry.options, &memory.clock);
        let arena = attach(&mut registry, stream, PoolId::default(), policy)?;
        stream.core().keep_memory(StreamMemory { arena, scratch: Mutex::default() });
    }
    match stream.core().memory() {
        Some(memory) => Ok(memory),
        None => unreachable!("it was kept under the registry's lock"),
    }
}

/// Returns an arena for a stream in a pool, either inherited from a destroyed stream or new.
pub(super) fn attach(
    registry: &mut Registry,
    stream: &Stream,
    pool: PoolId,
    policy: Policy,
) -> Result<Arc<Arena>> {
    let home = Home { id: stream.id(), order: Order::Stream(stream.handle()) };
    for arena in registry.arenas.iter().filter(|arena| arena.pool == pool) {
        let mut guard = arena.lock();
        match guard.0.home.order {
            Order::Stream(_) => continue,
            Order::Event(event) => {
                stream
                    .device()
                    .call(|driver, context| driver.stream_wait_event(context, stream.handle(), event))?;
                guard.pending.keep_event(event);
            }
            Order::Done => {}
        }
        guard.0.home = home;
        if let Some(history) = &mut guard.history {
            history.stream = stream.id();
        }
        return Ok(Arc::clone(arena));
    }
    registry.started = true;
    let own = stream.device().id().ordinal();
    let devices = std::iter::once(own).chain(registry.peers.iter().copied()).collect();
    let mut state = ArenaState::new(policy, devices);
    state.watch(stream.device().raw().0);
    state.set_history(registry.history.map(|limit| History::new(limit, stream.id())));
    let inner = Lock::new(Inner { state, home });
    let arena = Arc::new(Arena { pool, freeable: AtomicBool::new(false), inner });
    registry.arenas.push(Arc::clone(&arena));
    Ok(arena)
}

impl CachingAllocator {
    /// Releases the arenas of a stream that is about to be destroyed.
    pub fn retire(&self, device: &Device, id: u64, stream: StreamHandle) {
        for arena in self.arenas() {
            let mut guard = arena.lock();
            if guard.home().id != id || !matches!(guard.home().order, Order::Stream(_)) {
                continue;
            }
            guard.0.home.order = match guard.record_event(device, stream) {
                Ok(event) => Order::Event(event),
                Err(_) => {
                    // Even if this call returns an error, no work of the stream is running afterwards.
                    let _ = guard.wait_until_idle(device);
                    Order::Done
                }
            };
        }
    }
}
