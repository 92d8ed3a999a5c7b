//! Private pools: memory separate from the default pool, for a section of a program or for a captured graph.
//!
//! A [`PoolGuard`] routes its thread's requests to the pool; a [`CaptureGuard`] routes all requests for its stream. A
//! freed block always returns to the pool from which it was allocated. A pool's cached memory never serves other
//! requests, unless the pool is configured to lend memory when memory runs out. Releasing the pool returns its cached
//! memory to the driver. Memory still in use is released once it has been freed and the cache is emptied or memory runs
//! out.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::policy::Policy;
use super::streams::{self, Arena};
use super::{CachingAllocator, wait_for_users};
use crate::device::Device;
use crate::device::health::Quiet;
use crate::error::{Error, GraphError, Result};
use crate::memory::owners::Owners;
use crate::memory::pinned::allocator::PinnedAllocator;
use crate::memory::statistics::PoolId;
use crate::stream::Stream;

thread_local! {
    /// The pools of the thread's guards, innermost last.
    static ROUTES: RefCell<Vec<Arc<PoolShared>>> = const { RefCell::new(Vec::new()) };
}

/// Allocation options of a pool.
///
/// ```
/// use warpsmith_runtime::memory::PoolOptions;
/// use warpsmith_runtime::{Device, MemoryPool};
///
/// let options = PoolOptions { use_on_oom: true, ..PoolOptions::default() };
/// let pool = MemoryPool::with_options(&Device::emulated(0)?, options)?;
/// assert!(pool.options().use_on_oom);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct PoolOptions {
    /// True if blocks are never split. Each segment then contains one block and can be released when that block is
    /// freed.
    pub no_split: bool,
    /// True if requests in the default pool may use free blocks of this pool when memory runs out.
    pub use_on_oom: bool,
}

/// A private pool of device memory. Clones are handles to the same pool, which is released when the last handle is
/// dropped.
///
/// ```
/// use warpsmith_runtime::{Device, DeviceBuffer, MemoryPool};
///
/// let device = Device::emulated(0)?;
/// let stream = device.default_stream();
/// let pool = MemoryPool::new(&device)?;
/// let guard = pool.enter()?;
/// let buffer = DeviceBuffer::<f32>::zeros(&stream, 1000)?;
/// drop(guard);
/// assert_eq!(pool.allocated(), 4096);
/// # drop(buffer);
/// # Ok::<(), warpsmith_runtime::Error>(())
/// ```
#[derive(Clone)]
pub struct MemoryPool(Arc<PoolShared>);

pub(crate) struct PoolShared {
    device: Device,
    id: PoolId,
    options: PoolOptions,
    released: AtomicBool,
    arenas: Mutex<HashMap<u64, Arc<Arena>>>,
}

impl PoolShared {
    fn arenas(&self) -> MutexGuard<'_, HashMap<u64, Arc<Arena>>> {
        self.arenas.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn check(&self) -> Result<()> {
        self.device.check_process()?;
        if self.released.load(Ordering::Acquire) {
            return Err(Error::PoolReleased { pool: self.id });
        }
        Ok(())
    }

    /// Returns the arena of a stream, creating it if necessary.
    pub(super) fn arena_of(&self, stream: &Stream) -> Result<Arc<Arena>> {
        self.check()?;
        if let Some(arena) = self.existing_arena_of(stream) {
            return Ok(arena);
        }
        let mut registry = self.device.part::<CachingAllocator>().registry.lock();
        let mut policy = Policy::new(&registry.options, &self.device.part::<CachingAllocator>().clock);
        policy.no_split = self.options.no_split;
        // An expandable segment contains several blocks, which `no_split` forbids.
        policy.expandable &= !self.options.no_split;
        if self.id.0 != 0 {
            policy = policy.for_graph();
        }
        let mut arenas = self.arenas();
        // Checked again under the lock, because a release removes all arenas and must not miss this one.
        self.check()?;
        if let Some(arena) = arenas.get(&stream.id()) {
            return Ok(Arc::clone(arena));
        }
        let arena = streams::attach(&mut registry, stream, self.id, policy)?;
        // An inherited arena is still listed under the previous stream's ID.
        arenas.retain(|_, known| !Arc::ptr_eq(known, &arena));
        arenas.insert(stream.id(), Arc::clone(&arena));
        Ok(arena)
    }

    pub(super) fn existing_arena_of(&self, stream: &Stream) -> Option<Arc<Arena>> {
        self.arenas().get(&stream.id()).cloned()
    }

    pub(super) fn lends_on_oom(&self) -> bool {
        self.options.use_on_oom && !self.released.load(Ordering::Acquire)
    }

