//! Retained primary contexts, and this driver's state for each: the mailbox, the memory pool, and the peers with
//! access.
//!
//! The last release of a context frees its state. A host function must not access this table, because the thread that
//! holds the table's lock may be waiting for the function.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cudarc::driver::sys;

use super::call::{self, RelaxedCapture, check};
use super::host_functions;
use super::mailbox::PinnedMailbox;
use super::pool::Pool;
use crate::error::{DriverError, Result, code};
use crate::host_function::{self, HostCall};
use crate::{Context, ContextLimit, DevicePtr, Fault};

/// Retained contexts, keyed by handle.
#[derive(Debug, Default)]
pub(super) struct Contexts(Mutex<HashMap<u64, State>>);

#[derive(Debug)]
struct State {
    ordinal: u32,
    retained: u32,
    mailbox: PinnedMailbox,
    /// Memory pool, created on first use.
    pool: Option<Pool>,
    /// Ordinals of the devices whose contexts have access to this context's memory.
    visitors: Vec<u32>,
}

impl State {
    fn new(ordinal: u32, mailbox: PinnedMailbox) -> Self {
        Self { ordinal, retained: 1, mailbox, pool: None, visitors: Vec::new() }
    }

    /// Frees the state. The context must be current.
    fn free(self) -> Result<()> {
        let destroyed = self.pool.map_or(Ok(()), Pool::destroy);
        self.mailbox.free().and(destroyed)
    }
}

fn not_retained() -> DriverError {
    call::invalid("cuDevicePrimaryCtxRetain", "the context is not retained".to_owned())
}

/// Returns an error in a host function.
#[inline]
pub(super) fn permitted() -> Result<()> {
    if host_function::is_running() { Err(refusal()) } else { Ok(()) }
}

#[cold]
fn refusal() -> DriverError {
    let (code, name) = (code::NOT_PERMITTED, "CUDA_ERROR_NOT_PERMITTED");
    call::error("a call from a host function", code, name, host_function::REFUSED.to_owned())
}

/// Makes a context current on this thread.
#[inline]
pub(super) fn bind(context: Context) -> Result<()> {
    permitted()?;
    make_current(context)
}

/// Makes a context current on this thread. Unlike [`bind`], may also be called in an observer's callback, but not in a
/// CUDA host function.
#[inline]
pub(super) fn make_current(context: Context) -> Result<()> {
    let wanted = context.0 as sys::CUcontext;
    let mut current = std::ptr::null_mut();
    // SAFETY: the context is retained by the trait's contract; the pointer is to a local variable. Querying the current
    // context is cheaper than setting it, and other code may have changed it.
    unsafe {
        check("cuCtxGetCurrent", sys::cuCtxGetCurrent(&mut current))?;
        if current != wanted {
            check("cuCtxSetCurrent", sys::cuCtxSetCurrent(wanted))?;
        }
    }
    Ok(())
}

/// Returns CUDA's name of a limit.
pub(super) fn limit_of(limit: ContextLimit) -> sys::CUlimit {
    match limit {
        ContextLimit::PrintBuffer => sys::CUlimit::CU_LIMIT_PRINTF_FIFO_SIZE,
        ContextLimit::Heap => sys::CUlimit::CU_LIMIT_MALLOC_HEAP_SIZE,
        ContextLimit::SynchronizeDepth => sys::CUlimit::CU_LIMIT_DEV_RUNTIME_SYNC_DEPTH,
        ContextLimit::PendingLaunches => sys::CUlimit::CU_LIMIT_DEV_RUNTIME_PENDING_LAUNCH_COUNT,
        ContextLimit::L2Fetch => sys::CUlimit::CU_LIMIT_MAX_L2_FETCH_GRANULARITY,
    }
}

/// Returns a limit of the current context.
pub(super) fn limit(limit: sys::CUlimit) -> Result<usize> {
    let _relaxed = RelaxedCapture::enter();
    let mut value = 0;
    // SAFETY: the pointer is to a local variable.
    unsafe { check("cuCtxGetLimit", sys::cuCtxGetLimit(&mut value, limit)) }?;
    Ok(value)
}

/// Sets a limit of the current context.
pub(super) fn set_limit(limit: sys::CUlimit, value: usize) -> Result<()> {
    let _relaxed = RelaxedCapture::enter();
    // SAFETY: the arguments are numbers; a context is current.
    unsafe { check("cuCtxSetLimit", sys::cuCtxSetLimit(limit, value)) }
}

