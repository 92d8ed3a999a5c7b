//! The caching allocator of device memory.
//!
//! A block is allocated for work on one stream, its home stream, and returns to that stream's free blocks. Freeing a
//! block does not wait, because work on a stream runs in order. If other streams used the block, freeing it records
//! events on them, and the block is not reused until these events have completed. A block never moves to another stream
//! without an event in between. A failed request changes only the contents of the cache.
//!
//! **Threads.** Every stream has its own arena with its own lock. A request that a free block can serve acquires only
//! this lock. State shared by all streams (the registry and the totals) is accessed only for driver allocations and
//! frees, for a stream's first allocation and its drop, and for reports. The lock order is registry, arena, totals. Two
//! arenas are never locked at the same time, and no lock is held while user code runs. Calls that must not occur while
//! another thread captures a graph, especially waits for a stream, hold a lock that prevents captures.
//!
//! | module | contents |
//! | --- | --- |
//! | `arena` | the blocks of one stream: search, split and merge |
//! | `block`, `free_index` | slab of blocks, and ordered index of free blocks |
//! | `size`, `policy` | size rounding, and the options of an arena |
//! | `lock` | lock of an arena |
//! | `deferred_free` | fast path for blocks freed immediately after allocation |
//! | `pending` | blocks that wait for events of other streams |
//! | `streams` | the arena of each stream, and its reuse after the stream is destroyed |
//! | `slow_path` | steps taken if no free block fits |
//! | `expandable` | expandable segments |
//! | `release` | release of memory to the driver |
//! | `pool` | private pools, and routing of requests to them |
//! | `raw` | interface for raw addresses |
//! | `counters`, `history`, `report` | data for statistics, snapshots and the out-of-memory error |

mod arena;
mod block;
mod collect;
mod counters;
mod deferred_free;
mod expandable;
mod free_index;
mod history;
mod lock;
mod pending;
mod policy;
pub(crate) mod pool;
mod raw;
mod release;
pub(crate) mod report;
mod size;
mod slow_path;
mod streams;
mod view;

use std::panic::Location;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, Weak};

use self::arena::ArenaState;
use self::block::{BlockId, NONE};
use self::counters::Counters;
use self::pool::PoolShared;
use self::raw::RawTable;
use self::streams::ArenaGuard;
pub(crate) use self::streams::{Arena, Scratch, StreamMemory, memory_of};
pub use self::view::Memory;
use super::options::{AllocatorOptions, Backend};
use super::statistics::PoolId;
use crate::device::health::Quiet;
use crate::device::observe::{MemoryKind, Operation};
use crate::device::{Device, flags};
use crate::driver::{DevicePtr, StreamHandle};
use crate::error::{Error, Result};
use crate::memory::OutOfMemory;
use crate::stream::Stream;

/// Allocated memory, which must be freed exactly once with [`free`], on the stream on which it was allocated.
#[derive(Debug)]
pub(crate) struct Allocation {
    /// The arena of the allocation; `None` if it is the stream's arena in the default pool.
    arena: Option<Arc<Arena>>,
    block: BlockId,
    ptr: DevicePtr,
}

impl Allocation {
    /// An allocation of zero bytes, with no block and a null address.
    pub(crate) const EMPTY: Allocation = Allocation { arena: None, block: NONE, ptr: DevicePtr::NULL };

    /// Creates an allocation for foreign memory, which has no block.
    pub(crate) fn foreign(ptr: DevicePtr) -> Self {
        Self { ptr, ..Self::EMPTY }
    }

    pub fn ptr(&self) -> DevicePtr {
        self.ptr
    }

    /// Returns the private pool that owns the memory; `None` for the default pool.
    pub fn pool(&self) -> Option<PoolId> {
        self.arena.as_ref().map(|arena| arena.pool)
    }
}

/// A lock shared by all streams, with a count of its acquisitions.
#[derive(Debug, Default)]
struct Shared<T>(Mutex<(u64, T)>);

struct SharedGuard<'a, T>(MutexGuard<'a, (u64, T)>);

impl<T> Shared<T> {
    fn lock(&self) -> SharedGuard<'_, T> {
        let mut guard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        guard.0 += 1;
        SharedGuard(guard)
    }

    fn times_taken(&self) -> u64 {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).0
    }
}

impl<T> std::ops::Deref for SharedGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T> std::ops::DerefMut for SharedGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0.1
    }
}

type Observer = Arc<dyn Fn(&OutOfMemory) + Send + Sync>;

