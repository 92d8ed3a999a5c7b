//! [`Shared`]: a stream's state behind its handles, and what destroys it.
//!
//! | a stream | its state lies | the driver's stream is destroyed |
//! | --- | --- | --- |
//! | of its own | in a box of its own | with the last handle |
//! | of the device (the default stream, those of the pools) | in the device | with the device |
//! | adopted | in a box of its own | by the code that made it |

use std::any::{Any, TypeId};
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use super::captures::Captures;
use super::clock::Clock;
use super::handles::HandleCount;
use super::pool::Streams;
use crate::device::health::Quiet;
use crate::device::{Device, DeviceInner};
use crate::driver::host_function;
use crate::driver::{Context, Driver, EventHandle, StreamHandle};
use crate::error::Result;

/// Aligned so that two streams, whose handles are counted by two threads, share no cache line.
#[repr(align(128))]
pub(crate) struct Shared {
    handles: HandleCount,
    /// Owns a count of the device while there are handles, and points to it while the device lives.
    device: ManuallyDrop<Device>,
    pub(super) ownership: Ownership,
    pub(super) core: StreamCore,
}

/// The owner of a stream, which destroys it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// Its handles: the last one.
    Handles,
    /// The device, which keeps it: the default stream and those of the pools.
    Device,
    /// The code that made it. With the driver's number of the stream, which reveals a reused handle.
    Adopted(u64),
}

/// The runtime's state of a stream of the driver.
#[derive(Debug)]
pub(crate) struct StreamCore {
    pub(super) handle: StreamHandle,
    /// Unlike the handle, never used again in this process.
    pub(super) id: u64,
    pub(super) priority: i32,
    pub(super) clock: Clock,
    /// Of what is captured: see [`Timeline`](super::clock::Timeline).
    pub(super) captured_clock: Clock,
    pub(super) captures: Captures,
    /// Made when another stream first has to wait for this one. It is recorded anew for each wait: a wait
    /// counts from the last record before it. Locked from the record until the wait: a record of another thread between
    /// them may be part of a capture that began meanwhile, and the wait would join it.
    pub(super) order: Mutex<Option<EventHandle>>,
    /// The allocator's state of the stream, once it has allocated.
    memory: OnceLock<(TypeId, Box<dyn Any + Send + Sync>)>,
}

impl StreamCore {
    pub(super) fn new(handle: StreamHandle, priority: i32) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        Self {
            handle,
            id,
            priority,
            clock: Clock::new(id),
            captured_clock: Clock::new(id),
            captures: Captures::default(),
            order: Mutex::default(),
            memory: OnceLock::new(),
        }
    }

    /// The allocator's state of the stream, a `T` in all streams; `None` before its first use.
    #[inline]
    pub(crate) fn memory<T: Any>(&self) -> Option<&T> {
        match self.memory.get() {
            Some((kind, kept)) if *kind == TypeId::of::<T>() => {
                // SAFETY: the value is of that type.
                Some(unsafe { &*std::ptr::from_ref::<dyn Any + Send + Sync>(&**kept).cast::<T>() })
            }
            _ => None,
        }
    }

    /// Keeps a value of memory with the stream, unless one is kept already. Returns whether it is kept.
    pub(crate) fn keep_memory<T: Any + Send + Sync>(&self, value: T) -> bool {
        self.memory.set((TypeId::of::<T>(), Box::new(value))).is_ok()
    }

    /// The stream's number.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The driver's handle.
    pub(crate) fn handle(&self) -> StreamHandle {
        self.handle
    }

    pub(crate) fn create(driver: &dyn Driver, context: Context, priority: i32) -> Result<Self> {
        Ok(Self::new(driver.stream_create(context, priority)?, priority))
    }

    /// Destroys the event, and the stream itself unless it is another's.
    pub(super) fn destroy(&self, driver: &dyn Driver, context: Context, adopted: bool) {
        let order = *self.order.lock().unwrap_or_else(PoisonError::into_inner);
        for event in order.into_iter().chain(self.captures.order.get().copied()) {
            // SAFETY: the owner is being dropped, so nothing uses the event's handle again.
            unsafe { driver.event_destroy(context, event) };
        }
        if !adopted {
            // SAFETY: as above, for the stream's handle.
            unsafe { driver.stream_destroy(context, self.handle) };
        }
    }
}

impl Shared {
    /// A stream that the device keeps. It has no handles yet.
    pub(super) fn kept(device: &Device, core: StreamCore) -> Self {
        // SAFETY: the pointer is of an `Arc`; the count that this value would own is not taken, and it is never
        // dropped, before there is a handle.
        let device = unsafe { ManuallyDrop::new(Device(Arc::from_raw(Arc::as_ptr(&device.0)))) };
        Self { handles: HandleCount::new(0), device, ownership: Ownership::Device, core }
    }

    /// A stream in a box of its own, with one handle.
    pub(super) fn boxed(device: Device, ownership: Ownership, core: StreamCore) -> NonNull<Self> {
        let shared =
            Self { handles: HandleCount::new(1), device: ManuallyDrop::new(device), ownership, core };
        NonNull::from(Box::leak(Box::new(shared)))
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// A handle of a kept stream of `device`.
    #[inline]
    pub(super) fn first_handle(&self, device: &Device) -> NonNull<Self> {
        if self.handles.add_first() {
            // The handles' count of the device, which `remove_handle` releases.
            std::mem::forget(device.clone());
        }
        NonNull::from(self)
    }

    pub(super) fn handles(&self) -> &HandleCount {
        &self.handles
    }

    /// Takes a handle away.
    ///
    /// # Safety
    /// The caller has the handle, and does not use it afterwards.
    #[inline]
    pub(super) unsafe fn remove_handle(shared: NonNull<Self>) {
        // SAFETY: the caller's handle keeps it until the count is taken down.
        let this = unsafe { shared.as_ref() };
        if this.ownership != Ownership::Device && host_function::is_running() && !this.device.is_forked() {
            // It may be the last handle, and no stream can be ended here.
            return host_function::drop_elsewhere(Box::new(super::Stream(shared)));
        }
        // The device outlives this read: the handles own a count of it until the last line.
        let (device, is_kept) = (Arc::as_ptr(&this.device.0), this.ownership == Ownership::Device);
        if this.handles.remove() {
            // SAFETY: that was the last handle.
            unsafe { Self::removed_last(shared, device, is_kept) };
        }
    }

    /// Releases what the handles held.
    ///
    /// # Safety
    /// The last handle was taken away; `device` and `is_kept` are its.
    #[cold]
    unsafe fn removed_last(shared: NonNull<Self>, device: *const DeviceInner, is_kept: bool) {
        if !is_kept {
            // SAFETY: only the device's own streams are reached by others when there is no handle.
            let this = unsafe { shared.as_ref() };
            if this.device.is_forked() {
                return;
            }
            this.end();
            // SAFETY: it was made by `boxed`, and that was its last handle.
            drop(unsafe { Box::from_raw(shared.as_ptr()) });
        }
        // SAFETY: the handles' count, which was taken with the first handle, or by `boxed`.
        drop(Device(unsafe { Arc::from_raw(device) }));
    }

    /// Ends a stream that the device does not keep.
    fn end(&self) {
        let _quiet = Quiet::begin();
        let (device, core) = (&*self.device, &self.core);
        if let Ownership::Adopted(number) = self.ownership {
            device.part::<Streams>().forget_adopted(number, NonNull::from(self));
        }
        device.part::<Streams>().ended(device, core);
        let (driver, context) = device.raw();
        core.destroy(&**driver, context, self.ownership != Ownership::Handles);
    }
}
