//! PyTorch's pluggable allocator, implemented with the runtime's caching allocator. `warpsmith/allocator.py` passes the
//! addresses of these C functions to PyTorch.
//!
//! A block belongs to the stream for which PyTorch allocates it. After PyTorch has freed the block, the allocator can
//! reuse it on that stream immediately, and elsewhere after the work of the streams that [`warpsmith_record_stream`]
//! has recorded. While PyTorch captures a graph, blocks come from a private pool, which lives until PyTorch has
//! released it once per capture that used it.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::null_mut;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, RwLock, RwLockWriteGuard};

use warpsmith::driver::{CaptureStatus, StreamHandle};
use warpsmith::{Device, DeviceBuffer, Error, MemoryPool, PoolOptions, Stream};
use warpsmith_python::expansion::{ContextGuard, throw};

/// A block that PyTorch has allocated.
struct Block {
    buffer: DeviceBuffer<u8>,
    /// Streams that may use the block until PyTorch frees it.
    recorded: Vec<Stream>,
}

impl Drop for Block {
    fn drop(&mut self) {
        for stream in &self.recorded {
            // The call fails only if the device is lost, which every other call reports.
            let _ = self.buffer.record_stream(stream);
        }
    }
}

/// Number of locks. The address of a block selects its lock.
const SHARDS: usize = 64;
type Blocks = HashMap<usize, Block>;
static BLOCKS: LazyLock<[Mutex<Blocks>; SHARDS]> =
    LazyLock::new(|| std::array::from_fn(|_| Mutex::default()));
/// PyTorch's streams, keyed by device and handle.
static STREAMS: LazyLock<RwLock<HashMap<(c_int, usize), Stream>>> = LazyLock::new(Default::default);
/// Pools of the segments of `torch.cuda.MemPool`, keyed by device.
static SEGMENTS: LazyLock<Mutex<HashMap<c_int, MemoryPool>>> = LazyLock::new(Default::default);

/// `MempoolId_t`.
type PoolId = (u64, u64);

#[derive(Default)]
struct Pools {
    /// Pools of graphs, with the number of captures that PyTorch has not released.
    all: HashMap<(c_int, PoolId), (MemoryPool, usize)>,
    /// Pools of the current captures, one per device.
    active: HashMap<c_int, PoolId>,
    /// Blocks freed during a capture after a stream had been recorded. Freeing them queries events, which would
    /// invalidate the capture.
    parked: Vec<(c_int, Block)>,
}

static POOLS: LazyLock<RwLock<Pools>> = LazyLock::new(Default::default);

fn pools() -> RwLockWriteGuard<'static, Pools> {
    POOLS.write().unwrap_or_else(PoisonError::into_inner)
}

/// Locks the table that contains a block.
fn blocks(ptr: *mut c_void) -> MutexGuard<'static, Blocks> {
    // Addresses of blocks are multiples of 512.
    BLOCKS[(ptr.addr() >> 9) % SHARDS].lock().unwrap_or_else(PoisonError::into_inner)
}

fn stream(device: c_int, handle: *mut c_void) -> Result<Stream, Error> {
    let key = (device, handle.addr().max(1));
    if let Some(stream) = STREAMS.read().unwrap_or_else(PoisonError::into_inner).get(&key) {
        return Ok(stream.clone());
    }
    let device = Device::cuda(device as u32)?;
    let mut streams = STREAMS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(stream) = streams.get(&key) {
        return Ok(stream.clone());
    }
    // SAFETY: PyTorch's streams live as long as the process. The null handle denotes the legacy default stream, whose
    // other handle is 1.
    let stream = unsafe { Stream::adopt_unchecked(&device, StreamHandle(key.1 as u64)) }?;
    streams.insert(key, stream.clone());
    Ok(stream)
}

/// Returns the pool of the graph that PyTorch is capturing on a stream, if any.
fn graph_pool(device: c_int, stream: &Stream) -> Result<Option<MemoryPool>, Error> {
    let pools = POOLS.read().unwrap_or_else(PoisonError::into_inner);
    let Some(active) = pools.active.get(&device) else { return Ok(None) };
    // SAFETY: the driver only queries the status of a live stream.
    let (driver, context) = unsafe { stream.device().driver() };
    let is_capturing = stream.handle().0 > 2
        && driver.capture_status(context, stream.handle()).map_err(Error::from)? != CaptureStatus::None;
    Ok(is_capturing.then(|| pools.all.get(&(device, *active)).map(|(pool, _)| pool.clone())).flatten())
}

/// Returns the pool of segments of a device. Each of its segments is one block, which is released when it is freed.
fn segments(device: &Device, ordinal: c_int) -> Result<MemoryPool, Error> {
    let mut segments = SEGMENTS.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(pool) = segments.get(&ordinal) {
        return Ok(pool.clone());
    }
    let options = PoolOptions { no_split: true, ..PoolOptions::default() };
    let pool = MemoryPool::with_options(device, options)?;
    segments.insert(ordinal, pool.clone());
    Ok(pool)
}

