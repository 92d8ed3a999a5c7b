//! Scratch memory for reductions: one workspace a stream, so that two streams never share one.
//!
//! A workspace begins as zeros and every reduction leaves its header zero, so launches on one stream can follow
//! each other without clearing it. It is made when a stream first reduces, grows when a larger grid needs it,
//! and stays until the device's context ends. It holds no handle of stream or device: a device can be dropped,
//! and a lost one opened again, whatever was reduced on it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use gpu_kernels::reduce::workspace_bytes;
use warpsmith_runtime::driver::DevicePtr;
use warpsmith_runtime::{DeviceCopy, Stream};

use crate::error::Result;

/// Bytes at the start of the memory for a value on its way to the host.
const RESULT_BYTES: usize = 16;
/// Grids up to this size share the first allocation.
const LEAST_BLOCKS: u32 = 1024;

/// Scratch memory of one stream.
#[derive(Debug, Clone, Copy)]
pub(super) struct Workspace {
    memory: DevicePtr,
    /// The largest grid it is made for.
    blocks: u32,
}

type Slot = Arc<Mutex<Option<Workspace>>>;

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` with the stream's workspace, made or grown for `blocks`. Nobody else enqueues work with it
/// meanwhile.
pub(super) fn with<R>(stream: &Stream, blocks: u32, work: impl FnOnce(&Workspace) -> Result<R>) -> Result<R> {
    static SLOTS: OnceLock<Mutex<HashMap<u64, Slot>>> = OnceLock::new();
    let slots = SLOTS.get_or_init(Mutex::default);
    let slot = Arc::clone(lock(slots).entry(stream.id()).or_default());
    let mut workspace = lock(&slot);
    let ready = match *workspace {
        Some(ready) if ready.blocks >= blocks => ready,
        _ => *workspace.insert(Workspace::new(stream, blocks)?),
    };
    work(&ready)
}

impl Workspace {
    /// Memory for grids of `blocks` and somewhat more; work enqueued on the stream sets it to zero.
    ///
    /// A smaller one is given up, not freed: launches may still use it. Sizes double, so that all given up are
    /// smaller than the one in use.
    fn new(stream: &Stream, blocks: u32) -> Result<Self> {
        let blocks = blocks.max(LEAST_BLOCKS).checked_next_power_of_two().unwrap_or(blocks);
        let bytes = RESULT_BYTES + workspace_bytes(blocks as usize);
        let (driver, context) = stream.device().driver();
        let memory = driver.memory_allocate(context, bytes)?;
        // SAFETY: the memory was just allocated and is never freed.
        unsafe { driver.set_bytes(context, memory, 0, bytes, stream.handle())? };
        Ok(Self { memory, blocks })
    }

    /// Where a value for the host goes.
    pub fn result(&self) -> DevicePtr {
        self.memory
    }

    /// What the kernel calls its workspace.
    pub fn partials(&self) -> DevicePtr {
        self.memory.offset(RESULT_BYTES)
    }

    /// Waits for the stream and reads the result.
    pub fn read<T: DeviceCopy>(&self, stream: &Stream) -> Result<T> {
        const { assert!(size_of::<T>() <= RESULT_BYTES) };
        let mut value = T::zeroed();
        let (driver, context) = stream.device().driver();
        // SAFETY: the memory is valid; `value` is until the stream has been waited for, after which the copy
        // does not run any more, whatever the outcome.
        let copied = unsafe {
            let target = std::ptr::from_mut(&mut value).cast();
            driver.copy_to_host(context, target, self.memory, size_of::<T>(), stream.handle())
        };
        // The stream's own call comes first: it is the one that explains a fault.
        stream.synchronize()?;
        copied?;
        Ok(value)
    }
}
