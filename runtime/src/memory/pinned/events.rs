//! The events of one device that mark the end of work which uses host memory.
//!
//! A [`Ticket`] may wait in the allocator of another device, which may outlive this one. When this device
//! goes, its work has been waited for, so its tickets are done and their events are destroyed here.

use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::driver::{Context, Driver, EventHandle, StreamHandle};
use crate::error::Result;

#[derive(Debug, Default)]
struct Events {
    all: Vec<EventHandle>,
    /// Those in no ticket.
    free: Vec<EventHandle>,
}

/// The events of one device.
#[derive(Debug)]
pub(super) struct EventPool {
    driver: Arc<dyn Driver>,
    context: Context,
    /// Held while an event of a ticket is queried or waited for, so that it is not destroyed meanwhile.
    open: RwLock<bool>,
    events: Mutex<Events>,
}

impl EventPool {
    pub(super) fn new(driver: Arc<dyn Driver>, context: Context) -> Arc<Self> {
        Arc::new(Self { driver, context, open: RwLock::new(true), events: Mutex::default() })
    }

    /// A ticket for everything enqueued on a stream of this device so far.
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

    /// Destroys all events. The device's work was waited for, and no stream of it is left.
    pub(super) fn close(&self) {
        *self.open.write().unwrap_or_else(PoisonError::into_inner) = false;
        let events = std::mem::take(&mut *self.events.lock().unwrap_or_else(PoisonError::into_inner));
        for event in events.all {
            // SAFETY: tickets that still name the event see that the pool is closed and leave it alone.
            unsafe { self.driver.event_destroy(self.context, event) };
        }
    }
}

/// A mark in a stream. Its event is used for another mark when this is dropped.
#[derive(Debug)]
pub(super) struct Ticket {
    pool: Arc<EventPool>,
    event: EventHandle,
}

impl Ticket {
    pub(super) fn is_of(&self, pool: &Arc<EventPool>) -> bool {
        Arc::ptr_eq(&self.pool, pool)
    }

    /// Whether the stream has reached it. For a device `other` than the one that queries, a lost device's work
    /// counts as done once it has stopped; that device's own calls report the fault.
    pub(super) fn is_done(&self, other: bool) -> Result<bool> {
        let open = self.pool.open.read().unwrap_or_else(PoisonError::into_inner);
        if !*open {
            return Ok(true);
        }
        let (driver, context) = (&self.pool.driver, self.pool.context);
        match driver.event_query(context, self.event) {
            Err(error) if other && error.stops_context() => {
                // The same fault again; what counts is that nothing runs afterwards.
                let _ = driver.event_synchronize(context, self.event);
                Ok(true)
            }
            result => Ok(result?),
        }
    }

    /// Waits until the stream has reached it.
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
