//! A context of an emulated device: its memory, its streams and, if it has become unusable, its fault.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::action::fault;
use super::address_space::AddressSpace;
use super::control::{Call, driver_error};
use super::heap::Heap;
use super::pages::Backing;
use super::stream::Queue;
use warpsmith_driver::error::{DriverError, Result, code};
use warpsmith_driver::{ContextLimit, Fault, FaultKind};

/// Default stack limit of a context in bytes per thread. This value and the maximum are the same as on NVIDIA GPUs.
const STACK_LIMIT: usize = 1 << 10;
const MAX_STACK_LIMIT: usize = 512 << 10;

/// Maximum number of kernels that a report about damaged memory names.
const NAMED_KERNELS: usize = 8;

/// State of a device's primary context, from its creation until its last release.
#[derive(Debug)]
pub(super) struct EmulatedContext {
    pub(super) ordinal: u32,
    pub(super) heap: Heap,
    pub(super) space: AddressSpace,
    /// Contexts whose memory this context may use.
    peers: Mutex<Vec<Weak<EmulatedContext>>>,
    /// Contexts whose work may use this context's memory.
    visitors: Mutex<Vec<Weak<EmulatedContext>>>,
    streams: Mutex<Vec<Weak<Queue>>>,
    poison: Mutex<Option<Poison>>,
    /// Some of the kernels that have run since all blocks of the heap were last inspected. The most recent kernel comes
    /// last.
    ran: Mutex<Vec<&'static str>>,
    /// Stack limit in bytes per thread.
    stack_limit: AtomicUsize,
    /// Print buffer limit in bytes. The next field is the heap limit, also in bytes.
    print_limit: AtomicUsize,
    heap_limit: AtomicUsize,
}

#[derive(Debug)]
struct Poison {
    code: u32,
    /// Fault of the kernel that made the context unusable, until the fault is taken.
    fault: Option<Fault>,
    /// True if [`EmulatedContext::report_damage`] stored the fault.
    of_memory: bool,
}

impl EmulatedContext {
    pub(super) fn new(ordinal: u32, capacity: u64, backing: Backing) -> Arc<Self> {
        Arc::new(Self {
            ordinal,
            heap: Heap::new("device memory", capacity, backing.clone()),
            space: AddressSpace::new(backing),
            peers: Mutex::default(),
            visitors: Mutex::default(),
            streams: Mutex::default(),
            poison: Mutex::default(),
            ran: Mutex::default(),
            stack_limit: AtomicUsize::new(STACK_LIMIT),
            print_limit: AtomicUsize::new(1 << 20),
            heap_limit: AtomicUsize::new(8 << 20),
        })
    }

    pub(super) fn stack_limit(&self) -> usize {
        self.stack_limit.load(Ordering::Relaxed)
    }

    pub(super) fn set_stack_limit(&self, call: Call, bytes: usize) -> Result<()> {
        if bytes > MAX_STACK_LIMIT {
            let text = format!("the stack limit exceeds the maximum of {MAX_STACK_LIMIT} bytes per thread");
            return Err(driver_error(call.name(), code::INVALID_VALUE, text));
        }
        self.stack_limit.store(bytes, Ordering::Relaxed);
        Ok(())
    }

    /// Limits on kernel printing and allocation are stored but have no effect, because the host has its own limits.
    fn limit_cell(&self, call: Call, limit: ContextLimit) -> Result<&AtomicUsize> {
        match limit {
            ContextLimit::PrintBuffer => Ok(&self.print_limit),
            ContextLimit::Heap => Ok(&self.heap_limit),
            _ => {
                let text = format!("the emulated device does not support the limit {limit:?}");
                Err(driver_error(call.name(), code::UNSUPPORTED_LIMIT, text))
            }
        }
    }

    pub(super) fn limit(&self, call: Call, limit: ContextLimit) -> Result<usize> {
        Ok(self.limit_cell(call, limit)?.load(Ordering::Relaxed))
    }

    pub(super) fn set_limit(&self, call: Call, limit: ContextLimit, value: usize) -> Result<()> {
        self.limit_cell(call, limit)?.store(value, Ordering::Relaxed);
        Ok(())
    }

    fn poison_state(&self) -> std::sync::MutexGuard<'_, Option<Poison>> {
        self.poison.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the context unusable. Only the first fault is stored.
    pub(super) fn poison(&self, fault: Fault) {
        self.stop(fault, false);
    }

