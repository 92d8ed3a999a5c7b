//! Implements a pluggable allocator for PyTorch on the runtime's caching allocator. `warpsmith/allocator.py` passes the
//! addresses of these C functions to PyTorch.
//!
//! A block belongs to the stream for which PyTorch allocates it. After it is freed, it can be reused immediately on
//! that stream, as in PyTorch. Before the reuse, the allocator waits for the streams that [`warpsmith_record_stream`]
//! recorded. While PyTorch captures a graph, blocks come from a private pool, which lives until PyTorch releases it.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, RwLock};

use warpsmith::driver::{CaptureStatus, StreamHandle};
use warpsmith::{Device, DeviceBuffer, Error, MemoryPool, Stream};
use warpsmith_python::expansion::throw;

/// Number of tables, each with its own lock. The address of a block selects the table.
const SHARDS: usize = 64;
type Blocks = HashMap<usize, DeviceBuffer<u8>>;
static BLOCKS: LazyLock<[Mutex<Blocks>; SHARDS]> =
    LazyLock::new(|| std::array::from_fn(|_| Mutex::default()));
/// Adopted streams of PyTorch, with device and handle as the key.
static STREAMS: LazyLock<RwLock<HashMap<(c_int, usize), Stream>>> = LazyLock::new(Default::default);

/// `MempoolId_t`.
type PoolId = (u64, u64);

/// Memory pools of graphs, and the keys of the pools from which captures currently allocate.
#[derive(Default)]
struct Pools {
    all: HashMap<(c_int, PoolId), MemoryPool>,
    active: Vec<(c_int, PoolId)>,
}

static POOLS: LazyLock<RwLock<Pools>> = LazyLock::new(Default::default);

/// Locks and returns the table for a block.
fn blocks(ptr: *mut c_void) -> MutexGuard<'static, Blocks> {
    // Block sizes are multiples of 512 bytes.
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
    // handle is 1.
    let stream = unsafe { Stream::adopt_unchecked(&device, StreamHandle(key.1 as u64)) }?;
    streams.insert(key, stream.clone());
    Ok(stream)
}

/// Returns the memory pool of the graph that is being captured on a stream, or `None` if there is no capture.
fn graph_pool(device: c_int, stream: &Stream) -> Result<Option<MemoryPool>, Error> {
    let pools = POOLS.read().unwrap_or_else(PoisonError::into_inner);
    let Some(active) = pools.active.iter().rfind(|(of, _)| *of == device) else { return Ok(None) };
    // SAFETY: the driver is used only to query the capture status of a live stream.
    let (driver, context) = unsafe { stream.device().driver() };
    let is_capturing = stream.handle().0 > 2
        && driver.capture_status(context, stream.handle()).map_err(Error::from)? != CaptureStatus::None;
    Ok(is_capturing.then(|| pools.all.get(active).cloned()).flatten())
}

fn allocate(bytes: isize, device: c_int, handle: *mut c_void) -> Result<*mut c_void, Error> {
    let stream = stream(device, handle)?;
    let pool = graph_pool(device, &stream)?;
    let _guard = pool.as_ref().map(MemoryPool::enter).transpose()?;
    let buffer = DeviceBuffer::<u8>::uninit(&stream, bytes.max(0) as usize)?;
    let ptr = std::ptr::without_provenance_mut(buffer.as_device_ptr().0 as usize);
    blocks(ptr).insert(ptr.addr(), buffer);
    Ok(ptr)
}

/// Allocates `bytes` bytes for a stream. Throws a C++ exception if the allocation fails.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn warpsmith_allocate(bytes: isize, device: c_int, stream: *mut c_void) -> *mut c_void {
    if bytes == 0 {
        return std::ptr::null_mut();
    }
    match allocate(bytes, device, stream) {
        Ok(ptr) => ptr,
        Err(error) => {
            throw(error.to_string());
            std::ptr::null_mut()
        }
    }
}

/// Frees a block.
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_free(ptr: *mut c_void, _bytes: isize, _device: c_int, _stream: *mut c_void) {
    let buffer = blocks(ptr).remove(&ptr.addr());
    drop(buffer);
}

/// Records that a stream uses a block. The block is reused only after that work has completed.
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_record_stream(ptr: *mut c_void, handle: *mut c_void) {
    if let Some(buffer) = blocks(ptr).get(&ptr.addr()) {
        let device = buffer.device().id().ordinal() as c_int;
        // The call fails only on a lost device, and every other call reports that error.
        let _ = stream(device, handle).and_then(|stream| buffer.record_stream(&stream));
    }
}

/// Makes captures on a device allocate from the memory pool of a graph. The stream filter is ignored, because the
/// capture status of a stream shows whether it is being captured.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn warpsmith_begin_pool(device: c_int, first: u64, second: u64, _filter: *mut c_void) {
    let key = (device, (first, second));
    let mut pools = POOLS.write().unwrap_or_else(PoisonError::into_inner);
    if !pools.all.contains_key(&key) {
        let made = Device::cuda(device as u32).and_then(|device| MemoryPool::for_graph(&device));
        match made {
            Ok(pool) => drop(pools.all.insert(key, pool)),
            Err(error) => {
                drop(pools);
                return throw(error.to_string());
            }
        }
    }
    pools.active.push(key);
}

/// Ends allocation from a pool, which [`warpsmith_begin_pool`] started.
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_end_pool(device: c_int, first: u64, second: u64) {
    let mut pools = POOLS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = pools.active.iter().rposition(|active| *active == (device, (first, second))) {
        pools.active.remove(at);
    }
}

/// Releases the memory pool of a deleted graph.
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_release_pool(device: c_int, first: u64, second: u64) {
    let pool = POOLS.write().unwrap_or_else(PoisonError::into_inner).all.remove(&(device, (first, second)));
    drop(pool);
}
