//! Events of one device that mark the end of uses of host memory.
//!
//! A [`Ticket`] may wait in the allocator of another device, which may outlive this device. When this device is
//! dropped, its work has finished: its tickets count as reached, and their events are destroyed with the pool.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::driver::{Context, Driver, EventHandle, StreamHandle};
use crate::error::Result;

#[derive(Debug, Default)]
struct Events {
    all: Vec<EventHandle>,
    /// Unused events.
    free: Vec<EventHandle>,
}

/// The event pool of one device.
#[derive(Debug)]
pub(super) struct EventPool {
    driver: Arc<dyn Driver>,
    context: Context,
    /// Held while an event is queried or awaited, so that it is not destroyed meanwhile.
    open: RwLock<bool>,
    events: Mutex<Events>,
}

impl EventPool {
    pub(super) fn new(driver: Arc<dyn Driver>, context: Context) -> Arc<Self> {
        Arc::new(Self { driver, context, open: RwLock::new(true), events: Mutex::default() })
    }

    /// Creates a ticket for the current position of a stream of this device.
    pub(super) fn mark(self: &Arc<Self>, stream: StreamHandle) -> Result<Ticket> {
        let free = self.events.lock().unwrap_or_else(PoisonError::into_inner).free.pop();
        let event = match free {
            Some(event) => event,
            None => {
                let event = self.driver.event_create(self.context, false)?;
                self.events.lock().unwrap_or_else(PoisonError::into_inner).all.push(event);
                event
            }
        };
        let ticket = Ticket { pool: Arc::clone(self), event };
        self.driver.event_record(self.context, event, stream)?;
        Ok(ticket)
    }

    /// Destroys all events. The device's work has finished, and its streams no longer exist.
    pub(super) fn close(&self) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = false;
        let events = std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        for event in events.all {
            // SAFETY: remaining tickets detect that the pool is closed and do not use the event.
            unsafe { self.driver.event_destroy(self.context, event) };
        }
    }
}

/// A position in a stream. Dropping the ticket makes its event reusable.
#[derive(Debug)]
pub(super) struct Ticket {
    pool: Arc<EventPool>,
    event: EventHandle,
}

impl Ticket {
    pub(super) fn is_of(&self, pool: &Arc<EventPool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Returns true if the stream has reached the ticket's position. `other` must be true if another device queries;
    /// work of a lost device then counts as done once it has stopped, because only that device's own calls report the
    /// fault.
    pub(super) fn is_done(&self, other: bool) -> Result<bool> {
        let open = self.pool.open.read().unwrap_or_else(PoisonError::into_inner);
        if !*open {
            return Ok(true);
        }
        let (driver, context) = (&self.pool.driver, self.pool.context);
        match driver.event_query(context, self.event) {
            Err(error) if other && error.stops_context() => {
                // Returns the same fault again, but ensures that no work is running afterwards.
                let _ = driver.event_synchronize(context, self.event);
                Ok(true)
            }
            result => Ok(result?),
        }
    }

    /// Waits until the stream has reached the ticket's position.
    pub(super) fn wait(&self) -> Result<()> {
        let open = self.pool.open.read().unwrap_or_else(PoisonError::into_inner);
        if !*open {
            return Ok(());
        }
        Ok(self.pool.driver.event_synchronize(self.pool.context, self.event)?)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.pool.events.lock().unwrap_or_else(PoisonError::into_inner).free.push(self.event);
    }
}