/// The registry of the device's arenas, pools, options and observers.
#[derive(Default)]
struct Registry {
    options: AllocatorOptions,
    /// True once memory has been requested from the driver; the backend can then no longer be changed.
    started: bool,
    arenas: Vec<Arc<Arena>>,
    pools: Vec<Weak<PoolShared>>,
    /// IDs of capturing streams, each with the pool that serves its requests.
    captures: Vec<(u64, Arc<PoolShared>)>,
    observers: Vec<Observer>,
    /// Number of events that each arena's history keeps.
    history: Option<usize>,
    /// Ordinals of the devices that may use this device's memory.
    peers: Vec<u32>,
}

/// The counters of the whole device.
#[derive(Debug, Default)]
struct Totals {
    /// Counters; only the counts of segments and reserved bytes are used.
    counters: Counters,
    /// Accumulated counters of dropped arenas.
    forgotten: Counters,
    /// Bytes currently being requested from the driver.
    claimed: u64,
    /// Maximum number of reserved bytes; `None` if there is no limit.
    limit: Option<u64>,
    alloc_retries: u64,
    ooms: u64,
    oom_rejections: u64,
    sync_all_streams: u64,
    device_allocs: u64,
    device_frees: u64,
}

/// The caching allocator of a device; see the [module's documentation](self).
pub(crate) struct CachingAllocator {
    registry: Shared<Registry>,
    totals: Shared<Totals>,
    /// Number of guards and captures that route requests to a private pool. At 0, requests skip the lookup.
    routes: AtomicUsize,
    /// Number of active captures, during which the allocator neither records nor queries events, nor waits.
    captures: AtomicUsize,
    /// Held during operations that must not occur during a capture. A capture starts only when no operation holds this
    /// lock.
    outside_captures: RwLock<()>,
    /// Number of searches for large blocks, counted only for garbage collection.
    clock: Arc<AtomicU64>,
    raw: RawTable,
}

impl CachingAllocator {
    pub fn new(options: AllocatorOptions, total_memory: u64) -> Self {
        let limit = view::limit(options.per_process_memory_fraction, total_memory);
        Self {
            registry: Shared(Mutex::new((0, Registry { options, ..Registry::default() }))),
            totals: Shared(Mutex::new((0, Totals { limit, ..Totals::default() }))),
            routes: AtomicUsize::new(0),
            captures: AtomicUsize::new(0),
            outside_captures: RwLock::default(),
            clock: Arc::new(AtomicU64::new(0)),
            raw: RawTable::default(),
        }
    }

    /// Returns true if work on the device is being captured.
    pub fn capturing(&self) -> bool {
        self.captures.load(Ordering::Acquire) > 0
    }

    /// Prevents captures from starting until the guard is dropped; `None` if a capture is active.
    fn outside_captures(&self) -> Option<RwLockReadGuard<'_, ()>> {
        let guard = self.outside_captures.read().unwrap_or_else(PoisonError::into_inner);
        (!self.capturing()).then_some(guard)
    }

    /// Waits for all operations that must not occur during a capture, then counts a capture. The caller must not hold
    /// any allocator lock.
    fn begin_capture(&self) {
        let _excluded = self.outside_captures.write().unwrap_or_else(PoisonError::into_inner);
        self.captures.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns true if memory comes from the driver's own stream-ordered pool.
    pub fn is_stream_ordered(&self) -> bool {
        self.registry.lock().options.backend == Backend::StreamOrdered
    }

    /// Returns all arenas. The caller does not need the registry's lock to use them.
    fn arenas(&self) -> Vec<Arc<Arena>> {
        self.registry.lock().arenas.clone()
    }
}

#[derive(Debug, Clone, Copy)]
struct Request {
    /// Requested size, in bytes.
    bytes: u64,
    /// Requested size, rounded up to a block size.
    size: u64,
    site: &'static Location<'static>,
}

/// Allocates `bytes` bytes of device memory for work on `stream`. A zero-byte allocation has no block and a null
/// address.
#[inline]
#[track_caller]
pub(crate) fn allocate(stream: &Stream, bytes: usize) -> Result<Allocation> {
    if bytes == 0 {
        return Ok(Allocation::EMPTY);
    }
    let site = Location::caller();
    let device = stream.device();
    let memory = &device.part::<CachingAllocator>();
    device.0.health.check(device.id())?;
    if memory.routes.load(Ordering::Acquire) > 0
        && let Some(pool) = memory.route(stream)
    {
        return allocate_in(&pool, stream, bytes, site);
    }
    allocate_from(streams::arena_of(stream)?, None, stream, bytes, site)
}