    /// Releases all cached memory. Memory in use is released after it has been freed.
    fn release(&self) -> Result<()> {
        self.device.check_process()?;
        if self.released.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        for arena in std::mem::take(&mut *self.arenas()).into_values() {
            arena.freeable.store(true, Ordering::Release);
        }
        let memory = &self.device.part::<CachingAllocator>();
        memory.registry.lock().pools.retain(|pool| pool.strong_count() > 0);
        if memory.capturing() || self.device.is_lost() {
            return Ok(());
        }
        memory.release_cached(&self.device, Some(self.id)).map(drop)
    }
}

impl Drop for PoolShared {
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        if self.device.is_forked() {
            return;
        }
        let released = self.release();
        self.device.0.health.record_drop(released);
    }
}

impl MemoryPool {
    /// Creates a pool with the device's options.
    ///
    /// # Errors
    /// Returns [`Error::DeviceLost`].
    pub fn new(device: &Device) -> Result<Self> {
        Self::with_options(device, PoolOptions::default())
    }

    /// Creates a pool with the given options.
    ///
    /// # Errors
    /// Returns [`Error::DeviceLost`].
    pub fn with_options(device: &Device, options: PoolOptions) -> Result<Self> {
        Self::make(device, options, false)
    }

    /// Creates a pool for a captured graph, which caches memory even if caching is disabled.
    ///
    /// # Errors
    /// Returns [`Error::DeviceLost`].
    pub fn for_graph(device: &Device) -> Result<Self> {
        Self::make(device, PoolOptions::default(), true)
    }

    fn make(device: &Device, options: PoolOptions, graph: bool) -> Result<Self> {
        device.0.health.check(device.id())?;
        let shared = Arc::new(PoolShared {
            device: device.clone(),
            id: super::next_pool(graph),
            options,
            released: AtomicBool::new(false),
            arenas: Mutex::default(),
        });
        device.part::<CachingAllocator>().registry.lock().pools.push(Arc::downgrade(&shared));
        Ok(Self(shared))
    }

    /// Returns the ID of the pool: `(0, n)`, or `(n, 0)` for a graph's pool.
    pub fn id(&self) -> PoolId {
        self.0.id
    }

    /// Returns the device whose memory the pool manages.
    pub fn device(&self) -> &Device {
        &self.0.device
    }

    /// Returns the pool's options.
    pub fn options(&self) -> PoolOptions {
        self.0.options
    }

    /// Routes this thread's requests on the pool's device to the pool until the guard is dropped. The innermost guard
    /// applies.
    ///
    /// # Errors
    /// Returns [`Error::PoolReleased`].
    pub fn enter(&self) -> Result<PoolGuard> {
        self.0.check()?;
        self.0.device.part::<CachingAllocator>().routes.fetch_add(1, Ordering::AcqRel);
        ROUTES.with_borrow_mut(|routes| routes.push(Arc::clone(&self.0)));
        Ok(PoolGuard { pool: Arc::clone(&self.0), thread: PhantomData })
    }

    /// Routes all requests for a capturing stream to the pool until the guard is dropped. Meanwhile, the allocator
    /// neither records nor queries events and does not wait, so blocks that other streams used stay unavailable. The
    /// only exception is dropping the last handle to a stream, which waits or records an event.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, MemoryPool, Stream};
    ///
    /// let stream = Stream::new(&Device::emulated(0)?)?;
    /// let pool = MemoryPool::new(stream.device())?;
    /// let guard = pool.capture(&stream)?;
    /// let buffer = DeviceBuffer::<u8>::uninit(&stream, 1000)?;
    /// drop(guard);
    /// assert_eq!(pool.allocated(), 1024);
    /// # drop(buffer);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::PoolReleased`], [`Error::DifferentDevices`], or [`GraphError::CaptureUnderway`] if the stream
    /// is already being captured.
    pub fn capture(&self, stream: &Stream) -> Result<CaptureGuard> {
        self.0.check()?;
        let what = || ("capturing".to_owned(), "the pool".to_owned());
        stream.check_home(&self.0.device, what, "create a pool on that device")?;
        // Create the arena before the capture starts, because creating it may wait for a destroyed stream's work.
        self.0.arena_of(stream)?;
        let memory = &self.0.device.part::<CachingAllocator>();
        let mut registry = memory.registry.lock();
        if registry.captures.iter().any(|(id, _)| *id == stream.id()) {
            return Err(GraphError::CaptureUnderway.into());
        }
        registry.captures.push((stream.id(), Arc::clone(&self.0)));
        drop(registry);
        self.0.device.part::<PinnedAllocator>().capture_begins();
        self.0.device.part::<Owners>().capture_begins();
        memory.begin_capture();
        memory.routes.fetch_add(1, Ordering::AcqRel);
        Ok(CaptureGuard { pool: Arc::clone(&self.0), stream: stream.clone() })
    }

    /// Releases the pool's cached memory to the driver. Returns the number of bytes released.
    ///
    /// # Errors
    /// Returns [`Error::PoolReleased`], [`GraphError::CaptureUnderway`], or any [driver error](crate::Error::Driver).
    pub fn empty_cache(&self) -> Result<u64> {
        self.0.check()?;
        let memory = &self.0.device.part::<CachingAllocator>();
        if memory.capturing() {
            return Err(GraphError::CaptureUnderway.into());
        }
        memory.finish_pending(&self.0.device)?;
        memory.release_cached(&self.0.device, Some(self.0.id))
    }

