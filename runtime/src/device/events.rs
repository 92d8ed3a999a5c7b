//! [`EventPool`]: a device's unused events, kept for reuse.
//!
//! An event may be returned while streams still wait for it, because a wait refers to the recording of the event that
//! was current when the wait was enqueued.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::Device;
use crate::driver::{Context, Driver, EventHandle};
use crate::error::Result;

/// Unused events of both kinds: with timing and without timing.
#[derive(Debug, Default)]
pub(crate) struct EventPool {
    ordering: Spare,
    timed: Spare,
}

/// Unused events of one kind. One event is stored outside the lock as a fast path for programs that create and drop one
/// event at a time.
#[derive(Debug, Default)]
struct Spare {
    /// Handle of the stored event plus one; 0 if no event is stored.
    first: AtomicU64,
    others: Mutex<Vec<EventHandle>>,
}

impl Spare {
    #[inline]
    fn take(&self) -> Option<EventHandle> {
        match self.first.swap(0, Ordering::Acquire).checked_sub(1) {
            Some(event) => Some(EventHandle(event)),
            None => self.others.lock().unwrap_or_else(PoisonError::into_inner).pop(),
        }
    }

    #[inline]
    fn put(&self, event: EventHandle) {
        let EventHandle(number) = event;
        if self.first.compare_exchange(0, number + 1, Ordering::Release, Ordering::Relaxed).is_err() {
            self.others.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        }
    }
}

impl EventPool {
    fn of(&self, timed: bool) -> &Spare {
        if timed { &self.timed } else { &self.ordering }
    }

    /// Takes an event from the pool, or creates one.
    pub fn take(&self, device: &Device, timed: bool) -> Result<EventHandle> {
        device.check_process()?;
        match self.of(timed).take() {
            Some(event) => Ok(event),
            None => device.call(|driver, context| driver.event_create(context, timed)),
        }
    }

    /// Puts an event that is no longer used back into the pool.
    pub fn put(&self, event: EventHandle, timed: bool) {
        self.of(timed).put(event);
    }

    /// Destroys all events, when the device is closed.
    pub fn destroy(&mut self, driver: &dyn Driver, context: Context) {
        for spare in [&self.ordering, &self.timed] {
            while let Some(event) = spare.take() {
                // SAFETY: the event is not in use.
                unsafe { driver.event_destroy(context, event) };
            }
        }
    }
}