/// Allocates in the default pool, regardless of the thread's pool guards.
#[track_caller]
pub(crate) fn allocate_default(stream: &Stream, bytes: usize) -> Result<Allocation> {
    stream.device().0.health.check(stream.device().id())?;
    match bytes {
        0 => Ok(Allocation::EMPTY),
        _ => allocate_from(streams::arena_of(stream)?, None, stream, bytes, Location::caller()),
    }
}

/// Frees memory that belongs to a stream that is being dropped; `arena` is the arena of that stream.
///
/// # Safety
/// The requirements are the same as for [`free`]. In addition, the memory must have been used only on that stream.
pub(crate) unsafe fn free_at_end(
    device: &Device,
    arena: &Arena,
    allocation: Allocation,
    stream: StreamHandle,
) -> Result<()> {
    let mut state = arena.lock();
    match allocation.block {
        NONE => Ok(()),
        block if state.blocks[block].uncached => {
            // Even if this call returns an error, no work of the stream is running afterwards.
            let waited = state.wait_until_idle(device);
            // SAFETY: guaranteed by the caller, and the stream's work has finished.
            waited.and(unsafe {
                device.part::<CachingAllocator>().give_uncached_back(device, &mut state, block, stream)
            })
        }
        block => {
            state.free(block, false);
            Ok(())
        }
    }
}

fn allocate_in(
    pool: &Arc<PoolShared>,
    stream: &Stream,
    bytes: usize,
    site: &'static Location<'static>,
) -> Result<Allocation> {
    let arena = pool.arena_of(stream)?;
    allocate_from(&arena, Some(&arena), stream, bytes, site)
}

#[inline(always)]
fn allocate_from(
    arena: &Arc<Arena>,
    owner: Option<&Arc<Arena>>,
    stream: &Stream,
    bytes: usize,
    site: &'static Location<'static>,
) -> Result<Allocation> {
    if flags::must_report() {
        return allocate_observed(arena, owner, stream, bytes, site);
    }
    take_or_miss(arena, owner, stream, bytes as u64, site).map(|(allocation, _)| allocation)
}

/// Like [`allocate_from`], but notifies observers, without holding the arena's lock.
#[cold]
#[inline(never)]
fn allocate_observed(
    arena: &Arc<Arena>,
    owner: Option<&Arc<Arena>>,
    stream: &Stream,
    bytes: usize,
    site: &'static Location<'static>,
) -> Result<Allocation> {
    let found = |ptr: DevicePtr, cached, reserved| Operation::Allocate {
        memory: MemoryKind::Device,
        bytes,
        address: ptr.0,
        pool: arena.pool,
        cached,
        reserved,
    };
    let mut watch = stream.watch(|| found(DevicePtr::NULL, false, 0));
    let (allocation, cached) = take_or_miss(arena, owner, stream, bytes as u64, site)?;
    watch.found(|| {
        let reserved = stream.device().part::<CachingAllocator>().totals.lock().reserved();
        found(allocation.ptr, cached, reserved)
    });
    Ok(allocation)
}

/// Allocates a block. Returns the block, and true if it was allocated from a free block.
#[inline(always)]
fn take_or_miss(
    arena: &Arc<Arena>,
    owner: Option<&Arc<Arena>>,
    stream: &Stream,
    bytes: u64,
    site: &'static Location<'static>,
) -> Result<(Allocation, bool)> {
    let device = stream.device();
    if bytes > size::MAX_REQUEST {
        return Err(Error::AllocationTooLarge { bytes, largest: size::MAX_REQUEST });
    }
    let mut state = arena.lock_unsettled();
    if let Some(block) = state.take_deferred(bytes, site) {
        let ptr = DevicePtr(state.blocks[block].address);
        return Ok((Allocation { arena: owner.cloned(), block, ptr }, true));
    }
    state.settle();
    if !state.pending.is_empty() {
        device.part::<CachingAllocator>().poll(device, &mut state)?;
    }
    let request = Request { bytes, size: state.policy.round(bytes), site };
    if let Some(block) = state.take(request.size, bytes, site) {
        state.note_allocated(block);
        let ptr = DevicePtr(state.blocks[block].address);
        return Ok((Allocation { arena: owner.cloned(), block, ptr }, true));
    }
    drop(state);
    let missed = device.part::<CachingAllocator>().allocate_slowly(stream, arena, owner, request);
    missed.map(|allocation| (allocation, false))
}