fn allocate(
    bytes: isize,
    device: c_int,
    handle: *mut c_void,
    is_segment: bool,
) -> Result<*mut c_void, Error> {
    let stream = stream(device, handle)?;
    let pool = match is_segment {
        true => Some(segments(stream.device(), device)?),
        false => graph_pool(device, &stream)?,
    };
    let _guard = pool.as_ref().map(MemoryPool::enter).transpose()?;
    let buffer = DeviceBuffer::<u8>::uninit(&stream, bytes.max(0) as usize)?;
    let ptr = std::ptr::without_provenance_mut(buffer.as_device_ptr().0 as usize);
    blocks(ptr).insert(ptr.addr(), Block { buffer, recorded: Vec::new() });
    Ok(ptr)
}

/// Calls `work` so that neither a panic nor a changed CUDA context reaches PyTorch. Returns the message of an error or
/// a panic.
fn guarded<R>(work: impl FnOnce() -> Result<R, Error>) -> Result<R, String> {
    let _context = ContextGuard::new();
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(_) => Err("Warpsmith's allocator panicked".to_owned()),
    }
}

/// Allocates `bytes` bytes for a stream. Throws a C++ exception if the allocation fails.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn warpsmith_allocate(bytes: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    if bytes == 0 {
        return null_mut();
    }
    guarded(|| allocate(bytes, device, stream, false)).unwrap_or_else(|text| {
        throw(text);
        null_mut()
    })
}

/// Allocates a segment for PyTorch's own caching allocator, which frees cached segments and tries again if the result is
/// null.
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_allocate_segment(
    bytes: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
    guarded(|| allocate(bytes, device, stream, true)).unwrap_or(null_mut())
}

/// Frees a block.
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_free(ptr: *mut c_void, _bytes: isize, device: c_int, _stream: *mut c_void) {
    let _ = guarded(|| {
        let Some(block) = blocks(ptr).remove(&ptr.addr()) else { return Ok(()) };
        if !block.recorded.is_empty() {
            let mut pools = pools();
            if pools.active.contains_key(&device) {
                pools.parked.push((device, block));
            }
        }
        Ok(())
    });
}

/// Records that a stream uses a block until the block is freed. After that, the allocator does not reuse the block
/// until the work that the stream contains at that time has finished.
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_record_stream(ptr: *mut c_void, handle: *mut c_void) {
    let _ = guarded(|| {
        if let Some(block) = blocks(ptr).get_mut(&ptr.addr()) {
            let stream = stream(block.buffer.device().id().ordinal() as c_int, handle)?;
            if !block.recorded.contains(&stream) {
                block.recorded.push(stream);
            }
        }
        Ok(())
    });
}

/// Makes captures on a device allocate from a graph's pool. The stream filter is not used, because the status of a
/// stream shows whether it is being captured.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn warpsmith_begin_pool(device: c_int, first: u64, second: u64, _filter: *mut c_void) {
    let id = (first, second);
    let begun = guarded(|| {
        let opened = Device::cuda(device as u32)?;
        let mut pools = pools();
        if pools.active.get(&device).is_some_and(|active| *active != id) {
            return Ok(Err("another graph is being captured on the device; capture one graph at a time"));
        }
        match pools.all.get_mut(&(device, id)) {
            Some((_, captures)) => *captures += 1,
            None => {
                let pool = MemoryPool::for_graph(&opened)?;
                pools.all.insert((device, id), (pool, 1));
            }
        }
        pools.active.insert(device, id);
        Ok(Ok(()))
    });
    match begun {
        Ok(Ok(())) => {}
        Ok(Err(text)) => throw(text.to_owned()),
        Err(text) => throw(text),
    }
}

/// Ends the effect of [`warpsmith_begin_pool`].
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_end_pool(device: c_int, _first: u64, _second: u64) {
    let _ = guarded(|| {
        let mut pools = pools();
        pools.active.remove(&device);
        let parked: Vec<_> = pools.parked.extract_if(.., |(of, _)| *of == device).collect();
        // The lock is not held while blocks are freed.
        drop(pools);
        drop(parked);
        Ok(())
    });
}

/// Releases the pool of a deleted graph, unless another graph uses it.
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_release_pool(device: c_int, first: u64, second: u64) {
    let _ = guarded(|| {
        let key = (device, (first, second));
        let mut pools = pools();
        let Some((_, captures)) = pools.all.get_mut(&key) else { return Ok(()) };
        *captures -= 1;
        if *captures > 0 {
            return Ok(());
        }
        let pool = pools.all.remove(&key);
        drop(pools);
        // A launch of the graph may still be running on any stream.
        Device::cuda(device as u32)?.synchronize()?;
        drop(pool);
        Ok(())
    });
}
