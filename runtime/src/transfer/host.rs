//! Asynchronous copies between host memory and a device: [`Stream::copy_from_host_async`] and
//! [`Stream::copy_to_host_async`].
//!
//! The device copies page-locked memory directly. Pageable memory is staged through page-locked memory, because the
//! driver's own copy would block the host. A small copy is staged as a whole, by the enqueueing call or by
//! [`Pending::wait`]; a large one in [chunks](super::staged), by host functions.

use super::host_copy;
use super::host_memory::HostMemory;
use super::pending::{CopyFailed, HostSide, Pending, SharedHost};
use super::staged;
use crate::device::Device;
use crate::device::observe::{CopyDirection, site};
use crate::driver::DevicePtr;
use crate::error::Result;
use crate::event::Event;
use crate::memory::slice::check_lengths;
use crate::memory::storage::{self, BufferUse, Kind};
use crate::memory::usage::Access;
use crate::memory::{DeviceCopy, DeviceSlice, DeviceSliceMut, PinnedBuffer};
use crate::stream::Stream;

/// Largest pageable copy, in bytes, that the calling thread stages itself, because host functions would take longer.
const SMALL_BYTES: usize = 2 << 20;

/// Alternative named in the error for capturing a copy that returns host memory.
const NOT_IN_GRAPHS: &str =
    "the copy returns its host memory after one run; copy before the capture, or use a `MappedBuffer`";

/// The device side of a copy between host and device.
pub(super) struct DeviceSide<'a> {
    /// Direction of the copy.
    pub direction: CopyDirection,
    /// Name of the public method that performs the copy.
    pub call: &'static str,
    pub device: &'a Device,
    pub elements: usize,
    pub part: BufferUse<'a>,
    pub address: DevicePtr,
}

impl<'a> DeviceSide<'a> {
    /// Returns the device side of a copy from the host.
    pub fn target<T: DeviceCopy>(call: &'static str, target: &DeviceSliceMut<'a, T>) -> Self {
        Self {
            direction: CopyDirection::HostToDevice,
            call,
            device: target.device(),
            elements: target.len(),
            part: target.used(),
            address: target.as_device_ptr(),
        }
    }

    /// Returns the device side of a copy to the host.
    pub fn source<T: DeviceCopy>(call: &'static str, source: &DeviceSlice<'a, T>) -> Self {
        Self {
            direction: CopyDirection::DeviceToHost,
            call,
            device: source.device(),
            elements: source.len(),
            part: source.used(Access::Read),
            address: source.as_device_ptr(),
        }
    }

    /// Returns true if the device side is the target.
    pub fn is_target(&self) -> bool {
        self.direction == CopyDirection::HostToDevice
    }

    pub fn operation(&self) -> &'static str {
        if self.is_target() { "copying from the host" } else { "copying to the host" }
    }

    pub fn bytes(&self) -> usize {
        self.part.range.len()
    }

    /// Enqueues a copy of `bytes` bytes, starting at `offset`.
    ///
    /// # Safety
    /// `host` must be valid for `bytes` bytes until the copy has run, and no other code may use these bytes. The range
    /// must be within this side, whose use must have [begun](BufferUse::begin) on a stream for which `stream` has
    /// waited.
    pub unsafe fn copy(&self, stream: &Stream, host: *mut u8, offset: usize, bytes: usize) -> Result<()> {
        let (device, handle) = (self.address.offset(offset), stream.handle());
        let host_address = host.addr() as u64;
        let (from, to) = if self.is_target() { (host_address, device.0) } else { (device.0, host_address) };
        stream.observed_copy(self.direction, from, to, bytes, || {
            // SAFETY: guaranteed by the caller; the side's buffer use keeps the device memory allocated.
            stream.call(|driver, context| unsafe {
                if self.is_target() {
                    driver.copy_to_device(context, device, host.cast(), bytes, handle)
                } else {
                    driver.copy_to_host(context, host.cast(), device, bytes, handle)
                }
            })
        })
    }

    /// Enqueues a copy of all elements on a stream.
    ///
    /// # Safety
    /// The requirements are the same as for [`Self::copy`], except that the use must not have begun.
    pub unsafe fn copy_all(&self, stream: &Stream, host: *mut u8) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        storage::enqueue([&self.part].into_iter(), stream, Kind::HostCopy(self.call), |_, _| unsafe {
            self.copy(stream, host, 0, self.bytes())
        })
    }
}