impl Contexts {
    fn lock(&self) -> Result<MutexGuard<'_, HashMap<u64, State>>> {
        permitted().map(|()| self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Retains the primary context of device `ordinal`.
    pub(super) fn retain(&self, ordinal: u32) -> Result<Context> {
        let mut contexts = self.lock()?;
        let mut raw = std::ptr::null_mut();
        let device = call::device(ordinal)?;
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the pointer is to a local variable.
        unsafe { check("cuDevicePrimaryCtxRetain", sys::cuDevicePrimaryCtxRetain(&mut raw, device)) }?;
        let context = Context(raw as u64);
        if let Some(state) = contexts.get_mut(&context.0) {
            state.retained += 1;
            return Ok(context);
        }
        match bind(context).and_then(|()| PinnedMailbox::allocate()) {
            Ok(mailbox) => {
                contexts.insert(context.0, State::new(ordinal, mailbox));
                Ok(context)
            }
            Err(error) => {
                // SAFETY: the context was retained above. Only the first error is reported.
                let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) };
                Err(error)
            }
        }
    }

    /// Releases a context. Returns the host functions that were never called. The caller must drop them without the
    /// table's lock, because their captured values may use this driver.
    pub(super) fn release(&self, ordinal: u32) -> Vec<HostCall> {
        let Ok(mut contexts) = self.lock() else { return Vec::new() };
        let Ok(device) = call::device(ordinal) else { return Vec::new() };
        let entry = contexts.iter_mut().find(|(_, state)| state.ordinal == ordinal);
        let Some((&handle, state)) = entry else { return Vec::new() };
        state.retained -= 1;
        let gone = if state.retained == 0 { contexts.remove(&handle) } else { None };
        let last = gone.is_some();
        if let Some(state) = gone {
            // A lost context cannot free memory; the release below frees its memory.
            let _ = bind(Context(handle)).and_then(|()| state.free());
        }
        let _relaxed = RelaxedCapture::enter();
        // SAFETY: the caller has retained the context. An error cannot be reported here.
        let _ = unsafe { sys::cuDevicePrimaryCtxRelease_v2(device) };
        // Still under the lock, because the context could otherwise be retained again with the same handle.
        if last { host_functions::take_all(Context(handle)) } else { Vec::new() }
    }

    /// Returns the ordinal of a context's device.
    pub(super) fn ordinal(&self, context: Context) -> Result<u32> {
        self.lock()?.get(&context.0).map(|state| state.ordinal).ok_or_else(not_retained)
    }

    /// Returns the retained contexts with their devices.
    pub(super) fn all(&self) -> Vec<(Context, u32)> {
        let Ok(contexts) = self.lock() else { return Vec::new() };
        contexts.iter().map(|(handle, state)| (Context(*handle), state.ordinal)).collect()
    }

    /// Returns the pool of a context, which must be current, creating the pool if necessary.
    pub(super) fn pool(&self, context: Context) -> Result<Pool> {
        let mut contexts = self.lock()?;
        let state = contexts.get_mut(&context.0).ok_or_else(not_retained)?;
        if let Some(pool) = state.pool {
            return Ok(pool);
        }
        let pool = Pool::create(state.ordinal, &state.visitors)?;
        state.pool = Some(pool);
        Ok(pool)
    }

    /// Grants one context's device access to another context's pool.
    pub(super) fn let_in(&self, visitor: Context, host: Context) -> Result<()> {
        let visitor = self.ordinal(visitor)?;
        let mut contexts = self.lock()?;
        let state = contexts.get_mut(&host.0).ok_or_else(not_retained)?;
        if !state.visitors.contains(&visitor) {
            state.pool.map_or(Ok(()), |pool| pool.let_in(&[visitor]))?;
            state.visitors.push(visitor);
        }
        Ok(())
    }

    /// Returns the address of the panic mailbox for a context's kernels, if the context is retained.
    pub(super) fn mailbox(&self, context: Context) -> Option<DevicePtr> {
        self.lock().ok()?.get(&context.0).map(|state| state.mailbox.device_address())
    }

    /// Takes the fault report of the kernel that made a context unusable.
    pub(super) fn take_fault(&self, context: Context) -> Option<Fault> {
        self.lock().ok()?.get(&context.0)?.mailbox.take()
    }
}
