//! [`EventPool`]: events of a device between two uses.
//!
//! An event may go back while streams still wait for it: a wait keeps to the record that it was enqueued for.

use std::sync::{Mutex, PoisonError};

use crate::device::Device;
use crate::driver::{Context, Driver, EventHandle};
use crate::error::Result;

/// Events that nobody has, by whether they take time.
#[derive(Debug, Default)]
pub(crate) struct EventPool {
    ordering: Mutex<Vec<EventHandle>>,
    timed: Mutex<Vec<EventHandle>>,
}

impl EventPool {
    fn of(&self, timed: bool) -> &Mutex<Vec<EventHandle>> {
        if timed { &self.timed } else { &self.ordering }
    }

    /// An event of the pool, or a new one.
    pub fn take(&self, device: &Device, timed: bool) -> Result<EventHandle> {
        device.check_process()?;
        let spare = self.of(timed).lock().unwrap_or_else(PoisonError::into_inner).pop();
        match spare {
            Some(event) => Ok(event),
            None => device.call(|driver, context| driver.event_create(context, timed)),
        }
    }

    /// Takes an event back that nobody uses any more.
    pub fn put(&self, event: EventHandle, timed: bool) {
        self.of(timed).lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// Destroys all events. The device is going.
    pub fn destroy(&mut self, driver: &dyn Driver, context: Context) {
        for events in [&mut self.ordering, &mut self.timed] {
            for event in events.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
                // SAFETY: nobody has it.
                unsafe { driver.event_destroy(context, event) };
            }
        }
    }
}