impl Stream {
    /// Enqueues a copy from host memory, which is moved into the copy, to a device.
    ///
    /// Does not block. Page-locked memory ([`PinnedBuffer`], [`PinnedRange`](crate::PinnedRange)) is copied at full
    /// bandwidth; `Vec` and `Box<[T]>` are staged through at most 8 MiB of page-locked memory. The [module's
    /// documentation](crate::transfer) compares the costs.
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer, PinnedBuffer};
    ///
    /// let device = Device::emulated(0)?;
    /// let stream = device.default_stream();
    /// let mut buffer = DeviceBuffer::uninit(&stream, 3)?;
    /// let source = PinnedBuffer::from_slice(&device, &[1.0f32, 2.0, 3.0])?;
    /// let pending = stream.copy_from_host_async(source, &mut buffer)?;
    /// // Work enqueued on `buffer` now runs after the copy, which does not block this thread.
    /// let mut source = pending.wait()?;
    /// source[0] = 5.0;
    /// assert_eq!(buffer.to_host()?, [1.0, 2.0, 3.0]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns [`Error::LengthMismatch`](crate::Error::LengthMismatch),
    /// [`Error::DifferentDevices`](crate::Error::DifferentDevices) if the target is not on the stream's device,
    /// [`Error::PinnedOutOfMemory`](crate::Error::PinnedOutOfMemory), or any [driver error](crate::Error::Driver).
    /// Every error contains the host memory. If the error occurs after work was enqueued, the call waits for the
    /// stream.
    #[track_caller]
    pub fn copy_from_host_async<'d, H: HostMemory>(
        &self,
        source: H,
        target: impl Into<DeviceSliceMut<'d, H::Element>>,
    ) -> std::result::Result<Pending<H>, CopyFailed<H>> {
        let _site = site();
        let target = target.into();
        self.between_host_and_device(DeviceSide::target("Stream::copy_from_host_async", &target), source)
    }

    /// Enqueues a copy from a device to host memory, which is moved into the copy.
    ///
    /// Does not block. The cost is the same as for [`Self::copy_from_host_async`].
    ///
    /// ```
    /// use warpsmith_runtime::{Device, DeviceBuffer};
    ///
    /// let stream = Device::emulated(0)?.default_stream();
    /// let buffer = DeviceBuffer::from_host(&stream, &[1u8, 2, 3])?;
    /// let pending = stream.copy_to_host_async(&buffer, vec![0; 3])?;
    /// drop(buffer); // the memory is kept until the copy has run
    /// assert_eq!(pending.wait()?, [1, 2, 3]);
    /// # Ok::<(), warpsmith_runtime::Error>(())
    /// ```
    ///
    /// # Errors
    /// Returns the same errors as [`Self::copy_from_host_async`].
    #[track_caller]
    pub fn copy_to_host_async<'d, H: HostMemory>(
        &self,
        source: impl Into<DeviceSlice<'d, H::Element>>,
        target: H,
    ) -> std::result::Result<Pending<H>, CopyFailed<H>> {
        let _site = site();
        let source = source.into();
        self.between_host_and_device(DeviceSide::source("Stream::copy_to_host_async", &source), target)
    }

    fn between_host_and_device<H: HostMemory>(
        &self,
        side: DeviceSide<'_>,
        mut memory: H,
    ) -> std::result::Result<Pending<H>, CopyFailed<H>> {
        let event = match self.check_host_copy(&side, memory.elements()) {
            Ok(event) => event,
            Err(error) => return Err(CopyFailed { error, memory }),
        };
        let (enqueued, held) = if side.bytes() == 0 {
            (Ok(()), HostSide::Own(memory))
        } else if H::PINNED {
            let address = memory.target();
            let kept = memory.keep(self);
            // SAFETY: the memory has the same size as the device side. It is moved into the pending copy, and its block
            // is kept for the stream even if that copy is dropped.
            let enqueued = kept.and_then(|()| unsafe { side.copy_all(self, address) });
            (enqueued, HostSide::Own(memory))
        } else if side.bytes() <= SMALL_BYTES {
            match PinnedBuffer::uninit(self.device(), side.bytes()) {
                Ok(staging) => self.through(&side, memory, staging),
                Err(error) => return Err(CopyFailed { error, memory }),
            }
        } else {
            match staged::lanes(self, side.bytes()) {
                Ok(lanes) => {
                    let shared = SharedHost::new(memory);
                    (staged::enqueue(&side, &lanes, &shared), HostSide::Shared(shared))
                }
                Err(error) => return Err(CopyFailed { error, memory }),
            }
        };
        Pending::settle(self, enqueued, event, held)
    }

    /// Validates a copy before any work is enqueued. Returns the event to record after the copy.
    fn check_host_copy(&self, side: &DeviceSide<'_>, elements: usize) -> Result<Event> {
        let (left, right) =
            if side.is_target() { (side.elements, elements) } else { (elements, side.elements) };
        check_lengths(side.operation(), left, right)?;
        self.check_not_capturing(side.call, NOT_IN_GRAPHS)?;
        let role = if side.is_target() { "the target" } else { "the source" };
        self.check_device(side.device, || (side.operation().to_owned(), role.to_owned()))?;
        Event::new(self.device())
    }

    /// Enqueues a small copy, staged through page-locked memory of the same size.
    fn through<H: HostMemory>(
        &self,
        side: &DeviceSide<'_>,
        memory: H,
        staging: PinnedBuffer<u8>,
    ) -> (Result<()>, HostSide<H>) {
        if side.is_target() {
            // SAFETY: both ranges have the same size, and both are borrowed exclusively.
            unsafe { host_copy::copy(staging.address(), memory.source(), staging.len()) };
        }
        // SAFETY: the staging memory has the same size. No other code uses it before the copy has run, and its block is
        // kept for the stream even if it is dropped.
        let enqueued =
            staging.record_use(self).and_then(|()| unsafe { side.copy_all(self, staging.address()) });
        let held =
            if side.is_target() { HostSide::Own(memory) } else { HostSide::Behind { memory, staging, fill } };
        (enqueued, held)
    }
}

/// Fills host memory from the staging memory to which the device copied.
fn fill<H: HostMemory>(memory: &mut H, staging: &PinnedBuffer<u8>) {
    // SAFETY: both ranges have the same size, which was checked when the copy was enqueued. The copy has run, so all
    // bytes are initialized; every bit pattern is a valid element.
    unsafe { host_copy::copy(memory.target(), staging.address(), staging.len()) };
}