/// Frees memory. Work that is already enqueued on the home stream `stream` and on `users` may still use it.
///
/// # Errors
/// Returns any driver error that occurs while recording an event or waiting. If no event could be recorded, the memory
/// is never reused, unless the device is lost and thus runs no more work.
///
/// # Safety
/// The allocation must come from [`allocate`] on this stream, and no work that uses it may be enqueued afterwards. Work
/// already enqueued must be on the home stream or on `users`, or be ordered before later work on one of them.
#[inline]
pub(crate) unsafe fn free(stream: &Stream, allocation: Allocation, users: &[Stream]) -> Result<()> {
    if allocation.block == NONE {
        return Ok(());
    }
    let arena = match &allocation.arena {
        Some(arena) => arena,
        None => streams::arena_of(stream)?,
    };
    let device = stream.device();
    let block = allocation.block;
    stream.observed(
        || Operation::Free {
            memory: MemoryKind::Device,
            bytes: arena.lock_unsettled().blocks[block].requested as usize,
            address: allocation.ptr.0,
        },
        || {
            // SAFETY: guaranteed by the caller.
            unsafe { free_block(stream, device, arena, block, users) }
        },
    )
}

/// Implements [`free`] for a block of this arena.
///
/// # Safety
/// The requirements are the same as for [`free`].
#[inline(always)]
unsafe fn free_block(
    stream: &Stream,
    device: &Device,
    arena: &Arena,
    block: BlockId,
    users: &[Stream],
) -> Result<()> {
    let mut state = arena.lock_unsettled();
    if users.is_empty() && state.defer_free(block) {
        return Ok(());
    }
    state.settle();
    if state.blocks[block].uncached {
        drop(state);
        // SAFETY: guaranteed by the caller.
        return unsafe { device.part::<CachingAllocator>().free_uncached(stream, arena, block, users) };
    }
    if users.is_empty() || device.is_lost() {
        state.free(block, false);
        return Ok(());
    }
    state.free(block, true);
    if device.part::<CachingAllocator>().capturing() {
        state.pending.defer(block, users.to_vec());
        return Ok(());
    }
    wait_for_users(device, &mut state, block, users)
}

/// Records an event on each stream that may use a pending block. The block becomes free when all events have completed.
fn wait_for_users(device: &Device, state: &mut ArenaState, block: BlockId, users: &[Stream]) -> Result<()> {
    let _quiet = Quiet::begin();
    let mut failed = Ok(());
    let mut recorded = Vec::with_capacity(users.len());
    for user in users {
        let event = state.record_event(device, user.handle());
        if device.part::<CachingAllocator>().capturing() {
            // A capture may have started meanwhile and contain the event.
            recorded.extend(event.map(|event| (user.id(), event)));
            recorded.into_iter().for_each(|(_, event)| state.pending.keep_event(event));
            state.pending.defer(block, users.to_vec());
            return Ok(());
        }
        match event {
            Ok(event) => recorded.push((user.id(), event)),
            // No event could be recorded, so the host must wait.
            Err(error) => {
                let waited = user.wait().inspect_err(|_| user.wait_idle());
                failed = failed.and(waited.map_err(|_| error));
            }
        }
    }
    let events = recorded.len();
    recorded.into_iter().for_each(|(user, event)| state.pending.push(user, event, block));
    match (events, failed.is_ok() || device.is_lost()) {
        (0, true) => state.release(block),
        (_, true) => {}
        // Work may still use the block, and no event marks its end.
        (_, false) => state.pending.keep_for_good(block),
    }
    if device.is_lost() { Ok(()) } else { failed }
}

impl CachingAllocator {
    fn poll(&self, device: &Device, state: &mut ArenaGuard<'_>) -> Result<()> {
        if self.capturing() {
            return Ok(());
        }
        let mut lost = Ok(());
        let mut reached = |event| match device.call_lost(|driver, context| driver.event_query(context, event))
        {
            Ok(reached) => Ok(reached),
            Err(error) if error.is_device_lost() => Err(error),
            // The event's state is unknown; query it again at the next request.
            Err(_) => Ok(false),
        };
        loop {
            match state.pending.next_done(&mut reached) {
                Ok(Some(block)) => state.release(block),
                Ok(None) => break,
                Err(error) => {
                    lost = Err(error);
                    break;
                }
            }
        }
        lost
    }

    /// Returns the private pool that serves a request: the capture's pool if the stream is capturing, otherwise the
    /// pool of the thread's innermost guard. Returns `None` for the default pool.
    fn route(&self, stream: &Stream) -> Option<Arc<PoolShared>> {
        if self.capturing() {
            let registry = self.registry.lock();
            let capture = registry.captures.iter().find(|(id, _)| *id == stream.id());
            if let Some((_, pool)) = capture {
                return Some(Arc::clone(pool));
            }
        }
        pool::innermost(stream.device())
    }
}

/// Returns a new pool ID, unique in the process.
fn next_pool(captured: bool) -> PoolId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    if captured { PoolId(number, 0) } else { PoolId(0, number) }
}