    fn stop(&self, fault: Fault, of_memory: bool) {
        let code = if fault.kind == FaultKind::Panic { code::ASSERT } else { code::LAUNCH_FAILED };
        self.poison_state().get_or_insert(Poison { code, fault: Some(fault), of_memory });
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poison_state().is_some()
    }

    pub(super) fn take_fault(&self) -> Option<Fault> {
        self.poison_state().as_mut().and_then(|poison| poison.fault.take())
    }

    /// Records that a kernel has run.
    pub(super) fn kernel_ran(&self, symbol: &'static str) {
        let mut ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner);
        if ran.last().is_some_and(|last| std::ptr::eq(*last, symbol)) {
            return;
        }
        ran.retain(|known| *known != symbol);
        if ran.len() == NAMED_KERNELS {
            ran.remove(0);
        }
        ran.push(symbol);
    }

    /// If kernels have run, checks the red zones around blocks of the heap and makes the context unusable if one is
    /// damaged.
    pub(super) fn inspect(&self) {
        let ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if !ran.is_empty() {
            let is_last = self.heap.inspect();
            self.report_damage(self.heap.take_damage());
            if is_last {
                self.ran
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .retain(|kernel| !ran.contains(kernel));
            }
        }
    }

    /// Makes the context unusable if a red zone is damaged.
    pub(super) fn report_damage(&self, damage: Option<String>) {
        let Some(damage) = damage else { return };
        let ran = self.ran.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let names = ran.iter().map(|kernel| format!("`{kernel}`")).collect::<Vec<_>>().join(", ");
        let ran =
            if ran.is_empty() { "no kernel has run".to_owned() } else { format!("kernels since: {names}") };
        let message =
            format!("{damage}, since the last check; {ran}; run under `warpsmith check` to find the line");
        self.stop(fault(FaultKind::Other, message), true);
    }

    /// Returns an error if the context is unusable.
    pub(super) fn check(&self, call: &'static str) -> Result<()> {
        match &*self.poison_state() {
            None => Ok(()),
            Some(Poison { code, .. }) => Err(self.stopped(call, *code)),
        }
    }

    fn stopped(&self, call: &'static str, code: u32) -> DriverError {
        driver_error(call, code, "a kernel stopped the context")
    }

    pub(super) fn add_stream(&self, queue: &Arc<Queue>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(queue));
    }

    /// Returns the live streams of the context.
    pub(super) fn streams(&self) -> Vec<Arc<Queue>> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.iter().filter_map(Weak::upgrade).collect()
    }

    /// Permits this context's work to use another context's memory.
    pub(super) fn add_peer(self: &Arc<Self>, peer: &Arc<EmulatedContext>) {
        add(&self.peers, peer);
        peer.add_visitor(self);
    }

    /// Returns the live contexts whose memory this context may use.
    pub(super) fn peers(&self) -> Vec<Arc<EmulatedContext>> {
        alive(&self.peers)
    }

    /// Registers another context whose work may use this context's memory.
    pub(super) fn add_visitor(&self, visitor: &Arc<EmulatedContext>) {
        add(&self.visitors, visitor);
    }

    /// Returns true if pending work of this context or of a visitor accesses addresses from `start` to `end`.
    pub(super) fn is_busy(&self, start: u64, end: u64) -> bool {
        let busy = |context: &EmulatedContext| context.streams().iter().any(|s| s.touches(start, end));
        busy(self) || alive(&self.visitors).iter().any(|visitor| busy(visitor))
    }
}

impl Drop for EmulatedContext {
    /// Prints damage that the last wait has found, because no call on a closed device can report it.
    fn drop(&mut self) {
        if let Some(Poison { fault: Some(fault), of_memory: true, .. }) = &*self.poison_state() {
            eprintln!("warpsmith: emulated device {}: {}", self.ordinal, fault.message);
        }
    }
}

fn add(contexts: &Mutex<Vec<Weak<EmulatedContext>>>, context: &Arc<EmulatedContext>) {
    let mut contexts = contexts.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.retain(|known| known.strong_count() > 0 && known.as_ptr() != Arc::as_ptr(context));
    contexts.push(Arc::downgrade(context));
}

fn alive(contexts: &Mutex<Vec<Weak<EmulatedContext>>>) -> Vec<Arc<EmulatedContext>> {
    let contexts = contexts.lock().unwrap_or_else(PoisonError::into_inner);
    contexts.iter().filter_map(Weak::upgrade).collect()
}
