//! PyTorch's pluggable allocator, on the runtime's caching allocator: C functions whose addresses
//! `warpsmith/allocator.py` passes to PyTorch.
//!
//! A block belongs to the stream for which PyTorch allocates it, and is reused on that stream at once, as in PyTorch. The
//! streams of [`warpsmith_record_stream`] are waited for. While PyTorch captures a graph, blocks come from a private pool,
//! which lives until PyTorch releases it.

use std::collections::HashMap;
use std::ffi::{c_int, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError, RwLock};

use warpsmith::driver::{CaptureStatus, StreamHandle};
use warpsmith::{Device, DeviceBuffer, Error, MemoryPool, Stream};
use warpsmith_python::expansion::throw;

/// Locks that threads share by the address of a block.
const SHARDS: usize = 64;
type Blocks = HashMap<usize, DeviceBuffer<u8>>;
static BLOCKS: LazyLock<[Mutex<Blocks>; SHARDS]> =
    LazyLock::new(|| std::array::from_fn(|_| Mutex::default()));
/// PyTorch's streams, by device and handle.
static STREAMS: LazyLock<RwLock<HashMap<(c_int, usize), Stream>>> = LazyLock::new(Default::default);

/// `MempoolId_t`.
type PoolId = (u64, u64);

/// Pools of graphs, and the device and ID of those that captures allocate from now.
#[derive(Default)]
struct Pools {
    all: HashMap<(c_int, PoolId), MemoryPool>,
    active: Vec<(c_int, PoolId)>,
}

static POOLS: LazyLock<RwLock<Pools>> = LazyLock::new(Default::default);

/// Locks the table that has a block.
fn blocks(ptr: *mut c_void) -> MutexGuard<'static, Blocks> {
    // Blocks are multiples of 512 bytes.
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
    // SAFETY: PyTorch's streams live as long as the process. The null handle is the legacy default stream, which is 1.
    let stream = unsafe { Stream::adopt_unchecked(&device, StreamHandle(key.1 as u64)) }?;
    streams.insert(key, stream.clone());
    Ok(stream)
}

/// Returns the pool of the graph that is being captured on a stream, if one is.
fn graph_pool(device: c_int, stream: &Stream) -> Result<Option<MemoryPool>, Error> {
    let pools = POOLS.read().unwrap_or_else(PoisonError::into_inner);
    let Some(active) = pools.active.iter().rfind(|(of, _)| *of == device) else { return Ok(None) };
    // SAFETY: the driver is only asked for the status of a live stream.
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

/// Allocates `bytes` for a stream. Throws a C++ exception if there is no memory.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn warpsmith_allocate(
    bytes: isize,
    device: c_int,
    stream: *mut c_void,
) -> *mut c_void {
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

/// Records that a stream uses a block, which is then not reused before this work has run.
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_record_stream(ptr: *mut c_void, handle: *mut c_void) {
    if let Some(buffer) = blocks(ptr).get(&ptr.addr()) {
        let device = buffer.device().id().ordinal() as c_int;
        // It fails for a lost device, which every other call reports.
        let _ = stream(device, handle).and_then(|stream| buffer.record_stream(&stream));
    }
}

/// Lets captures on a device allocate from a graph's pool. The filter of streams is not used: a capturing stream is known
/// by its status.
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

/// Ends what [`warpsmith_begin_pool`] began.
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_end_pool(device: c_int, first: u64, second: u64) {
    let mut pools = POOLS.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(at) = pools.active.iter().rposition(|active| *active == (device, (first, second))) {
        pools.active.remove(at);
    }
}

/// Releases the pool of a graph that was deleted.
#[unsafe(no_mangle)]
pub extern "C" fn warpsmith_release_pool(device: c_int, first: u64, second: u64) {
    let pool = POOLS.write().unwrap_or_else(PoisonError::into_inner).all.remove(&(device, (first, second)));
    drop(pool);
}
