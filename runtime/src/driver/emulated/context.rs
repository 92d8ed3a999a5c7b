//! A context of an emulated device: its memory, its streams, and the fault that stopped it.

use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::control::driver_error;
use super::heap::Heap;
use super::stream::Queue;
use crate::driver::{Fault, FaultKind};
use crate::error::{Error, Result, code};

/// One life of a device's primary context.
#[derive(Debug)]
pub(super) struct EmulatedContext {
    pub(super) heap: Heap,
    streams: Mutex<Vec<Weak<Queue>>>,
    poison: Mutex<Option<Poison>>,
}

#[derive(Debug)]
struct Poison {
    code: u32,
    /// What the kernel left behind, until somebody takes it.
    fault: Option<Fault>,
}

impl EmulatedContext {
    pub(super) fn new(capacity: u64) -> Arc<Self> {
        Arc::new(Self { heap: Heap::new(capacity), streams: Mutex::default(), poison: Mutex::default() })
    }

    fn poison_state(&self) -> std::sync::MutexGuard<'_, Option<Poison>> {
        self.poison.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stops the context; the first fault stays.
    pub(super) fn poison(&self, fault: Fault) {
        let code = if fault.kind == FaultKind::Panic { code::ASSERT } else { code::LAUNCH_FAILED };
        self.poison_state().get_or_insert(Poison { code, fault: Some(fault) });
    }

    pub(super) fn is_poisoned(&self) -> bool {
        self.poison_state().is_some()
    }

    pub(super) fn take_fault(&self) -> Option<Fault> {
        self.poison_state().as_mut().and_then(|poison| poison.fault.take())
    }

    /// Fails if the context was stopped.
    pub(super) fn check(&self, call: &'static str) -> Result<()> {
        match &*self.poison_state() {
            None => Ok(()),
            Some(Poison { code, .. }) => Err(self.stopped(call, *code)),
        }
    }

    fn stopped(&self, call: &'static str, code: u32) -> Error {
        driver_error(call, code, "a kernel stopped the context")
    }

    pub(super) fn add_stream(&self, queue: &Arc<Queue>) {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.retain(|stream| stream.strong_count() > 0);
        streams.push(Arc::downgrade(queue));
    }

    /// The streams that are alive.
    pub(super) fn streams(&self) -> Vec<Arc<Queue>> {
        let streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        streams.iter().filter_map(Weak::upgrade).collect()
    }
}
