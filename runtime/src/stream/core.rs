//! [`Shared`]: the state behind a stream's handles, and its destruction.
//!
//! | stream | location of the state | destruction of the driver's stream |
//! | --- | --- | --- |
//! | owned by its handles | separate allocation | when the last handle is dropped |
//! | owned by the device (the default stream, pool streams) | in the device | when the device is closed |
//! | adopted | separate allocation | by its creator |

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

/// State of a stream. The alignment prevents two streams from sharing a cache line, because threads modify their handle
/// counts.
#[repr(align(128))]
pub(crate) struct Shared {
    handles: HandleCount,
    /// The stream's device. Owns a reference while handles exist. The `Arc` pointer inside it is valid as long as the
    /// device is alive.
    device: ManuallyDrop<Device>,
    pub(super) ownership: Ownership,
    pub(super) core: StreamCore,
    /// Value that keeps an adopted stream alive, dropped after the last handle.
    owner: Mutex<Option<StreamOwner>>,
}

/// Owner of an adopted stream.
pub(super) type StreamOwner = Box<dyn Any + Send>;

/// The owner of a stream, responsible for destroying it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ownership {
    /// The last handle destroys the stream.
    Handles,
    /// The device owns the stream: the default stream or a pool stream.
    Device,
    /// Other code created the stream. Contains the driver's ID of the stream, which reveals whether the handle has been
    /// reused.
    Adopted(u64),
    /// Other code created the stream and guarantees its lifetime.
    Borrowed,
}

/// Runtime state of a driver stream.
#[derive(Debug)]
pub(crate) struct StreamCore {
    pub(super) handle: StreamHandle,
    /// ID of the stream. Unlike the handle, it is never reused in this process.
    pub(super) id: u64,
    pub(super) priority: i32,
    pub(super) clock: Clock,
    /// Clock of captured work; see [`Timeline`](super::clock::Timeline).
    pub(super) captured_clock: Clock,
    pub(super) captures: Captures,
    /// Event for which other streams wait, created on first use. It can be recorded again for each wait, because a wait
    /// refers to the last recording before it. The lock is held from the recording to the wait. Otherwise, another
    /// thread could record the event in a newly started capture in between, and the waiting stream would join that
    /// capture.
    pub(super) order: Mutex<Option<EventHandle>>,
    /// The allocator's state for the stream, set on its first allocation.
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

    /// Returns the allocator's state for the stream; `None` before its first use. All streams must use the same type
    /// `T`.
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

    /// Stores the allocator's state in the stream, unless it is already set. Returns true if it was stored.
    pub(crate) fn keep_memory<T: Any + Send + Sync>(&self, value: T) -> bool {
        self.memory.set((TypeId::of::<T>(), Box::new(value))).is_ok()
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn handle(&self) -> StreamHandle {
        self.handle
    }

    pub(crate) fn create(driver: &dyn Driver, context: Context, priority: i32) -> Result<Self> {
        Ok(Self::new(driver.stream_create(context, priority)?, priority))
    }

    /// Destroys the events, and the stream itself unless it is adopted.
    pub(super) fn destroy(&self, driver: &dyn Driver, context: Context, adopted: bool) {
        let order = *self.order.lock().unwrap_or_else(PoisonError::into_inner);
        for event in order.into_iter().chain(self.captures.order.get().copied()) {
            // SAFETY: the owner is being dropped, so the event's handle is not used again.
            unsafe { driver.event_destroy(context, event) };
        }
        if !adopted {
            // SAFETY: as above, but for the stream's handle.
            unsafe { driver.stream_destroy(context, self.handle) };
        }
    }
}

impl Shared {
    /// Creates a stream that the device owns. No handles exist yet.
    pub(super) fn kept(device: &Device, core: StreamCore) -> Self {
        // SAFETY: the pointer comes from an `Arc`. This `ManuallyDrop` owns no reference until a handle exists, and is
        // not dropped without one.
        let device = unsafe { ManuallyDrop::new(Device(Arc::from_raw(Arc::as_ptr(&device.0)))) };
        let owner = Mutex::default();
        Self { handles: HandleCount::new(0), device, ownership: Ownership::Device, core, owner }
    }

    /// Creates a stream in a separate allocation, with one handle.
    pub(super) fn boxed(device: Device, ownership: Ownership, core: StreamCore) -> NonNull<Self> {
        let (device, owner) = (ManuallyDrop::new(device), Mutex::default());
        let shared = Self { handles: HandleCount::new(1), device, ownership, core, owner };
        NonNull::from(Box::leak(Box::new(shared)))
    }

    pub(super) fn device(&self) -> &Device {
        &self.device
    }

    /// Keeps `owner` until the last handle is dropped. Returns `owner` if the stream already has an owner other than
    /// `()`, and otherwise the replaced owner.
    pub(super) fn keep(&self, owner: StreamOwner) -> Option<StreamOwner> {
        let mut kept = self.owner.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.as_ref().is_some_and(|kept| !kept.is::<()>()) {
            return Some(owner);
        }
        kept.replace(owner)
    }

    /// Returns a handle to a stream that `device` owns.
    #[inline]
    pub(super) fn first_handle(&self, device: &Device) -> NonNull<Self> {
        if self.handles.add_first() {
            // The handles own this reference to the device collectively, and `remove_handle` releases it.
            std::mem::forget(device.clone());
        }
        NonNull::from(self)
    }

    pub(super) fn handles(&self) -> &HandleCount {
        &self.handles
    }

    /// Removes a handle.
    ///
    /// # Safety
    /// The caller must own the handle and must not use it afterwards.
    #[inline]
    pub(super) unsafe fn remove_handle(shared: NonNull<Self>) {
        // SAFETY: the caller's handle keeps the stream alive until the count is decremented.
        let this = unsafe { shared.as_ref() };
        if this.ownership != Ownership::Device && host_function::is_running() && !this.device.is_forked() {
            // This may be the last handle, but a stream cannot be destroyed inside a host function.
            return host_function::drop_elsewhere(Box::new(super::Stream(shared)));
        }
        // The device outlives this read, because the handles own a reference that is released last.
        let (device, is_kept) = (Arc::as_ptr(&this.device.0), this.ownership == Ownership::Device);
        if this.handles.remove() {
            // SAFETY: that was the last handle.
            unsafe { Self::removed_last(shared, device, is_kept) };
        }
    }

    /// Releases the resources that the handles owned collectively.
    ///
    /// # Safety
    /// The last handle must have been removed, and `device` and `is_kept` must belong to the stream.
    #[cold]
    unsafe fn removed_last(shared: NonNull<Self>, device: *const DeviceInner, is_kept: bool) {
        if !is_kept {
            // SAFETY: after its last handle has been removed, no other code can access a stream that the device does
            // not own.
            let this = unsafe { shared.as_ref() };
            if this.device.is_forked() {
                return;
            }
            this.end();
            // SAFETY: `boxed` created the allocation, and its last handle has been removed.
            drop(unsafe { Box::from_raw(shared.as_ptr()) });
        }
        // SAFETY: this is the reference that the handles own, acquired by the first handle or by `boxed`.
        drop(Device(unsafe { Arc::from_raw(device) }));
    }

    /// Destroys the state of a stream that the device does not own.
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