    /// Releases the pool, like dropping its last handle. Other handles become unusable; memory allocated in the pool
    /// stays valid.
    ///
    /// # Errors
    /// Returns any [driver error](crate::Error::Driver) from releasing the memory.
    pub fn release(&self) -> Result<()> {
        self.0.release()
    }

    /// Returns the total size of the pool's blocks in use, in bytes.
    pub fn allocated(&self) -> u64 {
        self.sum(super::counters::Counted::AllocatedBytes)
    }

    /// Returns the number of bytes that the pool has reserved from the driver.
    pub fn reserved(&self) -> u64 {
        self.sum(super::counters::Counted::ReservedBytes)
    }

    fn sum(&self, counted: super::counters::Counted) -> u64 {
        let arenas: Vec<_> = self.0.arenas().values().cloned().collect();
        arenas.iter().map(|arena| arena.lock().counters.current(counted)).sum()
    }
}

impl fmt::Debug for MemoryPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryPool({} on {})", self.id(), self.device().id())
    }
}

/// Guard that routes the thread's requests to a pool until it is dropped. Created by [`MemoryPool::enter`].
///
/// See the example of [`MemoryPool`].
#[must_use = "requests go to the pool only while the guard lives"]
pub struct PoolGuard {
    pool: Arc<PoolShared>,
    /// Makes the guard `!Send`, because it belongs to the thread that created it.
    thread: PhantomData<*const ()>,
}

impl fmt::Debug for PoolGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PoolGuard({})", self.pool.id)
    }
}

impl Drop for PoolGuard {
    fn drop(&mut self) {
        // An exiting thread's thread-locals may already be destroyed; there is then no route to remove.
        let removed = ROUTES.try_with(|routes| {
            let mut routes = routes.try_borrow_mut().ok()?;
            let last = routes.iter().rposition(|pool| Arc::ptr_eq(pool, &self.pool))?;
            Some(routes.remove(last))
        });
        self.pool.device.part::<CachingAllocator>().routes.fetch_sub(1, Ordering::AcqRel);
        drop(removed);
    }
}

/// Returns the pool of the thread's innermost guard for a device.
pub(super) fn innermost(device: &Device) -> Option<Arc<PoolShared>> {
    let find = |routes: &RefCell<Vec<Arc<PoolShared>>>| {
        let routes = routes.try_borrow().ok()?;
        routes.iter().rev().find(|pool| pool.device.ptr_eq(device)).cloned()
    };
    ROUTES.try_with(find).ok().flatten()
}

/// Guard that routes a stream's requests to a pool until it is dropped. Created by [`MemoryPool::capture`].
///
/// See the example of [`MemoryPool::capture`].
#[must_use = "the capture lasts while the guard lives"]
pub struct CaptureGuard {
    pool: Arc<PoolShared>,
    stream: Stream,
}

impl fmt::Debug for CaptureGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CaptureGuard({:?} to {})", self.stream, self.pool.id)
    }
}

impl Drop for CaptureGuard {
    fn drop(&mut self) {
        let _quiet = Quiet::begin();
        let device = &self.pool.device;
        if device.is_forked() {
            return;
        }
        let memory = &device.part::<CachingAllocator>();
        memory.registry.lock().captures.retain(|(id, _)| *id != self.stream.id());
        memory.routes.fetch_sub(1, Ordering::AcqRel);
        device.part::<PinnedAllocator>().capture_ends();
        device.part::<Owners>().capture_ends();
        if memory.captures.fetch_sub(1, Ordering::AcqRel) == 1 {
            let finished = memory.finish_deferred(device);
            device.0.health.record_drop(finished);
        }
    }
}

impl CachingAllocator {
    /// Records the events that were not recorded while a capture was active.
    fn finish_deferred(&self, device: &Device) -> Result<()> {
        let mut result = Ok(());
        for arena in self.arenas() {
            // The lock is released before the deferred blocks are dropped, because dropping the last handle to a stream
            // acquires it.
            let deferred = arena.lock().pending.take_deferred();
            let mut state = arena.lock();
            for (block, users) in &deferred {
                if self.capturing() {
                    // Another capture has started; its end calls this function again.
                    state.pending.defer(*block, users.clone());
                } else if state.blocks[*block].uncached {
                    // `users` includes the home stream.
                    users.iter().for_each(Stream::wait_idle);
                    // SAFETY: the host has waited for all users of the block, and the block has been unused since it
                    // was deferred.
                    let freed = unsafe { self.remove_uncached(device, &mut state, *block, None) };
                    result = result.and(freed);
                } else {
                    result = result.and(wait_for_users(device, &mut state, *block, users));
                }
            }
        }
        result
    }
}
